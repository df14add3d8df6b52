"""Writes a CycloneDX 1.5 document of what is in the binary: `cargo metadata | sbom.py VERSION COMMIT`."""

import json
import sys


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    made = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    if package.get("license"):
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package.get("repository"):
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def main():
    version, commit = sys.argv[1:]
    metadata = json.load(sys.stdin)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(key for key, it in packages.items() if it["name"] == "intertie")

    def needed(key):
        """What is linked: neither tools of the build nor what only tests use."""
        for dependency in nodes[key]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                yield dependency["pkg"]

    found, waiting = set(), [root]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting.extend(needed(key))
    found.discard(root)
    names = sorted(found, key=lambda key: purl(packages[key]))
    application = component(packages[root]) | {"type": "application", "version": version}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": application,
            "properties": [{"name": "commit", "value": commit}],
        },
        "components": [component(packages[key]) for key in names],
        "dependencies": [
            {
                "ref": purl(packages[key]),
                "dependsOn": sorted({purl(packages[other]) for other in needed(key)}),
            }
            for key in [root, *names]
        ],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


main()
