"""Several inputs in one forward pass: each gets what it gets alone, and what goes wrong with one stays with it."""

from __future__ import annotations

import resource
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertModel

import headscope
from headscope import LENSES, MEASURES, MECHANISMS, Model
from headscope.analysis.pipeline import AnalysisTask, Outcome, run, run_many
from headscope.analysis.request import ALONE, AnalysisRequest
from headscope.analysis.result import MemorySink, Result
from headscope.capture import batches_exactly, examine
from headscope.core.attention import Kind
from headscope.errors import Cancelled, InvalidRequest, NonFinite, OutOfMemory, StorageFull
from headscope.models.images import pack
from tests.support.extent import extent, mostly_long
from tests.support.forks import forked
from tests.support.models import wordpiece

from .conftest import TINY
from .test_combinations import CHANGED, given_to, t5, vit

Array = NDArray[Any]
TOGETHER, COUNT = extent(3, 2), 10
TOLERANCE = 1e-5


def asked(model: Model, lengths: Sequence[int], **choices: Any) -> list[AnalysisTask]:
    """Analyses of random inputs of these lengths."""
    draw = np.random.default_rng(len(lengths))
    return [
        AnalysisTask(AnalysisRequest(model="m", token_ids=draw.integers(0, 200, n).tolist(), **choices), MemorySink())
        for n in lengths
    ]


def together(model: Model, several: Sequence[AnalysisTask], **options: Any) -> tuple[list[Outcome], int]:
    """What comes of them, and how many forward passes that took."""
    passes = list[None]()
    outcomes = run_many(model, several, on_pass=lambda: passes.append(None), **options)
    return outcomes, len(passes)


def arrays(result: Result, sink: Any) -> dict[str, Array]:
    """Everything that an analysis computed, by name; thumbnails as the numbers that they stand for."""
    found = {f"map {lens}": values for lens, values in sink.maps.items()} | {"keys": result.keys}
    for lens, tile in result.tiles.items():
        found[f"tile {lens}"] = tile["offset"][..., None, None] + tile["scale"][..., None, None] * tile["tiles"]
    for group in (result.measures, result.notes):
        found |= {f"{name} {part}": values for name, parts in group.items() for part, values in parts.items()}
    return found


def same(model: Model, one: AnalysisTask, outcome: Outcome, *, exactly: bool = False, **options: Any) -> None:
    """The outcome is what the input gives alone."""
    assert isinstance(outcome, Result), outcome
    sink = MemorySink()
    alone = run(model, one.request, sink, **options)
    ours, theirs = arrays(outcome, one.sink), arrays(alone, sink)
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        if exactly:
            np.testing.assert_array_equal(ours[name], expected, err_msg=name)
            continue
        scale = max(1.0, float(np.abs(np.nan_to_num(expected.astype(np.float64))).max(initial=0)))
        room = scale / 100 if name.startswith("tile") else 0  # which may round to the next level of its scale
        np.testing.assert_allclose(ours[name], expected, rtol=0, atol=TOLERANCE * scale + room, err_msg=name)
    assert (outcome.tokens, outcome.warnings, outcome.causal) == (alone.tokens, alone.warnings, alone.causal)


def able(model: Model, declared: dict[str, Any], reads: str = "reads") -> list[str]:
    """Lenses or measures that the model can carry and that need no second run of the input."""
    missing = examine(model).missing("self").keys() | model.missing.keys() | ALONE
    needs = {
        name: {*one.needs, *(need for lens in getattr(one, reads, ()) for need in LENSES[lens].needs)}
        for name, one in declared.items()
    }
    return [name for name, wanted in needs.items() if not wanted & missing]


