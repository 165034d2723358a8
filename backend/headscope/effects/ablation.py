"""What happens to a logit without a head: its output is replaced, and the rest of the model is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from ..core.lazy import Tensor
from .base import EffectMethod, HeadsParams, NeededTexts


class AblationParams(HeadsParams):
    """Which heads are replaced, and what replaces their outputs."""

    texts: ClassVar[NeededTexts] = {"reference": ("how", ("reference",))}

    how: Literal["mean", "zero", "reference"] = Field(
        default="mean",
        description='"mean" replaces the output at every token by its mean over the tokens of the text, "zero" by 0, and "reference" by its mean over all tokens '
        "of the reference texts.",
    )


def without_heads(written: Tensor, heads: Sequence[Sequence[int]], mean: bool) -> Tensor:
    """Return a copy of what the output projection is given, [B, Q, H, D], where some heads in each of the B inputs have their mean over the tokens, or 0."""
    changed = written.clone()
    for row, some in enumerate(heads):
        for head in some:
            changed[row, :, head] = written[row, :, head].mean(0) if mean else 0
    return changed


ABLATION = EffectMethod(
    name="ablation",
    title="Ablation",
    doc="How much the target falls without a head: its output is replaced at every token, by its mean over the text or over reference texts, or by 0, "
    "and everything after it is computed again.",
    not_="Not the head's share: effects of single heads do not sum to the target, other heads may compensate, and the model has never seen the replaced output.",
    citation='Michel et al. 2019, Are Sixteen Heads Really Better than One? ("zero"); Wang et al. 2023, Interpretability in the Wild, sec. 2.3 ("mean" and "reference")',
    params=AblationParams,
    unit="logits",
    needs=("projection", "hidden", "equal-heads"),
    activations=2,
)
