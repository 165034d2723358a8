"""The numbers of a finished analysis: any slice, format and precision, and the same numbers everywhere."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load, load_file

import headscope
from headscope.api.http import tensors
from headscope.api.routes.maps import MapSlice
from headscope.errors import BudgetExceeded
from headscope.server.limiters import Limiters
from tests.support.extent import mostly_long
from tests.support.maps import slow_sinks
from tests.support.server import Server, eventually
from tests.support.variants import variants

pytestmark = pytest.mark.parametrize(
    "server", mostly_long(["embedded", "factored", "cluster"], "factored"), indirect=True, scope="session"
)
LENSES = ["weights", "effective", "effective-simplex"]
TEXT = "The cat sat on the mat because it was tired, and the mat was warm."


@pytest.fixture(scope="module", params=["bert", "gpt2"])
def document(server: Server, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Finished analyses of an encoder and a decoder, with every lens and measure."""
    measures = ["entropy", "null_share", "null_share_rows", "leverage", "qk_distance"]
    return server.analyse(model=request.param, text=TEXT, lenses=LENSES, measures=measures)


@pytest.fixture(scope="module")
def part(server: Server) -> dict[str, Any]:
    """An analysis of only some layers and heads."""
    return server.analyse(model="bert", text=TEXT, layers=[1], heads=[1, 3])


