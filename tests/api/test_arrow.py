"""Edges and measures as Arrow tables: the numbers of the JSON, with named columns and a schema that describes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.server import Server

ACCEPT = {"Accept": "application/vnd.apache.arrow.stream, */*;q=0.1"}


@pytest.fixture(scope="module")
def path(embedded: Server) -> str:
    """The path of an analysis of some layers and heads."""
    analysis = embedded.analyse(model="bert", text="The cat sat on the mat.", layers=[1], heads=[1, 3])
    return f"/analyses/{analysis['id']}"


def described(table: Any) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in table.schema.metadata.items()}


def test_edges(embedded: Server, path: str) -> None:
    """The same edges, by Accept or by format; the schema names the lens, its unit and how many edges there are."""
    query = {"layer": 1, "head": 3, "limit": 5}
    edges = embedded.get(f"{path}/edges/weights", params=query).json()
    answer = embedded.get(f"{path}/edges/weights", params=query, headers=ACCEPT)
    assert answer.headers["content-type"] == "application/vnd.apache.arrow.stream"
    assert answer.content == embedded.get(f"{path}/edges/weights", params={**query, "format": "arrow"}).content
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.to_pylist() == edges["edges"]
    expected = {"headscope.lens": "weights", "headscope.unit": "1", "headscope.total": str(edges["total"])}
    assert described(table) == expected
    none = embedded.get(f"{path}/edges/weights?layer=1&head=3&rule=value&value=2&format=arrow")
    assert pa.ipc.open_stream(none.content).read_all().to_pylist() == []
    assert embedded.get(f"{path}/edges/weights?layer=1&head=3&format=csv").status_code == 422


def test_measures(embedded: Server, path: str) -> None:
    """One row per query, in the numbering of the model; the schema has axes, lens and unit."""
    place = f"{path}/measures/entropy?head=3&unit=bits"
    ((values,),) = embedded.get(f"{place}&format=json").json()["values"]
    table = pa.ipc.open_stream(embedded.get(place, headers=ACCEPT).content).read_all()
    assert table.drop_columns("entropy").to_pylist() == [
        {"layer": 1, "head": 3, "query": query} for query in range(len(values))
    ]
    assert table["entropy"].to_pylist() == values
    said = described(table)
    assert (said["headscope.axes"], said["headscope.lens"], said["headscope.unit"]) == ("L H Q", "weights", "bits")
