"""What the page asks for by default and what has a target, as in `costs`, in more repeats and close beside the plain pass."""

from __future__ import annotations

from typing import Any

from . import costs

REPEATS = 11
CHOSEN = ("capture", "lens effective", "lens norm", "mechanism jump", "default measures")
SMALLEST = costs.SMALLEST


def measure(repeats: int = REPEATS, **options: Any) -> list[dict[str, Any]]:
    """Return rows and columns as `costs` does, with its options."""
    return costs.measure(repeats=repeats, chosen=CHOSEN, **options)
