"""The clients of Python: aiohttp and httpx. Each line of the input is a request, as words
NAME=VALUE between tabs; each line of the output what came of it, as a JSON object of texts.

client.py AUTHORITY
"""

import asyncio
import collections
import hashlib
import json
import ssl
import sys

import aiohttp
import httpx

BLOCK = bytes(range(251)) * 256


def context():
    """One for each client: httpx changes what it is given, to offer HTTP/2."""
    return ssl.create_default_context(cafile=sys.argv[1])


async def pattern(size):
    """Bytes that repeat only after 251 of them, so that a shifted copy differs."""
    while size > len(BLOCK):
        yield BLOCK
        size -= len(BLOCK)
    yield BLOCK[:size]


def parse(line):
    words = {"headers": {}}
    for word in line.rstrip("\n").split("\t"):
        name, _, value = word.partition("=")
        if name == "header":
            header, _, text = value.partition(": ")
            words["headers"][header] = text
        else:
            words[name] = value
    if "body" in words and "chunked" not in words:
        words["headers"]["Content-Length"] = words["body"]
    return words


async def read(words, chunks, found):
    digest, kept, length = hashlib.sha256(), [], 0
    if "slow" in words:
        await asyncio.sleep(0.5)
    async for chunk in chunks:
        digest.update(chunk)
        length += len(chunk)
        found["length"] = str(length)
        if "text" in words:
            kept.append(chunk)
        if "slow" in words:
            await asyncio.sleep(0.003)
    found["length"], found["sha256"] = str(length), digest.hexdigest()
    if "text" in words:
        found["text"] = b"".join(kept).decode()


def put_headers(found, pairs):
    for name, value in pairs:
        name = f"h.{name.lower()}"
        found[name] = f"{found[name]} | {value}" if name in found else value


class Aiohttp:
    def __init__(self, words):
        connector = aiohttp.TCPConnector(limit=16, ssl=context())
        # It undoes compression, and takes the header away, unless told not to.
        self.session = aiohttp.ClientSession(
            connector=connector, auto_decompress=False, skip_auto_headers=["Accept-Encoding"],
            cookie_jar=aiohttp.DummyCookieJar(), read_bufsize=2**18,
        )

    async def ask(self, words, url, found):
        if "trailer" in words:
            return found.update(unsupported="true")
        body = pattern(int(words["body"])) if "body" in words else None
        expect = {"expect100": True} if "expect" in words else {}
        request = self.session.request(
            words["method"], url, headers=words["headers"], data=body, allow_redirects=False, **expect
        )
        async with request as reply:
            found["status"], found["version"] = str(reply.status), str(reply.version.major)
            put_headers(found, reply.headers.items())
            await read(words, reply.content.iter_any(), found)

    async def close(self):
        await self.session.close()


class Httpx:
    def __init__(self, words):
        http2 = words["mode"] == "httpx-h2"
        limits = httpx.Limits(max_connections=1 if http2 else 16)
        self.client = httpx.AsyncClient(
            http1=not http2, http2=http2, verify=context(), limits=limits, timeout=None, trust_env=False
        )
        self.client.headers.pop("Accept-Encoding")

    async def ask(self, words, url, found):
        # It reads the reply after it has sent the body: a streaming echo stands still, and so does
        # a body over HTTP/2 that is refused and not read.
        is_refused = "then" in words and words["mode"] == "httpx-h2"
        if words.keys() & {"expect", "trailer", "duplex"} or is_refused:
            return found.update(unsupported="true")
        body = pattern(int(words["body"])) if "body" in words else None
        request = self.client.stream(words["method"], url, headers=words["headers"], content=body)
        async with request as reply:
            found["status"], found["version"] = str(reply.status_code), reply.http_version[5]
            put_headers(found, reply.headers.multi_items())
            await read(words, reply.aiter_raw(), found)

    async def close(self):
        await self.client.aclose()


def class_of(error):
    text = f"{type(error).__name__}: {error}"
    classes = {
        "Timeout": "timeout", "reset by peer": "reset", "Connection reset": "reset", "ClientOSError": "reset",
        "WriteError": "reset", "ReadError": "reset", "Disconnected": "eof", "RemoteProtocolError": "eof",
        "Payload": "eof",
    }
    return next((name for sign, name in classes.items() if sign in text), f"other: {text}")


async def ask(client, words, url):
    found = {}
    try:
        async with asyncio.timeout(int(words["limit"])):
            await client.ask(words, url, found)
    except Exception as error:  # Its class is the outcome.
        found["error"] = class_of(error)
    return found


async def many(client, words):
    """Asks in parallel on one client, and counts the outcomes."""

    async def one():
        found = await ask(client, words, words["url"])
        return " ".join(found[key] for key in ["status", "sha256", "error"] if key in found)

    counts = collections.Counter(await asyncio.gather(*(one() for _ in range(int(words["repeat"])))))
    lines = sorted(f"{count} x {outcome}" for outcome, count in counts.items())
    return {"outcomes": "; ".join(lines)}


async def run(words):
    client = Aiohttp(words) if words["mode"].startswith("aiohttp") else Httpx(words)
    try:
        if "repeat" in words:
            return await many(client, words)
        found = await ask(client, words, words["url"])
        if "then" in words:
            following = {"method": "GET", "headers": {}, "limit": words["limit"]}
            after = await ask(client, following, words["then"])
            found.update({f"then.{name}": value for name, value in after.items()})
        return found
    finally:
        await client.close()


for line in sys.stdin:
    print(json.dumps(asyncio.run(run(parse(line)))), flush=True)
