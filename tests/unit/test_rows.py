"""Heads read some rows after others: everything is what whole maps give, for every kind of attention, and nothing has the size of a map."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    Aimv2TextConfig,
    Aimv2TextModel,
    GPT2Config,
    GPT2Model,
    Llama4TextConfig,
    Llama4TextModel,
    MistralConfig,
    MistralModel,
    ModernBertConfig,
    ModernBertModel,
    T5Config,
    T5ForConditionalGeneration,
)
from transformers.masking_utils import eager_mask

import headscope
from headscope import LENSES, MEASURES, Model
from headscope.analysis import memory, pipeline, row_reader
from headscope.analysis.pipeline import AnalysisTask
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink, Result
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer
from headscope.core.factors import Factors, Whole
from headscope.errors import NonFinite
from headscope.measures.thumbnail import RowPool, pool
from tests.support.extent import extent, mostly_long

from .conftest import TINY, eager, projected
from .test_map_factors import MODELS

Array = NDArray[Any]
LENS_NAMES = ["weights", "effective", "null"]
# Tiny models have no tokenizer, so kinds of tokens are unknown.
MEASURE_NAMES = [name for name, one in MEASURES.items() if one.by_rows is not None and "kinds" not in one.needs]
ACROSS = [name for name in MEASURE_NAMES if "same-tokens" not in MEASURES[name].needs]


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Reads even tiny heads by rows; lists how many thumbnails each batch of heads gave."""
    counts: list[int] = []

    class Counting(row_reader.RowwiseReader):
        def read(self) -> dict[str, torch.Tensor]:
            found = super().read()
            counts.append(len(found))
            return found

    monkeypatch.setattr("headscope.capture.batch.BLOCK_BYTES", 64)
    monkeypatch.setattr("headscope.capture.interface.BLOCK_BYTES", 64)
    monkeypatch.setattr("headscope.capture.interface.LONG", 1)
    monkeypatch.setattr("headscope.capture.deferred.ROWS_BYTES", 4096)
    monkeypatch.setattr("headscope.capture.deferred.FEWEST_ROWS", 1)
    monkeypatch.setattr("headscope.analysis.row_reader.KEYS", 7)
    monkeypatch.setattr("headscope.analysis.reader.RowwiseReader", Counting)
    return counts


def analyse(model: Model, **request: Any) -> tuple[Result, dict[str, Array]]:
    """Analyse one input; return its result, and the maps computed from factors."""
    sink = MemorySink()
    body = {"model": "tiny", "lenses": LENS_NAMES, "measures": MEASURE_NAMES, **request}
    (outcome,) = pipeline.run_many(model, [AnalysisTask(AnalysisRequest.model_validate(body), sink, keep="factors")])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome, sink.maps


def numbers(count: int) -> list[int]:
    return np.random.default_rng(count).integers(5, 100, count).tolist()


def same(found: tuple[Result, dict[str, Array]], expected: tuple[Result, dict[str, Array]]) -> None:
    """Compare everything that two analyses give. The large scores of tiny models enlarge the rounding of one layer in the next."""
    arrays, others = found[0].to_arrays(), expected[0].to_arrays()
    assert sorted(arrays) == sorted(others)
    for name, array in arrays.items():
        assert array.dtype == others[name].dtype
        if name.startswith("tile/") and name.endswith("/tiles"):
            assert np.abs(array.astype(int) - others[name]).max() <= 1, name
        elif name.endswith("/null") and name.startswith("measure/") and "sink" not in name:
            continue  # shares of what is left by rounding in some rows
        elif name.endswith("condition"):
            np.testing.assert_allclose(array, others[name], rtol=1e-3, err_msg=name)
        else:
            np.testing.assert_allclose(array, others[name], atol=2e-5, rtol=3e-4, err_msg=name)
    for lens, maps in found[1].items():
        np.testing.assert_allclose(maps, expected[1][lens], atol=5e-5, err_msg=lens)


