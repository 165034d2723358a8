"""Helpers of all benchmarks: interleaved repeats, ratios with their spread, and a description of the machine."""

from __future__ import annotations

import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import torch

# Where the models of the benchmarks are: HEADSCOPE_DEVICE=cuda python -m benchmarks lenses targets
DEVICE = os.environ.get("HEADSCOPE_DEVICE", "cpu")
NUMBER = r"-?\d+(?:\.\d+)?"


class Spread(NamedTuple):
    """Median, smallest and largest value of some repeats."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        """Return the spread of measured values."""
        return cls(statistics.median(values), min(values), max(values))

    @classmethod
    def read(cls, text: str) -> Spread | None:
        """Return the spread of such a text as `text` formats; None for another text."""
        found = re.fullmatch(rf"({NUMBER}) \(({NUMBER})-({NUMBER})\)", text)
        return cls(*map(float, found.groups())) if found else None

    def text(self, scale: float = 1.0, digits: int = 0) -> str:
        """Format as `median (low-high)`, scaled."""
        return f"{self.median * scale:.{digits}f} ({self.low * scale:.{digits}f}-{self.high * scale:.{digits}f})"


def judged(name: str, values: list[float], budget: float, digits: int = 0) -> dict[str, str]:
    """Return the entries of a row for measured values: their spread, and that of their ratios to the budget, which is met up to 1."""
    return {
        name: Spread.of(values).text(digits=digits),
        f"{name}_of_budget": Spread.of([value / budget for value in values]).text(digits=2),
    }


def interleaved(
    candidates: Mapping[str, Callable[[], object]],
    repeats: int,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each candidate, measured in turn, so that other load on the machine affects all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(warmup + repeats):
        for name, candidate in candidates.items():
            started = clock()
            candidate()
            _finish()
            if turn >= warmup:
                seconds[name].append(clock() - started)
    return seconds


def _finish() -> None:
    """Wait for what was only queued on a GPU."""
    if DEVICE != "cpu":
        torch.accelerator.synchronize()


def added_peak(work: Callable[[], object]) -> int:
    """Return the KiB by which this process peaks during `work` above what it used before (Linux)."""
    Path("/proc/self/clear_refs").write_text("5", "utf-8")  # forget the peak so far
    before = _memory("VmRSS")
    work()
    return _memory("VmHWM") - before


def _memory(what: str) -> int:
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(what)))


def ratios(values: list[float], reference: list[float]) -> Spread:
    """Return the spread of the ratios of the same repeats."""
    return Spread.of([value / base for value, base in zip(values, reference, strict=True)])


def machine(*packages: str) -> dict[str, str | int]:
    """Return processor, cores, and the versions of Python, torch, transformers and `packages`."""
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    gpu = {} if DEVICE == "cpu" else {"gpu": torch.cuda.get_device_name(DEVICE)}
    names = ("headscope", "torch", "transformers", "numpy", *packages)
    return {
        "cpu": cpu,
        **gpu,
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        **{name: version(name) for name in names},
    }
