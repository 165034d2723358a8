"""Measures of the hidden states after a layer: how much tokens still differ, and how similar they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from .base import Measure

BINS = 40
# Rows of the matrix of cosines computed at once; bounds the scratch memory to a few tens of MB.
ROWS = 256


def states(layer: Layer) -> Tensor:
    """Return the hidden states after the layer in float64, [Q, d]. Raises Unsupported where they were not captured."""
    if layer.stream.after is None:
        raise Unsupported(
            "The hidden states of this model cannot be captured, so measures of hidden states are not available."
        )
    return layer.stream.after.double()


def one_infinity(matrix: Tensor) -> Tensor:
    """sqrt(||M||_1 ||M||_inf): the geometric mean of the largest absolute column sum and the largest absolute row sum. [Q, d] -> []."""
    magnitude = matrix.abs()
    return (magnitude.sum(0).amax() * magnitude.sum(1).amax()).sqrt()


def residual_ratio(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return ||X - mean||_{1,inf} / ||X||_{1,inf} of the hidden states X after the layer, []. NaN if they are all zero."""
    X = states(layer)
    return one_infinity(X - X.mean(0)) / one_infinity(X)


class TokenSimilarityParams(Params):
    """Which vectors and pairs are compared."""

    centred: bool = Field(
        default=False,
        description="Subtract the mean over tokens first. In many models a few large dimensions, equal in every token, dominate the plain cosine.",
    )
    pairs: int = Field(
        default=524_288,
        ge=1,
        le=4_194_304,
        description="Maximum number of pairs of tokens. If there are more, this many are drawn evenly, the same ones in every run.",
    )


def token_similarity(layer: Layer, lens: str, readings: Mapping[str, Reading], params: TokenSimilarityParams) -> Tensor:
    """Return mode, median, mean, 5 % and 95 % quantile and histogram of cos(x_i, x_j), i < j, after the layer. [5 + 40]; NaN where there is no pair.

    The histogram holds shares of pairs in 40 equal bins on [-1, 1]; the mode is the middle of the fullest bin. Zero vectors have no direction, so their
    pairs are left out.
    """
    X = states(layer)
    scale = torch.linalg.vector_norm(X, dim=-1)
    smallest = 0.0
    if params.centred:
        X = X - X.mean(0)
        # A state equal to the mean leaves only rounding, which has no direction either.
        smallest = float(scale.amax()) * layer.epsilon
    norms = torch.linalg.vector_norm(X, dim=-1)
    kept = norms > smallest
    cosines = pairwise(X[kept] / norms[kept, None], params.pairs)
    if cosines.numel() == 0:
        return torch.full((5 + BINS,), torch.nan, dtype=X.dtype, device=X.device)
    places = ((cosines + 1) * (BINS / 2)).floor().long().clamp_(0, BINS - 1)
    shares = torch.bincount(places, minlength=BINS).to(X.dtype) / cosines.numel()
    mode = (shares.argmax() + 0.5) * (2 / BINS) - 1
    low, median, high = cosines.quantile(cosines.new_tensor([0.05, 0.5, 0.95]))
    return torch.cat([torch.stack([mode, median, cosines.mean(), low, high]), shares])


def pairwise(units: Tensor, most: int) -> Tensor:
    """Dot products of all pairs i < j of unit vectors [n, d], or of `most` pairs, row by row. [pairs], -1..1."""
    n = units.shape[0]
    total = n * (n - 1) // 2
    chosen = _drawn(total, most).to(units.device) if total > most else None
    found = []
    for low in range(0, n, ROWS):
        block = units[low : low + ROWS] @ units[low:].mT  # [R, n - low]
        columns = torch.arange(block.shape[1], device=units.device)
        upper = block[columns > torch.arange(block.shape[0], device=units.device)[:, None]]
        if chosen is not None:
            first = total - (n - low) * (n - low - 1) // 2  # pairs of the rows before
            inside = chosen[(chosen >= first) & (chosen < first + upper.numel())]
            upper = upper[inside - first]
        found.append(upper)
    return torch.cat(found).clamp_(-1, 1) if found else units.new_empty(0)


def _drawn(total: int, count: int) -> Tensor:
    """Draw `count` different numbers below `total`, one from each of `count` equal intervals, in order; always the same ones."""
    offsets = torch.rand(count, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float64, device="cpu")
    starts = torch.arange(count, device="cpu") * total // count
    widths = (torch.arange(1, count + 1, device="cpu") * total // count) - starts
    return starts + (offsets * widths).floor().long()


RESIDUAL_RATIO = Measure(
    name="residual_ratio",
    title="Residual ratio",
    doc="How much the hidden states after a layer differ from token to token: near 0, all tokens have become the same vector (rank collapse).",
    not_="Not about single heads, and not comparable below about 1e-6, where float32 rounds the differences away.",
    citation="Dong, Cordonnier & Loukas 2021, Attention is not all you need, sec. 2; with the mean over tokens, as in their code",
    needs=("hidden",),
    range=(0.0, None),
    shape="L",
    of="layer",
    compute=residual_ratio,
)

TOKEN_SIMILARITY = Measure(
    name="token_similarity",
    title="Token similarity",
    doc="Cosines between the hidden states of all pairs of tokens after a layer: mode, median, mean, 5 % and 95 % quantile, and a histogram of 40 bins from -1 to 1.",
    not_="Not similarity of meaning: a few large dimensions shared by all tokens can bring every cosine near 1. Compare with the centred version.",
    citation="Cosines as in Masumura & Taki 2025, On the Role of Hidden States of Modern Hopfield Network in Transformer",
    params=TokenSimilarityParams,
    needs=("hidden",),
    range=(-1.0, 1.0),
    shape="L C",
    of="layer",
    columns=("mode", "median", "mean", "low", "high", *(f"bin_{place:02d}" for place in range(BINS))),
    compute=token_similarity,
)
