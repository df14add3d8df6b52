"""The HTTP/1.1 back end: echoes bodies, serves a page and bodies of any size.

echo_server.py PORT
"""

import asyncio
import pathlib
import sys

PAGE = pathlib.Path(__file__).with_name("page.html").read_bytes()
HOME = b"Intertie's back end. " * 50


def pattern(size):
    """Bytes that repeat only after 251 of them, so that a shifted copy differs."""
    return (bytes(range(251)) * (size // 251 + 1))[:size]


async def read_body(reader, fields):
    if fields.get("transfer-encoding") != "chunked":
        return await reader.readexactly(int(fields.get("content-length", 0)))
    body = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass
    return bytes(body)


def reply(method, path, body):
    """The status, the media type and the body."""
    if method == "POST":
        return "200 OK", "application/octet-stream", body
    if path == "/":
        return "200 OK", "text/plain", HOME
    if path == "/page":
        return "200 OK", "text/html", PAGE
    if path.startswith("/bytes/"):
        return "200 OK", "application/octet-stream", pattern(int(path.rpartition("/")[2]))
    return "404 Not Found", "text/plain", b"not here\n"


async def exchange(reader, writer):
    """Answers one request; says whether the connection goes on."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *lines = head.rstrip().split("\r\n")
    method, path, _ = line.split(" ")
    fields = {name.lower(): value.strip() for name, _, value in (it.partition(":") for it in lines)}
    if fields.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await read_body(reader, fields)
    status, media, body = reply(method, path.partition("?")[0], body)
    writer.write(
        f"HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    )
    if method != "HEAD":
        writer.write(body)
    await writer.drain()
    return fields.get("connection", "").lower() != "close"


async def serve(reader, writer):
    try:
        while await exchange(reader, writer):
            pass
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), backlog=1000)
    await server.serve_forever()


asyncio.run(main())
