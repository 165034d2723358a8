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
    )


def random_layer(shape: Shape, index: int = 0) -> Layer:
    """A layer whose rows sum to 1 over the allowed keys, with everything that lenses of whole layers may need."""
    generator = torch.Generator().manual_seed(shape.seed + index)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64).to(shape.dtype)

    n, d = shape.n, 6
    keys = Keys("mask", torch.ones(n, n).tril().triu(-2).bool()) if shape.rule == "mask" else Keys(shape.rule)
    logits = 2 * random(shape.heads, n, n)
    weights = logits.masked_fill(~keys.allowed(n, n), -torch.inf).softmax(-1)
    values = random(shape.groups, n, shape.width)
    if shape.special:
        values[:, min(1, n - 1)] = values[:, 0]
        values[:, -1] = 0
    output = weights @ values.repeat_interleave(shape.heads // shape.groups, dim=0)
    projection, before, bias = random(shape.heads, shape.width, d), 2 * random(n, d), random(d)
    summed = torch.einsum("hqd,hde->qe", output, projection) + before + bias
    gain, shift, inner, outer = 1 + random(d), random(d), random(d, 2 * d), random(2 * d, d)
    norm = None
    if shape.norm is not None:
        centred = shape.norm == "centred"
        spread = summed.var(-1, correction=0) if centred else summed.square().mean(-1)
        norm = Norm(gain, shift if centred else torch.zeros_like(shift), (spread + EPSILON).rsqrt(), centred)

    def replay(outputs: Tensor) -> Tensor:
        here = torch.einsum("bhqd,hde->bqe", outputs, projection) + before + bias
        if norm is not None:
            spread = here.var(-1, correction=0) if norm.centred else here.square().mean(-1)
            here = norm.linear(here, (spread + EPSILON).rsqrt()[..., None]) + norm.shift
        return here + torch.nn.functional.gelu(here @ inner) @ outer

    stream = Stream(before, bias, norm, replay(output[None])[0], replay, projected=summed - before)
    tokens = tuple(Token(str(i), i, i, i + 1, i, 0, "word") for i in range(n))
    epsilon = torch.finfo(shape.dtype).eps
    empty = torch.empty(0)
    return Layer(
        index, tuple(range(shape.heads)), weights, values, output, keys, epsilon, Axes(tokens, tokens), empty, empty,
        projection=projection, stream=stream,
    )  # fmt: skip


def array(tensor: Tensor) -> NDArray[Any]:
    return tensor.detach().double().numpy()


def normalised(layer: Layer, vector: NDArray[Any], query: int) -> NDArray[Any]:
    """One vector through the normalisation at the statistics of its query."""
    norm = layer.stream.norm
    if norm is None:
        return vector
    if norm.centred:
        vector = vector - vector.mean()
    return array(norm.gain) * vector * float(norm.scale[query])


def added(layer: Layer) -> NDArray[Any]:
    """g(y_ij) for every query and key, [Q, K, d]: head by head, key by key, query by query."""
    heads, queries, keys = layer.weights.shape
    weights, values, projection, before = (
        array(tensor) for tensor in (layer.weights, layer.values, layer.projection, layer.stream.before)
    )
    result = np.zeros((queries, keys, projection.shape[2]))
    for i in range(queries):
        for j in range(keys):
            total = before[i].copy() if i == j else np.zeros(projection.shape[2])
            for h in range(heads):
                total += weights[h, i, j] * (values[h // (heads // values.shape[0]), j] @ projection[h])
            result[i, j] = normalised(layer, total, i)
    return result


def single(layer: Layer) -> Layer:
    """The same layer in float32."""
    stream = layer.stream
    norm, projected = stream.norm, stream.projected
    if norm is not None:
        norm = Norm(norm.gain.float(), norm.shift.float(), norm.scale.float(), norm.centred)
    replay = stream.replay
    assert replay is not None
    return replace(
        layer,
        weights=layer.weights.float(),
        values=layer.values.float(),
        output=layer.output.float(),
        epsilon=torch.finfo(torch.float32).eps,
        projection=layer.projection.float(),
        stream=Stream(
            stream.before.float(),
            stream.bias.float(),
            norm,
            stream.after.float(),
            lambda outputs: replay(outputs.double()).float(),
            None if projected is None else projected.float(),
        ),
    )
