"""Results that keep factors: the maps they give are those of results that keep maps, for every kind of attention, and no damage goes unnoticed."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel, T5Config, T5ForConditionalGeneration

import headscope
from headscope import Model
from headscope.analysis import memory, pipeline
from headscope.analysis.pipeline import AnalysisTask
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink, Result
from headscope.api.documents.thumbnails import draw_without
from headscope.api.http.grouping import Grouping
from headscope.api.routes.maps import MapSlice
from headscope.api.windows import Window
from headscope.core.factors import ProjectionFactors, Remainder, WeightFactors, Whole, undefined_map
from headscope.database import Database, schema
from headscope.errors import BudgetExceeded
from headscope.mechanisms import MECHANISMS
from headscope.mechanisms.base import Pass
from headscope.server.limiters import Limiters
from headscope.settings import Keep
from headscope.store import Results, Stored
from headscope.store.export import stream_csv, stream_parquet, stream_safetensors
from headscope.store.factor_file import DTYPES, decode, encode
from headscope.store.map_file import Corrupt
from tests.support.extent import extent, mostly_long
from tests.support.threads import in_thread
from tests.sweep.build import build

from .conftest import TINY
from .test_map_factors import MODELS, SHAPE

Array = NDArray[Any]
LENSES = ["weights", "effective", "null"]
ALL = slice(None)
ID = "0" * 32


def analyse(model: Model, sink: Any, keep: Keep, **request: Any) -> Result:
    """Run one analysis."""
    body = {"model": "tiny", "lenses": LENSES, "measures": ["entropy"], **request}
    (outcome,) = pipeline.run_many(model, [AnalysisTask(AnalysisRequest.model_validate(body), sink, keep=keep)])
    assert isinstance(outcome, Result), outcome
    return outcome


def maps_of(model: Model, **request: Any) -> dict[str, Array]:
    """The maps as the model computes them."""
    sink = MemorySink()
    analyse(model, sink, "maps", **request)
    return sink.maps


def stored_with(model: Model, folder: Path, keep: Keep, **request: Any) -> Stored:
    """A stored result."""
    folder.mkdir(parents=True, exist_ok=True)
    database = Database(folder / "headscope.db")
    schema.prepare(database)
    results = Results.local(folder, 10**9, database)
    with results.writer(ID) as writer:
        result = analyse(model, writer, keep, **request)
        writer.finish({**result.to_document(), "id": ID}, result.to_arrays())
    stored = results.get(ID)
    assert stored is not None
    return stored


def numbers(count: int) -> list[int]:
    """Random tokens."""
    return np.random.default_rng(count).integers(5, 100, count).tolist()


def same(stored: Stored, maps: dict[str, Array]) -> None:
    """Compare all maps of a result with those that the model computes."""
    for lens, expected in maps.items():
        np.testing.assert_allclose(stored.maps(lens, ALL, ALL), expected, atol=1e-5, err_msg=lens)


def kinds(stored: Stored, lens: str) -> set[type]:
    """What the heads of a lens are kept as."""
    return {type(one) for one in stored.factors(lens, ALL, ALL)}


def test_both_kinds_of_results(tiny: Model, tmp_path: Path) -> None:
    """Bidirectional, causal, with grouped heads: every lens is kept by factors, and windows are those of the map."""
    tokens = numbers(90)
    stored, maps = stored_with(tiny, tmp_path, "factors", token_ids=tokens), maps_of(tiny, token_ids=tokens)
    same(stored, maps)
    assert kinds(stored, "weights") == {WeightFactors}
    assert kinds(stored, "effective") == {ProjectionFactors}
    assert kinds(stored, "null") == {Remainder}
    for lens in LENSES:
        found = stored.maps(lens, slice(1, 2), slice(2, 4), slice(7, 50), slice(30, 31))
        np.testing.assert_allclose(found, maps[lens][1:2, 2:4, 7:50, 30:31], atol=1e-5)
        assert not np.isnan(found).any()


def test_rows_without_a_null_space_have_exact_zeros(tmp_path: Path) -> None:
    """As many causal queries as the head is wide see no more keys than that: what effective attention removes there is nothing, and no edge."""
    torch.manual_seed(0)
    model = headscope.load(GPT2Model(GPT2Config(vocab_size=100, n_embd=32, n_layer=2, n_head=4)))
    stored = stored_with(model, tmp_path, "factors", token_ids=numbers(60))
    maps = maps_of(model, token_ids=numbers(60))
    early = slice(0, 8)
    assert not maps["null"][:, :, early].any()
    assert not stored.maps("null", ALL, ALL, early).any()
    assert stored.maps("null", ALL, ALL).any()


def test_rows_before_a_repetition_have_exact_zeros(tmp_path: Path) -> None:
    """Equal tokens have equal values in a first layer without positions, and rows are averages over them: those that see no token twice lose nothing."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=32
    )
    model = headscope.load(LlamaModel(config))
    tokens = [*range(6), *torch.randint(6, (90,)).tolist()]
    stored, maps = stored_with(model, tmp_path, "factors", token_ids=tokens), maps_of(model, token_ids=tokens)
    np.testing.assert_allclose(stored.maps("null", ALL, ALL), maps["null"], atol=1e-5)
    assert not maps["null"][:, :, :6].any()
    assert not stored.maps("null", ALL, ALL, slice(6)).any()
    assert kinds(stored, "null") == {Remainder}


