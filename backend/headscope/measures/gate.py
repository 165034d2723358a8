"""The gate on a head's output: how far it is open, or how much of it is closed, for every query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from ..core.attention import Layer, Reading
from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..errors import Unsupported
from ._maps import nothing
from .base import Measure

CLOSED = 0.1


class GateParams(Params):
    """How the numbers of a gate are summarised."""

    of: Literal["size", "closed"] = Field(
        default="size",
        description="The mean size of the gate over the dimensions of the head, or the share of dimensions in which it is below 0.1.",
    )


def compute(layer: Layer, lens: str, readings: Mapping[str, Reading], params: GateParams) -> Tensor:
    """Return the mean of |g_i| over the dimensions of the head, or the share of them where |g_i| < 0.1, [H, Q]. Raises Unsupported without a gate."""
    if layer.gate is None:
        raise Unsupported("The outputs of this model's heads are not gated, so this measure is not available.")
    sizes = layer.gate.abs().to(torch.promote_types(layer.gate.dtype, torch.float32))
    return (sizes if params.of == "size" else (sizes < CLOSED).to(sizes.dtype)).mean(-1)


GATE = Measure(
    name="gate",
    title="Gate",
    doc="How far the gate on a head's output is open at a query: the mean size of what multiplies the output, over the dimensions of the head, or the share "
    "of dimensions that are nearly closed. 0 is a head that is switched off for this token; a sigmoid gate is 1 at most.",
    not_="Not attention, and not how much the head writes: an open gate on a short output passes little. The gate depends on the query alone, not on the keys.",
    citation="Qiu et al. 2025, Gated Attention for Large Language Models (a sigmoid after attention, of one number per dimension or per head); the threshold is ours",
    params=GateParams,
    range=(0.0, None),
    shape="L H Q",
    needs=("gate",),
    phrases={
        "": ("gate", "gates", "open gate", "output gate", "gated attention"),
        "-": ("closed gate", "switched off by its gate"),
    },
    compute=compute,
    looks=nothing,
)
