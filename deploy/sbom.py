"""Write a CycloneDX list of an image's Python and system packages, with their versions and licences, to standard output."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from typing import Any
from urllib.parse import quote

MAIN = "headscope"


def main() -> None:
    """Write the document. The same packages give the same bytes."""
    python = sorted((_python(found) for found in distributions()), key=lambda one: one["purl"])
    (subject,) = [one for one in python if one["name"] == MAIN]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**subject, "type": "application"}},
        "components": [*(one for one in python if one is not subject), *_system()],
    }
    json.dump(document, sys.stdout, indent=1)


def _python(found: Distribution) -> dict[str, Any]:
    """Return the component of an installed Python package. Names are normalised as PEP 503 says."""
    name = re.sub(r"[-_.]+", "-", found.metadata["Name"]).lower()
    return _component(name, found.version, f"pkg:pypi/{name}@{quote(found.version)}", _licences(found))


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
        yield _component(name, version, purl, [])


def _component(name: str, version: str, purl: str, licences: list[dict[str, Any]]) -> dict[str, Any]:
    known = {"licenses": licences} if licences else {}
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **known}


if __name__ == "__main__":
    main()
