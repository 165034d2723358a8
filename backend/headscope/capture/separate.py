"""Proof that inputs which go through a model together come out as they do alone: a short probe, once per loaded model."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..models.loading import Model
from ..models.tokens import Encoded
from ..types import Layer
from .anatomy import Anatomy
from .check import TOLERANCE, close, examine, main
from .passes import capture_many
from .recording import FAULTS, Input, Wanted

_known: WeakKeyDictionary[Model, bool] = WeakKeyDictionary()


def separate(model: Model) -> bool:
    """Whether inputs of equal length may share a forward pass: two different ones give together, within 1e-5, what each gives alone.

    Only of models that read one text and whose attention is captured.
    """
    if model not in _known:
        with model.lock:
            _known[model] = _separate(model, examine(model))
    return _known[model]


def _separate(model: Model, anatomy: Anatomy) -> bool:
    if model.facts.kind not in ("encoder", "decoder") or not anatomy.captured:
        return False
    probes = [model.probe(seed) for seed in (0, 1)]
    try:
        together = _seen(model, anatomy, probes)
        alone = [_seen(model, anatomy, [probe])[0] for probe in probes]
    except FAULTS:  # whatever a model raises about a batch it was not made for
        return False
    eps = torch.finfo(next(model.module.parameters()).dtype).eps
    tolerance = TOLERANCE / 10 * max(1.0, eps / torch.finfo(torch.float32).eps)
    return all(
        close(ours, theirs, tolerance)
        for row, expected in zip(together, alone, strict=True)
        for ours, theirs in zip(row, expected, strict=True)
    )


def _seen(model: Model, anatomy: Anatomy, probes: Sequence[Encoded]) -> list[list[Tensor]]:
    """For every input all that a pass shows of it: weights, outputs, the stream around attention, and what the model returns."""
    needs = frozenset({"residual", "hidden"} - anatomy.lacks("self").keys())
    seen = [list[Tensor]() for _ in probes]
    inputs = [Input(probe, _showing(found, needs)) for probe, found in zip(probes, seen, strict=True)]
    output, failures = capture_many(model, inputs, anatomy)
    for failed in filter(None, failures):
        raise failed
    for found, returned in zip(seen, main(output), strict=True):
        found.append(returned)
    return seen


def _showing(found: list[Tensor], needs: frozenset[str]) -> Wanted:
    def heads(layer: Layer) -> None:
        found.append(layer.weights)

    def whole(layer: Layer) -> None:
        stream = layer.stream
        kept = (layer.output, layer.values, layer.query, layer.key, stream.before, stream.projected, stream.after)
        found.extend(one.clone() for one in kept if one is not None)

    return Wanted(heads, whole, needs)
