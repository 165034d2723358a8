"""What each method for effects computes, of an input whose heads are judged by a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import JudgedInput, Means, MethodResult, Score, Step, Together
from .contribution import alti_logit, direct_contribution
from .gradients import attribution_patching, dual_path_attribution, gradient_attention, integrated_gradients
from .replacement import ablation, patching, path_patching
from .score import score

# Name of a method -> what computes it.
COMPUTE: dict[str, Callable[[JudgedInput, Any], MethodResult]] = {
    "contribution": direct_contribution,
    "ablation": ablation,
    "patching": patching,
    "path-patching": path_patching,
    "attribution-patching": attribution_patching,
    "gradient-attention": gradient_attention,
    "integrated-gradients": integrated_gradients,
    "dual-path": dual_path_attribution,
    "alti-logit": alti_logit,
    "score": score,
}


__all__ = ["COMPUTE", "JudgedInput", "Means", "MethodResult", "Score", "Step", "Together"]
