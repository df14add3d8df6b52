"""Has webhooks by REST, receives their events and has PyPI's standardwebhooks verify each.

Arguments: the port of the topic, a caller's API key, the port to receive at, and a file for what has
come, which another library verifies again.
"""

import asyncio
import json
import sys

import aiohttp
from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

PORT, KEY, SINK, FILE = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
BASE = f"http://127.0.0.1:{PORT}"
HOOKS = f"{BASE}/topics/orders/webhooks"
EVENTS = 50


async def eventually(what, condition):
    for _ in range(600):
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"waited in vain until {what}")


def verify(secret, headers, body):
    Webhook(secret).verify(body, headers)


def refuses(secret, headers, body):
    try:
        verify(secret, headers, body)
    except WebhookVerificationError:
        return True
    return False


async def main():
    taken = []

    async def receive(request):
        body = await request.text()
        headers = {name.lower(): value for name, value in request.headers.items()}
        taken.append((headers, body))
        if headers["x-intertie-kind"] == "challenge":
            return web.json_response({"challenge": json.loads(body)["challenge"]})
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/hook", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", SINK).start()

    def of_kind(kind):
        return [it for it in taken if it[0]["x-intertie-kind"] == kind]

    async with aiohttp.ClientSession(headers={"X-Api-Key": KEY}) as client:
        url = {"url": f"http://127.0.0.1:{SINK}/hook"}
        async with client.post(HOOKS, json=url) as reply:
            assert reply.status == 201, await reply.text()
            made = await reply.json()
        first = made["secrets"][0]["secret"]
        hook = f"{HOOKS}/{made['id']}"

        async def is_active():
            async with client.get(hook) as reply:
                return (await reply.json())["state"] == "active"

        await eventually("the webhook is active", is_active)

        async def publish(numbers):
            for number in numbers:
                async with client.post(f"{BASE}/orders", json={"number": number}) as reply:
                    assert reply.status == 200, await reply.text()

        await publish(range(EVENTS))
        await eventually("all have come", lambda: len(of_kind("event")) >= EVENTS)
        async with client.post(f"{hook}/rotate-secret", json={"overlap": 3600}) as reply:
            second = (await reply.json())["secrets"][0]["secret"]
        await publish(range(EVENTS, 2 * EVENTS))
        await eventually("the others too", lambda: len(of_kind("event")) >= 2 * EVENTS)
        async with client.post(f"{hook}/test") as reply:
            assert (await reply.json())["accepted"], await reply.text()
        async with client.delete(hook) as reply:
            assert reply.status == 204

    events = of_kind("event")
    numbers = [json.loads(body)["number"] for _, body in events]
    assert numbers == list(range(2 * EVENTS)), numbers
    checks = []
    for headers, body in of_kind("challenge") + events[:EVENTS]:
        checks.append((first, headers, body))
    for headers, body in events[EVENTS:] + of_kind("test"):
        checks += [(first, headers, body), (second, headers, body)]
    for secret, headers, body in checks:
        verify(secret, headers, body)
        assert refuses(secret, headers, body + " ")
    assert refuses(second, *events[0]), "it was signed before there was this secret"
    with open(FILE, "w", encoding="utf-8") as file:
        json.dump([{"secret": s, "headers": h, "body": b} for s, h, b in checks], file)
    await runner.cleanup()
    print(f"{len(checks)} signatures")


asyncio.run(main())
