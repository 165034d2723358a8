"""Repeat every fault and write the table of docs/reliability.md.

    python -m tests.faults [--fault NAME] [--deployment DEPLOYMENT] [--repeats N] [--jobs N] [--note TEXT] [--fresh]

An interrupted run is resumed: finished runs are kept in build/faults.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.common import machine

from tests.faults.load import reference, requests
from tests.faults.matrix import BOTH, FAULTS
from tests.faults.stage import Account, Stage, open_deployment
from tests.support.models import small_models
from tests.support.server import Server

ROOT = Path(__file__).resolve().parents[2]
FINISHED = ROOT / "build" / "faults.json"
TABLE = ROOT / "docs" / "measured" / "faults.json"

Run = dict[str, Any]


def main() -> None:
    """Run what is missing, one repeat of all faults after another, and write the table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # all that was started ends, too
    asked = _arguments()
    runs: list[Run] = [] if asked.fresh or not FINISHED.exists() else json.loads(FINISHED.read_text("utf-8"))
    with Matrix(asked.jobs) as matrix:
        for repeat in range(asked.repeats):
            for deployment, name in _chosen(asked):
                if (
                    sum((run["home"], run["fault"], run["jobs"]) == (deployment, name, asked.jobs) for run in runs)
                    > repeat
                ):
                    continue
                runs.append({"home": deployment, "fault": name, "commit": _commit(), **matrix.run(deployment, name)})
                _write(FINISHED, runs)
                print(json.dumps(runs[-1]), flush=True)
    where = {**machine("celery", "kombu", "redis", "uvicorn"), **({"note": asked.note} if asked.note else {})}
    _write(TABLE, {"machine": where, "titles": {name: FAULTS[name].title for name in FAULTS}, "runs": runs})
    subprocess.run([sys.executable, "docs/generate.py"], cwd=ROOT, check=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only this one; may be repeated")
    parser.add_argument("--deployment", action="append", choices=BOTH, help="only this one")
    parser.add_argument("--repeats", type=int, default=5, help="how often each, those of earlier calls included")
    parser.add_argument("--jobs", type=int, default=50, help="analyses of each load")
    parser.add_argument("--note", help="a note on the machine, next to its processor and versions")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    return parser.parse_args()


def _chosen(asked: argparse.Namespace) -> Iterator[tuple[str, str]]:
    for deployment in asked.deployment or BOTH:
        for name in asked.fault or FAULTS:
            if deployment in FAULTS[name].deployments:
                yield deployment, name


class Matrix:
    """The stages of the runs, opened on demand and reopened after a run that left one unusable."""

    def __init__(self, jobs: int) -> None:
        self._jobs, self._stages = jobs, dict[str, tuple[Server, Stage]]()

    def __enter__(self) -> Matrix:
        self._folder = tempfile.TemporaryDirectory(prefix="headscope-faults-", ignore_cleanup_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        for deployment in list(self._stages):
            self._close(deployment)
        self._folder.cleanup()

    def _close(self, deployment: str) -> None:
        server, _ = self._stages.pop(deployment)
        server.__exit__(None, None, None)

    @cached_property
    def _models(self) -> Path:
        return small_models(Path(self._folder.name) / "models")

    @cached_property
    def _expected(self) -> dict[str, str]:
        with Server(Path(self._folder.name) / "reference", self._models) as server:
            return reference(server, requests(self._jobs))

    def _stage(self, deployment: str) -> Stage:
        if deployment not in self._stages:
            folder = Path(tempfile.mkdtemp(prefix=f"{deployment}-", dir=self._folder.name))
            server = open_deployment(deployment, folder, self._models).start()
            self._stages[deployment] = server, Stage(server, self._expected, self._jobs)
        return self._stages[deployment][1]

    def run(self, deployment: str, name: str) -> Run:
        """Run a fault once; failures are recorded in its row."""
        stage = self._stage(deployment)
        try:
            return FAULTS[name].run(stage).as_dict()
        except Exception as error:  # noqa: BLE001 - the other faults are to be tried nevertheless
            self._close(deployment)
            return Account(self._jobs, lost=self._jobs, broken=f"{type(error).__name__}: {error}"[:400]).as_dict()


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    new.replace(path)


def _commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
