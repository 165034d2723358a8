"""Lenses of whole layers on tiny models, against loops over the models' own weights and hidden states in float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    BitNetConfig,
    BitNetForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    Lfm3Config,
    Lfm3ForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
    T5Config,
    T5EncoderModel,
)

import headscope
from headscope import Model
from headscope.errors import Unsupported
from tests.support.extent import mostly_long
from tests.support.variants import variants
from tests.unit.conftest import TINY, VOCABULARY

IDS = [5, 17, 17, 120, 3, 64, 9]
DECODER: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "initializer_range": 0.5, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip


# Beside BERT, GPT-2 and Llama: relative positions without any bias, and learned sinks with a sliding window and experts. Attention's result is normalised
# before it is added, with a norm before attention (Gemma 2) or without (OLMo 2); and attention and feed-forward part read the same stream (GPT-NeoX, Cohere).
# The heads' outputs are gated, by one number per dimension (Qwen3.5) or per head (LFM3, which normalises the result, too), or normalised (BitNet).
MORE: dict[str, Callable[[], Any]] = {
    "t5": lambda: T5EncoderModel(
        T5Config(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=3, num_heads=4, initializer_factor=3.0)
    ),
    "gpt_oss": lambda: GptOssForCausalLM(
        GptOssConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            intermediate_size=32,
            num_local_experts=4,
            num_experts_per_tok=2,
            initializer_range=0.5,
            sliding_window=4,
            pad_token_id=0,
            eos_token_id=1,
            experts_implementation="eager",  # the others know no float64
        )
    ),
    "gemma2": lambda: Gemma2ForCausalLM(Gemma2Config(**DECODER, head_dim=8, sliding_window=4, query_pre_attn_scalar=8)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**DECODER)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**{**DECODER, "num_key_value_heads": 4})),
    "cohere": lambda: CohereForCausalLM(CohereConfig(**DECODER)),
    "qwen3_5_text": lambda: Qwen3_5ForCausalLM(
        Qwen3_5TextConfig(**DECODER, head_dim=8, layer_types=["full_attention"] * 3)
    ),
    "lfm3": lambda: Lfm3ForCausalLM(Lfm3Config(**DECODER, head_dim=8, layer_types=["full_attention"] * 3)),
    "bitnet": lambda: BitNetForCausalLM(BitNetConfig(**DECODER)),
}


@pytest.fixture(scope="module", params=mostly_long([*TINY, *MORE], *TINY, *list(MORE)[::3]))
def tiny(request: pytest.FixtureRequest) -> Model:
    """A tiny random model of each architecture, in memory."""
    torch.manual_seed(0)
    module = (TINY | MORE)[request.param]()
    if request.param in BRANCHES | GATES:  # gains of 1 would not show which of two norms is which
        for name, weight in module.named_parameters():
            if "norm" in name and weight.dim() == 1:
                torch.nn.init.uniform_(weight, 0.5, 1.5)
    return headscope.load(module)


@dataclass(frozen=True)
class Parts:
    """One layer of a model, taken apart by hand: x [n, d] that the attention's output is added to, values [H, n, D], projection [H, D, d], bias [d], norm.

    `branch` is the normalisation of the attention's output before it is added, `gate` [H, n, D] what the heads' outputs are multiplied by.
    """

    weights: NDArray[Any]
    x: NDArray[Any]
    values: NDArray[Any]
    projection: NDArray[Any]
    bias: NDArray[Any]
    norm: Any | None
    branch: Any | None
    gate: NDArray[Any]


def _bert(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    dense = layer.attention.output.dense
    return layer.attention.self.value(x), dense.weight.T, dense.bias, layer.attention.output.LayerNorm


def _gpt2(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    attention = layer.attn
    return attention.c_attn(layer.ln_1(x)).chunk(3, -1)[2], attention.c_proj.weight, attention.c_proj.bias, None


def _llama(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    attention = layer.self_attn
    weight = attention.o_proj.weight.T
    return attention.v_proj(layer.input_layernorm(x)), weight, torch.zeros_like(weight[0]), None


def _t5(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    attention = layer.layer[0].SelfAttention
    weight = attention.o.weight.T
    return attention.v(layer.layer[0].layer_norm(x)), weight, torch.zeros_like(weight[0]), None


def _gpt_oss(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    attention = layer.self_attn
    return attention.v_proj(layer.input_layernorm(x)), attention.o_proj.weight.T, attention.o_proj.bias, None


def _olmo2(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    weight = layer.self_attn.o_proj.weight.T
    return layer.self_attn.v_proj(x), weight, torch.zeros_like(weight[0]), None


def _gpt_neox(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    attention = layer.attention
    made = attention.query_key_value(layer.input_layernorm(x)).unflatten(-1, (4, 3, 8))[..., 2, :].flatten(-2)
    return made, attention.dense.weight.T, attention.dense.bias, None


def _lfm3(layer: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    weight = layer.self_attn.o_proj.weight.T
    return layer.self_attn.v_proj(layer.operator_norm(x)), weight, torch.zeros_like(weight[0]), None


def _qwen_gate(layer: Any, x: Tensor, outputs: Tensor) -> Tensor:
    made = layer.self_attn.q_proj(layer.input_layernorm(x))
    return made.unflatten(-1, (4, 16))[..., 8:].sigmoid().transpose(0, 1)


def _lfm3_gate(layer: Any, x: Tensor, outputs: Tensor) -> Tensor:
    return layer.self_attn.g_proj(layer.operator_norm(x)).sigmoid().T[..., None].expand(outputs.shape)


def _bitnet_gate(layer: Any, x: Tensor, outputs: Tensor) -> Tensor:
    """A normalisation of all heads' outputs, at the root mean square of these."""
    norm, (heads, _, width) = layer.self_attn.attn_sub_norm, outputs.shape
    scale = (outputs.square().mean((0, 2)) + norm.variance_epsilon).rsqrt()
    return norm.weight.reshape(heads, 1, width) * scale[:, None]


