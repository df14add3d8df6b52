"""The cases of Autobahn's test suite of WebSocket, by kosoku: all 517, and how a server has done.

autobahn_client.py URL FOLDER
"""

import collections
import json
import pathlib
import subprocess
import sys

PASSES = {"OK", "NON-STRICT", "INFORMATIONAL"}
CASES = 517

url, folder = sys.argv[1:]
kosoku = pathlib.Path(sys.executable).with_name("kosoku")
command = [kosoku, url, "--outdir", folder, "--parallelism", "2"]
subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False)
index = json.loads((pathlib.Path(folder) / "index.json").read_text())
[cases] = index.values()
counts = collections.Counter(case["behavior"] for case in cases.values())
closes = collections.Counter(case["behaviorClose"] for case in cases.values())
for name, case in cases.items():
    verdicts = (case["behavior"], case["behaviorClose"])
    if not PASSES.issuperset(verdicts):
        print(f"FAILED {name}: {verdicts[0]}, close {verdicts[1]}")
if len(cases) != CASES:
    print(f"FAILED all cases: {len(cases)} of {CASES} were run")


def shown(counter):
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))


print(f"ok {len(cases)} cases ({shown(counts)}; close {shown(closes)})")
