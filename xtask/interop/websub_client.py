"""Flask-WebSub as subscriber and as publisher against a hub, and requests-websub-auth as the judge
of its signatures.

websub_client.py URL PORT
"""

import logging
import sys
import tempfile
import threading
import time

import requests
from flask import Flask, request
from flask_websub.publisher import init_publisher, publisher
from flask_websub.subscriber import (
    SQLite3SubscriberStorage,
    SQLite3TempSubscriberStorage,
    Subscriber,
    discover,
)
from requests_websub_auth import WebSubAlgorithm, WebSubAuth

BASE, PORT = sys.argv[1], int(sys.argv[2])
OWN = f"http://127.0.0.1:{PORT}"
SECRET = "a secret that the hub signs with"

logging.getLogger("werkzeug").setLevel(logging.ERROR)
app = Flask(__name__)
init_publisher(app)
folder = tempfile.mkdtemp()
subscriber = Subscriber(
    SQLite3SubscriberStorage(f"{folder}/subscriptions.sqlite3"),
    SQLite3TempSubscriberStorage(f"{folder}/requests.sqlite3"),
)
app.register_blueprint(subscriber.build_blueprint(url_prefix="/callbacks"))
taken, verified, delivered = [], [], []
page = {"content": "<p>one</p>"}


@app.before_request
def note():
    if request.method == "POST" and request.path.startswith("/callbacks"):
        delivered.append((dict(request.headers), request.get_data()))


@app.route("/page")
@publisher(self_url=f"{OWN}/page", hub_url=f"{BASE}/hub")
def show_page():
    return page["content"]


@subscriber.add_listener
def on_topic(topic, callback, body):
    taken.append((topic, body))


@subscriber.add_success_handler
def on_success(topic, callback, mode):
    verified.append((topic, mode))


def wait(what, condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)


def check(name, function):
    try:
        function()
        print(f"ok {name}", flush=True)
    except Exception as error:  # whatever it is, the others are run too
        print(f"FAILED {name}: {error!r}", flush=True)


def subscribe(url, **more):
    with app.test_request_context(base_url=OWN):
        found = discover(url)
        count = len(verified)
        callback = subscriber.subscribe(**found, **more)
    wait("verified", lambda: len(verified) > count)
    assert verified[-1] == (found["topic_url"], "subscribe"), verified
    # The hub notes it after the callback has answered.
    time.sleep(1)
    return callback


def publish(text):
    reply = requests.post(f"{BASE}/topics/news", data=text, headers={"Content-Type": "application/json"})
    assert reply.status_code == 200, reply.text


state = {}


def subscribes():
    state["news"] = subscribe(f"{BASE}/topics/news", secret=SECRET, lease_seconds=3600)
    stored = subscriber.storage[state["news"]]
    assert stored["lease_seconds"] == 3600, stored


def receives():
    publish('{"title": "Rain"}')
    wait("delivered", lambda: taken)
    assert taken[-1] == (f"{BASE}/topics/news", b'{"title":"Rain"}'), taken


def is_signed():
    headers, body = delivered[-1]
    judged = requests.Request("POST", OWN, data=body).prepare()
    WebSubAuth(SECRET, WebSubAlgorithm.SHA256)(judged)
    assert headers["X-Hub-Signature"] == judged.headers["X-Hub-Signature"], headers


def renews():
    count = len(verified)
    with app.test_request_context(base_url=OWN):
        subscriber.renew(state["news"])
    wait("verified again", lambda: len(verified) > count)
    time.sleep(1)
    publish('{"title": "Sun"}')
    wait("delivered", lambda: len(taken) > 1)
    assert taken[-1][1] == b'{"title":"Sun"}', taken
    is_signed()


def unsubscribes():
    with app.test_request_context(base_url=OWN):
        subscriber.unsubscribe(state["news"])
    wait("verified", lambda: verified[-1][1] == "unsubscribe")
    time.sleep(1)
    count = len(delivered)
    publish('{"title": "Snow"}')
    time.sleep(1)
    assert len(delivered) == count, delivered[count:]


def pings():
    subscribe(f"{OWN}/page", secret=SECRET)
    for content in ["<p>one</p>", "<p>two</p>"]:
        count, page["content"] = len(taken), content
        reply = requests.post(f"{BASE}/hub", data={"hub.mode": "publish", "hub.url": f"{OWN}/page"})
        assert reply.status_code // 100 == 2, reply.text
        wait(content, lambda: len(taken) > count)
        assert taken[-1] == (f"{OWN}/page", content.encode()), taken
        is_signed()


threading.Thread(target=lambda: app.run(port=PORT, threaded=True), daemon=True).start()
for name, function in [
    ("Flask-WebSub finds the hub and subscribes", subscribes),
    ("it gets what is published", receives),
    ("requests-websub-auth makes the same signature", is_signed),
    ("it renews", renews),
    ("it unsubscribes", unsubscribes),
    ("a page of Flask-WebSub is fetched after pings", pings),
]:
    check(name, function)
