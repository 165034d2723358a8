"""The memory budget: accepted requests fit, rejected ones do not, and the suggested alternatives would fit."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.analysis.memory import MemoryPlan, check
from headscope.errors import BudgetExceeded

KEPT = ["weights", "effective", "rollout"]


def plan(layers: int, heads: int, tokens: int, lenses: int) -> MemoryPlan:
    """Return a plan for these numbers of layers, heads, tokens and kept lenses."""
    counts = dict.fromkeys(range(layers), heads)
    return MemoryPlan(list(range(layers)), list(range(heads)), tokens, tokens, KEPT[:lenses], lenses > 2, counts)


SIZES = {
    "layers": st.integers(1, 60),
    "heads": st.integers(1, 64),
    "tokens": st.integers(1, 5000),
    "lenses": st.integers(0, 3),
}


@settings(max_examples=300, derandomize=True, deadline=None)
@given(**SIZES, limit=st.integers(0, 2**33))
def test_refused_exactly_when_it_does_not_fit(layers: int, heads: int, tokens: int, lenses: int, limit: int) -> None:
    """The error reports both numbers, and every alternative that it suggests is accepted."""
    planned = plan(layers, heads, tokens, lenses)
    if planned.bytes <= limit:
        check(planned, limit)
        return
    with pytest.raises(BudgetExceeded) as refused:
        check(planned, limit)
    assert (refused.value.limit, refused.value.actual) == (limit, planned.bytes)
    offered = refused.value.detail.partition("What would fit: ")[2]
    if found := re.search(r"(\d+) layers", offered):
        check(plan(int(found[1]), heads, tokens, lenses), limit)
    if "fewer lenses" in offered:
        check(min((replace(planned, kept=[lens]) for lens in planned.kept), key=lambda one: one.bytes), limit)
        assert lenses > 1
    if "maps: false" in offered:
        check(replace(planned, kept=[]), limit)
    if found := re.search(r"(\d+) tokens", offered):
        fitting = int(found[1])
        assert 0 < fitting < tokens
        check(plan(layers, heads, fitting, lenses), limit)
        with pytest.raises(BudgetExceeded):
            check(plan(layers, heads, fitting + 1, lenses), limit)
