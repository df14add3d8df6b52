"""What a client script prints: one line for each check, which `cargo xtask interop` reads."""

import asyncio
import inspect


async def check(name, test):
    """Runs a test, plain or asynchronous; it fails by an exception."""
    try:
        result = test()
        if inspect.isawaitable(result):
            await asyncio.wait_for(result, 60)
    except Exception as problem:
        text = " ".join(f"{type(problem).__name__}: {problem}".split())
        print(f"FAILED {name}: {text}", flush=True)
    else:
        print(f"ok {name}", flush=True)


def expect(found, wanted):
    """Compares, and shows no more of long values than helps."""
    if found != wanted:
        raise AssertionError(f"{shown(found)} instead of {shown(wanted)}")


def shown(value):
    text = repr(value)
    size = f" (length {len(value)})" if isinstance(value, (bytes, str)) else ""
    return text if len(text) <= 80 else f"{text[:80]}...{size}"
