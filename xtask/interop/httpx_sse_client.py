"""A topic's events by httpx-sse, which leaves it to us to connect again.

httpx_sse_client.py URL COUNT
"""

import asyncio
import json
import sys
import time

import httpx
from httpx_sse import connect_sse

from report import check, expect

URL, COUNT = sys.argv[1], int(sys.argv[2])
# The engine is away twice, so there are three connections at least.
CONNECTIONS_MIN = 3
TIME_MAX = 240
AGAIN = 0.2


class Subscriber:
    def __init__(self):
        self.numbers = []
        self.problems = []
        self.connections = 0
        self.is_ended = False
        self.last = ""

    def follow(self):
        """Takes events until the last one, over as many connections as that needs."""
        limit = time.monotonic() + TIME_MAX
        with httpx.Client(timeout=5, trust_env=False) as http:
            while not self.is_ended and time.monotonic() < limit:
                try:
                    self.take_stream(http)
                except httpx.TransportError:
                    # The engine is away.
                    pass
                time.sleep(AGAIN)

    def take_stream(self, http):
        headers = {"Last-Event-ID": self.last} if self.last else {}
        with connect_sse(http, "GET", f"{URL}?from=earliest", headers=headers) as stream:
            stream.response.raise_for_status()
            self.connections += 1
            for event in stream.iter_sse():
                self.last = event.id or self.last
                self.take(event)
                if self.is_ended:
                    return

    def take(self, event):
        if event.event == "event":
            value = json.loads(event.data)
            if "end" in value:
                self.is_ended = True
            else:
                self.numbers.append(value["number"])
        elif event.data:
            self.problems.append(f"{event.event} {event.data}")


def first_difference(found, wanted):
    length = max(len(found), len(wanted))
    at = next(at for at in range(length) if found[at : at + 1] != wanted[at : at + 1])
    return f"{len(found)} of {len(wanted)} events; at {at} comes {found[at : at + 1]}"


def one_topic():
    subscriber = Subscriber()
    subscriber.follow()
    wanted = list(range(COUNT))
    if subscriber.numbers != wanted:
        raise AssertionError(f"{first_difference(subscriber.numbers, wanted)}; {subscriber.problems}")
    expect(subscriber.problems, [])
    expect(subscriber.is_ended, True)
    if subscriber.connections < CONNECTIONS_MIN:
        raise AssertionError(f"{subscriber.connections} connections: it did not see every restart")


asyncio.run(check("one topic", one_topic))
