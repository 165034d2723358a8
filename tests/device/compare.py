"""Every method on another device, beside itself in float64 on the CPU, which the unit tests hold against slow references."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)

import headscope
from headscope import EFFECTS, LENSES, MEASURES, MECHANISMS, Model
from headscope.errors import HeadscopeError
from headscope.models.catalog import Catalog
from headscope.settings import Settings
from tests.unit.conftest import TINY, VOCABULARY


class Check(NamedTuple):
    """A type on the device, the type on the CPU that it is compared with, and the largest difference, relative to the largest entry if that is above 1."""

    dtype: str
    reference: str
    most: float


# Results are kept in float32, and transformers computes parts of some models in float32 whatever their type, such as rotary embeddings.
DOUBLE, SINGLE = Check("float64", "float64", 2e-5), Check("float32", "float64", 1e-4)
SAME = Check("float32", "float32", 1e-5)
# Half precision has three digits, or two: weights beside those of the CPU in the same type, after three layers.
HALF = (Check("float16", "float16", 2e-2), Check("bfloat16", "bfloat16", 2e-1))
TOKENS = 24
GROUPED: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 64,
    "initializer_range": 0.5,
}
MODELS: dict[str, Callable[[], Any]] = {
    **TINY,
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**GROUPED, sliding_window=8)),
    "gpt-oss": lambda: GptOssForCausalLM(
        GptOssConfig(**GROUPED, num_local_experts=2, num_experts_per_tok=1, sliding_window=8)
    ),
    "t5": lambda: T5ForConditionalGeneration(
        T5Config(
            vocab_size=VOCABULARY, d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=64, decoder_start_token_id=0
        )
    ),
    "vit": lambda: ViTForImageClassification(
        ViTConfig(
            image_size=12, patch_size=4, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
            initializer_range=0.5,
        )
    ),
}  # fmt: skip
REAL = ("minilm", "smollm2")
# transformers computes a part of these in float32 whatever their type, and refuses float64.
NO_FLOAT64 = {"gpt-oss"}
# Count what is above the rounding of the type.
COUNTS = {"measure rank"}
TEXT = "The cat sat on the mat because it was warm, and the cat sat on the mat because it was tired."
# Where a masked model without a mask in its input predicts.
AT = {"bert": {"position": 5}}
EFFECT_PARAMS: dict[str, Any] = {
    "path-patching": {"receiver": "2.1", "reads": "query"},
    "score": {"head": "2.1", "query": 6, "key": 3},
}
COMPARED = {"patching", "path-patching", "attribution-patching"}


@dataclass(frozen=True)
class Case:
    """A model on both devices, and what it reads."""

    name: str
    here: Model
    there: Model
    given: Mapping[str, Any]
    other: Mapping[str, Any]


class Difference(NamedTuple):
    """How far a method is apart; `wrong` says why it fails, and is empty where it does not. `refused`: on both devices, for the same reason."""

    case: str
    method: str
    dtype: str
    apart: float
    wrong: str
    refused: bool = False


def cases(move: Callable[[Any], Any], names: Collection[str]) -> Iterator[Case]:
    """Yield the named models, each on the CPU and where `move` brings its module; those of the catalogue where they are installed."""
    draw = np.random.default_rng(0).integers
    for name, build in MODELS.items():
        if name not in names:
            continue
        torch.manual_seed(0)
        module = build().eval()
        there = headscope.load(move(deepcopy(module)))
        given: dict[str, Any] = {"token_ids": draw(1, VOCABULARY, TOKENS).tolist()}
        other: dict[str, Any] = {"against": draw(1, VOCABULARY, TOKENS).tolist()}
        if name == "vit":
            given, other = {"image": draw(0, 256, (12, 12, 3)).astype(np.uint8)}, {}
        if name == "t5":
            given, other = {**given, "target_ids": draw(1, VOCABULARY, 9).tolist()}, {}
        yield Case(name, headscope.load(module), there, given, other)
    catalog = Catalog(Settings())
    for name in REAL:
        if name in names and catalog.installed(name).is_dir():
            here = headscope.load(name, device="cpu")
            there = headscope.load(move(deepcopy(here.module)), here.tokenizer)
            yield Case(name, here, there, {"text": TEXT}, {})


def differences(
    case: Case, checks: Sequence[Check] = (DOUBLE, SINGLE), half: Sequence[Check] = HALF
) -> Iterator[Difference]:
    """Yield the differences of a model: every mechanism, lens, measure and effect by `checks`, and weights by `half`."""
    kinds = ("encoder", "decoder", "cross") if case.name == "t5" else ("self",)
    for kind in kinds:
        label = case.name if kind == "self" else f"{case.name} {kind}"
        given = {**case.given, "kind": kind}
        for method, options in _analyses():
            for check in checks:
                yield _compare(label, method, check, case, headscope.analyze, {**given, **options})
        for check in half:
            options = {"lenses": ("weights",), "measures": ()}
            yield _compare(label, "lens weights", check, case, headscope.analyze, {**given, **options})
    for name in EFFECTS:
        method = {"name": name, **EFFECT_PARAMS.get(name, {})}
        options = {**case.given, **AT.get(case.name, {}), **(case.other if name in COMPARED else {}), "method": method}
        for check in checks:
            yield _compare(case.name, f"effect {name}", check, case, headscope.effect, options)


def _analyses() -> Iterator[tuple[str, dict[str, Any]]]:
    for lens in LENSES:
        yield f"lens {lens}", {"lenses": (lens,), "measures": ()}
    for measure, found in MEASURES.items():
        lenses = ("weights", "effective") if found.of == "heads" else ("weights",)
        yield f"measure {measure}", {"lenses": lenses, "measures": (measure,), "maps": False}
    for mechanism in MECHANISMS:
        yield f"mechanism {mechanism}", {"mechanism": mechanism, "lenses": ("weights", "effective"), "measures": ()}


def _compare(
    label: str, method: str, check: Check, case: Case, run: Callable[..., Any], options: Mapping[str, Any]
) -> Difference:
    dtype, reference, most = check
    if case.name in NO_FLOAT64 or method in COUNTS:
        reference = dtype
    expected, found = _result(run, case.here, reference, options), _result(run, case.there, dtype, options)
    if isinstance(expected, str) or isinstance(found, str):
        one, other = (each if isinstance(each, str) else "a result" for each in (found, expected))
        return Difference(label, method, dtype, 0.0, "" if one == other else f"{one}, on the CPU {other}", one == other)
    if expected.keys() != found.keys():
        return Difference(label, method, dtype, np.inf, f"arrays are {sorted(found)}, not {sorted(expected)}")
    apart = {name: _apart(found[name], expected[name]) for name in expected}
    name = max(apart, key=lambda one: apart[one], default="")
    largest = apart.get(name, 0.0)
    return Difference(label, method, dtype, largest, "" if largest <= most else f"{name} differs by {largest:.1e}")


def _result(run: Callable[..., Any], model: Model, dtype: str, options: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the arrays of a result, or why there is none."""
    try:
        result = run(model, dtype=dtype, **options)
    except HeadscopeError as error:
        return f"{error.code}: {error.detail}"
    if run is headscope.effect:
        return {
            name: value for name in ("effects", "maps", "sources") if (value := getattr(result, name, None)) is not None
        }
    maps = {f"map {name}": result.maps[name] for name in result.maps}
    return {**{name: value for name, value in result.to_arrays().items() if "tile" not in name}, **maps}


def _apart(found: Any, expected: Any) -> float:
    """Return the largest difference, relative to the largest entry where that is above 1; infinite for other shapes or other places without a value."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if found.shape != expected.shape or (np.isfinite(found) != np.isfinite(expected)).any():
        return float("inf")
    with np.errstate(invalid="ignore"):
        off = np.abs(found - expected)
    return float(np.nanmax(off, initial=0.0) / max(1.0, np.nanmax(np.abs(expected), initial=0.0)))
