"""The page's default methods and those with a target, as in `costs`, with more repeats and close to the plain pass in time; longer inputs of a causal model, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import GPT2Config, GPT2LMHeadModel

from . import costs

REPEATS = 11
CHOSEN = ("capture", "lens effective", "lens norm", "mechanism jump", "default measures")
LONGEST = 2048
# What is measured of longer inputs, with which options of costs.measure.
LONG: dict[str, Any] = {
    "chosen": ("lens effective", "default measures"),
    "lengths": (LONGEST,),
    "repeats": 5,
    "models": {"gpt2-small": lambda: GPT2LMHeadModel(GPT2Config(n_positions=LONGEST))},
}
SMALLEST: dict[str, Any] = {**costs.SMALLEST, "long": {**costs.SMALLEST, "chosen": CHOSEN, "lengths": (12,)}}


def measure(repeats: int = REPEATS, long: Mapping[str, Any] | None = LONG, **options: Any) -> list[dict[str, Any]]:
    """Return rows and columns as `costs` does, with its options, and columns of `long` inputs."""
    rows = costs.measure(repeats=repeats, chosen=CHOSEN, **options)
    longer = {row["method"]: row for row in costs.measure(**long)} if long else {}
    return [row | longer.get(row["method"], {}) for row in rows]