@pytest.mark.parametrize(
    ("tiny", "mechanism"),
    mostly_long(
        product(TINY, MECHANISMS),
        ("gpt2", "softmax"),
        ("llama", "hopfield"),
        ("bert", "jump"),
        ("llama", "ablate"),
        ("bert", "pasta"),
    ),
    indirect=["tiny"],
    scope="session",
)
def test_everything_is_as_alone(tiny: Model, mechanism: str) -> None:
    """All lenses and measures that can share a pass, under every mechanism, on every architecture: within 1e-5 of each input's own pass."""
    model = headscope.load(tiny.module, wordpiece())
    if mechanism not in able(model, MECHANISMS):
        return  # refused, see test_combinations
    # Measures are of maps, whatever made them.
    measured = extent([*MECHANISMS], ["softmax", "hopfield", "pasta"])
    several = asked(
        model,
        [COUNT] * TOGETHER,
        mechanism={"name": mechanism, **CHANGED[mechanism]},
        lenses=able(model, LENSES),
        measures=able(model, MEASURES) if mechanism in measured else [],
    )
    outcomes, passes = together(model, several)
    assert passes == 1
    for one, outcome in zip(several, outcomes, strict=True):
        same(model, one, outcome)


def test_texts_of_the_default_model(minilm: Model) -> None:
    """Texts and pairs, whose types of tokens differ, with vectors added to their special tokens, of which pairs have more: each as alone."""
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(2, 2, minilm.width)).tolist()
    texts = [{"text": "The cat sat here."}, {"text": "A dog ran off."}, {"text": "Two old", "text_pair": "cats sat"}]
    for mechanism in ("softmax", {"name": "pasta", "vectors": vectors}):
        several = [
            AnalysisTask(AnalysisRequest(model="m", mechanism=mechanism, **text), MemorySink()) for text in texts
        ]
        (first, second, pair), passes = together(minilm, several)
        assert passes == 1
        same(minilm, several[0], first)
        same(minilm, several[1], second)
        if mechanism == "softmax":
            same(minilm, several[2], pair)
        else:
            assert isinstance(pair, InvalidRequest)
            assert pair.limit == 3


@pytest.mark.parametrize("rules", ["v1", "pasta", "clark"])
def test_special_tokens_may_stand_elsewhere(minilm: Model, rules: str) -> None:
    """Pairs split after each word, and one text: measures of special tokens and texts use each input's own tokens."""
    words = "the cat sat on a mat because it was so tired , and slept .".split()
    texts = [
        {"text": " ".join(words[:cut]), "text_pair": " ".join(words[cut:])}
        for cut in range(1, len(words), extent(1, 6))
    ]
    texts.append({"text": " ".join([*words, "well"])})
    measures = [{"name": "patterns", "rules": rules}, "special_tokens", "sink", "special_broadcast"]
    several = [AnalysisTask(AnalysisRequest(model="m", measures=measures, **text), MemorySink()) for text in texts]
    outcomes, passes = together(minilm, several)
    assert passes == 1
    for one, outcome in zip(several, outcomes, strict=True):
        same(minilm, one, outcome)


@pytest.mark.parametrize("tiny", mostly_long(TINY, "gpt2"), indirect=True)
def test_only_what_is_alike_shares_a_pass(tiny: Model) -> None:
    """Inputs of other lengths or recipes go in passes of their own, and alone in one they are equal to the last bit; outcomes keep their order."""
    several = [*asked(tiny, [5, 7, 5, 9]), *asked(tiny, [5], lenses=["weights"]), *asked(tiny, [7], layers=[1])]
    outcomes, passes = together(tiny, several)
    assert passes == 5
    for place, (one, outcome) in enumerate(zip(several, outcomes, strict=True)):
        same(tiny, one, outcome, exactly=place not in (0, 2))


