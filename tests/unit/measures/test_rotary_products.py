"""Query-key products of models with rotary embeddings and normalised queries and keys, against the weights and the rotation written out in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray

import headscope
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer
from headscope.errors import Unsupported
from headscope.measures.projections import OFFSETS, SPECTRUM
from tests.support.variants import variants

from .test_projections import slow_summary

HEADS, GROUPS, WIDTH, D = 4, 2, 32, 8
SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 64,
    "initializer_range": 0.5,
}
GROUPED = SIZES | {"num_key_value_heads": GROUPS, "head_dim": D}
ROPE: dict[str, Any] = {"rope_theta": 10000.0}
Matrix = NDArray[np.float64]


def rotation(offset: float, theta: float = 10000.0, rotated: int = D, interleaved: bool = False) -> Matrix:
    """R with q R the query turned by that many tokens [D, D]: planes of two dimensions each, the others stay."""
    turn = np.eye(D)
    for plane in range(rotated // 2):
        angle = offset * theta ** (-2 * plane / rotated)
        one, other = (2 * plane, 2 * plane + 1) if interleaved else (plane, plane + rotated // 2)
        turn[one, one] = turn[other, other] = math.cos(angle)
        turn[one, other], turn[other, one] = math.sin(angle), -math.sin(angle)
    return turn


def heads_of(weight: Any, count: int) -> Matrix:
    """[heads D, width] -> [heads, width, D]."""
    return weight.detach().double().numpy().reshape(count, D, WIDTH).transpose(0, 2, 1)


def llama(attention: Any) -> tuple[Matrix, Matrix]:
    """Queries and keys, [H, width, D] each: a key head for every query head."""
    query, key = heads_of(attention.q_proj.weight, HEADS), heads_of(attention.k_proj.weight, GROUPS)
    return query, key.repeat(HEADS // GROUPS, 0)


def neox(attention: Any) -> tuple[Matrix, Matrix]:
    """Each head's query, key and value follow one another."""
    rows = attention.query_key_value.weight.detach().double().numpy().reshape(HEADS, 3, D, WIDTH)
    return rows[:, 0].transpose(0, 2, 1), rows[:, 1].transpose(0, 2, 1)


def qwen3(attention: Any) -> tuple[Matrix, Matrix]:
    """With the gains of the normalisations."""
    query, key = llama(attention)
    return (
        query * attention.q_norm.weight.detach().double().numpy(),
        key * attention.k_norm.weight.detach().double().numpy(),
    )


def model(cls: str, config: str, **sizes: Any) -> Any:
    """A random model; gains are random too."""
    torch.manual_seed(0)
    module = getattr(transformers, cls)(getattr(transformers, config)(**sizes)).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("norm.weight"):
                parameter.uniform_(0.5, 2)
    return module


