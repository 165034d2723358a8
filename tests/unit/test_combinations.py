"""Every lens on every mechanism on every kind of model: right by the slow definitions in float64, or refused with the reason that was declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import T5Config, T5ForConditionalGeneration, ViTConfig, ViTForImageClassification

import headscope
from headscope import LENSES, MECHANISMS, Model
from headscope.analysis.request import AnalysisRequest
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Kind, Layer
from headscope.errors import Unsupported
from headscope.mechanisms.base import PassContext
from tests.support.extent import extent, mostly_long

from .conftest import TINY, projected
from .lenses.heads import by_head, mask_of
from .lenses.test_effective_published import published
from .lenses.test_jump_map import reference as adjacency
from .lenses.test_layers import nearer, shares, turned
from .lenses.whole import added

Array = NDArray[Any]
PAD = 20
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Case:
    """A model and the layers and heads to analyse."""

    build: Callable[[], Any]
    kind: Kind = "self"


def t5() -> Any:
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=200,
            d_model=32,
            d_kv=8,
            num_layers=2,
            num_heads=4,
            d_ff=64,
            decoder_start_token_id=0,
            initializer_factor=1.0,
        )
    )


def vit() -> Any:
    return ViTForImageClassification(
        ViTConfig(
            image_size=12,
            patch_size=4,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            initializer_range=0.5,
        )
    )


CASES = {
    **{name: Case(build) for name, build in TINY.items()},
    "t5-encoder": Case(t5, "encoder"),
    "t5-decoder": Case(t5, "decoder"),
    "t5-cross": Case(t5, "cross"),
    "vit": Case(vit),
}
# Parameters that change something; for pasta what fits the model is made below.
CHANGED: dict[str, dict[str, Any]] = {
    "softmax": {},
    "hopfield": {"alpha": 0.5},
    "jump": {"rho": 0.5, "layers": [0, 1]},
    "pasta": {},
    "ablate": {"heads": ["0.1", "1.2"], "how": "uniform"},
}


# Every model by softmax, and by one of the other mechanisms.
SOME = [*product(CASES, ["softmax"]), *zip(CASES, cycle(name for name in MECHANISMS if name != "softmax"))]


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest) -> tuple[Model, Kind]:
    """The model, loaded."""
    torch.manual_seed(1)
    chosen = CASES[request.param]
    return headscope.load(chosen.build()), chosen.kind


def given_to(model: Model, kind: Kind, seed: int, n: int) -> dict[str, Any]:
    """Random input: an image, or token ids; a decoder's text is shorter than the encoder's."""
    draw = np.random.default_rng(seed)
    if model.facts.kind == "vision":
        return {"image": draw.integers(0, 256, (12, 12, 3)).astype(np.uint8)}
    ids = {"token_ids": draw.integers(0, 200, n).tolist()}
    if model.facts.kind == "encoder-decoder":
        ids |= {"target_ids": draw.integers(0, 200, max(1, n - 3)).tolist(), "kind": kind}
    return ids


def expected(model: Model, request: AnalysisRequest, lenses: list[str]) -> tuple[dict[str, list[Array]], list[Layer]]:
    """The maps of all layers by their definitions, and the layers: from the same forward pass in float64, with everything around them."""
    sites = examine(model)
    missing, chosen, encoded = sites.missing(request.kind), sites.of(request.kind), model.encode(**request.input)
    everything = frozenset({"projection", "residual", "hidden", "replay"} - set(missing))
    heads = {site.layer: site.heads for site in chosen}
    setting = PassContext(heads, model.width, encoded.axes(chosen[0].kind))
    mechanism, maps, layers = (
        MECHANISMS[request.mechanism.name],
        {lens: list[Array]() for lens in lenses},
        list[Layer](),
    )

    def read(layer: Layer) -> None:
        layers.append(replace(layer, epsilon=torch.finfo(torch.float32).eps))
        for lens in lenses:
            if lens in DEFINED:
                here = DEFINED[lens](layers[-1])
                joined = lens in ("rollout", "norm-rollout", "alti") and maps[lens]
                maps[lens].append((here[0] @ maps[lens][-1][0])[None] if joined else here)

    with model.using("float64"):
        wanted = CaptureSpec(
            lambda layer: None, read, everything, whole=True, pad_to=None if "padding" in missing else PAD
        )
        capture(model, encoded, sites, wanted, request.kind, lambda: mechanism.begin(request.mechanism, setting))
    return maps, layers


def weights_of(layer: Layer) -> Array:
    return layer.weights.double().numpy()


def norms(layer: Layer) -> Array:
    lengths = np.linalg.norm(by_head(layer) @ layer.projection.detach().double().numpy(), axis=-1)
    return np.abs(weights_of(layer)) * lengths[:, None]


def mixed(layer: Layer) -> Array:
    half = 0.5 * weights_of(layer).mean(0) + 0.5 * np.eye(layer.weights.shape[1])
    return (half / half.sum(-1, keepdims=True))[None]


def ties(layer: Layer) -> Array:
    query, key = layer.query.double().numpy(), layer.key.double().numpy()
    return np.stack([adjacency(q, k, 5.0, False) for q, k in zip(query, key, strict=True)])


def effective(layer: Layer, ones: bool = False) -> Array:
    return projected(weights_of(layer), by_head(layer), mask_of(layer), ones)


# Lens -> its map of one layer, before layers are joined, from the slow definitions; max-entropy has none and is checked by what it promises.
DEFINED: dict[str, Callable[[Layer], Array]] = {
    "weights": weights_of,
    "effective": effective,
    "effective-simplex": lambda layer: effective(layer, ones=True),
    "null": lambda layer: weights_of(layer) - effective(layer),
    "norm": norms,
    "jump-map": ties,
    "effective-published": lambda layer: published(weights_of(layer), layer.padded_values.double().numpy()),
    "norm-residual": lambda layer: np.linalg.norm(added(layer), axis=-1)[None],
    "rollout": mixed,
    "norm-rollout": lambda layer: shares(np.linalg.norm(added(layer), axis=-1))[None],
    "alti": lambda layer: shares(nearer(layer))[None],
    "value-zeroing": lambda layer: shares(turned(layer))[None],
}


def is_most_even(found: Array, layers: list[Layer]) -> None:
    """Max-entropy has no closed form: it is a distribution over the same keys, with the same output, and at least as much entropy."""
    for place, layer in enumerate(layers):
        weights, values, allowed = layer.weights.double().numpy(), by_head(layer), mask_of(layer)
        rows = ~np.isnan(found[place]).any(-1)
        p, a = np.nan_to_num(found[place].astype(np.float64)), weights
        assert rows.mean() > 0.9
        assert not p[:, ~allowed].any()
        np.testing.assert_allclose(p.sum(-1)[rows], 1, atol=1e-5)
        outputs = np.abs(p @ values - a @ values).max(-1)
        assert outputs[rows].max(initial=0) < 1e-4 * max(1, np.abs(values).max())
        gap = _entropy(p) - _entropy(a)
        assert gap[rows].min(initial=0) > -1e-4


def _entropy(p: Array) -> Array:
    return -(p * np.log(np.where(p > 0, p, 1))).sum(-1)


def distance(ours: Array, theirs: Array) -> float:
    """Of all that is defined, relative to the norm of the map; of one map per head to that of rows which sum to 1, if that is larger."""
    apart = np.linalg.norm(np.nan_to_num(ours) - np.nan_to_num(theirs))
    return float(apart / max(np.linalg.norm(np.nan_to_num(theirs)), np.sqrt(len(theirs)), 1e-30))


def parameters(mechanism: str, model: Model, specials: int) -> dict[str, Any]:
    """A choice of the mechanism that changes something."""
    chosen: dict[str, Any] = {"name": mechanism, **CHANGED[mechanism]}
    if mechanism == "pasta" and specials:
        draw = np.random.default_rng(0)
        chosen["vectors"] = draw.normal(size=(1, specials, model.width)).tolist()
    return chosen


@settings(
    max_examples=extent(3, 1),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a failing example is small enough as it is
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**20), n=st.sampled_from([1, 5, 9, 13]))
@pytest.mark.parametrize(
    ("case", "mechanism"), mostly_long(product(CASES, MECHANISMS), *SOME), indirect=["case"], scope="module"
)
def test_every_lens_is_right(case: tuple[Model, Kind], mechanism: str, seed: int, n: int) -> None:
    """Within 1e-4 of the definition, relative to the norm of the map (weights: 2e-5 absolute, float32 against float64, where the mechanism is softmax)."""
    model, kind = case
    missing = examine(model).missing(kind)
    if set(MECHANISMS[mechanism].needs) & set(missing):
        return  # refused: see below
    taken = given_to(model, kind, seed, n)
    able = [name for name, lens in LENSES.items() if not set(lens.needs) & set(missing)]
    lenses = [{"name": name, "pad_to": PAD} if name == "effective-published" else name for name in able]
    specials = 1 if model.facts.kind == "vision" else 0
    a = headscope.analyze(model, **taken, mechanism=parameters(mechanism, model, specials), lenses=lenses, measures=())
    maps, layers = expected(model, a.request, able)
    for lens in able:
        if lens == "max-entropy":
            is_most_even(a.maps[lens], layers)
            continue
        if lens == "effective-published" and len({0, *taken.get("token_ids", ())}) <= n:
            continue  # repeated or padding tokens have equal values, and then rounding decides the rank that the published code finds
        for ours, theirs in zip(a.maps[lens], maps[lens], strict=True):
            np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs), err_msg=lens)
            assert distance(ours, theirs) < TOLERANCE, lens
            if lens == "weights" and mechanism == "softmax":
                np.testing.assert_allclose(ours, theirs, atol=2e-5)


def test_the_rest_is_refused(case: tuple[Model, Kind], subtests: pytest.Subtests) -> None:
    """A lens or mechanism that the model does not support is rejected with the reason before anything is computed."""
    for lens in LENSES:
        for mechanism in MECHANISMS:
            with subtests.test(lens=lens, mechanism=mechanism):
                model, kind = case
                missing = examine(model).missing(kind)
                declared = [
                    need for method in (MECHANISMS[mechanism], LENSES[lens]) for need in method.needs if need in missing
                ]
                if declared:
                    with pytest.raises(Unsupported) as refused:
                        headscope.analyze(
                            model, **given_to(model, kind, 0, 9), mechanism=mechanism, lenses=(lens,), measures=()
                        )
                    assert missing[declared[0]] in refused.value.detail