@pytest.mark.parametrize("tiny", mostly_long(TINY, "bert"), indirect=True)
def test_maps_are_kept_of_those_that_want_them(tiny: Model) -> None:
    """These share a pass, and the others another one: what is kept is the same for all of a pass."""
    several = [asked(tiny, [9] * 4, maps=place % 2 == 0)[place] for place in range(4)]
    outcomes, passes = together(tiny, several)
    assert passes == 2
    for one, outcome in zip(several, outcomes, strict=True):
        assert list(one.sink.maps) == (["weights", "effective"] if one.request.maps else [])  # type: ignore[attr-defined]
        same(tiny, one, outcome)


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_logits_and_precision(tiny: Model) -> None:
    """Each input's own logits, in float64, too; the model is left as it was."""
    several = asked(tiny, [COUNT] * 3, dtype="float64")
    outcomes, passes = together(tiny, several, keep_logits=True)
    assert (passes, tiny.module.dtype) == (1, torch.float32)
    for one, outcome in zip(several, outcomes, strict=True):
        same(tiny, one, outcome)
        alone = run(tiny, one.request, MemorySink(), keep_logits=True)
        np.testing.assert_allclose(outcome.logits, alone.logits, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("build", "kind", "lens"),
    [
        (TINY["bert"], "self", "value-zeroing"),
        (TINY["bert"], "self", "effective-published"),
        (t5, "encoder", "weights"),
        (t5, "cross", "weights"),
        (vit, "self", "weights"),
    ],
)
def test_the_rest_goes_one_by_one(build: Callable[[], Any], kind: Kind, lens: str) -> None:
    """Lenses that run the input again, models of two stacks, and images: a pass for each input, equal to the last bit."""
    torch.manual_seed(0)
    model = headscope.load(build())
    several = []
    for seed in range(3):
        request = headscope.library.arguments.request_of(
            "softmax", [lens], [], model="m", **packed(given_to(model, kind, seed, 9))
        )
        several.append(AnalysisTask(request, MemorySink()))
    outcomes, passes = together(model, several)
    assert passes == 3
    for one, outcome in zip(several, outcomes, strict=True):
        same(model, one, outcome, exactly=True)


def packed(given: dict[str, Any]) -> dict[str, Any]:
    """With an image as a request carries it."""
    return {name: pack(value) if name == "image" else value for name, value in given.items()}


def test_a_model_that_mixes_its_inputs(minilm: Model) -> None:
    """Where inputs of one pass touch each other, as a probe shows, each goes alone and is right."""
    torch.manual_seed(0)
    module = TINY["bert"]()
    module.bert.embeddings.register_forward_hook(lambda _, given, output: (output + output.mean(0, keepdim=True)) / 2)
    model = headscope.load(module)
    assert examine(model).captured
    assert batches_exactly(minilm)
    assert not batches_exactly(model)
    several = asked(model, [COUNT] * 3)
    outcomes, passes = together(model, several)
    assert passes == 3
    for one, outcome in zip(several, outcomes, strict=True):
        same(model, one, outcome, exactly=True)


class Full(MemorySink):
    """A sink whose disk is full from the second layer on."""

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        if layer:
            raise StorageFull("full")
        super().write(lens, layer, head, block)


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_what_goes_wrong_with_one_stays_with_it(tiny: Model) -> None:
    """A cancelled input, one whose numbers overflow, one without room on disk, one with an unknown token: the others are as alone."""
    poison, told = 7, list[str]()
    several = asked(tiny, [COUNT] * 7)
    ids = [[id_ if id_ != poison else poison + 1 for id_ in one.request.token_ids or ()] for one in several]
    ids[1][3], ids[4][2] = poison, 10_000

    def stop(fraction: float, stage: str, detail: str) -> None:
        if detail.startswith("layer 2"):
            raise Cancelled("cancelled")
        told.append(detail)

    several = [
        AnalysisTask(one.request.model_copy(update={"token_ids": given}), MemorySink())
        for one, given in zip(several, ids, strict=True)
    ]
    several[2] = AnalysisTask(several[2].request, MemorySink(), stop)
    several[3] = AnalysisTask(several[3].request, Full())
    examine(tiny)
    batches_exactly(tiny)
    embedding = tiny.module.get_input_embeddings().weight.data
    before = embedding[poison].clone()
    embedding[poison] = torch.nan
    try:
        outcomes, passes = together(tiny, several)
    finally:
        embedding[poison] = before
    expected = {1: NonFinite, 2: Cancelled, 3: StorageFull, 4: InvalidRequest}
    assert passes == 1
    assert {
        place: type(outcome) for place, outcome in enumerate(outcomes) if isinstance(outcome, Exception)
    } == expected
    assert set(told) == {"layer 1 of 3"}
    for place in (0, 5, 6):
        same(tiny, several[place], outcomes[place])