def test_a_row_is_nothing_as_a_whole() -> None:
    """Small entries beside large ones are what they are, in every window; a row of small ones alone is rounding."""
    whole = np.array([[[1, 0, 0, 0], [0.4, 0.6, 0, 0], [0.5, 5e-6, 0.5, 0], [0.1, 0.2, 0.3, 0.4]]], np.float32)
    first = np.array([[[1, 0, 0], [0.4, 0.600004, 0], [0.2, 0, 0.8]]], np.float32)
    part = ProjectionFactors(np.zeros((1, 1, 1), np.float32), np.ones((1, 4, 1), np.float32), first, causal=True)
    beyond, expected = Remainder(Whole(whole), part), whole[0] - np.pad(first[0], ((0, 1), (0, 1)))
    expected[1] = 0
    np.testing.assert_allclose(beyond.tile(0), expected, rtol=1e-5)
    for row, key in np.ndindex(4, 4):
        np.testing.assert_allclose(beyond.tile(0, slice(row, row + 1), slice(key, key + 1)), expected[row, key], 1e-5)


@pytest.mark.parametrize("name", list(MODELS))
def test_results_of_models_with_terms(name: str, tmp_path: Path) -> None:
    """Capped scores, sinks, and windows, in which effective attention has no factors: such heads are kept as maps."""
    torch.manual_seed(0)
    model, tokens = headscope.load(MODELS[name]()), numbers(60)
    stored = stored_with(model, tmp_path, "factors", token_ids=tokens)
    same(stored, maps_of(model, token_ids=tokens))
    assert kinds(stored, "weights") == {WeightFactors}
    assert kinds(stored, "effective") == {ProjectionFactors, Whole}


@pytest.mark.parametrize("keep", ["maps", "factors"])
def test_a_layer_without_the_chosen_heads(keep: Keep, tmp_path: Path) -> None:
    """Layers have different numbers of heads: maps of a head that a layer does not have are empty, also where it has none of those that were chosen."""
    model = headscope.load(build("inkling_text").module)
    stored = stored_with(model, tmp_path, keep, token_ids=numbers(40), heads=[10, 20])
    assert stored.document["causal"] is True
    assert "fewer-heads" in [warning["code"] for warning in stored.document["warnings"]]
    for lens in LENSES:
        assert np.isnan(stored.maps(lens, ALL, ALL)).all((1, 2, 3)).tolist() == [False, True]
    np.testing.assert_array_equal(
        stored.arrays["keys"], np.stack([np.minimum(np.arange(40) + 1, 5), np.arange(40) + 1])
    )


@pytest.mark.parametrize("kind", mostly_long(["encoder", "decoder", "cross"], "decoder", "cross"))
def test_results_of_two_stacks(kind: str, tmp_path: Path) -> None:
    """Queries and keys of different texts, and relative positions."""
    torch.manual_seed(0)
    config = T5Config(vocab_size=100, d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=64, decoder_start_token_id=0)
    model = headscope.load(T5ForConditionalGeneration(config))
    request = {"token_ids": numbers(60), "target_ids": numbers(40), "kind": kind}
    stored = stored_with(model, tmp_path, "factors", **request)
    same(stored, maps_of(model, **request))
    assert kinds(stored, "weights") == {WeightFactors}


