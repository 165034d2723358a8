"""The budget: what is accepted fits, what is refused does not, and what is offered instead would fit."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.budget import Plan, check
from headscope.errors import BudgetExceeded

SIZES = {
    "layers": st.integers(1, 60),
    "heads": st.integers(1, 64),
    "tokens": st.integers(1, 5000),
    "lenses": st.integers(0, 3),
}


@settings(max_examples=300, derandomize=True, deadline=None)
@given(**SIZES, limit=st.integers(0, 2**33))
def test_refused_exactly_when_it_does_not_fit(layers: int, heads: int, tokens: int, lenses: int, limit: int) -> None:
    """The refusal states both numbers, and every way out that it offers is accepted."""
    planned = Plan(list(range(layers)), list(range(heads)), tokens, lenses)
    if planned.bytes <= limit:
        check(planned, limit)
        return
    with pytest.raises(BudgetExceeded) as refused:
        check(planned, limit)
    assert (refused.value.limit, refused.value.actual) == (limit, planned.bytes)
    offered = refused.value.detail.partition("What would fit: ")[2]
    if found := re.search(r"(\d+) layers", offered):
        check(Plan(planned.layers[: int(found[1])], planned.heads, tokens, lenses), limit)
    if "maps: false" in offered:
        check(Plan(planned.layers, planned.heads, tokens, 0), limit)
    if found := re.search(r"(\d+) tokens", offered):
        fitting = int(found[1])
        assert 0 < fitting < tokens
        check(Plan(planned.layers, planned.heads, fitting, lenses), limit)
        with pytest.raises(BudgetExceeded):
            check(Plan(planned.layers, planned.heads, fitting + 1, lenses), limit)