class Broken(MemorySink):
    """A sink with a mistake in it, or whatever else it raises."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        raise self._error


@pytest.mark.parametrize("tiny", mostly_long(TINY, "gpt2"), indirect=True)
def test_a_mistake_stays_with_one_input(tiny: Model) -> None:
    """An unexpected error ends the pass; smaller passes isolate the input that raised it, and the others are as alone."""
    several = asked(tiny, [COUNT] * 4)
    several[1] = AnalysisTask(several[1].request, Broken(ValueError("mistake")))
    outcomes, passes = together(tiny, several)
    assert [type(outcome) for outcome in outcomes] == [Result, ValueError, Result, Result]
    assert passes == 2
    for place in (0, 2, 3):
        same(tiny, several[place], outcomes[place])


@pytest.mark.parametrize("tiny", mostly_long(TINY, "bert"), indirect=True)
def test_what_comes_from_outside_ends_all(tiny: Model) -> None:
    """An exception from outside, such as Celery's time limit, is not treated as an input's failure."""

    class Elapsed(Exception):
        pass

    several = asked(tiny, [COUNT] * 4)
    several[1] = AnalysisTask(several[1].request, Broken(Elapsed()))
    with pytest.raises(Elapsed):
        run_many(tiny, several)


@pytest.mark.parametrize("tiny", mostly_long(TINY, "gpt2"), indirect=True)
def test_a_pass_ends_with_its_last_input(tiny: Model) -> None:
    """When all are cancelled in the first layer nothing more is computed."""
    reached = list[str]()

    def stop(fraction: float, stage: str, detail: str) -> None:
        reached.append(detail)
        if len(reached) > TOGETHER:
            raise Cancelled("cancelled")

    several = [AnalysisTask(one.request, one.sink, stop) for one in asked(tiny, [COUNT] * TOGETHER)]
    outcomes, passes = together(tiny, several)
    assert (passes, {type(outcome) for outcome in outcomes}) == (0, {Cancelled})
    assert reached == ["layer 1 of 3"] * 2 * TOGETHER


@pytest.mark.parametrize("tiny", mostly_long(TINY, "bert"), indirect=True)
def test_the_limit_holds_for_a_pass(tiny: Model) -> None:
    """What is at work on all inputs of a pass fits into the limit, so a small one gives more passes."""
    several = asked(tiny, [COUNT] * 5, maps=False)
    from headscope.analysis.memory import plan

    one = plan(several[0].request, dict.fromkeys(range(3), 4), COUNT, COUNT).work_bytes
    for limit, passes in ((one, 5), (2 * one, 3), (5 * one, 1), (None, 1)):
        outcomes, taken = together(tiny, several, limit=limit)
        assert taken == passes
        assert all(isinstance(outcome, Result) for outcome in outcomes)


def runs_short_of_memory() -> tuple[Any, Any, bool, Any]:
    """Passes and outcomes of eight inputs with much memory and with little, whether their maps agree, and the outcomes of a long and a short input with less."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    wide = BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=65536
    )
    model = headscope.load(BertModel(wide, add_pooling_layer=False))

    def leave(megabytes: int) -> None:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, resource.RLIM_INFINITY))

    def ended(several: Sequence[AnalysisTask]) -> tuple[int, list[str]]:
        outcomes, passes = together(model, several)
        return passes, [type(outcome).__name__ for outcome in outcomes]

    several = asked(model, [64] * 8)
    free = ended(several)
    before = [one.sink.maps["weights"].copy() for one in several]  # type: ignore[attr-defined]
    leave(200)
    tight = ended(several)
    same = all(
        np.allclose(one.sink.maps["weights"], maps, atol=1e-5) for one, maps in zip(several, before, strict=True)
    )  # type: ignore[attr-defined]
    leave(40)
    return free, tight, same, ended(asked(model, [256, 4]))


def test_a_lack_of_memory_halves_the_group() -> None:
    """In a process that gets no more memory: fewer inputs at a time go on with the same numbers; one that does not fit fails alone."""
    ((free, tight, equal, last),) = forked(runs_short_of_memory, ())
    assert free == (1, ["Result"] * 8)
    assert 1 < tight[0] <= 8
    assert tight[1] == ["Result"] * 8
    assert equal
    assert last == (1, [OutOfMemory.__name__, "Result"])
