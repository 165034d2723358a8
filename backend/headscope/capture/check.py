"""Proof that captured attention is the model's own: a short probe, once per loaded model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..core.attention import Kind, Layer
from ..core.tokens import Axes
from ..errors import HeadscopeError, ModelNotExact, NonFinite
from ..mechanisms.base import Pass
from ..models.loading import Model
from ..models.modules import evaluating
from ..models.support import IMAGE
from ..models.tokens import Encoded
from .forward import capture, quiet, returned
from .interface import NAME, Calls, Masks, implementation, recording
from .recording import CaptureSpec
from .sites import AttentionSites, Site
from .trace import Trace, describe, traced

TOLERANCE = 1e-5
ROUNDINGS = 4  # of the arithmetic's epsilon, where that is more: in half precision

# Model -> type of arithmetic -> the module's structure when it was examined, and what was found.
_known: WeakKeyDictionary[Model, dict[str, tuple[Any, AttentionSites]]] = WeakKeyDictionary()


def examine(model: Model, dtype: str = "float32") -> AttentionSites:
    """Return what the model's attention is made of, proven on a probe computed in `dtype`, and cached while the module's structure stays the same.

    Captured weights and the model's outputs equal those of its eager attention within `tolerance`; where they do not, or nothing can be captured, only
    eager's own weights are offered. Raises ModelNotExact where these are not available or are no weights.
    """
    with model.lock:
        known = _known.setdefault(model, {})
        if dtype not in known or known[dtype][0] != _structure(model.module):
            with model.using(dtype):
                sites = _examine(model)
            # Only now: transformers adds hooks of its own the first time that a model returns its attention.
            known[dtype] = _structure(model.module), sites
        return known[dtype][1]


def _structure(module: Any) -> Any:
    """Return what changes when parts are exchanged or wrapped (adapters), hooks are added, or a forward method is replaced."""
    return [
        (name, type(part), *part._forward_hooks, "|", *part._forward_pre_hooks, "forward" in vars(part))  # noqa: SLF001
        for name, part in module.named_modules()
    ]


def tolerance(module: Any) -> float:
    """Return how far numbers of two equal computations may lie apart: 1e-5, or four roundings of the module's arithmetic."""
    return max(TOLERANCE, ROUNDINGS * torch.finfo(next(module.parameters()).dtype).eps)


def _examine(model: Model) -> AttentionSites:
    encoded = model.probe()
    try:
        with torch.inference_mode(), implementation(model.module, "eager"):
            theirs = model.module(**model.inputs(encoded), **quiet(model), output_attentions=True)
    except HeadscopeError:
        raise
    except Exception as error:  # a model may raise anything about a harmless input
        raise ModelNotExact(
            "The model's own eager attention does not run on a short probe, so nothing can be compared with it."
        ) from error
    found = returned(theirs)
    faults = _faults(found, encoded)
    expected = {kind: maps for kind, maps in found.items() if kind not in faults}
    try:
        return _captured(model, encoded, theirs, expected)
    except ModelNotExact as error:
        if not expected:
            raise ModelNotExact(next(iter(faults.values()), NONE_RETURNED)) from error
        return replace(_fallback(expected, error.detail), faults=faults)


