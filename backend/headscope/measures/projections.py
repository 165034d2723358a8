"""Measures of the projections of a layer's heads: shared output directions, query-key products, the dimensions of a head's output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from . import _spectrum
from .base import Measure

# Trained weights have at least the rounding errors of float32, whatever type they are stored in.
EPSILON = 2.0**-23
# Numbers of leading singular values whose share of the energy is reported.
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
SHARES = (50, 75, 90, 95, 99)
FARTHEST = 4096
OFFSETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def _given(weights: Tensor | None, what: str) -> Tensor:
    if weights is None:
        raise Unsupported(f"The {what} of this model was not found, so this measure is not available.")
    return weights.double()


def orthonormal(projection: Tensor) -> tuple[Tensor, Tensor]:
    """Return a basis of the row space of each matrix, [H, D, d] -> [H, d, m] with zeros for missing directions, and the ranks [H]."""
    basis, factor = torch.linalg.qr(projection.mT)  # [H, d, m], [H, m, D]
    turn, sigma, _ = torch.linalg.svd(factor, full_matrices=False)  # [H, m, m], [H, m]
    kept = sigma > sigma[:, :1] * max(projection.shape[1:]) * EPSILON
    return basis @ (turn * kept[:, None]), kept.sum(-1)


def overlap(projection: Tensor) -> Tensor:
    """Mean squared cosine of the principal angles between the row spaces of every two matrices. [H, D, d] -> [H, H], 0..1, NaN for zeros."""
    bases, ranks = orthonormal(projection)
    side_by_side = bases.transpose(0, 1).flatten(1)  # [H, d, m] -> [d, H, m] -> [d, H m]
    energies = torch.stack([(basis.mT @ side_by_side).square().sum(0) for basis in bases])  # [H, H m]
    sums = energies.view(len(bases), len(bases), -1).sum(-1)  # [H, H m] -> [H, H, m] -> [H, H]
    shares: Tensor = sums / torch.minimum(ranks[:, None], ranks)
    return shares.clamp(0, 1)


def output_overlap(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return `overlap` of the heads' parts of the output projection, [H, H]. Raises Unsupported where the projection was not found."""
    return overlap(_given(layer.projection, "projection after the heads"))


def product_values(left: Tensor, right: Tensor) -> Tensor:
    """Singular values of left rightᵀ, largest first, without forming it. [..., d, m], [..., d, m] -> [..., min(d, m)]."""
    sigma: Tensor = torch.linalg.svdvals(torch.matmul(*_reduced(left, right)))
    return sigma


