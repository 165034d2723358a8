"""Roles of heads against a loop, and on heads made for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .heads import FEW, agree, allowed, cases, head_layer, measure, rows, sentence


def slow(
    layer: Any, map_: np.ndarray, mask: np.ndarray, exclude_bos: bool, exclude_current: bool
) -> list[dict[str, float]]:
    """sum(A * pattern) / sum(A), entry by entry in float64."""
    ids, n = [token.id for token in layer.axes.keys], len(layer.axes.keys)
    causal = not any(mask[i, j] for i in range(n) for j in range(i + 1, n)) and (n > 1 or layer.keys.rule != "all")
    roles = {
        "previous": lambda i, j: j == i - 1,
        "next": lambda i, j: j == i + 1,
        "self": lambda i, j: j == i,
        "first": lambda i, j: j == 0,
        "duplicate": lambda i, j: j < i and ids[j] == ids[i],
        "induction": lambda i, j: 0 < j <= i and ids[j - 1] == ids[i],
    }
    found = []
    for head in np.nan_to_num(abs(map_.astype(np.float64))):
        columns: dict[str, float] = {}
        for name, matches in roles.items():
            undefined = name == "next" if causal else name in ("duplicate", "induction")
            covered = total = matched_total = 0.0
            for i in range(n):
                match = any(matches(i, j) for j in range(n))
                for j in range(n):
                    if (exclude_bos and j == 0) or (exclude_current and i == j):
                        continue
                    covered += head[i][j] * matches(i, j)
                    total += head[i][j]
                    matched_total += head[i][j] * match
            columns[name] = covered / total if total and not undefined else np.nan
            if name not in ("self", "first"):
                columns[f"{name}_matched"] = covered / matched_total if matched_total and not undefined else np.nan
        found.append(columns)
    return found


@FEW
@given(cases(), st.booleans(), st.booleans())
def test_against_a_loop(case: Any, exclude_bos: bool, exclude_current: bool) -> None:
    """Every role, both exclusions, any mask, signed maps by magnitude; 2e-6."""
    layer, lens, map_, mask = case
    found = measure("head_roles", layer, lens, map_, exclude_bos=exclude_bos, exclude_current=exclude_current)
    agree(found, slow(layer, map_, mask, exclude_bos, exclude_current), 2e-6)


def test_a_perfect_previous_token_head() -> None:
    """(n - 1) / n of all attention, for the first query has no token before it; 1 among the queries that have one."""
    map_ = np.eye(12, k=-1)
    map_[0, 0] = 1
    found = measure("head_roles", head_layer(map_[None], sentence(["a"] * 12), "prefix"))
    assert found["previous"][0] == pytest.approx(11 / 12)
    assert found["previous_matched"][0] == pytest.approx(1)


def test_a_perfect_induction_head() -> None:
    """Random tokens four times over: each one attends to what followed the last time, the first round to the first token."""
    random, rounds = [f"w{i}" for i in np.random.default_rng(0).permutation(25)], 4
    map_ = np.zeros((100, 100))
    for i in range(100):
        map_[i, i - 24 if i >= 25 else 0] = 1
    found = measure("head_roles", head_layer(map_[None], sentence(random * rounds), "prefix"))
    assert found["induction"][0] == pytest.approx(0.75)
    assert found["induction_matched"][0] == pytest.approx(1)
    assert found["duplicate"][0] == 0


def test_a_token_repeated_at_once_is_what_followed_itself() -> None:
    """The published pattern keeps the diagonal there."""
    found = measure("head_roles", head_layer(np.eye(2)[None], sentence("a a"), "prefix"))
    assert found["induction_matched"][0] == pytest.approx(1)


def test_texts_without_repetitions() -> None:
    """No attention to duplicates, and no share among the queries that have one, as there are none."""
    found = measure("head_roles", head_layer(rows(0, 2, allowed("prefix", 5)), sentence("a b c d e"), "prefix"))
    assert (found["duplicate"] == 0).all()
    assert np.isnan(found["duplicate_matched"]).all()


def test_the_map_is_left_as_it_was() -> None:
    """What is excluded is excluded from a copy."""
    layer = head_layer(rows(0, 2, allowed("all", 5)), sentence("[CLS] a b c [SEP]"))
    before = layer.weights.clone()
    measure("head_roles", layer, exclude_bos=True, exclude_current=True)
    assert (layer.weights == before).all()
