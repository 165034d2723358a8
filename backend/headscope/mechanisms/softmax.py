"""Plain softmax attention, as in nearly every model's training."""

from __future__ import annotations

from typing import Any

from .base import Mechanism, Pass, PassContext


def begin(params: Any, context: PassContext) -> Pass:
    """Return the pass that changes nothing."""
    return Pass()


SOFTMAX = Mechanism(
    name="softmax",
    title="Softmax",
    doc="Softmax of the scaled dot products, with which nearly every model was trained.",
    not_="Not a change of the model: its outputs are exactly what they are without Headscope.",
    citation="Vaswani et al. 2017, Attention Is All You Need, eq. 1",
    range=(0.0, 1.0),
    begin=begin,
)