def fetch(server: Server, document: dict[str, Any], path: str, **query: Any) -> dict[str, np.ndarray]:
    """Return the tensors of a route below an analysis."""
    answer = server.get(f"/analyses/{document['id']}/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return load(answer.content)


def problem(server: Server, document: dict[str, Any], path: str, **query: Any) -> tuple[int, str]:
    """Return status and code of a rejected request."""
    answer = server.get(f"/analyses/{document['id']}/{path}", params=query)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.status_code, answer.json()["code"]


def test_weights_are_attention(server: Server, document: dict[str, Any]) -> None:
    """Float32 [L, H, Q, K]; rows sum to one, and a decoder has nothing above the diagonal."""
    whole = fetch(server, document, "maps/weights")["map"]
    n = len(document["tokens"])
    assert (whole.dtype, whole.shape) == (np.float32, (2, 4, n, n))
    assert np.allclose(whole.sum(-1), 1, atol=1e-5)
    assert whole.min() >= 0
    assert document["causal"] == (document["model"] == "gpt2")
    if document["causal"]:
        assert np.all(np.triu(whole, 1) == 0)


@pytest.mark.parametrize(
    ("query", "cut"),
    [
        ({}, np.s_[:, :, :, :]),
        ({"layer": "1"}, np.s_[1:2]),
        ({"layer": "0:1", "head": "2"}, np.s_[0:1, 2:3]),
        ({"head": "1:3"}, np.s_[:, 1:3]),
        ({"head": ":2"}, np.s_[:, :2]),
        ({"head": "3:"}, np.s_[:, 3:]),
        ({"head": ":"}, np.s_[:, :]),
        ({"head": "2:99"}, np.s_[:, 2:]),
        ({"query": "4"}, np.s_[:, :, 4:5]),
        ({"layer": "1", "head": "0", "query": "2:5", "key": "3"}, np.s_[1:2, 0:1, 2:5, 3:4]),
    ],
    ids=lambda value: "&".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_slices(
    server: Server, document: dict[str, Any], query: dict[str, str], cut: Any, subtests: pytest.Subtests
) -> None:
    """A slice is that part of the whole map, bit by bit."""
    for lens in LENSES:
        with subtests.test(lens=lens):
            whole = fetch(server, document, f"maps/{lens}")["map"]
            assert np.array_equal(fetch(server, document, f"maps/{lens}", **query)["map"], whole[cut])


def test_slices_speak_of_the_models_numbers(server: Server, part: dict[str, Any]) -> None:
    """If only some layers and heads were analysed, indices still refer to the model's layers and heads."""
    whole = fetch(server, part, "maps/weights")["map"]
    assert whole.shape[:2] == (1, 2)
    assert (part["layer_numbers"], part["head_numbers"]) == ([1], [1, 3])
    assert np.array_equal(fetch(server, part, "maps/weights", layer="1", head="3")["map"], whole[:, 1:])
    assert problem(server, part, "maps/weights", layer="0") == (404, "unknown-layer")
    assert problem(server, part, "maps/weights", head="2") == (404, "unknown-head")


@variants("lens", LENSES)
def test_float16_is_rounding(server: Server, document: dict[str, Any], lens: str) -> None:
    """Half precision is the rounded map."""
    whole = fetch(server, document, f"maps/{lens}")["map"]
    assert np.array_equal(fetch(server, document, f"maps/{lens}", dtype="float16")["map"], whole.astype(np.float16))


@variants("lens", LENSES)
def test_uint8_keeps_its_promise(server: Server, document: dict[str, Any], lens: str) -> None:
    """offset + scale * byte is off by at most the stated error, and zeros are exact."""
    whole = fetch(server, document, f"maps/{lens}")["map"]
    small = fetch(server, document, f"maps/{lens}", dtype="uint8")
    assert small["map"].dtype == np.uint8
    spread = {name: small[name][:, :, None, None] for name in ("scale", "offset", "max_error")}
    back = spread["offset"] + spread["scale"] * small["map"]
    assert np.all(np.abs(back - whole) <= spread["max_error"])
    assert np.all(
        spread["max_error"] <= np.abs(whole).max((2, 3), keepdims=True) / 250 + np.finfo(np.float32).tiny * 256
    )
    assert np.all(back[whole == 0] == 0)


@pytest.mark.parametrize("lens", LENSES)
def test_pooled_cells(server: Server, document: dict[str, Any], lens: str, subtests: pytest.Subtests) -> None:
    """A cell is its entry of largest magnitude; cells count from the start of the slice, and the last ones are smaller."""
    whole = fetch(server, document, f"maps/{lens}")["map"][:, :, 1:, 2:11]
    for size in (1, 2, 4, 100):
        with subtests.test(size=size):
            pooled = fetch(server, document, f"maps/{lens}", query="1:", key="2:11", pool=size)["map"]
            assert pooled.shape[2:] == tuple(-(-side // size) for side in whole.shape[2:])
            for query, key in np.ndindex(pooled.shape[2:]):
                cell = whole[:, :, query * size :, key * size :][:, :, :size, :size].reshape(*whole.shape[:2], -1)
                largest = np.take_along_axis(cell, np.abs(cell).argmax(-1)[..., None], -1)[..., 0]
                assert np.array_equal(pooled[:, :, query, key], largest)


@variants("lens", LENSES)
def test_sums(server: Server, document: dict[str, Any], lens: str) -> None:
    """Sums are those of the magnitudes of all defined rows."""
    whole = np.abs(fetch(server, document, f"maps/{lens}")["map"][1, 2].astype(np.float64))
    sums = fetch(server, document, f"sums/{lens}", layer=1, head=2)
    assert np.allclose(sums["queries"], whole.sum(1), rtol=1e-6, equal_nan=True)
    assert np.allclose(sums["keys"], np.nansum(whole, 0), rtol=1e-6)
    assert server.get(f"/analyses/{document['id']}/sums/{lens}", params={"layer": "9", "head": "0"}).status_code == 404


@variants("how", ["query", "accept"])
def test_formats_hold_the_same_numbers(server: Server, document: dict[str, Any], how: str) -> None:
    """Every format of tensors, by ?format= or by Accept."""
    path, whole = f"/analyses/{document['id']}/maps/effective", fetch(server, document, "maps/effective")["map"]
    media = {
        "npy": "application/x-npy",
        "json": "application/json",
        "safetensors": "application/vnd.safetensors",
        "open-inference": "application/octet-stream",
    }
    got = {}
    for name, accept in media.items():
        more = {"params": {"format": name}} if how == "query" else {"headers": {"Accept": accept}}
        answer = server.get(path, **more)
        assert answer.headers["content-type"] == accept
        assert ("inference-header-content-length" in answer.headers) == (name == "open-inference")
        got[name] = answer.content
    assert got["open-inference"].endswith(whole.tobytes())
    assert np.array_equal(np.load(io.BytesIO(got["npy"])), whole)
    assert np.array_equal(np.array(json.loads(got["json"])["map"], np.float32), whole)
    assert np.array_equal(load(got["safetensors"])["map"], whole)


@variants(
    ("accept", "expected"),
    [
        ("*/*", "safetensors"),
        ("application/json, application/vnd.safetensors;q=0.1", "json"),
        ("application/vnd.safetensors;q=0.1, Application/JSON; charset=utf-8; q=0.2", "json"),
        ("application/x-npy;q=0, application/json;q=0", "safetensors"),
        ("application/json;q=1.5", "safetensors"),
    ],
)
def test_what_is_preferred(server: Server, document: dict[str, Any], accept: str, expected: str) -> None:
    """The media type with the largest weight is chosen, however it is written."""
    answer = server.get(f"/analyses/{document['id']}/grid/weights", headers={"Accept": accept})
    assert expected in answer.headers["content-type"]


def test_a_slice_of_maps_that_are_too_large(document: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of the response is limited, not that of the maps it is sliced from; only one layer is read at a time."""
    maps = np.random.default_rng(0).random((3, 4, 64, 64), np.float32)
    read: list[int] = []
    room = Limiters().memory

    def values(lens: str, layers: slice, heads: slice) -> NDArray[np.float32]:
        read.append(layers.stop - layers.start)
        return maps[layers, heads]

    shapes = {"shapes": {"weights": list(maps.shape)}, "layers": [0, 1, 2], "heads": [0, 1, 2, 3]}
    stored: Any = SimpleNamespace(
        document={**document, **shapes, "kept": ["weights"], "request": {"model": document["model"]}},
        maps=values,
        is_factored=lambda lens: False,
    )
    monkeypatch.setattr(tensors, "MAX_BYTES", maps.nbytes // 3)
    for dtype in ("float32", "float16"):
        with pytest.raises(BudgetExceeded):
            MapSlice(dtype=dtype).respond(room, "weights", "safetensors", stored)
    assert not read
    assert np.array_equal(
        load(MapSlice(query="5", key="7:9").respond(room, "weights", "safetensors", stored).body)["map"],
        maps[:, :, 5:6, 7:9],
    )
    whole = load(MapSlice(dtype="uint8").respond(room, "weights", "safetensors", stored).body)
    assert np.all(np.abs(whole["map"] * whole["scale"][..., None, None] - maps) <= whole["max_error"][..., None, None])
    assert set(read) == {1}


def test_results_may_be_kept_for_ever(server: Server, document: dict[str, Any]) -> None:
    """Results never change under their id, and the headers say so."""
    for path in ("maps/weights", "grid/weights", "measures/entropy"):
        control = server.get(f"/analyses/{document['id']}/{path}").headers["cache-control"]
        assert "immutable" in control
        assert "private" in control


@pytest.mark.parametrize("lens", LENSES)
def test_grid_is_max_pooled(server: Server, document: dict[str, Any], lens: str, subtests: pytest.Subtests) -> None:
    """A cell of a thumbnail has the entry of largest magnitude of its patch, within a step or two."""
    for tile in [1, 2, 5, 8, 32]:
        with subtests.test(tile=tile):
            whole = fetch(server, document, f"maps/{lens}")["map"]
            grid = fetch(server, document, f"grid/{lens}", tile=tile)
            n = whole.shape[-1]
            size = min(tile, n)
            assert grid["tiles"].shape == (2, 4, size, size)
            assert grid["tiles"].dtype == np.uint8
            shown = grid["offset"][:, :, None, None] + grid["scale"][:, :, None, None] * grid["tiles"]
            # A smaller thumbnail is pooled from the stored one, whose patches may extend slightly beyond this patch.
            stored = min(32, n)
            edges = [(i * stored // size, -(-(i + 1) * stored // size)) for i in range(size)]
            spans = [(low * n // stored, -(-high * n // stored)) for low, high in edges]
            for i, (top, bottom) in enumerate(spans):
                for j, (left, right) in enumerate(spans):
                    largest = np.abs(whole[:, :, top:bottom, left:right]).max((2, 3))
                    assert np.allclose(np.abs(shown[:, :, i, j]), largest, atol=1.01 * grid["scale"].max())


@variants("without", ["special", "sinks", "both"])
def test_grid_without_special_tokens_and_sinks(server: Server, document: dict[str, Any], without: str) -> None:
    """Keys that are left out count as 0, the others keep their largest entry, and no scale is that of a key left out."""
    special = {place for place, token in enumerate(document["tokens"]) if token["kind"] == "special"}
    for lens in LENSES:
        whole = fetch(server, document, f"maps/{lens}")["map"]
        grid = fetch(server, document, f"grid/{lens}", without=without)
        assert grid["tiles"].shape == fetch(server, document, f"grid/{lens}")["tiles"].shape
        for layer, head in np.ndindex(whole.shape[:2]):
            one = whole[layer, head].astype(np.float64)
            sinks = set() if without == "special" else set(slow_sinks(one, document["causal"]))
            left = sinks | (special if without != "sinks" else set())
            assert set(np.flatnonzero(grid["without"][layer, head])) == left
            rest = one * [key not in left for key in range(one.shape[1])]
            shown = grid["offset"][layer, head] + grid["scale"][layer, head] * grid["tiles"][layer, head]
            assert len(one) <= 32  # so that a cell is an entry
            assert np.allclose(shown, rest, atol=grid["scale"][layer, head])
            assert grid["scale"][layer, head] <= np.abs(rest).max() / 120 + 1e-30


def test_no_thumbnails_without_keys_from_thumbnails(server: Server) -> None:
    """Only whole maps can be drawn without some keys."""
    small = server.analyse(model="bert", text=TEXT, maps=False)
    assert problem(server, small, "grid/weights", without="both")[1] == "not-ready"
    assert problem(server, small, "grid/weights", without="all") == (422, "invalid-request")


def test_entropy_in_every_unit(server: Server, document: dict[str, Any]) -> None:
    """Nats are computed from the map itself; bits, perplexity and normalised from nats."""
    weights = fetch(server, document, "maps/weights")["map"].astype(np.float64)
    nats = -np.where(weights > 0, weights * np.log(np.where(weights > 0, weights, 1)), 0).sum(-1)
    get = lambda **query: fetch(server, document, "measures/entropy", **query)["values"]  # noqa: E731
    assert np.allclose(get(), nats, atol=1e-5)
    assert np.allclose(get(unit="bits"), nats / math.log(2), atol=1e-5)
    assert np.allclose(get(unit="perplexity"), np.exp(nats), rtol=1e-4)
    n = weights.shape[-1]
    keys = np.arange(1, n + 1) if document["causal"] else np.full(n, n)
    normalised = get(unit="normalised")
    assert np.array_equal(np.isnan(normalised), np.broadcast_to(keys == 1, nats.shape))
    assert np.allclose(normalised[:, :, keys > 1], (nats / np.log(np.maximum(keys, 2)))[:, :, keys > 1], atol=1e-5)


def test_measures_in_short(server: Server, document: dict[str, Any]) -> None:
    """summary=head is the mean over tokens; the document's summaries cover all values."""
    for name in ("entropy", "null_share_rows", "leverage", "null_share"):
        values = fetch(server, document, f"measures/{name}")["values"]
        means = fetch(server, document, f"measures/{name}", summary="head")["values"]
        expected = values if values.ndim == 2 else values.mean(-1)
        assert np.allclose(means, expected, atol=1e-5)
        summary = document["summaries"][name]["weights"]
        assert summary["shape"] == list(values.shape)
        assert np.allclose([summary["min"], summary["max"]], [values.min(), values.max()], atol=1e-6)


def test_every_column_has_its_unit(server: Server, document: dict[str, Any]) -> None:
    """In one measure, distances are in tokens and shares have no unit, in every format."""
    body = server.get(f"/analyses/{document['id']}/measures/qk_distance", params={"format": "json"}).json()
    told = dict(zip(body["columns"], body["units"], strict=True))
    assert (told["mean"], told["from_4"]) == ("tokens", "1")
    summary = document["summaries"]["qk_distance"]["weights"]["columns"]
    assert {name: spread["unit"] for name, spread in summary.items()} == told


def test_measures_as_json_name_themselves(server: Server, document: dict[str, Any]) -> None:
    """JSON has name, lens, unit and shape; undefined values are null, never NaN."""
    query = {"format": "json", "unit": "normalised", "layer": "1", "head": "0:2"}
    answer = server.get(f"/analyses/{document['id']}/measures/entropy", params=query)
    body = json.loads(answer.text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    n = len(document["tokens"])
    assert (body["name"], body["lens"], body["unit"], body["shape"]) == ("entropy", "weights", "normalised", [1, 2, n])
    assert np.array(body["values"], dtype=float).shape == (1, 2, n)
    assert (body["values"][0][0][0] is None) == document["causal"]


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_export_is_everything(server: Server, document: dict[str, Any], kind: str, tmp_path: Path) -> None:
    """One file with the document and every tensor; the server chooses its name."""
    answer = server.get(f"/analyses/{document['id']}/export", params={"format": kind})
    assert answer.headers["content-disposition"] == f'attachment; filename="headscope-{document["id"][:8]}.{kind}"'
    path = tmp_path / f"export.{kind}"
    path.write_bytes(answer.content)
    if kind == "safetensors":
        tensors: Any = load_file(path)
        described = headscope.open(path)
        assert [token.text for token in described.tokens] == [token["text"] for token in document["tokens"]]
    else:
        with np.load(path) as archive:
            tensors = dict(archive)
        described = json.loads(str(tensors["headscope"]))
        assert [token["text"] for token in described["tokens"]] == [token["text"] for token in document["tokens"]]
    for lens in LENSES:
        assert np.array_equal(tensors[f"map/{lens}"], fetch(server, document, f"maps/{lens}")["map"])
    for name in document["measures"]:
        whole = fetch(server, document, f"measures/{name}")["values"]
        assert np.array_equal(tensors[f"measure/{name}/weights"], whole)
    eventually(lambda: not list((server.home / "incoming").iterdir()), "the server's copy of the export to be gone")


def test_web_page_of_chosen_heads(server: Server, document: dict[str, Any]) -> None:
    """It names the heads that it has; a head that was not analysed, and anything that is no head, is rejected."""
    page = {"format": "html", "heads": "0.1,1.2"}
    answer = server.get(f"/analyses/{document['id']}/export", params=page)
    assert (answer.status_code, 'data-fragment="head=0.1"' in answer.text) == (200, True)
    assert len(answer.content) < len(
        server.get(f"/analyses/{document['id']}/export", params={"format": "html"}).content
    )
    for wrong in ("7.7", "0", "0.1;1.2"):
        assert problem(server, document, "export", **{**page, "heads": wrong}) == (422, "invalid-request")


def test_files_of_chosen_heads(server: Server, document: dict[str, Any], tmp_path: Path) -> None:
    """Every format has their maps and measures, and nothing of the heads between them; HeadVis needs all."""
    chosen = {"heads": "0.1,1.2"}
    path = tmp_path / "chosen.safetensors"
    path.write_bytes(server.get(f"/analyses/{document['id']}/export", params=chosen).content)
    some, whole = headscope.open(path), fetch(server, document, "maps/weights")["map"][:, 1:3]
    assert (some.layers, some.heads) == ([0, 1], [1, 2])
    for values in (some.maps["weights"], some.measures["entropy"]["weights"]):
        assert np.isnan(values[[0, 1], [1, 0]]).all()
    assert np.array_equal(some.maps["weights"][[0, 1], [0, 1]], whole[[0, 1], [0, 1]], equal_nan=True)
    lines = csv.DictReader(
        server.get(f"/analyses/{document['id']}/export", params={**chosen, "format": "csv"}).text.splitlines()
    )
    assert {(line["layer"], line["head"]) for line in lines if line["lens"] == "weights"} == {("0", "1"), ("1", "2")}
    assert problem(server, document, "export", **chosen, format="headvis") == (422, "invalid-request")


def test_without_maps(server: Server) -> None:
    """maps: false keeps thumbnails and measures; maps are 409 with what to do."""
    document = server.analyse(model="bert", text="No maps kept.", maps=False)
    assert document["maps"]["weights"]["stored"] is False
    assert fetch(server, document, "grid/weights")["tiles"].shape[:2] == (2, 4)
    assert fetch(server, document, "measures/entropy")["values"].shape[:2] == (2, 4)
    asked = ("maps/weights", {}), ("edges/weights", {"layer": "0", "head": "0"}), ("export", {"format": "csv"})
    assert [problem(server, document, path, **query) for path, query in asked] == [(409, "not-ready")] * 3
    assert "map/weights" not in load(server.get(f"/analyses/{document['id']}/export").content)


@variants("path", ["maps/weights", "grid/weights", "measures/entropy", "edges/weights?layer=0&head=0", "export"])
def test_before_the_end_there_is_nothing_to_read(server: Server, path: str) -> None:
    """Results of a failed analysis are 409."""
    failed = server.ended(server.submit(model="bert", token_ids=[1, 999_999]))
    assert (failed["status"], failed["error"]["code"]) == ("failed", "invalid-request")
    answer = server.get(f"/analyses/{failed['id']}/{path}")
    assert (answer.status_code, answer.json()["code"]) == (409, "not-ready")
    assert answer.json()["detail"] == f"The analysis has failed: {failed['error']['detail']}"


@variants(
    ("path", "query", "expected"),
    [
        ("maps/norm", {}, (404, "unknown-lens")),
        ("maps/no-such-lens", {}, (404, "unknown-lens")),
        ("maps/weights", {"groups": "0,2"}, (422, "invalid-request")),
        ("maps/weights", {"groups": "1|0"}, (422, "invalid-request")),
        ("maps/weights", {"groups": "0-99"}, (422, "invalid-request")),
        ("maps/weights", {"groups": "a"}, (422, "invalid-request")),
        ("maps/weights", {"by": "sentence"}, (422, "invalid-request")),
        ("maps/effective-simplex", {}, (404, "unknown-lens")),
        ("maps/weights", {"layer": "2"}, (404, "unknown-layer")),
        ("maps/weights", {"head": "4"}, (404, "unknown-head")),
        ("maps/weights", {"head": "9:1"}, (404, "unknown-head")),
        ("maps/weights", {"query": "999"}, (404, "unknown-query")),
        ("maps/weights", {"layer": "a:b"}, (422, "invalid-request")),
        ("maps/weights", {"layer": "-1"}, (422, "invalid-request")),
        ("maps/weights", {"layer": "1:2:3"}, (422, "invalid-request")),
        ("maps/weights", {"layer": ""}, (422, "invalid-request")),
        ("maps/weights", {"layer": "9" * 21}, (422, "invalid-request")),
        ("maps/weights", {"dtype": "float64"}, (422, "invalid-request")),
        ("maps/weights", {"format": "csv"}, (422, "invalid-request")),
        ("grid/weights", {"tile": "0"}, (422, "invalid-request")),
        ("grid/weights", {"tile": "33"}, (422, "invalid-request")),
        ("grid/norm", {}, (404, "unknown-lens")),
        ("edges/weights", {}, (422, "invalid-request")),
        ("edges/weights", {"layer": "0", "head": "4"}, (404, "unknown-head")),
        ("edges/weights", {"layer": "0", "head": "0", "rule": "all"}, (422, "invalid-request")),
        ("edges/weights", {"layer": "0", "head": "0", "mass": "nan"}, (422, "invalid-request")),
        ("edges/weights", {"layer": "0", "head": "0", "mass": "0"}, (422, "invalid-request")),
        ("edges/weights", {"layer": "0", "head": "0", "value": "inf"}, (422, "invalid-request")),
        ("edges/weights", {"layer": "0", "head": "0", "limit": "1000000"}, (422, "invalid-request")),
        ("measures/rank", {}, (404, "unknown-measure")),
        ("measures/leverage", {}, (404, "unknown-measure")),
        ("measures/entropy", {"lens": "no-such-lens"}, (404, "unknown-lens")),
        ("measures/entropy", {"lens": "effective"}, (422, "unsupported")),
        ("measures/entropy", {"unit": "bans"}, (422, "invalid-request")),
        ("measures/entropy", {"summary": "all"}, (422, "invalid-request")),
        ("measures/null_share", {"unit": "bits"}, (422, "invalid-request")),
        ("export", {"format": "exe"}, (422, "invalid-request")),
    ],
    ids=str,
)
def test_refusals(server: Server, part: dict[str, Any], path: str, query: dict[str, str], expected: Any) -> None:
    """Every missing or invalid part of a request has its own code."""
    whole = {**part, "id": server.analyse(model="bert", text="Refusals.")["id"]}
    assert problem(server, whole, path, **query) == expected
