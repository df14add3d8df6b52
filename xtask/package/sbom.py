"""Writes a CycloneDX 1.5 document of what is in the binary: `sbom.py VERSION COMMIT DAY METADATA TREE`.

METADATA is what `cargo metadata` prints. It lists every package of the workspace with the features that
tests need too. What is linked into the binary is only what `cargo tree` prints, and that is TREE.
"""

import json
import pathlib
import sys

APPLICATION = "intertie"


def linked(tree):
    """Names and versions of the packages in lines such as `config v0.1.0 (/path)`."""
    lines = (line.split() for line in tree.splitlines())
    return {(words[0], words[1].removeprefix("v")) for words in lines if words}


def ref(package):
    # Our own crates are not published: the purl would be that of a stranger with the same name.
    if package["source"] is None:
        return f"{APPLICATION}/{package['name']}@{package['version']}"
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package):
    made = {
        "type": "library",
        "bom-ref": ref(package),
        "name": package["name"],
        "version": package["version"],
    }
    if package["source"] is not None:
        made["purl"] = ref(package)
    if package.get("license"):
        made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
    if package.get("repository"):
        made["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return made


def main():
    version, commit, day, metadata, tree = sys.argv[1:]
    metadata = json.loads(pathlib.Path(metadata).read_text())
    names = linked(pathlib.Path(tree).read_text())
    packages = {
        package["id"]: package
        for package in metadata["packages"]
        if (package["name"], package["version"]) in names
    }
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    root = next(key for key, it in packages.items() if it["name"] == APPLICATION)

    def needed(key):
        """What a package is linked with: neither tools of the build nor what only tests use."""
        for dependency in nodes[key]["deps"]:
            is_normal = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_normal and dependency["pkg"] in packages:
                yield dependency["pkg"]

    libraries = sorted(packages.keys() - {root}, key=lambda key: ref(packages[key]))
    application = component(packages[root]) | {"type": "application", "version": version}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            # The time of the commit, so that the same sources give the same document.
            "timestamp": f"{day}T00:00:00Z",
            "component": application,
            "properties": [{"name": "commit", "value": commit}],
        },
        "components": [component(packages[key]) for key in libraries],
        "dependencies": [
            {
                "ref": ref(packages[key]),
                "dependsOn": sorted({ref(packages[other]) for other in needed(key)}),
            }
            for key in [root, *libraries]
        ],
    }
    json.dump(document, sys.stdout, indent=1)
    print()


main()
