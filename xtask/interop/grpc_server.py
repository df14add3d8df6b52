"""The gRPC back end, without generated code: messages are bytes.

grpc_server.py CLEAR_PORT TLS_PORT CERT KEY
"""

import asyncio
import pathlib
import sys

import grpc

CLEAR, TLS, CERT, KEY = sys.argv[1:]
# Names of calls whose end the server has seen.
ended = set()


async def unary(request, context):
    return request


async def many(request, context):
    """As many replies as the request says."""
    for number in range(int(request)):
        yield f"reply {number}".encode()


async def collect(requests, context):
    return b"".join([request async for request in requests])


async def talk(requests, context):
    async for request in requests:
        yield request[::-1]


async def refuse(request, context):
    context.set_trailing_metadata((("reason", "closed"), ("detail-bin", b"\x00\xff")))
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today: ä %")


async def refuse_late(request, context):
    yield b"first"
    context.set_trailing_metadata((("reason", "late"),))
    await context.abort(grpc.StatusCode.DATA_LOSS, "gone")


async def headers(request, context):
    """The metadata of the call comes back as initial metadata, without what the proxy adds."""
    sent = [
        (key, value)
        for key, value in context.invocation_metadata()
        if key.startswith("x-") and not key.startswith("x-forwarded-")
    ]
    await context.send_initial_metadata(sent)
    return b""


async def hang(request, context):
    """Sends a first reply and never ends by itself."""
    try:
        yield b"begun"
        await asyncio.sleep(60)
    finally:
        ended.add(request)


async def was_ended(request, context):
    return b"yes" if request in ended else b"no"


HANDLERS = {
    "Unary": grpc.unary_unary_rpc_method_handler(unary),
    "Many": grpc.unary_stream_rpc_method_handler(many),
    "Collect": grpc.stream_unary_rpc_method_handler(collect),
    "Talk": grpc.stream_stream_rpc_method_handler(talk),
    "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
    "RefuseLate": grpc.unary_stream_rpc_method_handler(refuse_late),
    "Headers": grpc.unary_unary_rpc_method_handler(headers),
    "Hang": grpc.unary_stream_rpc_method_handler(hang),
    "WasEnded": grpc.unary_unary_rpc_method_handler(was_ended),
}


async def main():
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("interop.Test", HANDLERS),))
    pair = (pathlib.Path(KEY).read_bytes(), pathlib.Path(CERT).read_bytes())
    server.add_insecure_port(f"127.0.0.1:{CLEAR}")
    server.add_secure_port(f"127.0.0.1:{TLS}", grpc.ssl_server_credentials([pair]))
    await server.start()
    await server.wait_for_termination()


asyncio.run(main())
