"""What follows from gradients: an estimate of patching or ablation, and maps of heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...capture.attention_path import gradients_on_path
from ...capture.dual_path import dual_path
from ...capture.outputs import (
    AttentionGradients,
    gradients_of_attention,
    gradients_of_heads,
)
from ...core.lazy import Tensor, torch
from ...effects import EFFECTS
from ...effects.attribution_patching import AttributionPatchingParams, estimated_gains, own_replacement
from ...effects.base import EffectParams
from ...effects.gradient_attention import GradientAttentionParams, attributions, with_sign
from ...effects.integrated_gradients import IntegratedGradientsParams, places_on_path
from ...errors import NonFinite
from ..target import target_value
from .base import NOT_FINITE, JudgedInput, MethodResult, check_sum
from .replacement import between_texts

NOT_DUAL = (
    "Dual Path Attribution is defined for models that are made of linear maps, normalisations, activations, products of two of these, and attention. "
    "This model has other parts, such as experts or gates on the outputs of its heads."
)


def attribution_patching(judged: JudgedInput, params: AttributionPatchingParams) -> MethodResult:
    """Return an estimate of the effects of patching or ablation."""
    if params.of == "mean" or params.of == "zero":
        return _estimated(judged, lambda _, written: own_replacement(written, params.of == "mean"), -1)
    return between_texts(judged, params.of, lambda one, outputs, sign: _estimated(one, lambda n, _: outputs[n], sign))


def _estimated(judged: JudgedInput, replacement: Callable[[int, Tensor], Tensor], sign: int) -> MethodResult:
    """Return `sign` times an estimate of what the target gains when the output of each head is replaced, given the number of its layer and the output."""
    found = gradients_of_heads(*judged.arguments)
    pairs = zip(found.written, found.gradients, strict=True)
    rows = [estimated_gains(one, slope, replacement(site, one)) for site, (one, slope) in enumerate(pairs)]
    effects = sign * torch.stack(rows).cpu().numpy()
    if not np.isfinite(effects).all():
        raise NonFinite(NOT_FINITE)
    return MethodResult(found.ids, target_value(found.logits, found.ids), found.logits, effects.astype(np.float32))


def gradient_attention(judged: JudgedInput, params: GradientAttentionParams) -> MethodResult:
    """Return a map of every head, and its sum."""
    return _mapped(gradients_of_attention(*judged.arguments), lambda maps: with_sign(maps, params.sign))


def integrated_gradients(judged: JudgedInput, params: IntegratedGradientsParams) -> MethodResult:
    """Return a map of every head, and its sum. The sums of a layer are compared with what the target loses without its attention."""
    at_once = EFFECTS["integrated-gradients"].tokens
    path = gradients_on_path(*judged.arguments, places_on_path(params.steps), at_once, judged.begin)
    found = _mapped(path, lambda maps: maps)
    error = found.effects.sum(1, dtype=float) - path.gains
    return replace(found, completeness_error=error.astype(np.float32))


def dual_path_attribution(judged: JudgedInput, params: EffectParams) -> MethodResult:
    """Return a map of every head on the dual paths. Raises Unsupported for models with parts that lose some of the target there."""
    found = dual_path(*judged.arguments)
    check_sum(found.value, {"terms": found.terms.cpu().numpy()}, NOT_DUAL)
    return replace(_mapped(found, lambda maps: maps), value=found.value, capped=found.capped)


def _mapped(found: AttentionGradients, change: Callable[[Tensor], Tensor]) -> MethodResult:
    """Return each head's weights times their gradients, changed by `change`, and their sums. Takes the weights out of `found`."""
    maps = np.empty((len(found.heads), *found.heads[0].weights.shape), np.float32)
    for number, gradient in enumerate(found.gradients):
        heads = found.heads.pop(0)  # whose weights would double the memory
        maps[number] = change(attributions(heads.weights, heads.values, gradient)).cpu().numpy()
    effects = maps.sum((2, 3), dtype=float)
    if not np.isfinite(effects).all():
        raise NonFinite(NOT_FINITE)
    value = target_value(found.logits, found.ids)
    return MethodResult(found.ids, value, found.logits, effects.astype(np.float32), maps=maps)
