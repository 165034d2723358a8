"""What happens to a logit when one head reads another text's output of another head, and nothing else does."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ..core.declarations import HeadName
from .base import EffectMethod, EffectParams, NeededTexts


class PathPatchingParams(EffectParams):
    """Where the paths end, and which of the two texts is changed."""

    texts: ClassVar[NeededTexts] = {"against": ("direction", ("denoise", "noise"))}

    receiver: HeadName = Field(
        description='The head that reads what is exchanged, as layer.head counted from 0 ("9.6").'
    )
    reads: Literal["query", "key", "value"] = Field(
        default="query", description="What the receiver makes of it; the other two stay."
    )
    direction: Literal["denoise", "noise"] = Field(
        default="denoise",
        description='"denoise" runs the other text with what one head of the text itself sends, and shows how much of the target that restores; "noise" runs the text '
        "with what one head of the other text sends, and shows how much that destroys.",
    )


PATH_PATCHING = EffectMethod(
    name="path-patching",
    title="Direct path patching",
    doc="How much of the difference of a target between two texts goes from one head straight to the query, key or value of another: the receiver reads the "
    "other text's output of the head, everything between stays, and everything after the receiver is computed again.",
    not_="Not all that a head tells another one: what goes through heads or feed-forward parts between them is left out. Not additive.",
    citation="Wang et al. 2023, Interpretability in the Wild, sec. 3.1; Goldowsky-Dill et al. 2023, Localizing Model Behavior with Path Patching",
    params=PathPatchingParams,
    unit="logits",
    needs=("projection", "hidden", "one-text", "equal-heads"),
    activations=12,
)
