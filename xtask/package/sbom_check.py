"""Checks an SBOM: `sbom_check.py FILE VERSION TREE`, where TREE is what `cargo tree` prints for the binary.

It is a CycloneDX 1.5 document of this version, its references are unique and lead somewhere, and it lists
exactly the linked packages.
"""

import collections
import json
import pathlib
import re
import sys

# C code and cryptography: what a security advisory is most likely to be about.
REQUIRED = {"aws-lc-rs", "aws-lc-sys", "libmimalloc-sys", "libsqlite3-sys", "rusqlite", "rustls", "tokio"}
# Tests and what only they need (`ring`, `x509-parser`), chores, and tools of the build.
FORBIDDEN = {"cc", "cmake", "proc-macro2", "quote", "ring", "syn", "testkit", "x509-parser", "xtask"}


def problems(document, version, tree):
    if (document.get("bomFormat"), document.get("specVersion")) != ("CycloneDX", "1.5"):
        yield "it is not a CycloneDX 1.5 document"
    metadata = document["metadata"]
    application = metadata["component"]
    described = (application["type"], application["name"], application["version"])
    if described != ("application", "intertie", version):
        yield f"it describes {described}, not version {version}"
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["timestamp"]):
        yield f"the timestamp is {metadata['timestamp']}"
    components = document["components"]
    for it in components:
        if it["type"] != "library" or not it["name"] or not it["version"]:
            yield f"{it['bom-ref']} has no type, name or version"
        if "licenses" not in it:
            yield f"{it['bom-ref']} has no license"
        purl = it.get("purl", f"pkg:cargo/{it['name']}@{it['version']}")
        if purl != f"pkg:cargo/{it['name']}@{it['version']}":
            yield f"{it['bom-ref']} has the purl {purl}"
    refs = [application["bom-ref"], *(it["bom-ref"] for it in components)]
    yield from (f"{it} is there twice" for it, count in collections.Counter(refs).items() if count > 1)
    dependencies = document["dependencies"]
    if sorted(it["ref"] for it in dependencies) != sorted(refs):
        yield "not every component has exactly one entry in the dependencies"
    reached, waiting = set(), [application["bom-ref"]]
    edges = {it["ref"]: it["dependsOn"] for it in dependencies}
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting.extend(edges.get(ref, []))
    yield from (f"{it} is needed, but no component" for it in sorted(reached - set(refs)))
    yield from (f"nothing needs {it}" for it in sorted(set(refs) - reached))
    names = {it["name"] for it in components}
    yield from (f"{it} is missing" for it in sorted(REQUIRED - names))
    yield from (f"{it} is not linked into the binary" for it in sorted(FORBIDDEN & names))
    lines = (line.split() for line in tree.splitlines())
    linked = {f"{words[0]} {words[1]}" for words in lines if words}
    listed = {f"{it['name']} v{it['version']}" for it in [application, *components]}
    yield from (f"{it} is linked and not listed" for it in sorted(linked - listed))
    yield from (f"{it} is listed and not linked" for it in sorted(listed - linked))


def main():
    file, version, tree = sys.argv[1:]
    document = json.loads(pathlib.Path(file).read_text())
    found = list(problems(document, version, pathlib.Path(tree).read_text()))
    if found:
        sys.exit("\n".join(found))
    print(f"{len(document['components'])} components")


main()
