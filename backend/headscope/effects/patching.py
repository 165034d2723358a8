"""What happens to a logit when a head's output comes from another text, of which the rest of the model is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ..core.lazy import Tensor
from .base import EffectMethod, HeadsParams, NeededTexts


class PatchingParams(HeadsParams):
    """Which heads are exchanged, and which of the two texts is changed."""

    texts: ClassVar[NeededTexts] = {"against": ("direction", ("denoise", "noise"))}

    direction: Literal["denoise", "noise"] = Field(
        default="denoise",
        description='"denoise" runs the other text with one output of the text itself, and shows how much of the target that restores; "noise" runs the text '
        "with one output of the other text, and shows how much that destroys.",
    )


def with_heads_of(written: Tensor, heads: Sequence[Sequence[int]], other: Tensor) -> Tensor:
    """Return a copy of what the output projection is given, [B, Q, H, D], with some heads of `other` [Q or 1, H, D] in each of the B inputs."""
    changed = written.clone()
    for row, some in enumerate(heads):
        for head in some:
            changed[row, :, head] = other[:, head]
    return changed


PATCHING = EffectMethod(
    name="patching",
    title="Patching",
    doc="How much of the difference of a target between two texts one head carries: its output at every token is exchanged for that of the other text, "
    "and everything after it is computed again.",
    not_="Not additive: the effects of all heads do not sum to the difference, and a head that passes on what another one has found counts as much as that one.",
    citation="Vig et al. 2020, Causal Mediation Analysis for Interpreting Neural NLP; Heimersheim & Nanda 2024, How to Use and Interpret Activation Patching",
    params=PatchingParams,
    unit="logits",
    needs=("projection", "hidden", "equal-heads"),
    activations=3,
)