# What the heads' outputs [H, n, D] are multiplied by, from the layer's input [n, d].
GATES: dict[str, Callable[[Any, Tensor, Tensor], Tensor]] = {
    "qwen3_5_text": _qwen_gate,
    "lfm3": _lfm3_gate,
    "bitnet": _bitnet_gate,
}


# What attention's result goes through before it is added, as a function of vectors at the statistics of others.
BRANCHES: dict[str, Callable[[Any], tuple[Tensor, float] | None]] = {
    "gemma2": lambda layer: (1 + layer.post_attention_layernorm.weight, layer.post_attention_layernorm.eps),
    "olmo2": lambda layer: (layer.post_attention_layernorm.weight, layer.post_attention_layernorm.variance_epsilon),
    "gpt_neox": lambda layer: None,
    "cohere": lambda layer: None,
    "lfm3": lambda layer: (layer.post_operator_norm.weight, layer.post_operator_norm.variance_epsilon),
}
LAYERS: dict[str, Callable[[Any], Any]] = {
    "bert": lambda module: module.bert.encoder.layer,
    "gpt2": lambda module: module.transformer.h,
    "llama": lambda module: module.model.layers,
    "t5": lambda module: module.encoder.block,
    "gpt_oss": lambda module: module.model.layers,
    "gemma2": lambda module: module.model.layers,
    "olmo2": lambda module: module.model.layers,
    "gpt_neox": lambda module: module.gpt_neox.layers,
    "cohere": lambda module: module.model.layers,
    **dict.fromkeys(GATES, lambda module: module.model.layers),
}
SPLIT = {
    "bert": _bert,
    "gpt2": _gpt2,
    "llama": _llama,
    "t5": _t5,
    "gpt_oss": _gpt_oss,
    "gemma2": _llama,
    "olmo2": _olmo2,
    "gpt_neox": _gpt_neox,
    "cohere": _llama,
    "qwen3_5_text": _llama,
    "lfm3": _lfm3,
    "bitnet": _llama,
}
# The module that makes the values, and which of its columns they are.
VALUES: dict[str, Callable[[Any], tuple[Any, slice]]] = {
    "bert": lambda layer: (layer.attention.self.value, slice(None)),
    "gpt2": lambda layer: (layer.attn.c_attn, slice(64, None)),
    "llama": lambda layer: (layer.self_attn.v_proj, slice(None)),
    "t5": lambda layer: (layer.layer[0].SelfAttention.v, slice(None)),
    "gpt_oss": lambda layer: (layer.self_attn.v_proj, slice(None)),
    "gemma2": lambda layer: (layer.self_attn.v_proj, slice(None)),
    "olmo2": lambda layer: (layer.self_attn.v_proj, slice(None)),
    "gpt_neox": lambda layer: (layer.attention.query_key_value, [24 * h + 16 + i for h in range(4) for i in range(8)]),
    "cohere": lambda layer: (layer.self_attn.v_proj, slice(None)),
    **dict.fromkeys(GATES, lambda layer: (layer.self_attn.v_proj, slice(None))),
}


