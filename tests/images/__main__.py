"""python -m tests.images [--engine PROGRAM] [--only cpu|gpu] [--no-build] [--stand-ins] [--wheels FOLDER]

Builds the images of Dockerfile and Dockerfile.gpu, checks both, and runs the services of docker-compose.yml from the first one: the main job, a restart of
everything, and the kill of a worker. Needs a container engine with the command line of Docker, and Docker Compose. Exits with status 1 if a check fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from headscope import __version__
from tests.support.compose import ROOT

from . import checks, stand_ins
from .engine import Engine, Stack
from .index import served

IMAGES = {"cpu": ("headscope", "Dockerfile"), "gpu": ("headscope-gpu", "Dockerfile.gpu")}


def main() -> int:
    """Return 1 if a check failed."""
    asked = _arguments()
    engine = Engine(asked.engine)
    if asked.stand_ins:
        stand_ins.make(engine)
    report = Report()
    for kind in asked.only or IMAGES:
        if not asked.no_build:
            _build(engine, kind, asked)
        _check(engine, kind, report)
    if "cpu" in (asked.only or IMAGES):
        with tempfile.TemporaryDirectory() as folder, Stack(engine, Path(folder)) as stack:
            _run(engine, stack, report)
    return int(report.failed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.images", description=__doc__)
    parser.add_argument("--engine", default="docker", help="docker, or a program with the same command line")
    parser.add_argument("--only", action="append", choices=IMAGES, help="one of the images")
    parser.add_argument("--no-build", action="store_true", help="check the images that are there")
    parser.add_argument(
        "--stand-ins",
        action="store_true",
        help="make the images of other projects from Debian's packages (mmdebstrap), without a registry",
    )
    parser.add_argument(
        "--wheels",
        type=Path,
        help="a folder with a CPU build of torch; otherwise PIP_EXTRA_INDEX_URL names an index that has one",
    )
    return parser.parse_args()


class Report:
    """Prints one line for each check. `failed`: one of them has failed."""

    def __init__(self) -> None:
        self.failed = False

    def add(self, name: str, check: Callable[[], str]) -> None:
        """Run a check and print what it found."""
        try:
            print(f"ok      {name}: {check()}", flush=True)
        except AssertionError as error:
            self.failed = True
            print(f"FAILED  {name}: {error}", flush=True)


def _build(engine: Engine, kind: str, asked: argparse.Namespace) -> None:
    tag, dockerfile = IMAGES[kind]
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    arguments = {"VERSION": __version__, "REVISION": revision.stdout.strip() or "unknown"}
    # A build in a network of its own does not reach the wheels, nor, without the engine's rules for packets, any package.
    options = ("--network", "host") if asked.stand_ins or asked.wheels else ()
    with served(asked.wheels) if asked.wheels else nullcontext(os.environ.get("PIP_EXTRA_INDEX_URL", "")) as index:
        if kind == "cpu":
            arguments["PIP_EXTRA_INDEX_URL"] = index
        engine.build(tag, ROOT / dockerfile, *options, **arguments)


def _check(engine: Engine, kind: str, report: Report) -> None:
    tag, dockerfile = IMAGES[kind]
    report.add(f"{tag}: size", lambda: checks.size(engine, tag))
    report.add(f"{tag}: configuration", lambda: checks.configuration(engine, tag, dockerfile))
    report.add(f"{tag}: bill of materials", lambda: checks.bill_of_materials(engine, tag))
    report.add(f"{tag}: confinement", lambda: checks.confinement(engine, tag))
    if kind == "gpu":
        report.add(f"{tag}: without a GPU", lambda: checks.no_gpu(engine, tag))


def _run(engine: Engine, stack: Stack, report: Report) -> None:
    try:
        lab = checks.Lab(engine, stack)
        for name in ("start", "main_job", "restart", "killed_worker", "logs"):
            report.add(f"docker-compose.yml: {name.replace('_', ' ')}", getattr(lab, name))
    finally:
        if report.failed:
            print(stack.compose("logs", "--tail", "40", check=False))


if __name__ == "__main__":
    sys.exit(main())
