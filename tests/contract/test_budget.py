"""The memory budget: accepted requests fit, rejected ones do not, and the suggested alternatives would fit."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.analysis.memory import MemoryPlan, check
from headscope.errors import BudgetExceeded
from headscope.settings import Keep
from tests.support.extent import extent

KEPT = ["weights", "effective", "rollout"]


def plan(layers: int, heads: int, tokens: int, lenses: int, keep: Keep = "maps") -> MemoryPlan:
    """Return a plan for these numbers of layers, heads (64 wide), tokens and kept lenses."""
    counts = dict.fromkeys(range(layers), heads)
    return MemoryPlan(
        list(range(layers)), list(range(heads)), tokens, tokens, KEPT[:lenses], lenses > 2, counts, keep, width=64
    )


SIZES = {
    "layers": st.integers(1, 60),
    "heads": st.integers(1, 64),
    "tokens": st.integers(1, 5000),
    "lenses": st.integers(0, 3),
}


@settings(max_examples=extent(300, 75), derandomize=True, deadline=None)
@given(**SIZES, limit=st.integers(0, 2**33), keep=st.sampled_from(["maps", "smaller"]))
def test_refused_exactly_when_it_does_not_fit(
    layers: int, heads: int, tokens: int, lenses: int, limit: int, keep: Keep
) -> None:
    """The error reports both numbers, and every alternative that it suggests is accepted, whatever is kept."""
    planned = plan(layers, heads, tokens, lenses, keep)
    if planned.bytes <= limit:
        check(planned, limit)
        return
    with pytest.raises(BudgetExceeded) as refused:
        check(planned, limit)
    assert (refused.value.limit, refused.value.actual) == (limit, planned.bytes)
    offered = refused.value.detail.partition("What would fit: ")[2]
    if found := re.search(r"(\d+) layers", offered):
        check(plan(int(found[1]), heads, tokens, lenses, keep), limit)
    if "fewer lenses" in offered:
        check(min((replace(planned, kept=[lens]) for lens in planned.kept), key=lambda one: one.bytes), limit)
        assert lenses > 1
    assert ("maps: false" in offered) == (lenses > 0 and replace(planned, kept=[]).bytes <= limit)
    if found := re.search(r"(\d+) tokens", offered):
        fitting = int(found[1])
        assert 0 < fitting < tokens
        check(plan(layers, heads, fitting, lenses, keep), limit)
        with pytest.raises(BudgetExceeded):
            check(plan(layers, heads, fitting + 1, lenses, keep), limit)


@settings(max_examples=extent(100, 25), derandomize=True, deadline=None)
@given(**SIZES)
def test_the_smaller_is_planned(layers: int, heads: int, tokens: int, lenses: int) -> None:
    """Factors are planned from about two widths of tokens on, of the lenses that have some, and never take more than maps."""
    planned = plan(layers, heads, tokens, lenses, "smaller")
    assert planned.bytes <= plan(layers, heads, tokens, lenses).bytes
    assert planned.factored == ([] if tokens <= 128 else KEPT[: min(lenses, 2)]) or 128 < tokens < 160
    half = plan(layers, heads, tokens // 2, lenses, "smaller")
    if set(planned.kept) == set(half.factored):
        assert planned.map_bytes <= 2.1 * half.map_bytes
