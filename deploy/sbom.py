"""Write a CycloneDX list of an image's Python and system packages, with their versions and licences, to standard output.

It needs only the standard library: an image has no other packages than those that it lists. release.py uses its parts.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distributions
from typing import Any
from urllib.parse import quote

MAIN = "headscope"


def main() -> None:
    """Write the document. The same packages give the same bytes."""
    python = sorted((python_component(found) for found in distributions()), key=lambda one: one["purl"])
    (subject,) = [one for one in python if one["name"] == MAIN]
    listed = document(subject, [*(one for one in python if one is not subject), *_system()])
    json.dump(listed, sys.stdout, indent=1)


def document(subject: dict[str, Any], components: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the CycloneDX document of an application with these components."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**subject, "type": "application"}},
        "components": list(components),
    }


def python_component(found: Distribution) -> dict[str, Any]:
    """Return the component of an installed Python package."""
    name = normalised(found.metadata["Name"])
    return component(name, found.version, f"pkg:pypi/{name}@{quote(found.version)}", _licences(found))


def normalised(name: str) -> str:
    """Return the name of a Python package as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _licences(found: Distribution) -> list[dict[str, Any]]:
    """Return the licence of a Python package: an SPDX expression, or its own words if they are short, or those of its classifiers."""
    if expression := found.metadata.get("License-Expression"):
        return [{"expression": expression}]
    text = found.metadata.get("License") or ""
    classifiers = found.metadata.get_all("Classifier") or []
    names = (
        [text] if text and len(text) < 60 else [one.split(" :: ")[-1] for one in classifiers if one[:7] == "License"]
    )
    return [{"license": {"name": name.strip()}} for name in names]


def _system() -> Iterator[dict[str, Any]]:
    """Yield the components of the packages of dpkg."""
    release = platform.freedesktop_os_release()
    distribution = f"distro={release['ID']}-{release.get('VERSION_ID', 'unknown')}"
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${Version} ${Architecture}\n"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        name, version, architecture = line.split()
        purl = f"pkg:deb/{release['ID']}/{name}@{quote(version, safe='')}?arch={architecture}&{distribution}"
        yield component(name, version, purl, [])


def component(name: str, version: str, purl: str, licences: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one component; without a known licence it has none."""
    known = {"licenses": licences} if licences else {}
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **known}


if __name__ == "__main__":
    main()
