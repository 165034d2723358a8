"""The classes of patterns, and how far the thresholds that decide a class may move before it changes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache

from ..core.lazy import Tensor, torch

CLASSES = ("vertical", "diagonal", "vertical+diagonal", "block", "heterogeneous", "unclassified")
VERTICAL, DIAGONAL, MIXED, BLOCK, HETEROGENEOUS, UNCLASSIFIED = range(len(CLASSES))


def settle(rule: Callable[..., int], scores: Tensor, thresholds: list[float]) -> tuple[Tensor, Tensor]:
    """Return classes and margins [H] for scores [H, B]. `rule` maps B truths, "the score reaches its threshold", to the number of a class.

    The margin is how far thresholds may move, all of them at once, before the class changes. It is exact: flipping a set of truths costs the largest of their
    distances, and the cheapest set with another class counts. A score of NaN reaches no threshold, however low. The margin is infinite where no move
    changes the class.
    """
    device = scores.device
    distance = scores - torch.tensor(thresholds, dtype=scores.dtype, device=device)  # [H, B]
    table, reachable = _tables(rule, device)  # [2^B], [2^B, 2^B]
    bits = torch.ones(len(thresholds), dtype=torch.long, device=device) << torch.arange(len(thresholds), device=device)
    code = ((distance >= 0) * bits).sum(-1)  # [H]
    found = table[code]
    # With truths ordered by cost, the cheapest set with another class is a part of some prefix.
    costs, order = distance.abs().nan_to_num(torch.inf).sort(-1)  # [H, B]
    others = reachable[code[:, None], bits[order].cumsum(-1)] & ~(1 << found[:, None])
    return found, costs.masked_fill(others == 0, torch.inf).amin(-1)


@cache
def _tables(rule: Callable[..., int], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the class of every combination of truths, [2^B], and the classes reachable from it by flipping some of a set of truths, [2^B, 2^B].

    Combinations and sets of truths are numbers whose bits are truths; sets of classes are numbers whose bits are classes.
    """
    bits = len(inspect.signature(rule).parameters)
    codes = torch.arange(2**bits, device=device)
    truths = codes[:, None].bitwise_right_shift(torch.arange(bits, device=device)).bitwise_and(1).bool()
    table = torch.tensor([rule(*row) for row in truths.tolist()], device=device)
    reachable = (1 << table)[:, None]  # with nothing flipped
    for bit in range(bits):  # sets with this truth: it is flipped or not
        reachable = torch.cat([reachable, reachable | reachable[codes ^ (1 << bit)]], -1)
    return table, reachable.to(torch.int16)
