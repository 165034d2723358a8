"""What heads do to a target: one file per method and one line per method here. This package knows neither models nor files."""

from __future__ import annotations

from .ablation import ABLATION
from .attribution_patching import ATTRIBUTION_PATCHING
from .base import EffectMethod
from .contribution import CONTRIBUTION
from .patching import PATCHING

EFFECTS: dict[str, EffectMethod] = {
    effect.name: effect for effect in (CONTRIBUTION, ABLATION, PATCHING, ATTRIBUTION_PATCHING)
}

__all__ = ["EFFECTS"]
