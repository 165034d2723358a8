"""make wheels: build the distributions, install the wheel for every Python that this machine has, and do there what a user does first.

Prints a table, with the supported Pythons that are not here as untested. Exits with status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from deploy import release
from tests.support.compose import ROOT
from tests.wheels.smoke import EXTRAS, Installed, check_base, check_refusals, hidden

# What requires-python and torch's wheels allow.
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


class Row(NamedTuple):
    """A line of the table."""

    python: str
    extra: str
    result: str
    seconds: float | None = None


def main() -> int:
    """Check the wheel and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.wheels", description=__doc__)
    parser.add_argument("--python", action="append", metavar="3.X", help="only this version; may be repeated")
    parser.add_argument("--extra", action="append", choices=EXTRAS, help="only this extra; may be repeated")
    wanted = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="headscope-wheels-") as name:
        wheel = release.build(ROOT, Path(name) / "dist").wheel
        for version in wanted.python or VERSIONS:
            found = find(version)
            if found is None:
                rows.append(Row(version, "", "not tested: not on this machine"))
                continue
            folder = Path(name) / version
            for row in check(found, wheel, folder, wanted.extra or list(EXTRAS)):
                print(*_cells(row), flush=True)
                rows.append(row)
            shutil.rmtree(folder)
    print(f"\n{wheel.name}\n")
    for row in rows:
        print("{:<12}{:<14}{:<34}{:>8}".format(*_cells(row)))
    return int(any(row.result.startswith("FAILED") for row in rows))


def find(version: str) -> Path | None:
    """Return an interpreter of a version, None without one. One on PATH may be a shim of a version that is not chosen."""
    name = f"python{version}"
    folders = [Path("/usr/bin"), Path("/usr/local/bin"), *PYENV.glob(f"{version}.*/bin")]
    candidates = [shutil.which(name), *(shutil.which(name, path=folder) for folder in folders)]
    return next((Path(one) for one in candidates if one and _answers(one)), None)


def _answers(python: str) -> bool:
    words = [python, "-c", "import ensurepip, venv"]  # Debian has both in packages of their own
    return subprocess.run(words, env=hidden(), capture_output=True, check=False).returncode == 0


def check(python: Path, wheel: Path, folder: Path, extras: Sequence[str]) -> Iterator[Row]:
    """Check the wheel without an extra, and then with each of them, in environments below `folder`."""
    asked = [python, "-c", "import platform; print(platform.python_version())"]
    version = subprocess.run(asked, env=hidden(), check=True, capture_output=True, text=True).stdout.strip()
    base = Installed(create(python, folder / "base"), folder / "work")
    try:
        begin = time.monotonic()
        # First, as the Makefile does: pip chooses its build by its own configuration.
        install(base, next(one for one in project()["dependencies"] if one.startswith("torch")))
        install(base, wheel)
        torch = base.python("import torch; print(torch.__version__)").strip()
        yield Row(version, "", f"ok: installed, torch {torch}", time.monotonic() - begin)
    except (AssertionError, subprocess.CalledProcessError) as error:
        yield Row(version, "", f"FAILED: {error}")
        return
    yield attempt(version, "none", lambda: check_base(base))
    yield attempt(version, "refusals", lambda: check_refusals(base))
    for extra in extras:

        def run(extra: str = extra) -> None:
            EXTRAS[extra](extend(base, python, folder, wheel, extra))

        yield attempt(version, extra, run)


def attempt(version: str, extra: str, run: Callable[[], None]) -> Row:
    """Run one check and return its line."""
    begin = time.monotonic()
    try:
        run()
    except (
        AssertionError,
        OSError,
        subprocess.SubprocessError,
        httpx.HTTPError,
    ) as error:  # the others are still checked
        return Row(version, extra, f"FAILED: {type(error).__name__}: {error}")
    return Row(version, extra, "ok", time.monotonic() - begin)


def create(python: Path, folder: Path) -> Path:
    """Create an environment and return its interpreter."""
    subprocess.run([python, "-m", "venv", folder], env=hidden(), check=True)
    return folder / "bin" / "python"


def extend(base: Installed, python: Path, folder: Path, wheel: Path, extra: str) -> Installed:
    """Return an environment with an extra. It reads the packages of `base`, which torch makes large, and has its own Headscope."""
    place = folder / extra.replace(",", "-")
    made = Installed(create(python, place), place / "work")
    site = Path(made.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "base.pth").write_text(base.python("import sysconfig; print(sysconfig.get_path('purelib'))"))
    install(made, "--no-deps", "--force-reinstall", wheel)
    install(made, f"{wheel}[{extra}]")
    return made


def install(place: Installed, *words: str | Path) -> None:
    """Install with pip, in the versions of constraints.txt."""
    command = [place.programs / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*command, *words], env=hidden(), check=True)


def project() -> dict[str, Any]:
    """Return what pyproject.toml states of the project."""
    read: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return read


def _cells(row: Row) -> tuple[str, str, str, str]:
    return row.python, row.extra, row.result, "" if row.seconds is None else f"{row.seconds:.0f} s"


if __name__ == "__main__":
    sys.exit(main())
