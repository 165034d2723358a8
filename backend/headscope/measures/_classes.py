"""The classes of patterns, and how far the thresholds that decide a class may move before it changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache

from ..core.lazy import Tensor, torch

CLASSES = ("vertical", "diagonal", "vertical+diagonal", "block", "heterogeneous", "unclassified")
VERTICAL, DIAGONAL, MIXED, BLOCK, HETEROGENEOUS, UNCLASSIFIED = range(len(CLASSES))


def settle(rule: Callable[..., int], scores: Tensor, thresholds: list[float]) -> tuple[Tensor, Tensor]:
    """Classes and margins [H] of scores [H, B]. `rule` takes B truths, "the score reaches its threshold", and gives the number of a class.

    Margin: as long as no threshold moves by more than that the class stays the same. It is exact for moves of all thresholds at once: for every
    set of truths that would have to turn over the largest of their distances is what it costs, and the cheapest set with another class counts.
    A score of NaN reaches no threshold, however low. Infinite where no move changes anything.
    """
    distance = scores - torch.tensor(thresholds, dtype=scores.dtype)  # [H, B]
    table, reachable = _tables(rule)  # [2^B], [2^B, 2^B]
    bits = torch.ones(len(thresholds), dtype=torch.long) << torch.arange(len(thresholds))
    code = ((distance >= 0) * bits).sum(-1)  # [H]
    found = table[code]
    # The cheapest set that gives another class is among the truths up to the one that costs most.
    costs, order = distance.abs().nan_to_num(torch.inf).sort(-1)  # [H, B]
    others = reachable[code[:, None], bits[order].cumsum(-1)] & ~(1 << found[:, None])
    return found, costs.masked_fill(others == 0, torch.inf).amin(-1)


@cache
def _tables(rule: Callable[..., int]) -> tuple[Tensor, Tensor]:
    """The class of every combination of truths, [2^B]; and those of all combinations that turning over some of a set of truths leads to, [2^B, 2^B].

    Combinations and sets are numbers whose bits are truths, sets of classes are numbers whose bits are classes.
    """
    bits = len(inspect.signature(rule).parameters)
    codes = torch.arange(2**bits)
    truths = codes[:, None].bitwise_right_shift(torch.arange(bits)).bitwise_and(1).bool()
    table = torch.tensor([rule(*row) for row in truths.tolist()])
    reachable = (1 << table)[:, None]  # with nothing turned over
    for bit in range(bits):  # sets with this truth: it is turned over or not
        reachable = torch.cat([reachable, reachable | reachable[codes ^ (1 << bit)]], -1)
    return table, reachable.to(torch.int16)
