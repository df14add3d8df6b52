"""Writes a wheel that carries the binary: `wheel.py VERSION TAG STAGE README OUT`.

A wheel is a zip file with known names in it (PEP 427), so nothing has to be installed to make one.
The binary is a script of the package: pip puts it into the environment's `bin` as it is.
"""

import base64
import hashlib
import pathlib
import sys
import zipfile

MAIN = '''"""`python -m intertie` is `intertie`."""

import os
import sys
import sysconfig

program = os.path.join(sysconfig.get_path("scripts"), "intertie")
os.execv(program, [program, *sys.argv[1:]])
'''


def main():
    version, tag, stage, readme, out = sys.argv[1:]
    stage = pathlib.Path(stage)
    info, data = f"intertie-{version}.dist-info", f"intertie-{version}.data"
    metadata = (
        f"Metadata-Version: 2.1\nName: intertie\nVersion: {version}\n"
        "Summary: Connects systems: proxies, transforms and orchestrates messages, from short YAML files\n"
        "License: Apache-2.0\nRequires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n"
    ) + pathlib.Path(readme).read_text()
    wheel = f"Wheel-Version: 1.0\nGenerator: intertie xtask\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    files = [
        ("intertie/__init__.py", b'"""The intertie binary, as a package."""\n', 0o644),
        ("intertie/__main__.py", MAIN.encode(), 0o644),
        (f"{data}/scripts/intertie", (stage / "bin/intertie").read_bytes(), 0o755),
        (f"{info}/METADATA", metadata.encode(), 0o644),
        (f"{info}/WHEEL", wheel.encode(), 0o644),
        (f"{info}/licenses/LICENSE", (stage / "LICENSE").read_bytes(), 0o644),
    ]
    for file in sorted((stage / "share").rglob("*")):
        if file.is_file():
            name = file.relative_to(stage).as_posix()
            files.append((f"{data}/data/{name}", file.read_bytes(), 0o644))
    record = ""
    name = pathlib.Path(out) / f"intertie-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(name, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, content, mode in files:
            add(archive, path, content, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record += f"{path},sha256={digest},{len(content)}\n"
        add(archive, f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode(), 0o644)


def add(archive, path, content, mode):
    # The same time for all, so that the same input gives the same wheel.
    entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = (0o100000 | mode) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(entry, content)


main()
