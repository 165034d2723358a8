"""Random whole layers with the residual stream around them, and what each token adds to it by plain loops in float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from headscope.core.attention import Keys, Layer, Norm, Stream
from headscope.core.tokens import Axes, Token

EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    """What a random layer looks like. `special`: keys 0 and 1 have equal values, the last key has none."""

    n: int
    heads: int
    groups: int
    width: int
    rule: str
    norm: str | None
    special: bool
    seed: int
    dtype: torch.dtype = torch.float64
    branch: str | None = None
    gate: str | None = None


@st.composite
def shapes(draw: Any) -> Shape:
    """Shapes from one token up to more tokens than the heads are wide."""
    groups = draw(st.integers(1, 2))
    return Shape(
        draw(st.integers(1, 9)),
        groups * draw(st.integers(1, 2)),
        groups,
        draw(st.integers(1, 4)),
        draw(st.sampled_from(["all", "prefix", "mask"])),
        draw(st.sampled_from([None, "centred", "root-mean-square"])),
        draw(st.booleans()),
        draw(st.integers(0, 10_000)),
        branch=draw(st.sampled_from([None, "centred", "root-mean-square", "gain"])),
        gate=draw(st.sampled_from([None, "head", "dimension"])),
    )


def normalisation(kind: str | None, gain: Tensor, shift: Tensor, summed: Tensor) -> Norm | None:
    """A normalisation at the statistics of these vectors [n, d], or a gain alone."""
    if kind is None:
        return None
    if kind == "gain":
        return Norm(gain, torch.zeros_like(shift), summed.new_ones(len(summed)), centred=False)
    centred = kind == "centred"
    spread = summed.var(-1, correction=0) if centred else summed.square().mean(-1)
    return Norm(gain, shift if centred else torch.zeros_like(shift), (spread + EPSILON).rsqrt(), centred)


def through(norm: Norm | None, vectors: Tensor) -> Tensor:
    """Vectors [..., n, d] through a normalisation whose statistics are held fixed."""
    return vectors if norm is None else norm.linear(vectors, norm.scale[:, None]) + norm.shift


def random_layer(shape: Shape, index: int = 0) -> Layer:
    """A layer whose rows sum to 1 over the allowed keys, with everything that lenses of whole layers may need."""
    generator = torch.Generator().manual_seed(shape.seed + index)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(shape.dtype)

    n, d = shape.n, 6
    keys = Keys.of(torch.ones(n, n).tril().triu(-2).bool()) if shape.rule == "mask" else Keys(shape.rule)
    logits = 2 * random(shape.heads, n, n)
    weights = logits.masked_fill(~keys.allowed(n, n), -torch.inf).softmax(-1)
    values = random(shape.groups, n, shape.width)
    if shape.special:
        values[:, min(1, n - 1)] = values[:, 0]
        values[:, -1] = 0
    output = weights @ values.repeat_interleave(shape.heads // shape.groups, dim=0)
    projection, before, bias = random(shape.heads, shape.width, d), 2 * random(n, d), random(d)
    gate = None
    if shape.gate is not None:  # one number per head and query, or one per dimension, some of them 0
        gate = random(shape.heads, n, shape.width if shape.gate == "dimension" else 1).clamp_min(-1) + 1
        gate = gate.expand(-1, -1, shape.width)
    open_ = torch.ones_like(output) if gate is None else gate
    projected = torch.einsum("hqd,hde->qe", output * open_, projection) + bias
    gain, shift, inner, outer = 1 + random(d), random(d), random(d, 2 * d), random(2 * d, d)
    branch = normalisation(shape.branch, 1 + random(d), random(d), projected)
    norm = normalisation(shape.norm, gain, shift, through(branch, projected) + before)

    def attend(outputs: Tensor) -> Tensor:
        given = torch.einsum("hqd,hde->qe", outputs * open_, projection) + bias
        summed = through(normalisation(shape.branch, *_gains(branch, given), given), given) + before
        here = through(normalisation(shape.norm, gain, shift, summed), summed)
        return here + torch.nn.functional.gelu(here @ inner) @ outer

    def replay(outputs: Tensor) -> Tensor:
        return torch.stack([attend(one) for one in outputs])

    stream = Stream(before, bias, norm, replay(output[None])[0], replay, projected, branch)
    tokens = tuple(Token(str(i), i, i, i + 1, i, 0, "word") for i in range(n))
    epsilon = torch.finfo(shape.dtype).eps
    empty = torch.empty(0)
    return Layer(
        index, tuple(range(shape.heads)), weights, values, output, keys, epsilon, Axes(tokens, tokens), empty, empty,
        gate=gate, projection=projection, stream=stream,
    )  # fmt: skip


def array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().double().numpy()


def _gains(norm: Norm | None, like: Tensor) -> tuple[Tensor, Tensor]:
    return (like[0], like[0]) if norm is None else (norm.gain, norm.shift)


def normalised(norm: Norm | None, vector: NDArray[Any], query: int) -> NDArray[Any]:
    """One vector through the linear part of a normalisation at the statistics of its query."""
    if norm is None:
        return vector
    if norm.centred:
        vector = vector - vector.mean()
    return array(norm.gain) * vector * float(norm.scale[query])


def of_no_token(layer: Layer, query: int) -> NDArray[Any]:
    """What bias and shifts add to the output of the block."""
    stream, shift = layer.stream, np.zeros(layer.projection.shape[2])
    vector = normalised(stream.branch_norm, array(stream.bias), query)
    vector = vector + (shift if stream.branch_norm is None else array(stream.branch_norm.shift))
    return normalised(stream.norm, vector, query) + (shift if stream.norm is None else array(stream.norm.shift))


def added(layer: Layer) -> NDArray[Any]:
    """g(y_ij) for every query and key, [Q, K, d]: head by head, key by key, query by query."""
    heads, queries, keys = layer.weights.shape
    weights, values, projection, before = (
        array(tensor) for tensor in (layer.weights, layer.values, layer.projection, layer.stream.before)
    )
    gate = np.ones((heads, queries, values.shape[2])) if layer.gate is None else array(layer.gate)
    result = np.zeros((queries, keys, projection.shape[2]))
    for i in range(queries):
        for j in range(keys):
            total = np.zeros(projection.shape[2])
            for h in range(heads):
                value = values[h // (heads // values.shape[0]), j] * gate[h, i]
                total += weights[h, i, j] * (value @ projection[h])
            total = normalised(layer.stream.branch_norm, total, i) + (before[i] if i == j else 0)
            result[i, j] = normalised(layer.stream.norm, total, i)
    return result


def single(layer: Layer) -> Layer:
    """The same layer in float32."""
    stream = layer.stream
    projected = stream.projected
    branch, norm = (
        None if one is None else Norm(one.gain.float(), one.shift.float(), one.scale.float(), one.centred)
        for one in (stream.branch_norm, stream.norm)
    )
    replay = stream.replay
    assert replay is not None
    return replace(
        layer,
        weights=layer.weights.float(),
        values=layer.values.float(),
        output=layer.output.float(),
        gate=None if layer.gate is None else layer.gate.float(),
        epsilon=torch.finfo(torch.float32).eps,
        projection=layer.projection.float(),
        stream=Stream(
            stream.before.float(),
            stream.bias.float(),
            norm,
            stream.after.float(),
            lambda outputs: replay(outputs.double()).float(),
            None if projected is None else projected.float(),
            branch,
        ),
    )
