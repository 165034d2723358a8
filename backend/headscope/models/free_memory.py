"""Whether a model fits into memory, from the headers of its weight files: before anything is loaded."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import torch

from ..errors import OutOfMemory
from . import safety

# Of control groups, version 2, as containers have them.
CONTROL_GROUP = Path("/sys/fs/cgroup")
DISK = "disk"
# Parameters of glibc's mallopt, and their values in bytes. Blocks of attention weights take 4 MB, activations of a few thousand tokens up to 32 MB, the most
# that glibc keeps by itself; a few of either are freed and needed again at a time.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEPT, LARGEST_KEPT = 64 * 1024 * 1024, 32 * 1024 * 1024


def check(folder: Path, places: Mapping[str, Any], dtype: torch.dtype | None) -> None:
    """Raise OutOfMemory if the weights that go to a device are larger than its free memory.

    Weights of 16 bits and more are loaded as `dtype`, None for as they are stored; those of fewer bits stay as they are. `places` maps modules to devices, ""
    stands for the rest; what stays on the disk needs no memory.
    """
    itemsize = None if dtype is None else dtype.itemsize
    needed = Counter[str]()
    for path in safety.weight_files(folder):
        for name, size in safety.weight_bytes(path, itemsize).items():
            needed[_device(name, places)] += size
    for device, most in needed.items():
        free = most if device == DISK else free_bytes(torch.device(device))
        if most > free:
            raise OutOfMemory(
                f"The model's weights need {most / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free. "
                "Choose a smaller model or a machine with more memory."
            )


def release() -> None:
    """Give freed memory back to the operating system, where the C library keeps it."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def keep_freed() -> None:
    """Make the C library keep up to KEPT bytes of freed memory for the rest of the process, where it can.

    By default it gives back what has become free at the end of its memory, or was of its own, and the next block of heads gets other pages, which the operating
    system has to clear first: up to a quarter of the time of an analysis.
    """
    set_option = _of_glibc("mallopt")
    if set_option is not None:
        set_option(MMAP_THRESHOLD, LARGEST_KEPT)
        set_option(TRIM_THRESHOLD, KEPT)


def container_cores(cores: int) -> int:
    """Return how many of the machine's cores this container may use, rounded up. torch does not ask."""
    with suppress(OSError, ValueError):  # no container, or no limit
        quota, period = map(int, (CONTROL_GROUP / "cpu.max").read_text("ascii").split())
        return min(cores, -(-quota // period))
    return cores


def _of_glibc(name: str) -> Any:
    """Return a function that only glibc has, None elsewhere."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _device(name: str, places: Mapping[str, Any]) -> str:
    """Return the device of a weight: that of the longest name of a module that contains it. Files may leave out the first part of the names, or have one more."""
    names = [f"{one}." for one in (name, name.partition(".")[2])]
    found = {key: device for key, device in places.items() if _contains(key, names)}
    longest = max(found, key=len, default="")
    device = found.get(longest, DISK)  # of a weight that no module takes
    return DISK if device == DISK else str(torch.device(device))


def _contains(module: str, names: list[str]) -> bool:
    return not module or any(
        name.startswith(f"{one}.") for name in names for one in (module, module.partition(".")[2]) if one
    )


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a GPU, or those that this process may still take of the machine's memory and of its control group's."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = psutil.virtual_memory().available
    with suppress(OSError, ValueError):  # without a limit, memory.max is a word
        limit, current = (int((CONTROL_GROUP / name).read_text()) for name in ("memory.max", "memory.current"))
        parts = dict(line.split() for line in (CONTROL_GROUP / "memory.stat").read_text().splitlines())
        cached = int(parts["inactive_file"]) + int(parts["active_file"])  # given back when memory is needed
        free = min(free, max(0, limit - current + cached))
    return free
