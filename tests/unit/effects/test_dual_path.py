"""Dual Path Attribution: against its rules written out token by token in float64, and refused where they say nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.models.llama.modeling_llama import rotate_half

import headscope
from headscope.errors import Unsupported
from tests.support.variants import variants
from tests.sweep.build import build, ids

from ..conftest import TINY
from .reference import Recorded, Vector
from .test_contribution import FAMILIES, TOKENS, _t5, cohere, perturbed

METHOD = "dual-path"


class Rules:
    """A decoder in float64, through which a target is handed on from the logits to the embedding, one layer after another."""

    def __init__(self, module: Any, tokens: list[int], place: int, pair: tuple[int, int]) -> None:
        self.r, self.config, self.n = Recorded(module, input_ids=tokens), module.config, len(tokens)
        self.is_gpt = hasattr(module, "transformer")
        self.stack = "transformer.h" if self.is_gpt else "model.layers"
        self.layers, self.heads = self.config.num_hidden_layers, self.config.num_attention_heads
        rows = self.r.weight("lm_head.weight")
        self.at = np.zeros((self.n, rows.shape[1]))
        end = "transformer.ln_f" if self.is_gpt else "model.norm"
        self.at[place] = self.through(end, rows[pair[0]] - rows[pair[1]], place)

    def through(self, norm: str, given: Vector, place: int) -> Vector:
        """What reaches the input of a normalisation whose statistics stay: the transpose of its linear part."""
        x, gain = self.r.read[norm][0][place], self.r.weight(f"{norm}.weight")
        if self.is_gpt:
            scaled = given * gain / np.sqrt(x.var() + self.config.layer_norm_epsilon)
            return scaled - scaled.mean()
        return given * gain / np.sqrt((x**2).mean() + self.config.rms_norm_eps)

    def maps(self) -> NDArray[Any]:
        """[L, H, Q, K]"""
        found = []
        for layer in reversed(range(self.layers)):
            name = f"{self.stack}.{layer}"
            self.at = self.at + self.below_mlp(name)
            maps, below = self.attention(name)
            self.at = self.at + below
            found.insert(0, maps)
        return np.array(found)

    def below_mlp(self, name: str) -> Vector:
        r, found = self.r, np.zeros_like(self.at)
        for place in range(self.n):
            if self.is_gpt:
                z = r.wrote[f"{name}.mlp.c_fc"][0][place]
                share = r.read[f"{name}.mlp.c_proj"][0][place] / z
                reached = r.weight(f"{name}.mlp.c_fc.weight") @ (
                    share * (r.weight(f"{name}.mlp.c_proj.weight") @ self.at[place])
                )
                found[place] = self.through(f"{name}.ln_2", reached, place)
                continue
            gate, up = r.wrote[f"{name}.mlp.gate_proj"][0][place], r.wrote[f"{name}.mlp.up_proj"][0][place]
            open_, down = 1 / (1 + np.exp(-gate)), r.weight(f"{name}.mlp.down_proj.weight").T @ self.at[place]
            content = r.weight(f"{name}.mlp.up_proj.weight").T @ (down * gate * open_)
            control = r.weight(f"{name}.mlp.gate_proj.weight").T @ (down * open_ * up)
            found[place] = self.through(f"{name}.post_attention_layernorm", 0.5 * content + 0.5 * control, place)
        return found

    def projections(self, name: str, head: int) -> list[tuple[Vector, Vector]]:
        """The matrix [D, d] of a head's queries, keys and values, and its bias."""
        width = self.config.hidden_size // self.heads
        if self.is_gpt:
            weight, bias = (self.r.weight(f"{name}.attn.c_attn.{one}") for one in ("weight", "bias"))
            rows = [
                slice(i * self.heads * width + head * width, i * self.heads * width + (head + 1) * width)
                for i in range(3)
            ]
            return [(weight.T[one], bias[one]) for one in rows]
        group = head * self.config.num_key_value_heads // self.heads
        own = [(one, head if one == "q" else group) for one in "qkv"]
        found = [self.r.weight(f"{name}.self_attn.{one}_proj.weight")[n * width : (n + 1) * width] for one, n in own]
        return [(one, np.zeros(width)) for one in found]

    def turn(self, place: int, width: int) -> Vector:
        """The rotation [D, D] of queries and keys at a token."""
        if self.is_gpt:
            return np.eye(width)
        cos, sin = (
            one[0, 0].double() for one in self.r.module.model.rotary_emb(torch.zeros(1, 1, 1), torch.tensor([[place]]))
        )
        units = torch.eye(width, dtype=torch.float64)
        return (units * cos + rotate_half(units) * sin).numpy().T

    def attention(self, name: str) -> tuple[NDArray[Any], Vector]:
        """The maps of a layer, and what goes on to what it reads: half through the values, a quarter each through the queries and the keys."""
        read = self.r.read[f"{name}.attn.c_attn" if self.is_gpt else f"{name}.self_attn.q_proj"][0]
        norm = f"{name}.ln_1" if self.is_gpt else f"{name}.input_layernorm"
        out = self.r.weight(f"{name}.attn.c_proj.weight" if self.is_gpt else f"{name}.self_attn.o_proj.weight")
        width = self.config.hidden_size // self.heads
        maps, reached = np.zeros((self.heads, self.n, self.n)), np.zeros_like(self.at)
        for head in range(self.heads):
            (wq, bq), (wk, bk), (wv, bv) = self.projections(name, head)
            own = slice(head * width, (head + 1) * width)
            rows = out[own] if self.is_gpt else out[:, own].T  # [D, d]
            turns = [self.turn(place, width) for place in range(self.n)]
            q, k = ([turn @ (w @ x + b) for turn, x in zip(turns, read, strict=True)] for w, b in ((wq, bq), (wk, bk)))
            v = [wv @ x + bv for x in read]
            for i in range(self.n):
                scores = np.array([q[i] @ k[j] for j in range(i + 1)]) / np.sqrt(width)
                weights = np.exp(scores - scores.max())
                weights /= weights.sum()
                wanted = rows @ self.at[i]
                mean = sum(weights[j] * (wanted @ v[j]) for j in range(i + 1))
                for j in range(i + 1):
                    maps[head, i, j] = weights[j] * (wanted @ v[j])
                    slope = weights[j] * (wanted @ v[j] - mean) / np.sqrt(width)
                    reached[j] += 0.5 * weights[j] * (wanted @ wv)
                    reached[i] += 0.25 * slope * (k[j] @ turns[i] @ wq)
                    reached[j] += 0.25 * slope * (q[i] @ turns[j] @ wk)
        return maps, np.array([self.through(norm, one, place) for place, one in enumerate(reached)])


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_is_the_rules_token_by_token(family: str) -> None:
    """Of a plain and of a gated feed-forward part, with heads that share keys and values, and with biases and gains that are not 0 and 1."""
    torch.manual_seed(0)
    module, place, pair = perturbed(TINY[family]()), 4, (7, 9)
    e = headscope.effect(module, token_ids=TOKENS, target=pair, position=place, method=METHOD, dtype="float64")
    expected = Rules(module, TOKENS, place, pair).maps()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(e.maps, expected, rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose(e.effects, expected.sum((2, 3)), rtol=1e-4, atol=1e-5 * scale)
    assert all(one.requires_grad for one in module.parameters())


def test_on_real_weights() -> None:
    """A trained model."""
    model, pair = headscope.load("twin-gpt-softmax"), (" were", " was")
    e = headscope.effect(model, "The keys to the cabinet", target=pair, method=METHOD)
    tokens = [token.id for token in e.tokens]
    expected = Rules(model.module, tokens, len(tokens) - 1, (e.target.ids[0], e.target.ids[1])).maps()
    np.testing.assert_allclose(e.maps, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@variants(
    "family",
    ["bert", "gemma2", "olmo2", "gpt_neox", "albert", "qwen3", "cohere", "cohere2", "phi3", "granite", "bitnet"],
    short=4,
)
def test_nothing_is_lost_in_other_architectures(family: str) -> None:
    """Sandwich norms, caps, norms of queries and keys, parallel blocks, shared layers, joined projections and multipliers are accepted: only attention loses something."""
    torch.manual_seed(0)
    made = {**FAMILIES, "cohere": cohere}
    module = perturbed(made[family]()) if family in made else build(family).module
    e = headscope.effect(module, token_ids=TOKENS, target=(7, 9), position=5, method=METHOD)
    assert e.maps is not None
    assert np.abs(e.effects).max() > 0
    assert e.target.capped is (family == "gemma2")


def test_refusals() -> None:
    """Experts, gates on the outputs of heads, and decoders beside an encoder."""
    for family in ("mixtral", "qwen3_5_text", "gpt_oss"):
        with pytest.raises(Unsupported, match="is defined for models"):
            headscope.effect(build(family).module, token_ids=ids(9, 1), target=(7, 9), method=METHOD)
    with pytest.raises(Unsupported, match="also reads its encoder"):
        headscope.effect(_t5(), token_ids=TOKENS, target_ids=[0, 9], method=METHOD)
