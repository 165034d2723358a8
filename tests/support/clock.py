"""Another clock for a process, by a library that it preloads."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def shifted(seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock is off by `seconds`; what it measures by the monotonic clock is right."""
    return {"LD_PRELOAD": str(_library()), "CLOCK_SHIFT": str(seconds)}


@functools.cache
def _library() -> Path:
    built = Path(tempfile.mkdtemp(prefix="headscope-clock-")) / "clock.so"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-nostdlib", "-fno-builtin", "-o", built, SOURCE]
    subprocess.run(command, check=True)
    return built
