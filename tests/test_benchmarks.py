"""Every benchmark runs on its smallest size: what the README reports can be measured again. What the figures are is not tested."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS

ROOT = Path(__file__).parents[1]
NOT_MEASUREMENTS = {"__init__", "__main__", "common", "browsing", "visitors"}


def test_all_are_listed() -> None:
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - NOT_MEASUREMENTS == set(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_smallest_size(name: str) -> None:
    module = import_module(f"benchmarks.{name}")
    rows = module.measure(**module.SMALLEST)
    assert rows
    assert all(row and all(str(value) for value in row.values()) for row in rows)


@pytest.mark.parametrize(
    ("arguments", "status", "output"),
    [(["--help"], 0, "page_peers"), (["--smallest", "lenses"], 0, "capture_ratio"), (["cost"], 2, "cost")],
)
def test_command(arguments: list[str], status: int, output: str) -> None:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, output in done.stdout + done.stderr) == (status, True), done.stderr
