"""What heads do to a target: one file per method and one line per method here. This package knows neither models nor files."""

from __future__ import annotations

from .ablation import ABLATION
from .alti_logit import ALTI_LOGIT
from .attribution_patching import ATTRIBUTION_PATCHING
from .base import EffectMethod
from .contribution import CONTRIBUTION
from .dual_path import DUAL_PATH
from .gradient_attention import GRADIENT_ATTENTION
from .integrated_gradients import INTEGRATED_GRADIENTS
from .patching import PATCHING
from .path_patching import PATH_PATCHING
from .score import SCORE

EFFECTS: dict[str, EffectMethod] = {
    effect.name: effect
    for effect in (
        CONTRIBUTION,
        ABLATION,
        PATCHING,
        PATH_PATCHING,
        ATTRIBUTION_PATCHING,
        GRADIENT_ATTENTION,
        INTEGRATED_GRADIENTS,
        DUAL_PATH,
        ALTI_LOGIT,
        SCORE,
    )
}

__all__ = ["EFFECTS"]