def _reduced(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Return matrices whose product has the same singular values as left rightᵀ: [..., min(d, m), m], [..., m, min(d, m)]."""
    if left.shape[-1] < left.shape[-2]:
        left, right = (torch.linalg.qr(side, mode="r").R for side in (left, right))
    return left, right.mT


def summary(sigma: Tensor) -> Tensor:
    """Return everything that SPECTRUM names for singular values [..., r]: [..., C]."""
    r, shares = sigma.shape[-1], _spectrum.cumulative(sigma)
    columns = [sigma[..., 0], _spectrum.stable(sigma), _spectrum.effective(sigma), _spectrum.participation(sigma)]
    columns += [_spectrum.dimensions(shares, percent / 100) for percent in SHARES]
    columns += [torch.full_like(sigma[..., 0], r)]
    columns += [shares[..., min(count, r) - 1] for count in COUNTS]
    return torch.stack(columns, dim=-1)


SPECTRUM = (
    *("largest", "stable", "effective", "participation"),
    *(f"dims_{percent}" for percent in SHARES),
    "most",
    *(f"share_{count}" for count in COUNTS),
)
# `largest` is in units of the products instead, and each share is a part of the energy.
DIMENSIONS = dict.fromkeys(SPECTRUM[1 : -len(COUNTS)], "dimensions")
COLUMNS = (
    *(f"size_{offset}" for offset in OFFSETS),
    *(f"cosine_{offset}" for offset in OFFSETS),
    *(f"effective_{offset}" for offset in (0, *OFFSETS)),
)


def _factors(layer: Layer, offset: int) -> tuple[Tensor, Tensor]:
    """Return M and N [H, d, D'] whose product M Nᵀ gives the scores at that offset."""
    query = _given(layer.query_weights, "query projection of every head")
    key = _given(layer.key_weights, "key projection of every head")
    return query if layer.turn is None else query @ _power(layer.turn.double(), offset), key


def _power(turn: Tensor, count: int) -> Tensor:
    """Return an orthogonal matrix to any power."""
    power: Tensor = torch.linalg.matrix_power(turn if count >= 0 else turn.mT, abs(count))
    return power


def _sized(spectrum: Tensor, layer: Layer) -> Tensor:
    """Leave out the largest singular value [..., C] where only the directions of the product are known, not its size."""
    if layer.normalised:
        spectrum[..., SPECTRUM.index("largest")] = torch.nan
    return spectrum


def qk_spectrum(layer: Layer, lens: str, readings: Mapping[str, Reading], params: OffsetParams) -> Tensor:
    """Return the spectrum of W_Q Tⁿ W_Kᵀ of each head, [H, C]."""
    return _sized(summary(product_values(*_factors(layer, params.offset))), layer)


def qk_spectrum_layer(layer: Layer, lens: str, readings: Mapping[str, Reading], params: OffsetParams) -> Tensor:
    """Return the spectrum of the sum over heads of W_Q Tⁿ W_Kᵀ, [C]: the product of the concatenated projections."""
    query, key = (side.transpose(0, 1).flatten(1) for side in _factors(layer, params.offset))  # [H, d, D'] -> [d, H D']
    return _sized(summary(product_values(query, key)), layer)


def qk_offset(layer: Layer, lens: str, readings: Mapping[str, Reading], params: Any) -> Tensor:
    """Return size, cosine and effective rank of W_Q Tⁿ W_Kᵀ against W_Q W_Kᵀ, [H, C]. NaN where the latter is zero."""
    left, right = _reduced(*_factors(layer, 0))
    products = torch.stack([left @ right, *(left @ _turned(layer, offset, right) for offset in OFFSETS)], dim=1)
    sigma = torch.linalg.svdvals(products)  # [H, 1 + offsets, r]
    sizes = sigma.norm(dim=-1)
    cosines = (products * products[:, :1]).sum((-2, -1)) / (sizes * sizes[:, :1])
    return torch.cat([(sizes / sizes[:, :1])[:, 1:], cosines[:, 1:].clamp(-1, 1), _spectrum.effective(sigma)], dim=-1)


def _turned(layer: Layer, offset: int, right: Tensor) -> Tensor:
    return right if layer.turn is None else _power(layer.turn.double(), offset) @ right


class OffsetParams(Params):
    """The offset at which products are taken."""

    offset: int = Field(
        default=0,
        ge=-FARTHEST,
        le=FARTHEST,
        description="How many tokens the key is before the query; negative: after it. It matters only to models with rotary embeddings.",
    )


class HeadDimensionParams(Params):
    """Which matrix is decomposed."""

    centred: bool = Field(
        default=True,
        description="Subtract the mean over tokens first, so that squared singular values are variances.",
    )


def head_dimension(layer: Layer, lens: str, readings: Mapping[str, Reading], params: HeadDimensionParams) -> Tensor:
    """Return the spectrum of Z W_O of each head, and the effective rank of W_O alone, [H, 6]. All 0 where all tokens receive the same output."""
    projection = _given(layer.projection, "projection after the heads")
    if layer.output.numel() == 0:
        raise Unsupported("The outputs of this model's heads cannot be captured, so this measure is not available.")
    output = layer.written.double()
    scale = output.abs().amax(dim=(1, 2))
    if params.centred:
        output = output - output.mean(1, keepdim=True)
        # Equal outputs leave only rounding.
        output = output * (output.abs().amax(dim=(1, 2)) > scale * layer.epsilon)[:, None, None]
    factor = torch.linalg.qr(projection.mT, mode="r").R  # [H, m, D]: singular values of Z W_O are those of Z Rᵀ
    sigma = torch.linalg.svdvals(output @ factor.mT)
    shares = _spectrum.cumulative(sigma)
    columns = [_spectrum.effective(sigma), _spectrum.participation(sigma)]
    columns += [_spectrum.dimensions(shares, share) for share in (0.90, 0.95, 0.99)]
    columns += [_spectrum.effective(torch.linalg.svdvals(factor))]
    return torch.stack(columns, dim=-1)


OUTPUT_OVERLAP = Measure(
    name="output_overlap",
    title="Overlap of output spaces",
    doc="How far every two heads of a layer can write to the same directions of the model: the mean squared cosine of the principal angles between their parts of the "
    "output projection. 1 is the same space, 0 is orthogonal spaces; random spaces have head width / model width.",
    not_="Not what the heads do on this input, nor a loss of information: it uses the model's weights only, and heads may share directions to work together.",
    citation="Principal angles: Björck & Golub 1973; answers the question whether heads compete for W_O",
    needs=("projection", "equal-heads"),
    range=(0.0, 1.0),
    shape="L H H",
    of="layer",
    fixed=True,
    compute=output_overlap,
)

QK_SPECTRUM = Measure(
    name="qk_spectrum",
    title="Spectrum of query-key products",
    doc="Singular values of W_Q W_Kᵀ of each head in summary: the largest, rank-like numbers, how many hold 50 to 99 % of the energy, and the share of the first 1, 2, 4, ... "
    "With rotary embeddings it is W_Q Rₙ W_Kᵀ for a key n tokens before the query.",
    not_="Not the scores of this input: it uses the model's weights only, without the biases of queries and keys and without the distribution of hidden states.",
    citation="Cordonnier, Loukas & Jaggi 2020, Multi-Head Attention: Collaborate Instead of Concatenate; rotary embeddings: Su et al. 2021, RoFormer, eq. 16",
    params=OffsetParams,
    needs=("bilinear",),
    range=(0.0, None),
    shape="L H C",
    columns=SPECTRUM,
    units=DIMENSIONS,
    fixed=True,
    compute=qk_spectrum,
)

QK_SPECTRUM_LAYER = Measure(
    name="qk_spectrum_layer",
    title="Spectrum of query-key products of a layer",
    doc="The same for the sum of W_Q W_Kᵀ over all heads, which is the product of the concatenated projections: if few singular values hold most of the energy, heads share "
    "directions.",
    not_="Not the mean of the heads' spectra: single heads rarely have low rank relative to their width, while their sum often has relative to the model's.",
    citation="Cordonnier, Loukas & Jaggi 2020, Multi-Head Attention: Collaborate Instead of Concatenate; rotary embeddings: Su et al. 2021, RoFormer, eq. 16",
    params=OffsetParams,
    needs=("bilinear", "additive"),
    range=(0.0, None),
    shape="L C",
    of="layer",
    columns=SPECTRUM,
    units=DIMENSIONS,
    fixed=True,
    compute=qk_spectrum_layer,
)

QK_OFFSET = Measure(
    name="qk_offset",
    title="Query-key products by offset",
    doc="How rotary embeddings change the query-key product of each head with the offset n between query and key: size and effective rank of W_Q Rₙ W_Kᵀ at n = 1, 2, 4, ..., "
    "and its cosine with W_Q W_Kᵀ. A head whose cosine stays near 1 matches content at any distance; one whose cosine falls depends on the position.",
    not_="Not the distance of attention on this input: it uses the model's weights only. Without rotary embeddings nothing changes with the offset.",
    citation="Su et al. 2021, RoFormer: Enhanced Transformer with Rotary Position Embedding, eq. 16",
    needs=("bilinear",),
    range=(-1.0, None),
    shape="L H C",
    columns=COLUMNS,
    units={column: "dimensions" for column in COLUMNS if column.startswith("effective")},
    fixed=True,
    compute=qk_offset,
)


HEAD_DIMENSION = Measure(
    name="head_dimension",
    title="Dimension of a head's output",
    doc="How many directions of the model a head writes to on this input: effective rank and participation ratio of its projected output, and the number of dimensions that "
    "hold 90, 95 and 99 % of its variance over tokens; also the effective rank of its output projection alone.",
    not_="Not the intrinsic dimension of a task, and never more than the head width or the number of tokens: compare inputs of the same length.",
    citation="Principal components of Z W_O; effective rank: Roy & Vetterli 2007",
    params=HeadDimensionParams,
    needs=("values", "projection"),
    unit="dimensions",
    range=(0.0, None),
    shape="L H C",
    columns=("effective", "participation", "dims_90", "dims_95", "dims_99", "projection_effective"),
    compute=head_dimension,
)
