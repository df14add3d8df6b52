"""200 requests at a time over one httpx client.

httpx_client.py URL CA h1|h2
"""

import asyncio
import random
import ssl
import sys

import httpx

from report import check, expect

URL, CA, PROTOCOL = sys.argv[1:]
REQUESTS = 200


def client():
    """HTTP/2 over one connection (in clear text with prior knowledge), HTTP/1.1 over many."""
    is_h2 = PROTOCOL == "h2"
    return httpx.AsyncClient(
        http1=not is_h2,
        http2=is_h2,
        verify=ssl.create_default_context(cafile=CA),
        timeout=httpx.Timeout(30, pool=None),
        limits=httpx.Limits(max_connections=1 if is_h2 else 100),
        trust_env=False,
    )


async def echo(http, number):
    body = random.Random(number).randbytes(number * 331)
    reply = await http.post(f"{URL}/echo?{number}", content=body)
    expect(reply.status_code, 200)
    expect(reply.http_version, "HTTP/2" if PROTOCOL == "h2" else "HTTP/1.1")
    expect(reply.content, body)


async def all_at_a_time():
    async with client() as http:
        await asyncio.gather(*(echo(http, number) for number in range(REQUESTS)))


async def sent_in_pieces():
    """A body without a length."""
    pieces = [bytes([number]) * 1000 for number in range(100)]

    async def body():
        for piece in pieces:
            yield piece
            await asyncio.sleep(0)

    async with client() as http:
        reply = await http.post(f"{URL}/echo", content=body())
        expect(reply.content, b"".join(pieces))


async def main():
    await check(f"{REQUESTS} requests at a time", all_at_a_time)
    await check("a body without a length", sent_in_pieces)


asyncio.run(main())
