"""Attention sinks against a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from .heads import FEW, agree, allowed, average, cases, head_layer, measure, rows, sentence


def slow(layer: Any, map_: np.ndarray, mask: np.ndarray, position: int | None) -> list[dict[str, float]]:
    """The mean over t >= k of entry (t, k), over the queries that see k."""
    tokens, n = layer.axes.keys, len(layer.axes.keys)
    causal = not any(mask[i, j] for i in range(n) for j in range(i + 1, n)) and (n > 1 or layer.keys.rule != "all")
    found = []
    for head in map_.astype(np.float64):
        if position is not None:
            places = [position] if position < n else []
        else:
            places = [0] if causal else [j for j in range(n) if tokens[j].kind == "special"]
        values = {
            j: average(head[i][j] for i in range(n) if mask[i, j] and not np.isnan(head[i]).any()) for j in places
        }
        values = {j: value for j, value in values.items() if not np.isnan(value)}
        if not values:
            found.append(dict.fromkeys(("value", "is_sink", "position"), np.nan))
            continue
        best = max(values, key=lambda j: (values[j], -j))
        found.append({"value": values[best], "is_sink": float(values[best] > 0.3), "position": float(best)})
    return found


@FEW
@given(cases(), st.sampled_from([None, None, 0, 1, 5, 10**6]))
def test_against_a_loop(case: Any, position: int | None) -> None:
    """Values within 1e-6, and the same token wherever it is the larger by more than that."""
    layer, lens, map_, mask = case
    found, expected = measure("sink", layer, lens, map_, position=position), slow(layer, map_, mask, position)
    agree(found, [{"value": head["value"]} for head in expected], 1e-6)
    clear = [head for head in expected if np.isnan(head["value"]) or abs(head["value"] - 0.3) > 1e-5]
    if len(clear) == len(expected):
        agree(found, [{"is_sink": head["is_sink"]} for head in expected], 0)
    if map_.std() > 1e-3:
        agree(found, [{"position": head["position"]} for head in expected], 0)


def test_the_first_row_counts() -> None:
    """Causal: the first token has itself only, so that its mean is at least 1/T, and exactly that if no other token looks at it."""
    map_ = np.eye(20)[None]
    found = measure("sink", head_layer(map_, sentence(["a"] * 20), "prefix"))
    assert found["value"][0] == pytest.approx(1 / 20)
    assert not found["is_sink"][0]


def test_a_sink_later_in_the_text() -> None:
    """Only queries from that token on can rest on it."""
    map_ = np.eye(20)
    map_[5:] = np.eye(20)[5]
    layer = head_layer(map_[None], sentence(["a"] * 20), "prefix")
    assert measure("sink", layer, position=5)["value"][0] == pytest.approx(1)
    assert measure("sink", layer, position=5)["position"][0] == 5


def test_encoders_rest_on_special_tokens() -> None:
    """The special token with the largest column mean; without any, nothing to say."""
    map_ = np.tile([0.2, 0.1, 0.1, 0.6], (4, 1))[None]
    found = measure("sink", head_layer(map_, sentence("[CLS] a b [SEP]")))
    assert [column[0] for column in found.values()] == [pytest.approx(0.6), 1, 3]
    assert np.isnan(measure("sink", head_layer(rows(0, 1, np.ones((3, 3), bool)), sentence("a b c")))["value"]).all()


def test_the_threshold() -> None:
    """More than epsilon, not as much."""
    map_ = np.tile([0.5, 0.5], (2, 1))[None]
    layer = head_layer(map_, sentence("[CLS] a"))
    assert not measure("sink", layer, epsilon=0.5)["is_sink"][0]
    assert measure("sink", layer, epsilon=0.49)["is_sink"][0]


def test_a_token_that_only_missing_rows_see_is_no_candidate() -> None:
    """The separator falls out of the comparison, the first token stays; where nothing is left there is nothing to say."""
    layer = head_layer(rows(0, 1, allowed("band", 12)), sentence(["[CLS]", *["a"] * 10, "[SEP]"]), "band")
    map_ = -layer.weights.numpy()
    map_[:, 8:] = np.nan
    found = measure("sink", layer, "effective", map_)
    assert found["value"][0] == pytest.approx(map_[0, :4, 0].mean(), abs=1e-6)
    assert found["position"][0] == 0
    map_[:] = np.nan
    assert all(np.isnan(column).all() for column in measure("sink", layer, "effective", map_).values())
