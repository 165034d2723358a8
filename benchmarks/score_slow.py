"""Llama and ALBERT written out in float64, for benchmarks.score_check.

Nothing is shared with Headscope's capture, its lenses or transformers' models, of which only the parameters are read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

# What a pass is differentiated for: everything as it is; the rules of Dual Path Attribution; the direct path, on which nothing that attention and feed-forward
# parts read counts. All three compute the same numbers.
PLAIN, DUAL, DIRECT = "plain", "dual", "direct"


class Layer(NamedTuple):
    """One layer: weights [H, Q, K], queries, keys and values [H, K, D], outputs of heads [H, Q, D] and each head's part of the projection [H, D, d].

    before, total, after  the residual stream before attention, with what attention adds, and after the whole layer, [Q, d] each
    """

    weights: Tensor
    query: Tensor
    key: Tensor
    values: Tensor
    outputs: Tensor
    projection: Tensor
    before: Tensor
    total: Tensor
    after: Tensor


class Cut(NamedTuple):
    """A change of a pass: what is taken from the last row of some heads' outputs, or what all weights of a layer are multiplied by."""

    layer: int
    head: int | None = None
    key: int = 0
    factor: float = 1.0


class Slow:
    """A model in float64. Subclasses say how its layers are made."""

    normalises_after = False  # the sum, instead of what a part reads

    def __init__(self, module: Any) -> None:
        self.config, self.vocabulary = module.config, module.config.vocab_size
        self._of = {name: one.detach().double() for name, one in module.state_dict().items()}

    def layers(
        self, ids: Sequence[int], way: str = PLAIN, cut: Cut | None = None, real: int | None = None
    ) -> list[Layer]:
        """Run the model, to be differentiated in some way; tokens from `real` on are padding."""
        found, stream = list[Layer](), self.embedded(torch.tensor(ids)).requires_grad_()
        for number in range(self.config.num_hidden_layers):
            own = cut if cut is not None and cut.layer == number else None
            found.append(self.layer(number, stream, way, own, len(ids) if real is None else real))
            stream = found[-1].after
        return found

    def attention(
        self, name: str, read: Tensor, way: str, cut: Cut | None, real: int, causal: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Return weights, queries, keys, values and outputs of the heads that read a stream [Q, d]."""
        read = read.detach() if way == DIRECT else read
        shares = (0.25, 0.25, 0.5) if way == DUAL else (1.0, 1.0, 1.0)
        query, key, value = (
            part(self.heads(name, which, read), share) for which, share in zip("qkv", shares, strict=True)
        )
        count = len(read)
        hidden = (
            torch.ones(count, count).triu(1).bool() if causal else (torch.arange(count) >= real).expand(count, count)
        )
        scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(hidden, -torch.inf)
        weights = scores.softmax(-1)
        used = weights * (1.0 if cut is None else cut.factor)
        if cut is not None and cut.head is not None:
            keep = torch.ones_like(used)
            keep[cut.head, -1, cut.key] = 0
            used = used * keep
        outputs = used @ value
        return weights, query, key, value, outputs if outputs.requires_grad else outputs.requires_grad_()

    def projected(self, name: str, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return each head's part of the projection, [H, D, d], and what all heads add, [Q, d]."""
        rows = self._of[f"{name}.weight"].T.unflatten(0, (len(outputs), -1))
        return rows, torch.einsum("hqd,hde->qe", outputs, rows) + self._of.get(f"{name}.bias", 0)

    def through(self, name: str, read: Tensor) -> Tensor:
        """Apply a linear part."""
        return read @ self._of[f"{name}.weight"].T + self._of.get(f"{name}.bias", 0)

    def embedded(self, ids: Tensor) -> Tensor:
        """Return the stream below the first layer, [Q, d]."""
        raise TypeError

    def heads(self, name: str, which: str, read: Tensor) -> Tensor:
        """Return the queries, keys or values that heads make of a stream, [H, Q, D]."""
        raise TypeError

    def layer(self, number: int, stream: Tensor, way: str, cut: Cut | None, real: int) -> Layer:
        """Run a layer."""
        raise TypeError

    def block(self, total: Tensor, way: str = PLAIN) -> Tensor:
        """Return what the feed-forward part adds to, from the sum of the stream and attention."""
        return total

    def straight(self, vectors: Tensor, total: Tensor) -> Tensor:
        """Return parts of the sum as they are in the block, where a normalisation of the sum keeps its statistics."""
        return vectors

    def rest(self, number: int, total: Tensor, way: str = PLAIN) -> Tensor:
        """Return the stream after a layer, from the sum of the stream and attention. Every token on its own."""
        raise TypeError

    def logits(self, after: Tensor, way: str = PLAIN) -> Tensor:
        """Return the logits, of which none is computed from another token."""
        raise TypeError


def part(values: Tensor, share: float) -> Tensor:
    """Return the values, which take a share of their gradient."""
    return values if share == 1 else values * share + (values * (1 - share)).detach()


def held(statistics: Tensor, way: str) -> Tensor:
    """Return what multiplies the values of a normalisation or an activation, which counts as a constant unless everything is differentiated."""
    return statistics if way == PLAIN else statistics.detach()


class Llama(Slow):
    """With gated feed-forward parts and normalisations before each part."""

    def embedded(self, ids: Tensor) -> Tensor:
        return self._of["model.embed_tokens.weight"][ids]

    def heads(self, name: str, which: str, read: Tensor) -> Tensor:
        of = self.through(f"{name}.{which}_proj", read)
        count = self.config.num_attention_heads if which == "q" else self.config.num_key_value_heads
        of = of.unflatten(-1, (count, -1)).transpose(0, 1)
        of = of.repeat_interleave(self.config.num_attention_heads // count, 0)
        return of if which == "v" else self._turned(of)

    def _turned(self, of: Tensor) -> Tensor:
        """Rotate [H, Q, D] by the place of each token: dimension i together with i + D / 2."""
        count, width = of.shape[1:]
        theta = self.config.rope_parameters["rope_theta"]
        angles = torch.arange(count).double()[:, None] * theta ** (-torch.arange(0, width, 2).double() / width)
        one, other = of.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat([one * cos - other * sin, other * cos + one * sin], -1)

    def _norm(self, name: str, read: Tensor, way: str) -> Tensor:
        scale = (read.square().mean(-1, keepdim=True) + self.config.rms_norm_eps).rsqrt()
        return read * held(scale, way) * self._of[f"{name}.weight"]

    def layer(self, number: int, stream: Tensor, way: str, cut: Cut | None, real: int) -> Layer:
        name = f"model.layers.{number}"
        read = self._norm(f"{name}.input_layernorm", stream, way)
        found = self.attention(f"{name}.self_attn", read, way, cut, real, causal=True)
        rows, added = self.projected(f"{name}.self_attn.o_proj", found[-1])
        total = stream + added
        return Layer(*found, rows, stream, total, self.rest(number, total, way))

    def rest(self, number: int, total: Tensor, way: str = PLAIN) -> Tensor:
        name = f"model.layers.{number}"
        read = self._norm(f"{name}.post_attention_layernorm", total, way)
        read = read.detach() if way == DIRECT else read
        share = 0.5 if way == DUAL else 1.0
        up, gate = (part(self.through(f"{name}.mlp.{which}_proj", read), share) for which in ("up", "gate"))
        return total + self.through(f"{name}.mlp.down_proj", up * (gate * held(gate.sigmoid(), way)))

    def logits(self, after: Tensor, way: str = PLAIN) -> Tensor:
        return self._norm("model.norm", after, way) @ self._of["lm_head.weight"].T


class Albert(Slow):
    """With normalisations of each sum, and one layer that is used again."""

    normalises_after = True
    LAYER = "albert.encoder.albert_layer_groups.0.albert_layers.0"

    def embedded(self, ids: Tensor) -> Tensor:
        name = "albert.embeddings"
        places = self._of[f"{name}.position_embeddings.weight"][: len(ids)]
        summed = (
            self._of[f"{name}.word_embeddings.weight"][ids]
            + places
            + self._of[f"{name}.token_type_embeddings.weight"][0]
        )
        return self.through("albert.encoder.embedding_hidden_mapping_in", self.norm(f"{name}.LayerNorm", summed, PLAIN))

    def heads(self, name: str, which: str, read: Tensor) -> Tensor:
        whole = {"q": "query", "k": "key", "v": "value"}[which]
        return (
            self.through(f"{name}.{whole}", read).unflatten(-1, (self.config.num_attention_heads, -1)).transpose(0, 1)
        )

    def norm(self, name: str, read: Tensor, way: str) -> Tensor:
        centred = read - read.mean(-1, keepdim=True)
        scale = held((centred.square().mean(-1, keepdim=True) + self.config.layer_norm_eps).rsqrt(), way)
        return centred * scale * self._of[f"{name}.weight"] + self._of[f"{name}.bias"]

    def layer(self, number: int, stream: Tensor, way: str, cut: Cut | None, real: int) -> Layer:
        found = self.attention(f"{self.LAYER}.attention", stream, way, cut, real, causal=False)
        rows, added = self.projected(f"{self.LAYER}.attention.dense", found[-1])
        total = stream + added
        return Layer(*found, rows, stream, total, self.rest(number, total, way))

    def block(self, total: Tensor, way: str = PLAIN) -> Tensor:
        return self.norm(f"{self.LAYER}.attention.LayerNorm", total, way)

    def straight(self, vectors: Tensor, total: Tensor) -> Tensor:
        spread = total.var(-1, correction=0, keepdim=True) + self.config.layer_norm_eps
        gain = self._of[f"{self.LAYER}.attention.LayerNorm.weight"]
        return (vectors - vectors.mean(-1, keepdim=True)) / spread.sqrt() * gain

    def rest(self, number: int, total: Tensor, way: str = PLAIN) -> Tensor:
        block = self.block(total, way)
        inner = self.through(f"{self.LAYER}.ffn", block.detach() if way == DIRECT else block)
        added = self.through(f"{self.LAYER}.ffn_output", _gelu(inner, way))
        return self.norm(f"{self.LAYER}.full_layer_layer_norm", added + block, way)

    def logits(self, after: Tensor, way: str = PLAIN) -> Tensor:
        inner = _gelu(self.through("predictions.dense", after), way)
        return self.through("predictions.decoder", self.norm("predictions.LayerNorm", inner, way))


def _gelu(read: Tensor, way: str) -> Tensor:
    return read * held((1 + torch.erf(read / math.sqrt(2))) / 2, way)


def slow(module: Any) -> Slow:
    """Return a model written out."""
    return {"llama": Llama, "albert": Albert}[module.config.model_type](module)


def numbers(values: Tensor) -> np.ndarray:
    """Return values as an array."""
    found: np.ndarray = values.detach().numpy()
    return found
