"""The connection graph of a head: edges by every rule, bounded, and strongest first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.api.test_maps import TEXT, fetch
from tests.support.cluster import cluster_long
from tests.support.server import Server

pytestmark = cluster_long


@pytest.fixture(scope="module", params=["bert", "gpt2"])
def document(server: Server, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Finished analyses of an encoder and a decoder."""
    return server.analyse(model=request.param, text=TEXT, lenses=["weights", "effective"])


def naive_edges(weights: np.ndarray, rule: str, k: int, mass: float, value: float) -> set[tuple[int, int]]:
    """Select edges in the most obvious way."""
    chosen = set()
    counted = weights[weights != 0].astype(np.float64)
    mean, std = counted.mean(), counted.std()
    for query, row in enumerate(weights):
        order = sorted(range(len(row)), key=lambda key: -abs(row[key]))
        held, total = 0.0, sum(abs(float(entry)) for entry in row)
        for place, key in enumerate(order):
            entry = float(row[key])
            wanted = {
                "top-k": place < k,
                "mass": held < mass * total,
                "mean+std": entry > mean + std,
                "value": abs(entry) >= value,
            }[rule]
            held += abs(entry)
            if wanted and entry != 0:
                chosen.add((query, key))
    return chosen


RULES: list[tuple[str, dict[str, float]]] = [
    ("top-k", {"k": 1}),
    ("top-k", {"k": 3}),
    ("top-k", {"k": 999}),
    ("mass", {"mass": 0.5}),
    ("mass", {"mass": 0.9}),
    ("mean+std", {}),
    ("value", {"value": 0.05}),
    ("value", {"value": 0}),
    ("value", {"value": 2}),
]


@pytest.mark.parametrize("lens", ["weights", "effective"])
def test_edges_by_every_rule(server: Server, document: dict[str, Any], lens: str, subtests: pytest.Subtests) -> None:
    """The connection graph equals that of an obvious loop over the map, strongest first."""
    for rule, more in RULES:
        with subtests.test(rule=rule, more=more):
            weights = fetch(server, document, f"maps/{lens}", layer="1", head="2")["map"][0, 0]
            parameters = {"k": 3, "mass": 0.7, "value": 0.1, **more}
            query = {"layer": 1, "head": 2, "rule": rule, "limit": 20_000, **more}
            got = server.get(f"/analyses/{document['id']}/edges/{lens}", params=query).json()
            assert {(edge["query"], edge["key"]) for edge in got["edges"]} == naive_edges(weights, rule, **parameters)
            assert got["total"] == len(got["edges"])
            strengths = [abs(edge["weight"]) for edge in got["edges"]]
            assert strengths == sorted(strengths, reverse=True)
            assert all(edge["weight"] == weights[edge["query"], edge["key"]] for edge in got["edges"])
            assert all((edge["layer"], edge["head"]) == (1, 2) for edge in got["edges"])


def test_a_rule_typed_into_an_address(server: Server, document: dict[str, Any]) -> None:
    """In a URL, a plus is a space."""
    path = f"/analyses/{document['id']}/edges/weights?layer=1&head=2&rule="
    assert server.get(f"{path}mean+std").json() == server.get(f"{path}mean%2Bstd").json()


def test_edges_are_bounded(server: Server, document: dict[str, Any]) -> None:
    """limit keeps the strongest edges and does not change the total."""
    path, query = f"/analyses/{document['id']}/edges/weights", {"layer": 0, "head": 0, "rule": "value", "value": 0}
    whole = server.get(path, params=query).json()
    cut = server.get(path, params={**query, "limit": 5}).json()
    assert cut == {"edges": whole["edges"][:5], "total": whole["total"]}