class _Probing:
    """Computes attention and keeps everything: the probe is short."""

    def __init__(self, trace: Trace) -> None:
        self.masks, self.size = Masks(), 1
        self.weights: list[Tensor] = []
        self._trace = trace

    def attend(self, calls: Calls) -> Tensor:
        """Outputs of all heads [1, H, Q, D]."""
        call = calls.one(0)
        scores = call.scores(0, 0, call.key.shape[0])
        weights = Pass().attend(scores)
        output = weights @ call.value.repeat_interleave(call.query.shape[0] // call.key.shape[0], dim=0)
        if not bool(output.isfinite().all()):
            raise NonFinite(
                f"Layer {len(self.weights)} of the model computes NaN or infinity on a short probe; its maps would mean nothing."
            )
        self.weights.append(weights)
        self._trace.note(call, output)
        return output[None]

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Nothing is run again."""
        return None


def _captured(model: Model, encoded: Encoded, theirs: Any, expected: dict[Kind, list[Tensor]]) -> AttentionSites:
    with traced(model.module) as trace:
        probing = _Probing(trace)
        try:
            with torch.inference_mode(), implementation(model.module, NAME), recording(probing):
                ours = model.module(**model.inputs(encoded), **quiet(model))
        except NonFinite:
            raise
        except HeadscopeError as error:
            raise ModelNotExact(error.detail) from error
        except Exception as error:  # a model that can't take an attention function raises whatever it likes
            raise ModelNotExact("This model's attention can't be replaced by a function.") from error
    if not probing.weights:
        raise ModelNotExact("This model's attention does not go through transformers' AttentionInterface.")
    sites = _matched(model, encoded, trace, probing.weights, expected)
    if not close(main(ours), main(theirs), max(10 * TOLERANCE, 2 * tolerance(model.module))):
        raise ModelNotExact("Capturing its attention changes what this model computes.")
    with torch.inference_mode(), evaluating(model.module):
        sites = [describe(site, trace, index, model.module) for index, site in enumerate(sites)]
    return _replayable(model, encoded, AttentionSites(tuple(sites), captured=True))


def _matched(
    model: Model,
    encoded: Encoded,
    trace: Trace,
    weights: list[Tensor],
    expected: dict[Kind, list[Tensor]],
) -> list[Site]:
    """Every call of the attention function beside the weights that eager returned for it."""
    names = {id(part): name for name, part in model.module.named_modules()}
    left = {kind: list(maps) for kind, maps in expected.items()}
    limit, sites = tolerance(model.module), list[Site]()
    for attended, ours in zip(trace.attended, weights, strict=True):
        kind = next(
            (
                k
                for k, maps in left.items()
                if maps and maps[0].shape[1:] == ours.shape and close(ours, maps[0][0], limit)
            ),
            None,
        )
        if kind is None:
            raise ModelNotExact(
                f"What is captured at its attention number {len(sites)} is not what the model itself returns."
            )
        left[kind].pop(0)
        attended.kind = kind
        call = attended.call
        missing = {} if encoded.pixels is None else dict(IMAGE)
        if call.sink is not None:
            missing["distribution"] = "A learned sink takes a share of every row, so rows sum to less than 1."
        if call.mask.keys.rule == "mask":
            missing["bidirectional"] = "Its layers hide tokens that are far away."
        causal = (
            call.mask.keys.rule != "all"
            and kind != "cross"
            and not bool(call.mask.keys.allowed(*ours.shape[1:]).triu(1).any())
        )
        sites.append(
            Site(kind, 0, ours.shape[0], call.value.shape[-1], causal, names.get(id(call.module)), missing=missing)
        )
    if any(left.values()):
        raise ModelNotExact("Not every layer of this model attends in a way that can be captured.")
    return _numbered(
        sites, {name for name, part in model.module.named_modules() if isinstance(part, torch.nn.ModuleList)}
    )


def _numbered(sites: list[Site], lists: set[str]) -> list[Site]:
    """Layers by their number among the model's layers, where some do not attend; by order where layers are shared."""
    numbers: dict[Kind, list[int]] = {}
    for site in sites:
        parts = str(site.module).split(".")
        place = next((int(parts[i + 1]) for i in range(len(parts) - 1) if ".".join(parts[: i + 1]) in lists), -1)
        numbers.setdefault(site.kind, []).append(place)
    rising = {kind: found[0] >= 0 and all(a < b for a, b in pairwise(found)) for kind, found in numbers.items()}
    counted: dict[Kind, int] = {}
    result = []
    for site in sites:
        count = counted.get(site.kind, 0)
        counted[site.kind] = count + 1
        result.append(replace(site, layer=numbers[site.kind][count] if rising[site.kind] else count))
    return result


def _replayable(model: Model, encoded: Encoded, sites: AttentionSites) -> AttentionSites:
    """Every layer is run again with its own outputs, as a batch of two: what comes out must be what came out."""
    missing: dict[int, str] = {}
    limit = max(10 * TOLERANCE, 2 * tolerance(model.module))
    for kind in dict.fromkeys(site.kind for site in sites.all):
        places = sites.of(kind)
        if any("hidden" in site.missing for site in places):
            continue

        def run_again(layer: Layer, kind: Kind = kind) -> None:
            site, stream = sites.place(kind, layer.index), layer.stream
            try:
                if stream.replay is None or stream.after is None:
                    raise ModelNotExact("no stream")
                twice = stream.replay(layer.output.expand(2, *layer.output.shape))
                if not all(close(one, stream.after, limit) for one in twice):
                    missing[id(site)] = "Its layers do not give the same again when they are run a second time."
            except Exception:  # noqa: BLE001 - whatever a layer raises about a batch it was not made for
                missing[id(site)] = "Its layers can't be run a second time on their own."

        capture(
            model, encoded, sites, CaptureSpec(lambda layer: None, run_again, frozenset({"hidden", "replay"})), kind
        )
    replayable = [
        replace(site, missing={**site.missing, "replay": missing[id(site)]}) if id(site) in missing else site
        for site in sites.all
    ]
    return replace(sites, all=tuple(replayable))


def _fallback(expected: dict[Kind, list[Tensor]], reason: str) -> AttentionSites:
    """Only the weights that eager returns."""
    missing = dict.fromkeys(
        ("capture", "values", "scores", "projection", "residual", "hidden", "replay", "bilinear", "padding"), reason
    )
    sites = []
    for kind, maps in expected.items():
        for index, weights in enumerate(maps):
            causal = kind != "cross" and weights.shape[2] > 1 and not bool(weights.triu(1).any())
            sites.append(Site(kind, index, weights.shape[1], 0, causal, missing=dict(missing)))
    return AttentionSites(tuple(sites), captured=False)


NONE_RETURNED = (
    "This model does not return one attention weight for every pair of tokens, so nothing can be compared with it."
)


def _faults(found: dict[Kind, list[Tensor]], encoded: Encoded) -> dict[Kind, str]:
    """Return the kinds of attention for which a layer returned something other than weights over the tokens of the input, and what is wrong."""
    each = {kind: [_fault(weights, encoded.axes(kind)) for weights in maps] for kind, maps in found.items()}
    return {kind: next(filter(None, faults)) for kind, faults in each.items() if any(faults)}


def _fault(weights: Tensor, axes: Axes) -> str | None:
    """Return why this is not [1, H, Q, K], finite, not negative, with rows that sum to at most 1 (two roundings of its type aside); None if it is."""
    if weights.dim() != 4 or weights.shape[0] != 1 or weights.shape[2:] != (len(axes.queries), len(axes.keys)):
        return NONE_RETURNED
    if not bool(weights.isfinite().all()):
        return "The attention weights that this model returns on a short probe hold NaN or infinity."
    most = 1 + max(1e-3, 2 * torch.finfo(weights.dtype).eps)
    if bool((weights < 0).any()) or bool((weights.double().sum(-1) > most).any()):
        return "What this model returns as its attentions are no weights: entries are negative, or rows sum to more than 1."
    return None


def main(output: Any) -> Tensor:
    """What the model is for: its logits, or else the first thing that it returns."""
    logits = getattr(output, "logits", None)
    result: Tensor = output[0] if logits is None else logits
    return result


def close(ours: Tensor, theirs: Tensor, limit: float) -> bool:
    """Return whether two tensors have one shape and differ by `limit` at most, relative to the largest entry if that is above 1."""
    if ours.shape != theirs.shape:
        return False
    scale = max(1.0, theirs.abs().max().item())
    return bool((ours - theirs).abs().max().item() <= limit * scale)
