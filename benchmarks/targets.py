"""What the page asks for by default and what has a target, as in `costs`, in more repeats and close beside the plain pass."""

from __future__ import annotations

from typing import Any

from . import costs

REPEATS = 11
CHOSEN = ("capture", "lens effective", "lens norm", "mechanism jump", "default measures")


def measure() -> list[dict[str, Any]]:
    """Rows and columns as those of `costs`."""
    return costs.measure(repeats=REPEATS, chosen=CHOSEN)
