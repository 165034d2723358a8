"""What happens when outputs of heads are replaced: ablation, patching, and patching of single paths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ...capture import replaced_logits
from ...capture.outputs import mean_outputs, outputs_of_heads
from ...capture.path_patching import path_logits
from ...capture.replaced import ReplacedLogits
from ...core.arrays import Array
from ...core.attention import required
from ...core.lazy import Tensor, torch
from ...effects.ablation import AblationParams, without_heads
from ...effects.patching import PatchingParams, with_heads_of
from ...effects.path_patching import PathPatchingParams
from ...errors import InvalidRequest, NonFinite
from ...models.loading import Model
from ...models.tokens import Encoded
from ..predictions import Predictions, top_predictions
from ..target import target_value
from .base import NOT_FINITE, JudgedInput, MethodResult, Together, chosen_heads

PREDICTIONS = 10  # that are shown before and after heads are replaced


def ablation(judged: JudgedInput, params: AblationParams) -> MethodResult:
    """Return by how much the target falls without each head."""
    means = _reference_means(judged)

    def change(site: int, written: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
        judged.begin(site)
        if means:
            return with_heads_of(written, heads, means[site])
        return without_heads(written, heads, params.how == "mean")

    return _replaced(judged, change, judged.ids, params.heads, -1)


def _reference_means(judged: JudgedInput) -> list[Tensor]:
    """Return the mean outputs of the heads in the reference texts, [1, H, D] per layer, which are read once; none without such texts."""
    texts = tuple(tuple(one.id for side in (of.tokens, of.target or []) for one in side) for of in judged.reference)
    known = judged.kind, judged.position is None, texts
    if known not in judged.means:
        judged.means.clear()
        judged.means[known] = _means_of(judged)
    return judged.means[known]


def _means_of(judged: JudgedInput) -> list[Tensor]:

    def texts() -> Iterator[Encoded]:
        for encoded in judged.reference:
            judged.step(0.0)
            yield encoded

    position = None if judged.position is None else 0
    return mean_outputs(judged.model, texts(), judged.sites, judged.kind, position)


def patching(judged: JudgedInput, params: PatchingParams) -> MethodResult:
    """Return how much of the target each head restores in the other text, or destroys in the text itself."""

    def compute(changed: JudgedInput, outputs: list[Tensor], sign: int) -> MethodResult:
        def exchange(site: int, written: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
            judged.begin(site)
            return with_heads_of(written, heads, outputs[site])

        return _replaced(changed, exchange, changed.ids, params.heads, sign)

    return between_texts(judged, params.direction, compute)


def path_patching(judged: JudgedInput, params: PathPatchingParams) -> MethodResult:
    """Return how much of the target the receiver restores in the other text, or destroys in the text itself, when it reads each earlier head of the other one."""
    ((receiver, (head,)),) = required(chosen_heads(judged, [params.receiver], "/method/receiver")).items()
    if receiver == 0:
        raise InvalidRequest("There are no earlier heads that this head could read.", pointer="/method/receiver")

    def compute(changed: JudgedInput, outputs: list[Tensor], sign: int) -> MethodResult:
        def exchange(site: int, written: Tensor, heads: Sequence[Sequence[int]]) -> Tensor:
            judged.begin(site)
            return with_heads_of(written, heads, outputs[site])

        args = (changed.model, changed.encoded, changed.sites, changed.kind, exchange, changed.ids, changed.position)
        found = path_logits(*args, (receiver, head), params.reads)
        return MethodResult(found.ids, target_value(found.logits, found.ids), found.logits, _gains(found, sign))

    return between_texts(judged, params.direction, compute)


def between_texts(
    judged: JudgedInput,
    direction: Literal["denoise", "noise"],
    compute: Callable[[JudgedInput, list[Tensor], int], MethodResult],
) -> MethodResult:
    """Return what `compute` finds in the text that is changed, given what the heads write in the one that is not, and the sign of an effect."""
    other = required(judged.other)
    _check_aligned(judged.encoded, other)
    denoise = direction == "denoise"
    source, changed = (judged, replace(judged, encoded=other)) if denoise else (replace(judged, encoded=other), judged)
    outputs = outputs_of_heads(source.model, source.encoded, source.sites, source.kind, source.position)
    ids = judged.ids or ([int(outputs.logits.argmax())] if denoise else [])
    found = compute(replace(changed, ids=ids), outputs.written, 1 if denoise else -1)
    far = target_value(outputs.logits, found.ids)
    own, base = (far, found.value) if denoise else (found.value, far)
    return replace(found, value=own, logits=outputs.logits if denoise else found.logits, baseline=base)


def _check_aligned(encoded: Encoded, other: Encoded) -> None:
    """Raise InvalidRequest unless two inputs have equally many tokens on each side."""
    counts = [[len(one.tokens), len(one.target or [])] for one in (encoded, other)]
    if counts[0] != counts[1]:
        raise InvalidRequest(
            "Patching exchanges outputs token by token, so both texts must have the same number of tokens. "
            f"They have {sum(counts[0])} and {sum(counts[1])}.",
            pointer="/against",
        )


def _replaced(judged: JudgedInput, change: Any, ids: list[int], heads: Sequence[str], sign: int) -> MethodResult:
    """Return `sign` times what the target gains when each head is replaced, and what it gains when the named heads are replaced together."""
    args, chosen = (judged.model, judged.encoded, judged.sites, judged.kind), chosen_heads(judged, heads)
    found = replaced_logits(*args, change, ids, judged.position, chosen)
    effects, value = _gains(found, sign), target_value(found.logits, found.ids)
    if np.isfinite(effects).sum() != (effects.size if chosen is None else sum(map(len, chosen.values()))):
        raise NonFinite(NOT_FINITE)
    together = None
    if found.together is not None:
        joint = sign * (target_value(found.together, found.ids) - value)
        before, after = (_predictions(judged.model, one, PREDICTIONS) for one in (found.logits, found.together))
        together = Together(tuple(heads), joint, before, after)
    return MethodResult(found.ids, value, found.logits, effects, together=together)


def _gains(found: ReplacedLogits, sign: int) -> Array:
    """Return `sign` times what the target gains with each head replaced, [L, H]."""
    rows = torch.stack(found.replaced).double().cpu()  # [L, H, ids]
    gained = (rows[..., 0] - rows[..., 1:].sum(-1)).numpy() - target_value(found.logits, found.ids)
    return (sign * gained).astype(np.float32)


def _predictions(model: Model, logits: Tensor, count: int) -> Predictions:
    return top_predictions(model, logits.float().cpu().numpy(), count)
