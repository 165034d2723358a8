"""Proof that inputs which go through a model together come out as they do alone: a short probe, once per loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from torch import Tensor

from ..core.attention import Layer
from ..models.loading import Model
from ..models.tokens import Encoded
from .check import close, examine, main, tolerance
from .forward import capture_many
from .recording import FAULTS, CaptureSpec, ModelInput
from .sites import AttentionSites

# Model -> type of arithmetic -> the sites it had then, and the answer.
_known: WeakKeyDictionary[Model, dict[str, tuple[AttentionSites, bool]]] = WeakKeyDictionary()


def batches_exactly(model: Model, dtype: str = "float32") -> bool:
    """Return whether inputs of equal length may share a forward pass: computed in `dtype`, two different ones give together what each gives alone, within `tolerance`.

    Only of models that read one text and whose attention is captured.
    """
    with model.lock:
        known, sites = _known.setdefault(model, {}), examine(model, dtype)
        if dtype not in known or known[dtype][0] is not sites:
            with model.using(dtype):
                known[dtype] = sites, _separate(model, sites)
        return known[dtype][1]


def _separate(model: Model, sites: AttentionSites) -> bool:
    if model.facts.kind not in ("encoder", "decoder") or not sites.captured:
        return False
    probes = [model.probe(seed) for seed in (0, 1)]
    try:
        together = _seen(model, sites, probes)
        alone = [_seen(model, sites, [probe])[0] for probe in probes]
    except FAULTS:  # whatever a model raises about a batch it was not made for
        return False
    limit = tolerance(model.module)
    return all(
        close(ours, theirs, limit)
        for row, expected in zip(together, alone, strict=True)
        for ours, theirs in zip(row, expected, strict=True)
    )


def _seen(model: Model, sites: AttentionSites, probes: Sequence[Encoded]) -> list[list[Tensor]]:
    """For every input all that a pass shows of it: weights, outputs, the stream around attention, and what the model returns."""
    needs = frozenset({"residual", "hidden"} - sites.missing("self").keys())
    seen = [list[Tensor]() for _ in probes]
    inputs = [ModelInput(probe, _showing(found, needs)) for probe, found in zip(probes, seen, strict=True)]
    output, failures = capture_many(model, inputs, sites)
    for failed in filter(None, failures):
        raise failed
    for found, returned in zip(seen, main(output), strict=True):
        found.append(returned)
    return seen


def _showing(found: list[Tensor], needs: frozenset[str]) -> CaptureSpec:
    def heads(layer: Layer) -> None:
        found.append(layer.weights)

    def whole(layer: Layer) -> None:
        stream = layer.stream
        kept = (layer.output, layer.values, layer.query, layer.key, stream.before, stream.projected, stream.after)
        found.extend(one.clone() for one in kept if one is not None)

    return CaptureSpec(heads, whole, needs)
