"""Plain softmax attention, as the model was trained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..types import Mechanism

if TYPE_CHECKING:
    from torch import Tensor


def attend(scores: Tensor) -> Tensor:
    """Softmax over the keys. scores [..., Q, K] -> weights [..., Q, K], rows sum to 1; masked scores are the type's minimum and become 0."""
    return scores.softmax(-1)


SOFTMAX = Mechanism(
    name="softmax",
    title="Softmax",
    doc="Softmax of the scaled dot products, as the model was trained.",
    not_="Not a change of the model: its outputs are exactly what they are without Headscope.",
    citation="Vaswani et al. 2017, Attention Is All You Need, eq. 1",
    range=(0.0, 1.0),
    attend=attend,
)
