"""make docs: build the documentation of this version beside those of others: python -m docs.versions [FOLDER]

FOLDER, site/ if it is left out, gets a folder per version, such as 0.1.0/, with versions.json in the format of mike, which the theme's selector reads; latest/,
whose pages lead to those of the newest release; and an index.html that leads there. A commit with the tag of its version is a release. Every other state is
unreleased: it goes to dev/, and each of its pages says so. Other versions in FOLDER stay as they are.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mkdocs.commands.build import build
from mkdocs.config import load_config
from packaging.version import Version

import headscope
from docs import live

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "dev"
NEWEST = "latest"
# A file of each version with its number.
MARK = "version.txt"
# Scripts keep what follows # and ?; without them, the page still leads on.
REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>{title}</title>
<meta name="robots" content="noindex">
<meta http-equiv="refresh" content="1; url={target}">
<script>location.replace("{target}" + location.search + location.hash)</script>
<p><a href="{target}">{title}</a></p>
"""


class State(NamedTuple):
    """What is documented: a version, and whether it is released."""

    version: str
    released: bool

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return self.version if self.released else UNRELEASED


def main(folder: Path) -> None:
    """Build the documentation of this checkout into the folder of all versions."""
    state = read_state(ROOT)
    add_version(ROOT / "mkdocs.yml", folder, state, live.write)
    print(
        f"Headscope {state.version}{'' if state.released else ', unreleased'}: {folder / state.folder / 'index.html'}"
    )


def read_state(root: Path) -> State:
    """Return the version of a checkout. It is released if the commit has the version's tag and nothing is uncommitted."""
    tag = f"v{headscope.__version__}"
    tagged = tag in _git(root, "tag", "--points-at", "HEAD").split()
    return State(headscope.__version__, tagged and not _git(root, "status", "--porcelain"))


def add_version(
    config_file: Path, folder: Path, state: State, complete: Callable[[Path], None] = lambda site: None
) -> None:
    """Build one version, replacing it if it is there, and renew what leads to the versions. If the build fails, nothing is changed.

    `complete` adds files that are not built from the pages.
    """
    folder.mkdir(parents=True, exist_ok=True)
    releases = list_releases(folder, state)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".building-") as name:
        built = Path(name) / "site"
        _build(config_file, built, state, releases)
        complete(built)
        (built / MARK).write_text(state.version, "utf-8")
        shutil.rmtree(folder / state.folder, ignore_errors=True)
        built.chmod(0o755)
        built.rename(folder / state.folder)
    if state.released and _unreleased(folder) == state.version:
        shutil.rmtree(folder / UNRELEASED)
    _write_list(folder, releases)
    first = releases[0] if releases else UNRELEASED
    if releases:
        _write_redirects(folder / first, folder / NEWEST)
    (folder / "index.html").write_text(
        REDIRECT.format(target=f"{NEWEST if releases else first}/index.html", title="Headscope"), "utf-8"
    )
    listed = (folder / first / "llms.txt").read_text("utf-8")
    (folder / "llms.txt").write_text(listed.replace("](", f"]({first}/"), "utf-8")


def list_releases(folder: Path, state: State) -> list[str]:
    """Return the releases of a folder and that of `state`, if it is one, the newest first."""
    there = {path.parent.name for path in folder.glob("[0-9]*/index.html")}
    return sorted(there | ({state.version} if state.released else set()), key=Version, reverse=True)


def _build(config_file: Path, target: Path, state: State, releases: Sequence[str]) -> None:
    config = load_config(str(config_file), site_dir=str(target), strict=True)
    config.extra["version"] = {"provider": "mike", "default": NEWEST}
    if not state.released:
        config.extra |= {"unreleased": state.version, "newest": releases[0] if releases else None}
    config.plugins.on_startup(command="build", dirty=False)
    try:
        build(config)
    finally:
        config.plugins.on_shutdown()


def _unreleased(folder: Path) -> str | None:
    """Return the version of which a folder has an unreleased state."""
    mark = folder / UNRELEASED / MARK
    return mark.read_text("utf-8") if mark.is_file() else None


def _write_list(folder: Path, releases: Sequence[str]) -> None:
    entries = [{"version": name, "title": name, "aliases": [NEWEST] * (name == releases[0])} for name in releases]
    if version := _unreleased(folder):
        entries.insert(0, {"version": UNRELEASED, "title": f"{version} (unreleased)", "aliases": []})
    (folder / "versions.json").write_text(json.dumps(entries, indent=1) + "\n", "utf-8")


def _write_redirects(version: Path, alias: Path) -> None:
    """Make a page of the alias for every page of the version."""
    shutil.rmtree(alias, ignore_errors=True)
    for page in version.rglob("*.html"):
        place = page.relative_to(version)
        path = alias / place
        path.parent.mkdir(parents=True, exist_ok=True)
        target = f"{'../' * len(place.parts)}{version.name}/{place.as_posix()}"
        path.write_text(REDIRECT.format(target=target, title=f"Headscope {version.name}"), "utf-8")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site"))
