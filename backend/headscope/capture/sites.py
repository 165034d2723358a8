"""What a model's attention is made of: every place where it attends, and what can be proven about the way in and out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ..core.attention import Kind, Norm
from ..core.declarations import CAPABILITIES
from ..errors import ModelNotExact, Unknown, Unsupported
from ..models.support import by_mask
from .affine import matrix


@dataclass(frozen=True)
class HeadProjection:
    """A stretch of the output of a linear module that becomes the queries, or the keys, of all heads: [Q, ...] -> [H, Q, D']."""

    module: str
    offset: int
    stride: int  # how far a head's part is from the next one's
    width: int


@dataclass(frozen=True)
class NormForm:
    """What a normalisation computes: over the mean or not, and whether its gain is the weight or 1 + weight."""

    centred: bool
    plus_one: bool
    epsilon: float


@dataclass(frozen=True)
class Site:
    """One place where the model attends. Sites stand in the order of the forward pass; a layer that is used twice has two.

    `layer` counts the layers of its kind; `missing` says, for every need that this place can't meet, why.
    """

    kind: Kind
    layer: int
    heads: int
    width: int
    causal: bool
    module: str | None = None
    block: str | None = None
    projection: str | None = None
    norm: str | None = None
    norm_form: NormForm | None = None  # of models that normalise the sum itself (post-LN)
    query: HeadProjection | None = None
    key: HeadProjection | None = None
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AttentionSites:
    """All places of a model, proven equal to its eager attention on a probe. `captured` is False where only eager's own weights are available.

    `faults` holds the kinds of attention for which the model returns something other than weights, and what is wrong with it.
    """

    all: tuple[Site, ...]
    captured: bool
    faults: Mapping[Kind, str] = field(default_factory=dict)

    def of(self, kind: Kind) -> tuple[Site, ...]:
        """The places of one kind of attention, in order of layers. Raises Unsupported if there is none."""
        kinds = {site.kind for site in self.all}
        if kind == "self" and "encoder" in {*kinds, *self.faults}:
            kind = "encoder"
        found = tuple(site for site in self.all if site.kind == kind)
        if not found and kind in self.faults:
            raise ModelNotExact(self.faults[kind], pointer="/kind")
        if not found:
            offered = ", ".join(sorted(kinds))
            raise Unsupported(f"This model has no attention of that kind. It has: {offered}.", pointer="/kind")
        return found

    def missing(self, kind: Kind) -> dict[str, str]:
        """Need -> why this model can't meet it, for one kind of attention."""
        sites = self.of(kind)
        missing = {need: reason for site in sites for need, reason in site.missing.items()}
        if len({site.heads for site in sites}) > 1:
            missing["equal-heads"] = "Its layers have different numbers of heads."
        missing |= by_mask(cross=sites[0].kind == "cross", causal=any(site.causal for site in sites))
        return {need: reason for need, reason in missing.items() if need in CAPABILITIES}

    def place(self, kind: Kind, layer: int) -> Site:
        """The place of one layer. Raises Unknown."""
        for site in self.of(kind):
            if site.layer == layer:
                return site
        raise Unknown("layer", f"The model does not attend in layer {layer}.", pointer="/layers")


def norm_at(module: Any, form: NormForm, summed: Tensor) -> Norm:
    """A normalisation module at the statistics of `summed` [Q, d]."""
    variance = summed.var(-1, unbiased=False) if form.centred else summed.square().mean(-1)
    gain = module.weight + 1 if form.plus_one else module.weight
    shift = getattr(module, "bias", None)
    shift = gain.new_zeros(gain.shape) if shift is None else shift
    return Norm(gain, shift, (variance + form.epsilon).rsqrt(), form.centred)


def head_weights(module: Any, part: HeadProjection, heads: int) -> Tensor:
    """The rows of a linear module's matrix that make a head's query or key: [H, d, D']."""
    import torch

    rows = matrix(module)
    pieces = [
        rows[part.offset + head * part.stride : part.offset + head * part.stride + part.width] for head in range(heads)
    ]
    return torch.stack([piece.mT for piece in pieces])


def split_projection(module: Any, heads: int) -> Tensor:
    """Each head's part of the output projection: [H, D, d]."""
    rows = matrix(module)  # [d, H * D]
    return rows.mT.reshape(heads, -1, rows.shape[0])