@pytest.mark.parametrize(
    ("tiny", "name"),
    mostly_long(
        product(TINY, ("hopfield", "ablate", "pasta")), ("llama", "hopfield"), ("gpt2", "ablate"), ("bert", "pasta")
    ),
    indirect=["tiny"],
    scope="session",
)
def test_results_of_mechanisms(tiny: Model, name: str, tmp_path: Path) -> None:
    """Weights that are not the softmax of scores are kept as maps; effective attention needs only values."""
    request = {"token_ids": numbers(40), "mechanism": {"name": name}}
    stored = stored_with(tiny, tmp_path, "factors", **request)
    same(stored, maps_of(tiny, **request))
    assert stored.is_factored("weights") is MECHANISMS[name].softmax
    assert stored.is_factored("effective")


def test_mechanisms_declare_what_they_attend_by() -> None:
    """`softmax` says whether the mechanism's pass leaves the weights alone."""
    for name, mechanism in MECHANISMS.items():
        module = __import__(mechanism.begin.__module__, fromlist=["_"])
        passes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Pass)]
        assert mechanism.softmax is all(one.attend is Pass.attend for one in passes), name


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_the_smaller_is_kept(tiny: Model, tmp_path: Path) -> None:
    """Short texts keep maps in files of maps, long ones factors in fewer bytes; the plan knows both."""
    for tokens in (10, 120):
        stored = stored_with(tiny, tmp_path / str(tokens), "smaller", token_ids=numbers(tokens))
        same(stored, maps_of(tiny, token_ids=numbers(tokens)))
        assert [stored.is_factored(lens) for lens in LENSES] == [tokens > 100] * 3
        layers, heads, queries, keys = stored.document["shape"]
        counts, width = dict.fromkeys(range(layers), heads), stored.document["head_width"]
        request = AnalysisRequest.model_validate({"model": "tiny", "lenses": ["weights"], "token_ids": [0]})
        planned = memory.plan(request, counts, queries, keys, keep="smaller", width=width)
        sizes = [sum(one.nbytes for one in stored.factors(lens, ALL, ALL)) for lens in LENSES]
        assert sizes[0] <= planned.map_bytes
        assert max(sizes) <= layers * heads * queries * keys * 4


@pytest.mark.parametrize("tiny", mostly_long(TINY, "bert"), indirect=True)
def test_other_lenses_keep_maps(tiny: Model, tmp_path: Path) -> None:
    """One result has files of both kinds."""
    request = {"token_ids": numbers(30), "lenses": ["weights", "rollout", "norm"]}
    stored = stored_with(tiny, tmp_path, "factors", **request)
    same(stored, maps_of(tiny, **request))
    folder = tmp_path / "results" / ID[:2] / ID
    assert {path.name for path in folder.iterdir()} == {
        "manifest.json", "small.safetensors", "weights.factors", "rollout.safetensors", "norm.safetensors"
    }  # fmt: skip


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_layers_and_heads_that_are_chosen(tiny: Model, tmp_path: Path) -> None:
    """Some layers and heads, of grouped ones too."""
    request = {"token_ids": numbers(50), "layers": [0, 2], "heads": [1, 2]}
    stored = stored_with(tiny, tmp_path, "factors", **request)
    same(stored, maps_of(tiny, **request))


def test_a_head_that_a_layer_does_not_have() -> None:
    """It is undefined everywhere, in few bytes."""
    nothing = decode(b"".join(encode(undefined_map(500, 700))))
    assert nothing.nbytes < 500 * 700 * 4 / 100
    assert np.isnan(nothing.tile(0)).all()
    assert nothing.tile(0).shape == (500, 700)


@pytest.mark.parametrize("tiny", mostly_long(TINY, "gpt2"), indirect=True)
def test_inputs_of_one_pass(tiny: Model, tmp_path: Path) -> None:
    """Several inputs that share a pass have their own factors."""
    bodies = [{"model": "tiny", "lenses": LENSES, "token_ids": numbers(50)[::step]} for step in (1, -1)]
    sinks = MemorySink(), MemorySink()
    tasks = [
        AnalysisTask(AnalysisRequest.model_validate(body), sink, keep="factors")
        for body, sink in zip(bodies, sinks, strict=True)
    ]
    passes: list[None] = []
    outcomes = pipeline.run_many(tiny, tasks, on_pass=lambda: passes.append(None))
    assert all(isinstance(outcome, Result) for outcome in outcomes), outcomes
    for body, sink in zip(bodies, sinks, strict=True):
        for lens, expected in maps_of(tiny, token_ids=body["token_ids"]).items():
            np.testing.assert_allclose(sink.maps[lens], expected, atol=1e-5, err_msg=lens)


