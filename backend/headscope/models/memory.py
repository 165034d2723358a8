"""How torch and the libraries below it say that there is no more memory."""

from __future__ import annotations

import torch

# On the CPU, of the system, and of CUDA's libraries on the card.
SAID = ("can't allocate memory", "Cannot allocate memory", "not enough memory", "ALLOC_FAILED")


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: Python's or the graphics card's; on the CPU torch raises a plain RuntimeError, as its libraries do on the card."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error) for part in SAID)
