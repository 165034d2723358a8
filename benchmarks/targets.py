"""The page's default methods and those with a target, as in `costs`, with more repeats and close to the plain pass in time."""

from __future__ import annotations

from typing import Any

from . import costs

REPEATS = 11
CHOSEN = ("capture", "lens effective", "lens norm", "mechanism jump", "default measures")
SMALLEST = costs.SMALLEST


def measure(repeats: int = REPEATS, **options: Any) -> list[dict[str, Any]]:
    """Return rows and columns as `costs` does, with its options."""
    return costs.measure(repeats=repeats, chosen=CHOSEN, **options)