def test_maps_beyond_the_plan_end_the_analysis(tmp_path: Path) -> None:
    """Heads without the factors that were planned for may not fill the disk."""
    torch.manual_seed(0)
    model = headscope.load(MODELS["caps and windows"]())
    body = {"model": "tiny", "lenses": ["effective"], "token_ids": numbers(150)}
    request = AnalysisRequest.model_validate(body)
    counts = dict.fromkeys(range(SHAPE["num_hidden_layers"]), SHAPE["num_attention_heads"])
    planned = memory.plan(request, counts, 150, 150, keep="smaller", width=8)
    (outcome,) = pipeline.run_many(model, [AnalysisTask(request, MemorySink(), keep="smaller")], limit=planned.bytes)
    assert isinstance(outcome, BudgetExceeded)
    assert outcome.limit == planned.bytes < outcome.actual


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Keep], Stored]:
    """A causal result of both kinds."""
    torch.manual_seed(0)
    model, folder = headscope.load(TINY["gpt2"]()), tmp_path_factory.mktemp("kept")
    results = {keep: stored_with(model, folder / keep, keep, token_ids=numbers(70)) for keep in ("factors", "maps")}
    return results.__getitem__


@settings(max_examples=extent(40, 15), derandomize=True, deadline=None)
@given(data=st.data(), lens=st.sampled_from(LENSES), pool=st.integers(1, 80), most=st.sampled_from([100, 1000, 10**6]))
def test_slices_of_both_kinds(
    kept: Callable[[Keep], Stored], data: st.DataObject, lens: str, pool: int, most: int
) -> None:
    """Any window, in words and pooled, is the same whichever is kept, however many rows are computed at once."""
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=60)) if data.draw(st.booleans()) else None
    if sizes is not None:
        sizes = [*sizes[: np.searchsorted(np.cumsum(sizes), 70)], 1][:70]
        sizes[-1] += 70 - sum(sizes)
    grouping = Grouping(sizes, sizes)
    count = 70 if sizes is None else len(sizes)
    low, left = data.draw(st.integers(0, count - 1)), data.draw(st.integers(0, count - 1))
    window = slice(low, data.draw(st.integers(low + 1, count))), slice(left, data.draw(st.integers(left + 1, count)))
    compute = partial(MapSlice(pool=pool)._compute, window=Window(grouping, *window, most), signed=lens != "weights")
    found = [
        in_thread(compute, next(kept(keep).factors(lens, slice(1, 2), slice(0, 1)))) for keep in ("factors", "maps")
    ]
    np.testing.assert_allclose(np.abs(found[0]), np.abs(found[1]), atol=1e-5)


def test_a_response_is_the_same(kept: Callable[[Keep], Stored]) -> None:
    """The route's slices and the export agree on both kinds."""
    for lens in LENSES:
        for part in (MapSlice(), MapSlice(query="5:60", key="3:9"), MapSlice(pool=7), MapSlice(by="word", layer="1")):
            reads = [partial(part.respond, Limiters().memory, lens, "npy", kept(keep)) for keep in ("factors", "maps")]
            answers = [in_thread(read).body for read in reads]
            one, other = (np.frombuffer(answer[128:], np.float32) for answer in answers)
            np.testing.assert_allclose(one, other, atol=1e-5)
    exports = [b"".join(stream_safetensors(kept(keep))) for keep in ("factors", "maps")]
    assert abs(len(exports[0]) - len(exports[1])) < 100


