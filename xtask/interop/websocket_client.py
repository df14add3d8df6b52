"""100 messages over one WebSocket, texts and bytes, and its orderly end.

websocket_client.py URL CA
"""

import asyncio
import random
import ssl
import sys

from websockets.asyncio.client import connect

from report import check, expect

URL, CA = sys.argv[1:]


async def messages():
    tls = ssl.create_default_context(cafile=CA) if URL.startswith("wss:") else None
    async with connect(URL, ssl=tls, max_size=None, proxy=None) as connection:
        for number in range(100):
            data = random.Random(number).randbytes(number * 997)
            message = data.hex() if number % 2 else data
            await connection.send(message)
            expect(await connection.recv(), message)
        await connection.ping()
    expect(connection.close_code, 1000)


asyncio.run(check("100 messages", messages))
