"""A WebSocket client for tests, made with websockets: prints what comes.

Usage: websocket_reader.py URL CA COMPRESSION, the last `deflate` or `none`. The first line has what
has been agreed on about extensions, each further one a message, and the last the code with which
the server has ended the connection.
"""

import asyncio
import ssl
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

URL, CA, COMPRESSION = sys.argv[1:]


async def read():
    tls = ssl.create_default_context(cafile=CA) if URL.startswith("wss:") else None
    compression = None if COMPRESSION == "none" else COMPRESSION
    async with connect(
        URL, ssl=tls, compression=compression, max_size=None, proxy=None
    ) as connection:
        extensions = connection.response.headers.get("Sec-WebSocket-Extensions", "none")
        print("extensions", extensions, flush=True)
        try:
            while True:
                print(await connection.recv(), flush=True)
        except ConnectionClosed:
            print("closed", connection.close_code, flush=True)


asyncio.run(read())
