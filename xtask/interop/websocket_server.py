"""The WebSocket back end: echoes messages.

websocket_server.py PORT
"""

import asyncio
import sys

from websockets.asyncio.server import serve


async def echo(connection):
    async for message in connection:
        await connection.send(message)


async def main():
    async with serve(echo, "127.0.0.1", int(sys.argv[1]), max_size=None) as server:
        await server.serve_forever()


asyncio.run(main())