def whole(model: Model, **request: Any) -> tuple[Result, dict[str, Array]]:
    """The same analysis of whole maps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory.MemoryPlan, "by_rows", False)
        return analyse(model, **request)


@pytest.mark.parametrize(
    ("tiny", "tokens"),
    mostly_long(product(TINY, (8, 33, 100, 170)), ("gpt2", 8), ("bert", 170), ("llama", 170)),
    indirect=["tiny"],
    scope="session",
)
def test_models(tiny: Model, rows: list[int], tokens: int) -> None:
    """Bidirectional, causal, grouped heads; up to the head's width effective attention reads whole maps."""
    same(analyse(tiny, token_ids=numbers(tokens)), whole(tiny, token_ids=numbers(tokens)))
    assert bool(rows) or tokens < 170
    rows.clear()
    same(
        *[
            read(tiny, token_ids=numbers(tokens), lenses=["weights"], measures=["entropy", "sink"])
            for read in (analyse, whole)
        ]
    )
    assert rows
    assert set(rows) == {1}


@pytest.mark.parametrize(
    ("tiny", "most"),
    mostly_long(product(TINY, (10**6, 0)), ("bert", 10**6), ("llama", 0)),
    indirect=["tiny"],
    scope="session",
)
def test_threads(tiny: Model, rows: list[int], most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heads, or rows, that are computed at the same time give the same, and torch keeps its threads."""
    monkeypatch.setattr("headscope.capture.batch.HEAD_BYTES", most)
    count = extent(180, 120)
    # Eight rows for each of three threads.
    monkeypatch.setattr("headscope.capture.deferred.ROWS_BYTES", 3 * 8 * count * 4)
    request, threads = {"token_ids": numbers(count)}, torch.get_num_threads()
    one = analyse(tiny, **request)
    torch.set_num_threads(3)
    try:
        several = analyse(tiny, **request)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    same(several, one)
    assert len(rows) >= 6


@pytest.mark.parametrize(("small", "used"), [(10**6, 1), (0, 3)])
def test_small_blocks_take_one_thread(tiny: Model, small: int, used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lenses and measures of few weights run on one thread; others on those of torch, which keeps them."""
    monkeypatch.setattr("headscope.analysis.reader.SMALL", small)
    assert threads_of_maps(tiny, monkeypatch, token_ids=numbers(20), lenses=["weights"], measures=[]) == {used}


def test_whole_maps_take_all_threads(tiny: Model, rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of a lens that cannot read rows of a head, which a thread finds out."""
    monkeypatch.setattr("headscope.analysis.reader.SMALL", 0)
    assert threads_of_maps(tiny, monkeypatch, token_ids=numbers(8), lenses=["effective"], measures=[]) == {3}
    assert not rows


def threads_of_maps(model: Model, monkeypatch: pytest.MonkeyPatch, **request: Any) -> set[int]:
    """How many threads torch has while the thumbnails of whole maps are made, of three that it keeps."""
    seen, threads = list[int](), torch.get_num_threads()

    def pooled(*arguments: Any) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return pool(*arguments)

    monkeypatch.setattr("headscope.analysis.reader.pool", pooled)
    torch.set_num_threads(3)
    try:
        analyse(model, **request)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)
    return set(seen)


PARTS: dict[str, dict[str, Any]] = {
    "some layers and heads": {"token_ids": numbers(120), "layers": [0, 2], "heads": [1, 2]},
    "thumbnails alone": {"token_ids": numbers(120), "maps": False},
    "one measure": {"token_ids": numbers(120), "lenses": [], "measures": ["null_share"]},
    "no statistics": {"token_ids": numbers(120), "measures": []},
    "a text that comes again": {"token_ids": numbers(30) * 4},
    "few tokens again and again": {"token_ids": numbers(3) * 40},
}


@pytest.mark.parametrize(
    ("tiny", "part"),
    mostly_long(product(TINY, PARTS), *zip(cycle(TINY), PARTS)),
    indirect=["tiny"],
    scope="session",
)
def test_parts(tiny: Model, part: str, rows: list[int]) -> None:
    """Some layers and heads; thumbnails alone; statistics without maps; and repeating tokens."""
    same(analyse(tiny, **PARTS[part]), whole(tiny, **PARTS[part]))
    assert rows


@pytest.mark.parametrize("name", list(MODELS))
def test_models_with_terms(name: str, rows: list[int]) -> None:
    """Caps, sinks and windows."""
    torch.manual_seed(0)
    model = headscope.load(MODELS[name]())
    for lenses in (LENS_NAMES, ["weights"]):
        same(*[read(model, token_ids=numbers(180), lenses=lenses) for read in (analyse, whole)])
    assert rows


def test_omitted_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A causal model whose modules say that they are not causal: what the probe saw counts, as in the model's own eager attention."""
    torch.manual_seed(0)
    model = headscope.load(Aimv2TextModel(Aimv2TextConfig(**SHAPE)))
    assert not model.module.encoder.layers[0].attention.is_causal
    inputs = {"input_ids": torch.tensor([numbers(60)]), "attention_mask": torch.ones(1, 60, dtype=torch.long)}
    expected = eager(model, inputs).attentions
    monkeypatch.setattr("headscope.capture.interface.LONG", 1)
    _, maps = analyse(model, token_ids=numbers(60))
    np.testing.assert_allclose(maps["weights"], torch.cat(expected), atol=1e-5)


SHAPE = {
    "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32,
}  # fmt: skip
GROUPED = {**SHAPE, "num_key_value_heads": 2, "head_dim": 8}
LOCAL: dict[str, Callable[[int], Any]] = {
    "windows": lambda n: MistralModel(MistralConfig(**GROUPED, sliding_window=n)),
    "windows on both sides": lambda n: ModernBertModel(ModernBertConfig(**SHAPE, local_attention=n, pad_token_id=0)),
    "chunks": lambda n: Llama4TextModel(
        Llama4TextConfig(**GROUPED, intermediate_size_mlp=32, attention_chunk_size=n, no_rope_layers=[1, 1], num_local_experts=2)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(LOCAL))
def test_local_attention(name: str, rows: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks of windows and chunks are never made: weights are those of eager attention in float64, and measures those of whole maps."""
    torch.manual_seed(0)
    model = headscope.load(LOCAL[name](8))
    measures = ["entropy", "sink", "patterns", "head_roles"]
    request = {"token_ids": numbers(70), "lenses": ["weights"], "measures": measures}
    made: list[Any] = []
    monkeypatch.setattr(
        "headscope.capture.interface.eager_mask", lambda **how: made.append(eager_mask(**how)) or made[-1]
    )
    found = analyse(model, **request)
    assert all(mask is None or mask.shape[-1] < 70 for mask in made)  # the probe is shorter
    assert len(rows) >= 2
    same(found, whole(model, **request))
    module = copy.deepcopy(model.module).double()
    module.set_attn_implementation("eager")
    with torch.no_grad():
        expected = torch.cat(module(torch.tensor([numbers(70)]), output_attentions=True).attentions)
    np.testing.assert_allclose(found[1]["weights"], expected, atol=1e-5)
    assert (expected[-1] == 0).double().mean() > 0.7


@pytest.mark.parametrize(("name", "size"), mostly_long(product(LOCAL, (8, 34)), *zip(LOCAL, (34, 8, 34), strict=True)))
def test_effective_attention_in_local_layers(name: str, size: int) -> None:
    """Of windows and chunks as wide as a head, and wider ones: every row agrees with the decomposition of the values that it sees."""
    torch.manual_seed(0)
    model = headscope.load(LOCAL[name](size))
    layers: list[Layer] = []
    capture(model, model.encode(token_ids=numbers(70)), examine(model), CaptureSpec(layers.append))
    assert layers[-1].keys.rule == "interval"
    for layer in layers:
        weights, values = layer.weights.numpy(), layer.values_by_head.numpy()
        expected = projected(weights, values, layer.keys.allowed(70, 70).numpy())
        for lens, maps in (("effective", expected), ("null", weights - expected)):
            found = LENSES[lens].read(layer, None)
            np.testing.assert_allclose(found.map, maps, atol=1e-5)
            share = np.square(maps).sum(-1) / np.square(weights).sum(-1)
            np.testing.assert_allclose(found.kept, share, atol=1e-5)


@pytest.mark.parametrize("kind", mostly_long(["encoder", "decoder", "cross"], "decoder", "cross"))
def test_two_stacks(kind: str, rows: list[int]) -> None:
    """Queries and keys of different texts, and relative positions."""
    torch.manual_seed(0)
    config = T5Config(vocab_size=100, d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=64, decoder_start_token_id=0)
    model = headscope.load(T5ForConditionalGeneration(config))
    request = {"token_ids": numbers(60), "target_ids": numbers(150), "kind": kind}
    if kind == "cross":
        request["measures"] = ACROSS
    same(analyse(model, **request), whole(model, **request))
    assert rows


@pytest.mark.parametrize(
    ("tiny", "mechanism"),
    mostly_long(product(TINY, ("hopfield", "pasta")), ("llama", "hopfield"), ("bert", "pasta")),
    indirect=["tiny"],
    scope="session",
)
def test_mechanisms(tiny: Model, mechanism: str, rows: list[int]) -> None:
    """Weights of their own are read whole; outputs that are changed afterwards are those of the mechanism."""
    request = {"token_ids": numbers(60), "mechanism": {"name": mechanism}}
    same(analyse(tiny, **request), whole(tiny, **request))


def test_a_model_that_overflows(rows: list[int]) -> None:
    """It is reported once, as it is with whole maps."""
    torch.manual_seed(0)
    module = TINY["gpt2"]()
    with torch.no_grad():
        module.transformer.h[1].attn.c_attn.weight.fill_(1e38)
    for read in (analyse, whole):
        with pytest.raises(NonFinite, match="Layer 1"):
            read(headscope.load(module), token_ids=numbers(60))


@settings(max_examples=extent(150, 40), deadline=None, derandomize=True)
@given(
    queries=st.integers(1, 80), keys=st.integers(1, 80), tile=st.integers(1, 33), signed=st.booleans(),
    causal=st.booleans(), cuts=st.lists(st.integers(1, 30), max_size=5), size=st.integers(1, 90),
)  # fmt: skip
def test_thumbnails(queries: int, keys: int, tile: int, signed: bool, causal: bool, cuts: list[int], size: int) -> None:
    """They are those of the whole map, whatever the rows and keys that come at once."""
    keys = queries if causal else keys
    maps = torch.randn(2, queries, keys, generator=torch.Generator().manual_seed(queries * 81 + keys))
    maps = maps if signed else maps.abs()
    maps = maps.tril() if causal else maps
    pooled, low = RowPool(2, queries, keys, tile, signed), 0
    for count in [*cuts, queries]:
        high = min(low + count, queries)
        if low < high:
            rows = maps[:, low:high, : high if causal else keys]
            pooled.add(pooled.part(low, rows.split(size, 2)))
        low = high
    assert torch.equal(pooled.cells(), pool(maps, tile, signed))


LARGE: dict[str, tuple[Any, list[str], list[str]]] = {
    "causal": (
        lambda: GPT2Model(GPT2Config(vocab_size=100, n_positions=2000, n_embd=16, n_layer=1, n_head=2)),
        LENS_NAMES,
        MEASURE_NAMES,
    ),
    "windows": (
        lambda: MistralModel(MistralConfig(**GROUPED | {"num_hidden_layers": 1}, sliding_window=300)),
        ["weights"],
        ["entropy", "patterns", "sink", "head_roles"],
    ),
}


@pytest.mark.parametrize("name", mostly_long(LARGE, "causal"))
def test_nothing_has_the_size_of_a_map(name: str) -> None:
    """Neither the pass nor what reads it holds as many numbers as a head's map has entries, at default settings."""
    torch.manual_seed(0)
    make, lenses, measures = LARGE[name]
    largest: dict[str, int] = {}

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            for one in found if isinstance(found, (tuple, list)) else (found,):
                if isinstance(one, torch.Tensor):
                    largest[str(func)] = max(largest.get(str(func), 0), one.untyped_storage().nbytes())
            return found

    model = headscope.load(make())
    analyse(model, token_ids=numbers(20), lenses=lenses, measures=measures)  # makes the tables of classes
    body = {"model": "tiny", "lenses": lenses, "measures": measures, "token_ids": numbers(2000)}
    request = AnalysisRequest.model_validate(body)
    kept = Kept()
    with Sizes():
        (outcome,) = pipeline.run_many(model, [AnalysisTask(request, kept, keep="factors")])
    assert isinstance(outcome, Result), outcome
    assert kept.heads == len(lenses) * model.facts.heads
    assert {name: size for name, size in largest.items() if size >= 2000 * 2000} == {}


class Kept:
    """A sink that counts heads that come as factors."""

    heads = 0

    def open(self, shapes: dict[str, Any], factored: Collection[str] = ()) -> None:
        assert set(shapes) == set(factored)

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        raise AssertionError("a map was computed")

    def write_factors(self, lens: str, layer: int, head: int, heads: Sequence[Factors]) -> None:
        assert not any(isinstance(one, Whole) for one in heads)
        self.heads += len(heads)