def test_numbers_of_every_type() -> None:
    """A document holds arrays of any type that factors have, the widest numbers first, so that each is aligned; safetensors reads them."""
    for one, other in pairwise(sorted(DTYPES, key=lambda name: np.dtype(name).itemsize)):
        arrays = np.arange(5).astype(one), np.arange(3).astype(other), np.zeros((2, 0), one)
        head, *pieces = encode(ProjectionFactors(*arrays))
        assert len(head) % 8 == 0
        first, second = sorted((arrays[0], arrays[1]), key=lambda values: -values.itemsize)
        assert b"".join(pieces) == first.tobytes() + second.tobytes()
        found = decode(b"".join([head, *pieces]))
        assert isinstance(found, ProjectionFactors)
        for read, written in zip((found.coefficients, found.basis, found.first), arrays, strict=True):
            np.testing.assert_array_equal(read, written, strict=True)


def test_parts_of_maps(kept: Callable[[Keep], Stored], monkeypatch: pytest.MonkeyPatch) -> None:
    """What reads all maps gets them some rows at a time from factors: thumbnails without keys, and every export, are those of whole maps."""
    factors, maps = kept("factors"), kept("maps")
    monkeypatch.setattr("headscope.store.factor_file.BLOCK", 9 * 70 * 4)
    monkeypatch.setattr("headscope.store.map_file.BLOCK", 3 * 70 * 70 * 4)
    for lens in LENSES:
        parts = list(factors.parts(lens))
        assert len(parts) == 3 * 4 * 8
        assert max(part.values.size for part in parts) == 9 * 70
        rows = np.concatenate([part.values[0] for part in parts]).reshape(3, 4, 70, 70)
        np.testing.assert_array_equal(rows, factors.maps(lens, ALL, ALL))
        assert {part.values.shape for part in maps.parts(lens)} == {(3, 70, 70), (1, 70, 70)}
        for without in ("special", "sinks", "both"):
            one, other = (draw_without(stored, lens, without, 16) for stored in (factors, maps))
            assert np.abs(one["tiles"].astype(int) - other["tiles"]).max() <= 1
            np.testing.assert_array_equal(one["without"], other["without"])
            np.testing.assert_allclose(one["scale"], other["scale"], rtol=1e-4)
    one, other = (pq.read_table(io.BytesIO(b"".join(stream_parquet(stored)))) for stored in (factors, maps))
    for column in ("lens", "layer", "head", "query", "key"):
        assert one[column].equals(other[column]), column
    np.testing.assert_allclose(one["value"], other["value"], atol=1e-5)
    for ours, theirs in islice(zip(*map(csv_lines, (factors, maps)), strict=True), extent(None, 10_000)):
        assert ours.rsplit(",", 1)[0] == theirs.rsplit(",", 1)[0]


def csv_lines(stored: Stored) -> Iterator[str]:
    """Yield the lines of its export as CSV, which come in pieces of whole lines."""
    for piece in stream_csv(stored):
        yield from piece.decode().splitlines()


@settings(max_examples=extent(60, 20), derandomize=True, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), lens=st.sampled_from(LENSES))
def test_any_flipped_bit_is_found(kept: Callable[[Keep], Stored], where: float, bit: int, lens: str) -> None:
    """Every byte of a file of factors counts: its head is Corrupt, other heads are not."""
    stored = kept("factors")
    path = Path(stored.backend._file(ID, f"{lens}.factors"))
    data, sizes = path.read_bytes(), stored.manifest.sizes[lens]
    byte = int(where * len(data))
    damaged = int(np.searchsorted(np.cumsum(sizes), byte, "right"))
    path.write_bytes(data[:byte] + bytes([data[byte] ^ (1 << bit)]) + data[byte + 1 :])
    try:
        with pytest.raises(Corrupt):
            stored.verify()
        heads = stored.document["shape"][1]
        for place in range(len(sizes)):
            part = slice(place // heads, place // heads + 1), slice(place % heads, place % heads + 1)
            if place == damaged:
                with pytest.raises(Corrupt):
                    stored.maps(lens, *part)
            else:
                stored.maps(lens, *part, slice(3), slice(3))
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize("how", [b"", b"cut", None])
def test_a_file_that_is_cut_or_missing(kept: Callable[[Keep], Stored], how: bytes | None) -> None:
    """It is Corrupt."""
    stored = kept("factors")
    path = Path(stored.backend._file(ID, "weights.factors"))
    data = path.read_bytes()
    path.unlink() if how is None else path.write_bytes(how)
    with pytest.raises(Corrupt):
        stored.maps("weights", ALL, ALL)
    path.write_bytes(data)
