"""Counts of connections against a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.variants import variants

from .heads import FEW, agree, allowed, cases, head_layer, measure, rows, sentence

FOUR = ("PER", "LOC", "ORG", "MISC")


def kind_of(token: Any) -> str:
    """Special, no entity, or the type of the entity."""
    if token.kind == "special":
        return "special"
    label = token.label or "O"
    return label[2:] if label[:2] in ("B-", "I-") else label


def slow(layer: Any, map_: np.ndarray, mask: np.ndarray, self_edges: bool, deviations: float) -> list[dict[str, float]]:
    """Edge by edge, in float64. The entries themselves are float32, as the map is."""
    tokens, n = layer.axes.keys, len(layer.axes.keys)
    found = []
    for head in map_.astype(np.float64):
        places = [(i, j) for i in range(n) for j in range(n) if mask[i, j] and not np.isnan(head[i]).any()]
        entries = [head[i][j] for i, j in places]
        least = np.mean(entries) + deviations * np.std(entries) if entries else np.inf
        counts = dict.fromkeys(("edges", "special", *FOUR, "same_other", "cross", "other"), 0.0)
        for i, j in places:
            if not head[i][j] > least or head[i][j] == 0 or (i == j and not self_edges):
                continue
            one, other = kind_of(tokens[i]), kind_of(tokens[j])
            if "special" in (one, other):
                name = "special"
            elif "O" in (one, other):
                name = "other"
            elif one == other:
                name = one if one in FOUR else "same_other"
            else:
                name = "cross"
            counts[name] += 1
            counts["edges"] += 1
        if all(token.label is None for token in tokens):
            counts |= dict.fromkeys((*FOUR, "same_other", "cross"), np.nan)
        found.append(counts)
    return found


@FEW
@given(cases(), st.booleans(), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
def test_against_a_loop(case: Any, self_edges: bool, deviations: float) -> None:
    """Counts are whole numbers: exactly equal. With and without labels, any mask, signed maps and missing rows."""
    layer, lens, map_, mask = case
    if float(map_[np.isfinite(map_)].std() if np.isfinite(map_).any() else 0) < 1e-6:
        return  # equal entries have their own test
    found = measure("connections", layer, lens, map_, self_edges=self_edges, deviations=deviations)
    agree(found, slow(layer, map_, mask, self_edges, deviations), 0)


@variants("n", [1, 3, 7, 50])
@variants("deviations", [0.0, 1.0])
def test_a_uniform_map_has_no_edges(n: int, deviations: float) -> None:
    """Though 1/n is rounded: no entry is above the mean of entries equal to it."""
    layer = head_layer(np.full((2, n, n), 1 / n), sentence(["a"] * n))
    assert (measure("connections", layer, deviations=deviations)["edges"] == 0).all()


def test_long_maps_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same counts whatever the size of a part."""
    tokens = sentence(["[CLS]", *["cat", "dog", "a"] * 9, "[SEP]"], labels={"cat": "B-PER", "dog": "I-ORG"})
    layer = head_layer(rows(3, 4, allowed("prefix", 29)), tokens, "prefix")
    whole = measure("connections", layer)
    monkeypatch.setattr("headscope.measures.connections.PART", 300)
    assert all((measure("connections", layer)[name] == column).all() for name, column in whole.items() if name != "LOC")


def test_classes() -> None:
    """One edge of every class."""
    labels = {"ann": "B-PER", "bob": "I-PER", "oslo": "LOC", "noon": "B-TIME", "dusk": "E-TIME", "the": "O", "B-": "B-"}
    tokens = sentence("[CLS] ann bob oslo noon dusk the of", labels=labels)
    edges = [(0, 1), (1, 2), (1, 3), (4, 5), (6, 1), (7, 6)]
    map_ = np.zeros((1, 8, 8))
    map_[0, *zip(*edges, strict=True)] = 1
    found = {name: column[0] for name, column in measure("connections", head_layer(map_, tokens)).items()}
    assert found == {
        "edges": 6,
        "special": 1,
        "PER": 1,
        "LOC": 0,
        "ORG": 0,
        "MISC": 0,
        "same_other": 1,
        "cross": 1,
        "other": 2,
    }


def test_a_threshold_between_two_neighbouring_numbers() -> None:
    """The mean of 0.5 and of the number just below it lies between them, though it rounds to 0.5."""
    below = np.nextafter(np.float32(0.5), np.float32(0))
    layer = head_layer(np.array([[[below, 0.5], [below, 0.5]]]), sentence("a b"))
    assert measure("connections", layer, deviations=0.0, self_edges=True)["edges"][0] == 2
