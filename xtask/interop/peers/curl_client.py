"""The client curl. Each line of the input is a request, as words NAME=VALUE between tabs; each line
of the output what came of it, as a JSON object of texts.

curl_client.py AUTHORITY FOLDER (with files/bytes for what it sends)
"""

import collections
import hashlib
import json
import pathlib
import subprocess
import sys
import time

AUTHORITY, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
FLAGS = {
    "curl-h1": ["--http1.1"], "curl-h1s": ["--http1.1"], "curl-h2": ["--http2"],
    "curl-h2c": ["--http2-prior-knowledge"],
}
PLAIN = ["--silent", "--show-error", "--globoff", "--noproxy", "*", "--cacert", AUTHORITY]
BLOCK = bytes(range(251)) * 256
# What went wrong, by the code with which it ends.
CODES = {28: "timeout", 52: "eof", 18: "eof", 55: "reset", 56: "reset", 92: "stream reset", 16: "stream reset"}


def parse(line):
    words = {"header": []}
    for word in line.rstrip("\n").split("\t"):
        name, _, value = word.partition("=")
        words["header"].append(value) if name == "header" else words.update({name: value})
    return words


def body_file(size):
    """Bytes that repeat only after 251 of them, so that a shifted copy differs."""
    path = FOLDER / "files/bytes" / str(size)
    if not path.exists():
        with path.open("wb") as file:
            left = size
            while left > 0:
                left -= file.write(BLOCK[:left])
    return path


def sending(words):
    """The words for the request's body."""
    if words["method"] == "HEAD":
        return ["--head"]
    if "body" not in words:
        return ["--request", words["method"]]
    # `--upload-file` streams; what `--data-binary` sends is read whole before.
    more = ["--request", words["method"], "--upload-file", str(body_file(int(words["body"])))]
    if "chunked" in words:
        more += ["--header", "Transfer-Encoding: chunked"] if words["mode"].startswith("curl-h1") else []
    if "expect" in words:
        return more + ["--header", "Expect: 100-continue", "--expect100-timeout", "60"]
    return more + ["--header", "Expect:"]


def read(words, process, found):
    digest, kept, length = hashlib.sha256(), [], 0
    if "slow" in words:
        time.sleep(0.5)
    while chunk := process.stdout.read1(65536):
        digest.update(chunk)
        length += len(chunk)
        kept += [chunk] if "text" in words else []
        if "slow" in words:
            time.sleep(0.003)
    found["length"], found["sha256"] = str(length), digest.hexdigest()
    if "text" in words:
        found["text"] = b"".join(kept).decode()


def put_heads(words, text, found):
    """Reads heads of interim replies, of the reply, and trailers behind it."""
    version = ""
    status = ""
    is_trailer = False
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if line.startswith("HTTP/"):
            version, status = line.split(" ")[:2]
        elif not line:
            is_trailer = is_trailer or bool(status) and not status.startswith("1")
        elif status != "100":
            key = ("trailer." if is_trailer else "h.") + name.lower()
            found[key] = f"{found[key]} | {value.strip()}" if key in found else value.strip()
    if status:
        found["status"], found["version"] = status, version[5]
    if "expect" in words:
        found["continue"] = str(" 100" in text).lower()


def ask(words, url):
    heads = FOLDER / "heads"
    heads.write_text("")
    arguments = PLAIN + FLAGS[words["mode"]] + ["--max-time", words["limit"], "--dump-header", str(heads)]
    arguments += [word for header in words["header"] for word in ["--header", header]]
    output = ["--output", "/dev/null"] if words["method"] == "HEAD" else ["--no-buffer"]
    process = subprocess.Popen(
        ["curl", *arguments, *sending(words), *output, url], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    found = {}
    read(words, process, found)
    problem = process.stderr.read().decode()
    code = process.wait()
    put_heads(words, heads.read_text(), found)
    if code:
        found["error"] = CODES.get(code, f"other: {problem.strip()}")
    return found


def ask_two(words):
    """Both by one process, which keeps the connection when it can."""
    first = FOLDER / "first"
    first.write_bytes(b"")
    common = PLAIN + FLAGS[words["mode"]] + ["--max-time", words["limit"]]
    report = ["--write-out", "%{stderr}\n@%{http_code} %{exitcode}\n"]
    ran = subprocess.run(
        ["curl", *common, *sending(words), *report, "--output", str(first), words["url"],
         "--next", *common, *report, words["then"]], capture_output=True,
    )
    lines = [line[1:].split(" ") for line in ran.stderr.decode().splitlines() if line[:1] == "@"]
    found = {}
    for prefix, line, body in zip(["", "then."], lines, [first.read_bytes(), ran.stdout]):
        if line[0] != "000":
            found[f"{prefix}status"] = line[0]
        if line[1] != "0":
            found[f"{prefix}error"] = CODES.get(int(line[1]), f"other: {line[1]}")
        found[f"{prefix}length"] = str(len(body))
        found[f"{prefix}sha256"] = hashlib.sha256(body).hexdigest()
    return found


def many(words):
    """Asks in parallel with one process, and counts the outcomes."""
    repeat = int(words["repeat"])
    flags = FLAGS[words["mode"]] + ["--parallel", "--parallel-max", "16" if "h1" in words["mode"] else "300"]
    report = ["--write-out", "%{stderr}\n@%{http_code}\n"]
    url = words["url"] + f"?[1-{repeat}]"
    plain = [word for word in PLAIN if word != "--globoff"]
    ran = subprocess.run(
        ["curl", *plain, *flags, "--max-time", words["limit"], *report, url], capture_output=True
    )
    # What was read is "hello\n" as often as asked, or some of it is something else.
    body = hashlib.sha256(b"hello\n").hexdigest() if ran.stdout == b"hello\n" * repeat else "differs"
    lines = [line for line in ran.stderr.decode().splitlines() if line[:1] == "@"]
    counts = collections.Counter(f"{line[1:]} {body}" for line in lines)
    return {"outcomes": "; ".join(sorted(f"{count} x {outcome}" for outcome, count in counts.items()))}


def run(words):
    # This curl cannot send trailers, and uses a connection of h2c with prior knowledge but once.
    is_reused = "repeat" in words or "then" in words
    if "trailer" in words or is_reused and words["mode"] == "curl-h2c":
        return {"unsupported": "true"}
    if "repeat" in words:
        return many(words)
    return ask_two(words) if "then" in words else ask(words, words["url"])


for line in sys.stdin:
    print(json.dumps(run(parse(line))), flush=True)
