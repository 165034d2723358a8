"""Inputs of one pass, computed as one input with more heads: once per layer, with the same results as alone, grouped by like tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headscope
from headscope import Model
from headscope.analysis.pipeline import AnalysisTask, run, run_many
from headscope.analysis.request import AnalysisRequest
from headscope.analysis.result import MemorySink, Result
from headscope.capture import Batch, CaptureSpec, ModelInput, capture, capture_many, examine
from headscope.core.attention import Layer
from headscope.errors import HeadscopeError, Unsupported
from tests.support.extent import mostly_long

FIELDS = ("weights", "values", "output", "query", "key", "projection", "projection_factors")
NEEDS = frozenset({"projection"})


def together(model: Model, several: list[list[int]], failing: int | None = None) -> tuple[list[Batch], list[object]]:
    """Return the batches of inputs that share a pass, and each input's error."""
    found = list[Batch]()

    def take(one: Batch) -> list[HeadscopeError | None]:
        found.append(one)
        return [Unsupported("no") if place == failing else None for place in one.places]

    inputs = [ModelInput(model.encode(token_ids=ids), CaptureSpec(refuse, needs=NEEDS)) for ids in several]
    _, failures = capture_many(model, inputs, examine(model), on_batch=take)
    return found, failures


def refuse(layer: Layer) -> None:
    raise AssertionError("heads of one input are handed on alone")


def alone(model: Model, ids: list[int]) -> list[Layer]:
    found = list[Layer]()
    capture(model, model.encode(token_ids=ids), examine(model), CaptureSpec(found.append, needs=NEEDS))
    return found


def near(ours: Layer, theirs: Layer) -> None:
    """The same heads of the same tokens."""
    assert (ours.index, ours.heads, ours.axes) == (theirs.index, theirs.heads, theirs.axes)
    for name in FIELDS:
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=0, atol=1e-5)


def test_each_is_as_alone(tiny: Model) -> None:
    """One batch per layer for all inputs, from which single inputs, some inputs and some heads can be selected."""
    draw = np.random.default_rng(0)
    several = draw.integers(0, 200, (4, 9)).tolist()
    found, failures = together(tiny, several)
    assert (len(found), failures) == (3, [None] * 4)
    expected = [alone(tiny, ids) for ids in several]
    for number, one in enumerate(found):
        for place in range(4):
            near(one.one(place), expected[place][number])
        two = one.some((1, 3))
        torch.testing.assert_close(two.weights, torch.cat([one.one(1).weights, one.one(3).weights]))
        chosen = one.select(frozenset({1, 3}))
        assert chosen is not None
        theirs = expected[2][number].select(frozenset({1, 3}))
        assert theirs is not None
        near(chosen.one(2), theirs)
        assert one.select(frozenset({99})) is None


def test_one_that_fails_is_left_out(tiny: Model) -> None:
    """An input that has failed is not handed on again; the others are as they would be without it."""
    several = np.random.default_rng(1).integers(0, 200, (3, 9)).tolist()
    found, failures = together(tiny, several, failing=1)
    assert [one.places for one in found] == [(0, 1, 2), (0, 2), (0, 2)]
    assert isinstance(failures[1], Unsupported)
    near(found[2].one(1), alone(tiny, several[2])[2])


@pytest.mark.parametrize("mechanism", mostly_long(["softmax", "ablate"], "softmax"))
def test_tokens_that_differ_are_kept_apart(minilm: Model, mechanism: str) -> None:
    """Texts and pairs of equal length, with punctuation in other places: every measure of tokens is that of the input's own tokens."""
    texts = [
        ("A cat, a dog sat.", None),
        ("Dogs ran off again late, so", None),
        ("Old cats", "ran, far off"),
        ("Cats", "ran far off too ,"),
    ]
    measures = [
        name
        for name in headscope.MEASURES
        if name in ("patterns", "special_tokens", "token_types", "head_roles", "connections", "sink", "entropy")
    ]
    several = [
        AnalysisTask(
            AnalysisRequest(model="m", text=one, text_pair=two, mechanism=mechanism, measures=measures),
            MemorySink(),
            tiles=False,
        )
        for one, two in texts
    ]
    assert len({len(minilm.encode(one, two).tokens) for one, two in texts}) == 1
    for asked, outcome in zip(several, run_many(minilm, several), strict=True):
        assert isinstance(outcome, Result)
        assert not outcome.tiles
        theirs = run(minilm, asked.request, MemorySink())
        for name in measures:
            for lens, values in theirs.measures[name].items():
                np.testing.assert_allclose(outcome.measures[name][lens], values, atol=1e-5, err_msg=f"{name} {lens}")


def test_the_same_map_is_measured_once(minilm: Model) -> None:
    """Up to the head's width, effective attention and its measures are those of the weights; beyond it they are not."""
    for text, same in (("The cat sat on the mat.", True), ("The cat sat on the mat. " * 8, False)):
        a = headscope.analyze(minilm, text, measures=("patterns", "special_tokens"))
        for values in a.measures.values():
            assert np.array_equal(values["weights"], values["effective"], equal_nan=True) is same


def test_inputs_without_maps_have_a_pass_of_their_own() -> None:
    """What is kept of the inputs of a pass is the same for all."""
    request = AnalysisRequest(model="m", text="A text.")
    assert request.recipe("") == request.model_copy(update={"text": "Another."}).recipe("")
    assert request.recipe("") != request.model_copy(update={"maps": False}).recipe("")
