"""Whether a model fits into memory, from the headers of its weight files: before anything is loaded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil
import torch

from ..errors import OutOfMemory
from . import safety

# Of control groups, version 2, as containers have them.
CONTROL_GROUP = Path("/sys/fs/cgroup")


def check(folder: Path, device: str, dtype: torch.dtype) -> None:
    """Raise OutOfMemory if the model's weights, as `dtype`, are larger than the free memory of the device."""
    needed = sum(safety.count_weights(path) for path in safety.weight_files(folder)) * dtype.itemsize
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else _free_bytes()
    if needed > free:
        raise OutOfMemory(
            f"The model's weights need {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free. "
            "Choose a smaller model or a machine with more memory."
        )


def _free_bytes() -> int:
    """Return the bytes that this process may still take, of the machine's and of its control group's."""
    free = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # without a limit, memory.max is a word
        limit, current = (int((CONTROL_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        parts = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
        cached = int(parts["inactive_file"]) + int(parts["active_file"])  # given back when memory is needed
        free = min(free, max(0, limit - current + cached))
    return free
