"""All kinds of gRPC calls, their failures and their ends, over one channel.

grpc_client.py ADDRESS CA|-
"""

import asyncio
import pathlib
import sys
import time

import grpc

from report import check, expect

ADDRESS, CA = sys.argv[1:]
SERVICE = "/interop.Test/"
OPTIONS = [("grpc.enable_http_proxy", 0)]


def channel():
    if CA == "-":
        return grpc.aio.insecure_channel(ADDRESS, OPTIONS)
    trusted = grpc.ssl_channel_credentials(pathlib.Path(CA).read_bytes())
    return grpc.aio.secure_channel(ADDRESS, trusted, OPTIONS)


async def failure(call, read=False):
    """The error that a call ends with."""
    try:
        if read:
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as problem:
        return problem
    raise AssertionError("the call did not fail")


async def end_seen(remote, name):
    """Waits until the server has seen the end of the call."""
    limit = time.monotonic() + 10
    while await remote.unary_unary(SERVICE + "WasEnded")(name) != b"yes":
        if time.monotonic() > limit:
            raise AssertionError("the server did not see the end of the call")
        await asyncio.sleep(0.02)


async def unary(remote):
    call = remote.unary_unary(SERVICE + "Unary")
    for size in [0, 1, 50, 100_000, 3 * 1024 * 1024]:
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        expect(await call(body, timeout=30), body)


async def many_at_a_time(remote):
    call = remote.unary_unary(SERVICE + "Unary")
    bodies = [str(number).encode() * number for number in range(200)]
    expect(await asyncio.gather(*(call(body, timeout=30) for body in bodies)), bodies)


async def server_stream(remote):
    got = [reply async for reply in remote.unary_stream(SERVICE + "Many")(b"1000", timeout=30)]
    expect(got, [f"reply {number}".encode() for number in range(1000)])
    expect([reply async for reply in remote.unary_stream(SERVICE + "Many")(b"0", timeout=30)], [])


async def client_stream(remote):
    parts = [bytes([number % 256]) * 2000 for number in range(1000)]
    call = remote.stream_unary(SERVICE + "Collect")
    expect(await call(iter(parts), timeout=30), b"".join(parts))
    expect(await call(iter([]), timeout=30), b"")


async def both_streams(remote):
    """Each request is sent only when the reply to the one before is there."""
    call = remote.stream_stream(SERVICE + "Talk")(timeout=30)
    for number in range(100):
        await call.write(f"message {number}".encode())
        expect(await call.read(), f"message {number}".encode()[::-1])
    await call.done_writing()
    expect(await call.read(), grpc.aio.EOF)
    expect(await call.code(), grpc.StatusCode.OK)


async def error(remote):
    problem = await failure(remote.unary_unary(SERVICE + "Refuse")(b"", timeout=30))
    expect(problem.code(), grpc.StatusCode.FAILED_PRECONDITION)
    expect(problem.details(), "not today: ä %")
    trailers = dict(problem.trailing_metadata())
    expect((trailers.get("reason"), trailers.get("detail-bin")), ("closed", b"\x00\xff"))


async def late_error(remote):
    problem = await failure(remote.unary_stream(SERVICE + "RefuseLate")(b"", timeout=30), read=True)
    expect(problem.code(), grpc.StatusCode.DATA_LOSS)
    expect(dict(problem.trailing_metadata()).get("reason"), "late")


async def unknown_method(remote):
    problem = await failure(remote.unary_unary(SERVICE + "Nothing")(b"", timeout=30))
    expect(problem.code(), grpc.StatusCode.UNIMPLEMENTED)


async def metadata(remote):
    sent = (("x-text", "a b"), ("x-text", "c"), ("x-data-bin", bytes(range(256))))
    call = remote.unary_unary(SERVICE + "Headers")(b"", metadata=sent, timeout=30)
    got = await call.initial_metadata()
    expect(tuple((key, value) for key, value in got if key.startswith("x-")), sent)
    await call


async def deadline(remote):
    call = remote.unary_stream(SERVICE + "Hang")(b"deadline", timeout=0.5)
    problem = await failure(call, read=True)
    expect(problem.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
    await end_seen(remote, b"deadline")


async def cancelled(remote):
    call = remote.unary_stream(SERVICE + "Hang")(b"cancelled")
    expect(await call.read(), b"begun")
    call.cancel()
    await end_seen(remote, b"cancelled")


CHECKS = {
    "unary, 0 B to 3 MiB": unary,
    "200 unary calls at a time": many_at_a_time,
    "server streaming": server_stream,
    "client streaming": client_stream,
    "bidirectional streaming": both_streams,
    "error with trailing metadata": error,
    "error after a message": late_error,
    "unknown method": unknown_method,
    "initial metadata": metadata,
    "deadline exceeded": deadline,
    "cancellation seen by the server": cancelled,
}


async def main():
    async with channel() as remote:
        for name, test in CHECKS.items():
            await check(name, lambda: test(remote))


asyncio.run(main())
