"""Classes decided by thresholds, and how far each threshold may move before the class is another."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def settle(rule: Callable[..., int], scores: Tensor, thresholds: list[float]) -> tuple[Tensor, Tensor]:
    """Classes and margins [H] of scores [H, B]. `rule` takes B truths, "the score reaches its threshold", and gives the number of a class.

    Margin: as long as no threshold moves by more than that the class stays the same. It is exact for moves of all thresholds at once: for every
    set of truths that would have to turn over the largest of their distances is what it costs, and the cheapest set with another class counts.
    A score of NaN reaches no threshold, however low. Infinite where no move changes anything.
    """
    import torch

    distance = scores - torch.tensor(thresholds, dtype=scores.dtype)  # [H, B]
    reached = distance >= 0
    table, turned = _table(rule)  # [2^B], [2^B, B]
    code = (reached.long() << torch.arange(len(thresholds))).sum(-1)  # [H]
    found = table[code]
    cost = distance.abs().nan_to_num(torch.inf).masked_fill(~turned[:, None], 0).amax(-1)  # [2^B, H]
    changes = table[code ^ torch.arange(len(table))[:, None]] != found
    return found, cost.masked_fill(~changes, torch.inf).amin(0)


@cache
def _table(rule: Callable[..., int]) -> tuple[Tensor, Tensor]:
    """The rule for every combination of truths, [2^B], and the truths of each combination, [2^B, B]."""
    import torch

    bits = len(inspect.signature(rule).parameters)
    truths = torch.arange(2**bits)[:, None].bitwise_right_shift(torch.arange(bits)).bitwise_and(1).bool()
    return torch.tensor([rule(*row) for row in truths.tolist()]), truths
