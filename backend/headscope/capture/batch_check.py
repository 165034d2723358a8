"""Verification that a batch gives each input the same results as on its own, on a short probe, once per loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from torch import Tensor

from ..core.attention import Layer
from ..models.loading import Model
from ..models.tokens import Encoded
from .check import examine, main_output
from .closeness import is_close, tolerance
from .forward import capture_many
from .recording import INPUT_ERRORS, CaptureSpec, ModelInput
from .sites import AttentionSites

# Model -> dtype -> the sites it had, and the answer.
_known: WeakKeyDictionary[Model, dict[str, tuple[AttentionSites, bool]]] = WeakKeyDictionary()


def batches_exactly(model: Model, dtype: str = "float32") -> bool:
    """Return whether inputs of equal length may share a forward pass: two different ones, computed in `dtype`, give the same as each alone within `tolerance`.

    False for models that read anything but one text, and for those whose attention cannot be captured.
    """
    with model.lock:
        known, sites = _known.setdefault(model, {}), examine(model, dtype)
        if dtype not in known or known[dtype][0] is not sites:
            with model.using(dtype):
                known[dtype] = sites, _check(model, sites)
        return known[dtype][1]


def _check(model: Model, sites: AttentionSites) -> bool:
    if model.facts.kind not in ("encoder", "decoder") or not sites.captured:
        return False
    if any(site.rounding for site in sites.all):
        return False  # a quantised layer may choose how it rounds by all inputs of a pass
    probes = [model.probe(seed) for seed in (0, 1)]
    try:
        together = _record(model, sites, probes)
        alone = [_record(model, sites, [probe])[0] for probe in probes]
    except INPUT_ERRORS:  # a model may raise anything about a batch
        return False
    limit = tolerance(model.module.dtype)
    return all(
        is_close(ours, theirs, limit)
        for row, expected in zip(together, alone, strict=True)
        for ours, theirs in zip(row, expected, strict=True)
    )


def _record(model: Model, sites: AttentionSites, probes: Sequence[Encoded]) -> list[list[Tensor]]:
    """Return everything that a pass records of each input: weights, outputs, the stream around attention, and the model's output."""
    needs = frozenset({"residual", "hidden"} - sites.missing("self").keys())
    seen = [list[Tensor]() for _ in probes]
    inputs = [ModelInput(probe, _spec(found, needs)) for probe, found in zip(probes, seen, strict=True)]
    output, failures = capture_many(model, inputs, sites)
    for failed in filter(None, failures):
        raise failed
    for found, returned in zip(seen, main_output(output), strict=True):
        found.append(returned)
    return seen


def _spec(found: list[Tensor], needs: frozenset[str]) -> CaptureSpec:
    def heads(layer: Layer) -> None:
        found.append(layer.weights)

    def whole(layer: Layer) -> None:
        stream = layer.stream
        kept = (layer.output, layer.values, layer.query, layer.key, stream.before, stream.projected, stream.after)
        found.extend(one.clone() for one in kept if one is not None)

    return CaptureSpec(heads, whole, needs)
