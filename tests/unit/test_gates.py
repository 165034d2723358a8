"""Gates on the heads' outputs: found on a probe, read in any cut of a pass into blocks and inputs, and what lenses of heads make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import headscope
from headscope import LENSES, MEASURES, Model
from headscope.capture import CaptureSpec, ModelInput, capture, capture_many, examine, interface
from headscope.core.attention import Keys, Layer
from headscope.core.declarations import NoParams
from headscope.errors import Unsupported
from headscope.lenses import norm
from tests.support.variants import variants
from tests.sweep.build import build, ids

from .conftest import TINY, projected, relative
from .lenses.heads import by_head, head_layer, mask_of

# One number per dimension, and one per head; a normalisation of each head times a gate; and a normalisation of all heads together.
GATED = {"qwen3_5_text": "query", "step3p7": "query", "muse_spark_text": "head", "bitnet": "heads"}
NEEDS = frozenset({"projection"})


@pytest.fixture(scope="module", params=GATED)
def gated(request: pytest.FixtureRequest) -> tuple[Model, str]:
    """A tiny model of each kind, and what its factor follows."""
    return headscope.load(build(request.param).module), GATED[request.param]


def blocks(model: Model, tokens: list[int]) -> list[Layer]:
    """The blocks of heads of a pass."""
    found = list[Layer]()
    capture(model, model.encode(token_ids=tokens), examine(model), CaptureSpec(found.append, needs=NEEDS))
    return found


def test_is_what_the_projection_reads(gated: tuple[Model, str]) -> None:
    """Output times gate is what reaches the module after the heads, on inputs that are not the probe, and whichever heads share a block."""
    model, follows = gated
    sites = examine(model).of("self")
    assert {site.follows for site in sites} == {follows}
    reached = list[Tensor]()
    module = model.module.get_submodule(str(sites[0].projection))
    handle = module.register_forward_pre_hook(lambda _, args: reached.append(args[0][0]))
    whole = blocks(model, ids(17, 3))[0]
    handle.remove()
    torch.testing.assert_close(whole.written.transpose(0, 1).flatten(1), reached[-1], rtol=1e-5, atol=1e-5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface, "BLOCK_BYTES", 1)
        cut = [layer for layer in blocks(model, ids(17, 3)) if layer.index == whole.index]
    assert len(cut) == (1 if follows == "heads" else whole.values.shape[0])
    torch.testing.assert_close(torch.cat([layer.gate for layer in cut]), whole.gate)


def test_of_several_inputs(gated: tuple[Model, str]) -> None:
    """Inputs that share a pass have the gates that they have alone."""
    model, _ = gated
    several, found = [ids(9, seed) for seed in range(3)], list[Any]()

    def take(batch: Any) -> list[None]:
        found.append(batch)
        return [None] * len(batch.places)

    inputs = [ModelInput(model.encode(token_ids=one), CaptureSpec(lambda _: None, needs=NEEDS)) for one in several]
    capture_many(model, inputs, examine(model), on_batch=take)
    for place, one in enumerate(several):
        for batch, alone in zip(found, blocks(model, one), strict=True):
            torch.testing.assert_close(batch.one(place).gate, alone.gate, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(batch.some((place,)).gate, alone.gate, rtol=1e-5, atol=1e-5)
            assert batch.select(frozenset({1})).one(place).gate.shape == alone.gate[:1].shape


def test_of_heads_that_are_switched_off() -> None:
    """A gate follows the query, so it is the same where a head gives nothing: nothing is divided by its output."""
    model = headscope.load(build("qwen3_5_text").module)
    asked: dict[str, Any] = {"token_ids": ids(9, 1), "lenses": ("norm",), "measures": ("gate",)}
    plain = headscope.analyze(model, **asked)
    layer = plain.layers[0]
    off = headscope.analyze(model, **asked, mechanism={"name": "ablate", "heads": [f"{layer}.1"], "how": "zero"})
    np.testing.assert_array_equal(off.measures["gate"]["weights"][0], plain.measures["gate"]["weights"][0])
    assert not off.maps["norm"][0, 1].any()


@pytest.mark.parametrize(
    ("between", "missing"),
    [
        (lambda given: 3 * given, {"gate": "same for every token"}),
        (torch.tanh, {"gate": "single linear projection", "projection": "single linear projection"}),
        (
            lambda given: given.roll(1, -1),
            {"gate": "single linear projection", "projection": "single linear projection"},
        ),
        (lambda given: given, {"gate": "not gated"}),
    ],
    ids=["constant", "not linear", "mixed", "nothing"],
)
def test_what_is_no_gate(between: Callable[[Tensor], Tensor], missing: dict[str, str]) -> None:
    """A constant is a factor, but no gate; anything that is not a factor leaves the projection out."""
    module = TINY["llama"]()
    for layer in module.model.layers:
        layer.self_attn.o_proj.register_forward_pre_hook(lambda _, args: (between(args[0]),))
    found = examine(headscope.load(module)).missing("self")
    assert {need: found.get(need) for need in ("gate", "projection")}.keys() >= missing.keys()
    assert all(said in found[need] for need, said in missing.items())
    assert ("projection" in found) == ("projection" in missing)


# Lenses of heads


def with_gate(layer: Layer, per: str, seed: int = 0) -> Layer:
    """The layer with a random gate, of one number per head or one per dimension."""
    heads, queries, width = layer.output.shape
    generator = torch.Generator().manual_seed(seed)
    gate = torch.rand(heads, queries, width if per == "dimension" else 1, generator=generator) + 1e-3
    return replace(layer, gate=gate.expand(heads, queries, width))


@variants("per", ["head", "dimension"])
@variants("rule", ["all", "prefix", "window"])
@variants("dtype", [torch.float32, torch.float64])
def test_norm(per: str, rule: str, dtype: torch.dtype) -> None:
    """||A_ij (v_j * g_i) W_O|| by loops in float64, in blocks of queries of any size."""
    layer = with_gate(head_layer(13, rule, seed=5), per)
    names = ("weights", "values", "output", "gate", "projection")
    layer = replace(layer, **{name: getattr(layer, name).to(dtype) for name in names})
    V, W, A = by_head(layer), layer.projection.double().numpy(), layer.weights.double().numpy()
    expected = np.zeros_like(A)
    for head, query, key in np.ndindex(*A.shape):
        vector = (V[head, key] * layer.gate[head, query].double().numpy()) @ W[head]
        expected[head, query, key] = A[head, query, key] * np.linalg.norm(vector)
    close = {"rtol": 1e-4 if dtype == torch.float32 else 1e-9, "atol": 1e-6 if dtype == torch.float32 else 1e-12}
    np.testing.assert_allclose(LENSES["norm"].read(layer, NoParams()).map, expected, **close)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norm, "BLOCK_BYTES", 8 * 21 * 8 * 3)
        np.testing.assert_allclose(LENSES["norm"].read(layer, NoParams()).map, expected, **close)


@pytest.mark.parametrize("per", ["head", "dimension"])
@pytest.mark.parametrize("rule", ["all", "prefix", "window"])
def test_effective(per: str, rule: str) -> None:
    """With an open gate the part that reaches the output, row by row about V * g_i, is that about V."""
    layer = with_gate(head_layer(24, rule, seed=7), per)
    found, V = LENSES["effective"].read(layer, NoParams()).map.double().numpy(), by_head(layer)
    for query in range(24):
        gated = V * layer.gate[:, query, None].double().numpy()
        row = projected(layer.weights[:, [query]].numpy(), gated, mask_of(layer)[[query]], False)
        assert relative(found[:, [query]], row) < 1e-5


@pytest.mark.parametrize("name", ["effective", "effective-simplex", "null", "max-entropy"])
def test_closed_gates_are_refused(name: str) -> None:
    """A dimension that a gate closes entirely reaches nothing for this query, so the values alone decide nothing."""
    layer = with_gate(head_layer(24), "dimension")
    layer.gate[2, 5, 3] = 0
    with pytest.raises(Unsupported, match="exactly 0"):
        LENSES[name].read(layer, LENSES[name].params())


def test_measures_of_the_output() -> None:
    """The rank and the dimension of a head's output are those of what it writes, after the gate."""
    layer = with_gate(head_layer(24, seed=2), "dimension")
    for name, params in (("rank", {"of": "output"}), ("head_dimension", {})):
        measure = MEASURES[name]
        found = measure.compute(layer, "weights", {}, measure.params(**params))
        plain = replace(layer, output=layer.written, gate=None)
        torch.testing.assert_close(found, measure.compute(plain, "weights", {}, measure.params(**params)))
        assert not torch.equal(
            found, measure.compute(replace(layer, gate=None), "weights", {}, measure.params(**params))
        )


def test_measures_of_gates() -> None:
    """The mean size over dimensions, and the share below 0.1; without a gate they are refused."""
    layer = replace(head_layer(3, heads=2, width=4), gate=torch.tensor([0.05, -0.5, 1.0, 0.0999]).expand(2, 3, 4))
    gate = MEASURES["gate"]
    for of, value in (("size", 1.6499 / 4), ("closed", 0.5)):
        torch.testing.assert_close(gate.compute(layer, "weights", {}, gate.params(of=of)), torch.full((2, 3), value))
    with pytest.raises(Unsupported, match="not gated"):
        gate.compute(replace(layer, gate=None), "weights", {}, gate.params())


def test_keys_that_are_not_seen() -> None:
    """A causal layer's keys after the query contribute nothing, also in the last block."""
    layer = with_gate(head_layer(9, "prefix"), "dimension")
    assert layer.keys == Keys("prefix")
    assert not LENSES["norm"].read(layer, NoParams()).map.triu(1).any()