Case = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], tuple[Matrix, Matrix]], dict[str, Any]]
CASES: dict[str, Case] = {
    "grouped": (
        lambda: model("LlamaForCausalLM", "LlamaConfig", **GROUPED),
        lambda module: module.model.layers[1].self_attn,
        llama,
        {},
    ),
    "partial": (
        lambda: model("GPTNeoXForCausalLM", "GPTNeoXConfig", **SIZES, rope_parameters=ROPE | {"rope_type": "default", "partial_rotary_factor": 0.5}),
        lambda module: module.gpt_neox.layers[1].attention,
        neox,
        {"rotated": D // 2},
    ),
    "normalised": (
        lambda: model("Qwen3ForCausalLM", "Qwen3Config", **GROUPED),
        lambda module: module.model.layers[1].self_attn,
        qwen3,
        {},
    ),
    "interleaved": (
        lambda: model("CohereForCausalLM", "CohereConfig", **GROUPED, rope_parameters=ROPE | {"rope_type": "default"}),
        lambda module: module.model.layers[1].self_attn,
        llama,
        {"interleaved": True},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest) -> tuple[str, Any, Matrix, Matrix, dict[str, Any]]:
    """Name, model, projections of the second layer, and how its queries and keys are turned."""
    make, find, weights, turned = CASES[request.param]
    loaded = headscope.load(make())
    return request.param, loaded, *weights(find(loaded.module)), turned


@variants("offset", [0, 1, -3, 37, 1000], short=3)
def test_spectrum_at_an_offset(case: Any, offset: int) -> None:
    """Every column within 1e-4; of normalised queries and keys the size is left out, and the sum over heads refused."""
    name, loaded, query, key, turned = case
    each = {"name": "qk_spectrum", "offset": offset}
    measures = (each,) if name == "normalised" else (each, {"name": "qk_spectrum_layer", "offset": offset})
    found = headscope.analyze(loaded, token_ids=[5, 6, 7], measures=measures).measures
    products = query @ rotation(offset, **turned) @ key.transpose(0, 2, 1)
    for head in range(HEADS):
        expected = slow_summary(products[head], D)
        if name == "normalised":
            expected["largest"] = math.nan
        columns = [expected[column] for column in SPECTRUM]
        np.testing.assert_allclose(found["qk_spectrum"]["weights"][1, head], columns, rtol=1e-4)
    if name != "normalised":
        expected = slow_summary(products.sum(0), WIDTH)
        np.testing.assert_allclose(
            found["qk_spectrum_layer"]["weights"][1], [expected[column] for column in SPECTRUM], rtol=1e-4
        )
        return
    with pytest.raises(Unsupported, match="common scale"):
        headscope.analyze(loaded, token_ids=[5, 6], measures=("qk_spectrum_layer",))


def test_products_by_offset(case: Any) -> None:
    """Size, cosine and effective rank against products written out, within 1e-4 up to 1,024 tokens."""
    _, loaded, query, key, turned = case
    found = headscope.analyze(loaded, token_ids=[5, 6, 7], measures=("qk_offset",)).measures["qk_offset"]["weights"][1]
    at = dict(zip(headscope.MEASURES["qk_offset"].columns, found.T, strict=True))
    same = query @ key.transpose(0, 2, 1)
    for offset in OFFSETS:
        product = query @ rotation(offset, **turned) @ key.transpose(0, 2, 1)
        sizes = [np.linalg.norm(one, axis=(1, 2)) for one in (same, product)]
        np.testing.assert_allclose(at[f"size_{offset}"], sizes[1] / sizes[0], atol=1e-4)
        np.testing.assert_allclose(
            at[f"cosine_{offset}"], (same * product).sum((1, 2)) / sizes[0] / sizes[1], atol=1e-4
        )
        effective = [slow_summary(one, D)["effective"] for one in product]
        np.testing.assert_allclose(at[f"effective_{offset}"], effective, rtol=1e-4)


SCALED: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "longrope": {
        "rope_type": "longrope",
        "short_factor": [1.0, 1.5, 2.0, 2.5],
        "long_factor": [2.0, 3.0, 4.0, 5.0],
        "original_max_position_embeddings": 64,
        "factor": 4.0,
    },
}


def scores(module: Any, n: int) -> tuple[list[Layer], list[Any], list[Any]]:
    """The layers of a pass over n tokens, and what the modules that make queries and keys were given."""
    loaded = headscope.load(module)
    sites = examine(loaded)
    layers: list[Layer] = []
    given: dict[str, list[Any]] = {}
    parts = {part.module for site in sites.all for part in (site.query, site.key) if part}
    handles = [
        module.get_submodule(name).register_forward_pre_hook(
            lambda _, args, name=name: given.setdefault(name, []).append(args[0][0].double())
        )
        for name in parts
    ]
    encoded = loaded.encode(token_ids=[(7 * place) % 60 for place in range(n)])
    capture(loaded, encoded, sites, CaptureSpec(lambda layer: None, layers.append, frozenset({"bilinear", "scores"})))
    for handle in handles:
        handle.remove()
    queries, keys = ([given[getattr(site, side).module][0] for site in sites.all] for side in ("query", "key"))
    return layers, queries, keys


@pytest.mark.parametrize("scaling", list(SCALED))
def test_scaled_frequencies_give_the_scores(scaling: str) -> None:
    """x M_n yᵀ is the product of query and key for every pair of 60 tokens, though the probe is shorter."""
    module = model(
        "LlamaForCausalLM", "LlamaConfig", **GROUPED, rope_parameters=ROPE | SCALED[scaling], max_position_embeddings=256
    )  # fmt: skip
    for layer, x, y in zip(*scores(module, 60), strict=True):
        assert layer.turn is not None
        assert layer.query_weights is not None
        assert layer.key_weights is not None
        assert not layer.normalised
        keys = layer.key.double().repeat_interleave(HEADS // GROUPS, 0)
        expected = layer.query.double() @ keys.mT
        for offset in (0, 1, 17, 59):
            turn = torch.linalg.matrix_power(layer.turn, offset)
            found = (x @ layer.query_weights.double() @ turn) @ (y @ layer.key_weights.double()).mT
            ours, theirs = (side.diagonal(-offset, 1, 2) for side in (found, expected))
            np.testing.assert_allclose(ours, theirs, atol=2e-4 * float(expected.abs().max()))


def test_normalised_together_have_a_common_scale() -> None:
    """OLMo 2 normalises the queries of all heads at once: one factor per token, so that heads can be added."""
    module = model("Olmo2ForCausalLM", "Olmo2Config", **(SIZES | {"num_key_value_heads": GROUPS}))
    loaded = headscope.load(module)
    found = headscope.analyze(loaded, token_ids=[5, 6, 7], measures=("qk_spectrum", "qk_spectrum_layer")).measures
    attention = module.model.layers[1].self_attn
    query, key = llama(attention)
    query = query * attention.q_norm.weight.detach().double().numpy().reshape(HEADS, 1, D)
    key = key * attention.k_norm.weight.detach().double().numpy().reshape(GROUPS, 1, D).repeat(HEADS // GROUPS, 0)
    expected = slow_summary((query @ key.transpose(0, 2, 1)).sum(0), WIDTH)
    largest, *rest = found["qk_spectrum_layer"]["weights"][1]
    assert math.isnan(largest)
    np.testing.assert_allclose(rest, [expected[column] for column in SPECTRUM[1:]], rtol=1e-4)


def test_changed_gains_are_seen() -> None:
    """Nothing but where to look is kept from when the model was examined."""
    module = model("Qwen3ForCausalLM", "Qwen3Config", **GROUPED)
    loaded = headscope.load(module)
    stable = []
    for factor in (1, 3):
        with torch.no_grad():
            module.model.layers[1].self_attn.q_norm.weight[: D // 4] *= factor
        found = headscope.analyze(loaded, token_ids=[5, 6, 7], measures=("qk_spectrum",))
        query, key = qwen3(module.model.layers[1].self_attn)
        expected = [slow_summary(one, D)["stable"] for one in query @ key.transpose(0, 2, 1)]
        stable.append(found.measures["qk_spectrum"]["weights"][1, :, SPECTRUM.index("stable")])
        np.testing.assert_allclose(stable[-1], expected, rtol=1e-4)
    assert not np.allclose(*stable)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "latent": (
        lambda: model(
            "DeepseekV2ForCausalLM", "DeepseekV2Config", **SIZES, kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8,
            qk_nope_head_dim=8, v_head_dim=8, num_key_value_heads=HEADS, first_k_dense_replace=2,
        ),
        "no separate part for each head",
    ),
    "clipped": (
        lambda: model("OlmoForCausalLM", "OlmoConfig", **SIZES, clip_qkv=8.0),
        "neither linear nor a normalisation",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REFUSED))
def test_the_reason_is_the_true_one(name: str) -> None:
    make, reason = REFUSED[name]
    loaded = headscope.load(make())
    for measure in ("qk_spectrum", "qk_offset", "qk_spectrum_layer"):
        with pytest.raises(Unsupported, match=reason):
            headscope.analyze(loaded, token_ids=[5, 6, 7], measures=(measure,))


def test_rows_and_columns_of_an_image_are_no_offset() -> None:
    """DINOv3 turns queries and keys by the place of a patch."""
    config = transformers.DINOv3ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=HEADS, intermediate_size=64, image_size=32, patch_size=8
    )  # fmt: skip
    torch.manual_seed(0)
    sites = examine(headscope.load(transformers.DINOv3ViTModel(config)))
    assert "does not depend on the distance" in sites.missing("self")["bilinear"]


def test_half_precision_is_too_coarse_for_a_rotation() -> None:
    loaded = headscope.load(model("LlamaForCausalLM", "LlamaConfig", **GROUPED))
    assert "Set dtype to float32" in examine(loaded, "bfloat16").missing("self")["bilinear"]


def test_layers_that_keep_keys_are_run_again_without_them() -> None:
    """GraniteMoE makes a cache even where none is wanted."""
    sizes = GROUPED | {"num_local_experts": 2, "num_experts_per_tok": 1}
    loaded = headscope.load(model("GraniteMoeForCausalLM", "GraniteMoeConfig", **sizes))
    found = headscope.analyze(loaded, token_ids=[5, 6, 7, 8], lenses=("value-zeroing",), measures=("qk_spectrum",))
    assert np.isfinite(found.maps["value-zeroing"]).all()
    query, key = llama(loaded.module.model.layers[1].self_attn)
    expected = [np.linalg.norm(one, 2) for one in query @ key.transpose(0, 2, 1)]
    np.testing.assert_allclose(found.measures["qk_spectrum"]["weights"][1, :, 0], expected, rtol=1e-4)