def doubled(model: Model) -> Any:
    """The model's own module with eager attention in float64."""
    module = copy.deepcopy(model.module).double().eval()
    module.set_attn_implementation("eager")
    return module


def watched(module: Any, name: str) -> tuple[list[torch.Tensor], list[torch.Tensor], Any]:
    """Inputs and outputs of every layer [n, d] in one pass, and what the model returns."""
    entered: list[torch.Tensor] = []
    left: list[torch.Tensor] = []

    def hook(_: Any, args: Any, output: Any) -> None:
        entered.append(args[0][0])
        left.append((output[0] if isinstance(output, tuple) else output)[0])

    handles = [layer.register_forward_hook(hook) for layer in LAYERS[name](module)]
    with torch.inference_mode():
        output = module(input_ids=torch.tensor([IDS]), output_attentions=True)
    for handle in handles:
        handle.remove()
    return entered, left, output


@pytest.fixture(scope="module")
def parts(tiny: Model) -> list[Parts]:
    """Every layer taken apart."""
    name, module = tiny.module.config.model_type, doubled(tiny)
    entered, _, output = watched(module, name)
    found = []
    for layer, x, weights in zip(LAYERS[name](module), entered, output.attentions, strict=True):
        heads = weights.shape[1]
        with torch.no_grad():
            values, projection, bias, norm = SPLIT[name](layer, x[None])
        width = projection.shape[0] // heads
        grouped = values[0].unflatten(-1, (-1, width)).transpose(0, 1)
        every = grouped.repeat_interleave(heads // grouped.shape[0], dim=0)
        cut = projection.unflatten(0, (heads, width))
        arrays = [tensor.detach().numpy() for tensor in (weights[0], x, every, cut, bias)]
        with torch.no_grad():
            gate = GATES[name](layer, x, weights[0] @ every) if name in GATES else torch.ones(())
        branch = BRANCHES[name](layer) if name in BRANCHES else None
        found.append(Parts(*arrays, norm, branch, gate.expand(every.shape).numpy()))
    return found


def vectors(part: Parts) -> tuple[NDArray[Any], NDArray[Any]]:
    """What every key adds to every query, [n, n, d], and what the block gives, [n, d]; through the normalisation at the statistics of their sum."""
    heads, n, _ = part.weights.shape
    added = np.zeros((n, n, part.x.shape[1]))
    for i in range(n):
        for j in range(n):
            for h in range(heads):
                added[i, j] += part.weights[h, i, j] * ((part.values[h, j] * part.gate[h, i]) @ part.projection[h])
        if part.branch is not None:
            gain, epsilon = part.branch[0].detach().numpy(), part.branch[1]
            assert not part.bias.any()
            added[i] = gain * added[i] / np.sqrt(np.square(added[i].sum(0)).mean() + epsilon)
        added[i, i] += part.x[i]
    given = added.sum(1) + part.bias
    if part.norm is None:
        return added, given
    gain, shift = (tensor.detach().numpy() for tensor in (part.norm.weight, part.norm.bias))
    for i in range(n):
        deviation = np.sqrt(given[i].var() + part.norm.eps)
        added[i] = gain * (added[i] - added[i].mean(-1, keepdims=True)) / deviation
        given[i] = gain * (given[i] - given[i].mean()) / deviation + shift
    return added, given


def product(maps: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """Maps of all layers, each multiplied with those below it."""
    result: list[NDArray[Any]] = []
    for map_ in maps:
        result.append(map_ @ result[-1] if result else map_)
    return result


def read(model: Model, lens: str | dict[str, Any], dtype: str = "float32", measures: tuple[Any, ...] = ()) -> Any:
    return headscope.analyze(model, token_ids=IDS, lenses=(lens,), measures=measures, dtype=dtype)


# Llama normalises in float32 also in a float64 model.
TOLERANCE = {"float32": 1e-4, "float64": 1e-5}


@variants("dtype", TOLERANCE)
def test_norms_and_mixing_ratio(tiny: Model, parts: list[Parts], dtype: str) -> None:
    """||g(y_ij)||, and the ratio of what comes from others."""
    found = read(tiny, "norm-residual", dtype, ("mixing_ratio",))
    for layer, part in enumerate(parts):
        added, _ = vectors(part)
        expected = np.linalg.norm(added, axis=-1)
        np.testing.assert_allclose(
            found.maps["norm-residual"][layer, 0], expected, atol=TOLERANCE[dtype] * expected.max()
        )
        own = expected.diagonal()
        others = np.linalg.norm(added.sum(1) - added[range(len(IDS)), range(len(IDS))], axis=-1)
        ratio = found.measures["mixing_ratio"]["norm-residual"]
        np.testing.assert_allclose(ratio[layer], others / (others + own), atol=TOLERANCE[dtype])


@variants("dtype", TOLERANCE)
def test_norms_of_heads_and_gates(tiny: Model, parts: list[Parts], dtype: str) -> None:
    """||A_ij (v_j * g_i) W_O|| of every head; how far its gate is open, and how much of it is closed, where there is one."""
    name = tiny.module.config.model_type
    gated = name in GATES and name != "bitnet"
    found = read(tiny, "norm", dtype, ("gate",) if gated else ())
    closed = read(tiny, "weights", dtype, ({"name": "gate", "of": "closed"},)) if gated else None
    for layer, part in enumerate(parts):
        heads, n, _ = part.weights.shape
        expected = np.zeros((heads, n, n))
        for h in range(heads):
            for i in range(n):
                for j in range(n):
                    vector = (part.values[h, j] * part.gate[h, i]) @ part.projection[h]
                    expected[h, i, j] = part.weights[h, i, j] * np.sqrt((vector**2).sum())
        np.testing.assert_allclose(found.maps["norm"][layer], expected, atol=TOLERANCE[dtype] * expected.max())
        if closed is not None:
            np.testing.assert_allclose(found.measures["gate"]["weights"][layer], part.gate.mean(-1), atol=1e-5)
            shares = (part.gate < 0.1).mean(-1)
            np.testing.assert_allclose(closed.measures["gate"]["weights"][layer], shares, atol=1e-6)
    if not gated:
        with pytest.raises(Unsupported, match=r"not gated|not a gate"):
            read(tiny, "weights", dtype, ("gate",))


@variants("dtype", TOLERANCE)
def test_rollout(tiny: Model, parts: list[Parts], dtype: str) -> None:
    """Products of half the mean of the heads and half the identity."""
    mixed = [part.weights.mean(0) + np.eye(len(IDS)) for part in parts]
    mixed = [rows / rows.sum(-1, keepdims=True) for rows in mixed]
    found = read(tiny, "rollout", dtype).maps["rollout"]
    np.testing.assert_allclose(found[:, 0], product(mixed), atol=TOLERANCE[dtype])


@variants("dtype", TOLERANCE)
def test_value_weighted_rollout(tiny: Model, parts: list[Parts], dtype: str) -> None:
    """Products of the norms of what tokens add to each other, over their row."""
    norms = [np.linalg.norm(vectors(part)[0], axis=-1) for part in parts]
    shares = [rows / rows.sum(-1, keepdims=True) for rows in norms]
    found = read(tiny, "norm-rollout", dtype).maps["norm-rollout"]
    np.testing.assert_allclose(found[:, 0], product(shares), atol=TOLERANCE[dtype])


@variants("dtype", TOLERANCE, crossed=False)
@variants("rollout", [True, False])
def test_alti(tiny: Model, parts: list[Parts], dtype: str, rollout: bool) -> None:
    """Shares of the distances that tokens close, joined or not."""
    maps = []
    for part in parts:
        added, given = vectors(part)
        closed = np.abs(given).sum(-1)[:, None] - np.abs(given[:, None] - added).sum(-1)
        closed = np.maximum(closed, 0)
        maps.append(closed / closed.sum(-1, keepdims=True))
    found = read(tiny, {"name": "alti", "rollout": rollout}, dtype).maps["alti"]
    np.testing.assert_allclose(found[:, 0], product(maps) if rollout else maps, atol=TOLERANCE[dtype])


@pytest.fixture(scope="module")
def turned(tiny: Model) -> list[NDArray[Any]]:
    """The whole model again for every layer and key, with that key's values set to 0 in that layer."""
    name, module = tiny.module.config.model_type, doubled(tiny)
    _, before, _ = watched(module, name)
    maps = []
    for index, layer in enumerate(LAYERS[name](module)):
        maker, columns = VALUES[name](layer)
        distances = np.zeros((len(IDS), len(IDS)))
        for key in range(len(IDS)):

            def silence(_: Any, args: Any, output: torch.Tensor, at: Any = (slice(None), key, columns)) -> torch.Tensor:
                output = output.clone()
                output[at] = 0
                return output

            handle = maker.register_forward_hook(silence)
            after = watched(module, name)[1][index]
            handle.remove()
            distances[:, key] = 1 - torch.cosine_similarity(before[index], after, dim=-1).numpy()
        distances[np.abs(distances) < 1e-14] = 0
        maps.append(distances / distances.sum(-1, keepdims=True))
    return maps


@variants("dtype", TOLERANCE, crossed=False)
@variants("rollout", [True, False])
def test_value_zeroing(tiny: Model, turned: list[NDArray[Any]], dtype: str, rollout: bool) -> None:
    """Shares of the distances, joined or not."""
    found = read(tiny, {"name": "value-zeroing", "rollout": rollout}, dtype).maps["value-zeroing"]
    np.testing.assert_allclose(found[:, 0], product(turned) if rollout else turned, atol=TOLERANCE[dtype])


@variants("lens", ["norm-residual", "rollout", "norm-rollout", "alti", "value-zeroing"])
@pytest.mark.parametrize("tiny", mostly_long([*TINY, *MORE], "t5"), indirect=True)
def test_chosen_layers_and_heads(tiny: Model, lens: str) -> None:
    """A choice of layers shows the same maps; a choice of heads changes nothing, since all heads are one map."""
    whole = read(tiny, lens).maps[lens]
    some = headscope.analyze(tiny, token_ids=IDS, lenses=(lens,), measures=(), layers=[2], heads=[1]).maps[lens]
    assert some.shape == (1, 1, len(IDS), len(IDS))
    np.testing.assert_array_equal(some[0], whole[2])


@variants("lens", ["norm-residual", "rollout", "norm-rollout", "alti", "value-zeroing"])
@pytest.mark.parametrize("tiny", mostly_long([*TINY, *MORE], "gpt2"), indirect=True)
def test_one_token(tiny: Model, lens: str) -> None:
    """A token alone has all the shares."""
    found = headscope.analyze(tiny, token_ids=[7], lenses=(lens,), measures=()).maps[lens]
    assert found.shape == (3, 1, 1, 1)
    if lens == "norm-residual":
        assert (found > 0).all()
    else:
        np.testing.assert_allclose(found, 1, atol=1e-6)
