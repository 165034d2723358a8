"""The Python client: it has every operation of the interface with its parameters, and reads what the server sends."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from headscope.client import ApiError, AsyncClient, Client
from headscope.client.call import JSON, PREFIX, Call, Operation
from headscope.client.operations import MapSelection, Operations
from tests.api.users import DOCUMENT, UNKNOWN_ID, Users

TEXT = "The cat sat on the mat."
REQUEST = {"model": "gpt2", "text": TEXT, "lenses": ["weights"], "measures": ["entropy"]}
OPERATIONS = {name: operation for name, operation in vars(Operations).items() if isinstance(operation, Operation)}
# Signing in is for browsers, which keep a cookie; `wait` follows a job, and `download` writes exports, images and events to files.
LEFT_OUT = {"session", "events", "export", "image", "healthz", "readyz", "metrics"}
# Parameters that choose how something is sent. The client chooses.
SENT_AS = {"format", "width", "height"}


def example(name: str) -> Call[Any]:
    """The call of an operation, with a value for every parameter."""
    given: dict[str, Any] = {}
    for parameter in inspect.signature(OPERATIONS[name].call).parameters.values():
        if parameter.kind is not parameter.VAR_KEYWORD:
            given[parameter.name] = {"request": {}, "data": b"", "columns": {}, "pinned": [1]}.get(parameter.name, "1")
        elif name.endswith("maps"):
            given |= dict.fromkeys(MapSelection.__annotations__, "1")
    given |= {"wait": 1.0} if "wait" in given else {}
    return OPERATIONS[name].call(**given)


def test_has_every_operation_with_its_parameters_and_its_document() -> None:
    """The client does not lag behind the interface: a new route, parameter or document fails here."""
    calls = [example(name) for name in OPERATIONS if not name.endswith("_arrow")]
    found = {(call.method, PREFIX + call.path): call for call in calls}
    assert len(found) == len(calls)
    declared = {
        (method.upper(), path): operation
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        if not LEFT_OUT & set(path.split("/"))
    }
    assert set(found) == set(declared)
    for place, operation in declared.items():
        of_query = {one["name"] for one in operation.get("parameters", []) if one["in"] == "query"}
        own = SENT_AS - {"format"} if "datasets" in place[1] else SENT_AS
        assert set(found[place].params) == of_query - own, place
        waits = any(one["name"].lower() == "prefer" for one in operation.get("parameters", []))
        assert (found[place].wait is not None) == waits, place
        assert found[place].body is not None or "requestBody" not in operation, place


def test_loads_no_heavy_package() -> None:
    heavy = ("celery", "fastapi", "plotly", "redis", "sqlalchemy", "starlette", "torch", "transformers")
    code = f"import sys, headscope.client; print([name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


@pytest.fixture(scope="module")
def client(lab: Users) -> Iterator[Client]:
    with Client(f"http://{lab.server.url}", lab.tokens["ada"]) as client:
        yield client


def test_analyses(client: Client, tmp_path: Path) -> None:
    """Submit, wait, and read documents, tensors and a file."""
    a = client.wait(client.create_analysis(REQUEST))
    assert (a.status, a.error, len(a.tokens)) == ("done", None, a.maps["weights"].shape[-1])
    assert client.create_analysis(REQUEST, wait=10).id == a.id
    maps = client.maps(a.id, "weights", layer=1, head="0:3")["map"]
    assert (maps.dtype, maps.shape[:2]) == (np.float32, (1, 3))
    np.testing.assert_allclose(maps.sum(-1), 1, rtol=1e-5)
    (edge,) = client.edges(a.id, "weights", layer=1, head=2, limit=1).edges
    assert edge.weight == maps[0, 2].max() == maps[0, 2, edge.query, edge.key]
    table = client.edges_arrow(a.id, "weights", layer=1, head=2, limit=1)
    assert table.to_pylist() == [edge.model_dump()]
    entropy = client.measure(a.id, "entropy", summary="head")
    table = client.measure_arrow(a.id, "entropy", summary="head")
    assert table.column_names == ["layer", "head", "entropy"]
    np.testing.assert_array_equal(table["entropy"], np.ravel(entropy.values).astype(np.float32))
    best = client.heads(a.id, "order by entropy").heads[0]
    assert best.values["entropy"] == pytest.approx(np.max(entropy.values), rel=1e-6)
    assert client.figure(a.id, "entropy", layer=1).layout["meta"]["sentence"]
    file = client.download(a.links["export"] + "?format=safetensors", tmp_path / "a.safetensors")
    np.testing.assert_array_equal(load_file(file)["map/weights"][1:2, :3], maps)
    client.delete_analysis(client.wait(client.create_analysis({**REQUEST, "text": "To delete."})).id)


def test_effects_head_scores_and_studies(client: Client) -> None:
    a = client.wait(client.create_analysis(REQUEST))
    effect = client.wait(client.create_effect(a.id, {"method": "contribution"}))
    assert effect.result is not None
    assert np.shape(effect.result.effects) == (a.layers, a.heads)
    scores = client.wait(client.create_head_scores("gpt2", {"batteries": ["induction"], "prompts": 2}))
    assert scores.result is not None
    assert np.shape(scores.result.scores["induction"]) == (a.layers, a.heads)
    data = client.create_dataset("cats.txt", b"A cat sat.\nA dog ran off.\n")
    study = client.wait(client.create_study({"dataset": data.id, "model": "gpt2", "measures": ["entropy"]}))
    assert study.inputs == 2
    table = client.table(study.id, "heads")
    assert len(table["rows"]) == a.layers * a.heads
    assert [list(row.values()) for row in client.table_arrow(study.id, "heads").to_pylist()] == table["rows"]
    assert [one.text for one in client.examples(study.id, row=[2]).items] == ["A dog ran off."]


def test_pages(client: Client) -> None:
    """A list is read page by page."""
    first = client.lenses(limit=2)
    second = client.lenses(limit=2, cursor=first.next)
    names = [lens.name for page in (first, second) for lens in page.items]
    assert names == [lens.name for lens in client.lenses().items[:4]]
    assert client.lenses().next is None


def test_errors_are_problems_of_the_server(client: Client, lab: Users) -> None:
    with pytest.raises(ApiError, match="model") as caught:
        client.create_analysis({**REQUEST, "model": "none"})
    assert (caught.value.code, caught.value.status) == ("unknown-model", 404)
    assert caught.value.errors[0]["pointer"] == "/model"
    with pytest.raises(ApiError) as caught:
        client.download(f"{PREFIX}/analyses/{UNKNOWN_ID}/export", "none")
    assert caught.value.code == "unknown-analysis"
    assert caught.value.request_id
    with Client(f"http://{lab.server.url}") as visitor, pytest.raises(ApiError) as caught:
        visitor.models()
    assert (caught.value.code, caught.value.status) == ("unauthorized", 401)


def test_a_cancelled_job_raises(client: Client) -> None:
    """Waiting for a cancelled job raises an error."""
    document = client.wait(client.create_analysis(REQUEST)).model_copy(update={"status": "cancelled"})
    with pytest.raises(ApiError, match="cancelled"):
        client.wait(document)


def test_the_async_client_does_the_same(lab: Users, client: Client, tmp_path: Path) -> None:
    async def read() -> tuple[str, np.ndarray[Any, Any], bytes, str]:
        async with AsyncClient(f"http://{lab.server.url}", lab.tokens["ada"]) as async_client:
            a = await async_client.wait(await async_client.create_analysis({**REQUEST, "text": "Another text."}))
            maps = await async_client.maps(a.id, "weights", layer=0)
            file = await async_client.download(a.links["export"] + "?format=csv", tmp_path / "a.csv")
            with pytest.raises(ApiError) as caught:
                await async_client.download(f"{PREFIX}/analyses/{UNKNOWN_ID}/export", tmp_path / "none")
            return a.id, maps["map"], file.read_bytes(), caught.value.code

    id_, maps, written, code = asyncio.run(read())
    np.testing.assert_array_equal(maps, client.maps(id_, "weights", layer=0)["map"])
    assert written.startswith(b"lens,layer,head")
    assert code == "unknown-analysis"


def test_names_in_paths_are_escaped() -> None:
    """A name is one part of a path, whatever its characters."""
    assert example("model").accept == JSON
    assert Operations.model.call(model="org/na me").arguments()["url"] == f"{PREFIX}/models/org%2Fna%20me"
