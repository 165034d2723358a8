"""Verification that captured attention is the model's own, on a short probe, once per loaded model."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..core.attention import Kind, Layer
from ..core.tokens import Axes
from ..errors import HeadscopeError, ModelNotExact, NonFinite
from ..mechanisms.base import Pass
from ..models import free_memory
from ..models.loading import DTYPES, Model
from ..models.modules import is_out_of_memory
from ..models.parts import every_part
from ..models.support import IMAGE
from ..models.tokens import Encoded
from ..models.widening import widen_at_once
from .absent_weights import watched
from .closeness import TOLERANCE, is_close, tolerance
from .describe import describe_site
from .forward import capture, forward_options, returned_weights
from .interface import NAME, AttentionCall, Masks, attending_with, recording
from .patch_check import boxes_hold
from .recording import CaptureSpec
from .sites import AttentionSites, Site
from .token_map import find_unembedding
from .trace import Trace, block_of, trace_modules

# Largest difference for quantised models: four roundings of bfloat16, in which most of them compute.
QUANTISED_TOLERANCE = 2**-6

# Model -> dtype, and whether with an image -> the module's structure when it was examined, and the result.
_known: WeakKeyDictionary[Model, dict[tuple[str, bool], tuple[Any, AttentionSites]]] = WeakKeyDictionary()


def examine(model: Model, dtype: str = "float32", pictured: bool = False) -> AttentionSites:
    """Return the model's attention sites, verified on a probe computed in `dtype`; cached while the module's structure stays the same.

    `pictured` verifies a vision-language model on an image and a text, where its masks may differ.

    Captured weights and the model's outputs equal those of its eager attention within `tolerance`, those of a quantised model within QUANTISED_TOLERANCE. Otherwise
    only the weights that eager attention returns are offered. Raises ModelNotExact if there are none.
    """
    with model.lock:
        known, key = _known.setdefault(model, {}), (dtype, pictured)
        if key not in known or known[key][0] != _structure(model.module):
            sites = _examined(model, dtype, pictured)
            sites = replace(sites, quantised_by=model.quantised_by)
            # Not earlier: transformers adds hooks of its own the first time that a model returns its attention.
            known[key] = _structure(model.module), sites
            free_memory.release()  # of the probe, which needs more than an analysis of a short text
        return known[key][1]


def _examined(model: Model, dtype: str, pictured: bool) -> AttentionSites:
    """Return the sites. A large model may need its weights outside of the modules that hold them: if it fails, they are widened at once.

    That takes more memory, so it is no answer to a lack of it.
    """
    try:
        with model.using(dtype):
            sites = _examine(model, pictured)
            if pictured:
                sites = replace(sites, located=boxes_hold(model, sites))
        if sites.captured or not widen_at_once(model.module, DTYPES[dtype]):
            return sites
    except (HeadscopeError, RuntimeError) as error:
        if is_out_of_memory(error.__cause__ or error) or not widen_at_once(model.module, DTYPES[dtype]):
            raise
    return _examined(model, dtype, pictured)


def _structure(module: Any) -> Any:
    """Return a value that changes when parts are replaced or wrapped (adapters), hooks are added, or a forward method is replaced."""
    return [
        (type(part), *part._modules, "|", *part._forward_hooks, "|", *part._forward_pre_hooks, "forward" in vars(part))  # noqa: SLF001
        for part in every_part(module)
    ]


def _examine(model: Model, pictured: bool) -> AttentionSites:
    encoded = model.probe(pictured=pictured)
    try:
        with torch.inference_mode(), attending_with("eager", model.module), watched(model.module):
            theirs = model.module(**model.inputs(encoded), **forward_options(model), output_attentions=True)
    except HeadscopeError:
        raise
    except Exception as error:  # a model may raise anything
        package = model.quantised_by
        raise ModelNotExact(
            f"The layers of this model that are quantised by {package} fail on this machine, or the model's eager attention does. Check the package's installation."
            if package
            else "The model fails on a short probe with its eager attention, so captured weights cannot be verified."
            + (" Some of its parts may not run in float64." if model.module.dtype == torch.float64 else "")
        ) from error
    found = returned_weights(theirs)
    faults = _faults(found, encoded, model)
    expected = {kind: maps for kind, maps in found.items() if kind not in faults}
    try:
        return replace(_captured(model, encoded, theirs, expected), faults=faults)
    except ModelNotExact as error:
        if not expected:
            raise ModelNotExact(next(iter(faults.values()), NONE_RETURNED)) from error
        return replace(_fallback(expected, error.detail), faults=faults)


class _ProbeRecorder:
    """A recorder that keeps all weights: the probe is short."""

    def __init__(self, trace: Trace, home: torch.device) -> None:
        self.masks, self.size, self.home = Masks(), 1, home
        self.weights: list[Tensor] = []
        self._trace = trace

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [1, H, Q, D]."""
        groups = call.key.shape[1]
        weights = Pass().attend(call.scores(0, 0, groups))  # [H, Q, K]
        output = weights @ call.shared(call.value, 0, groups)  # [H, Q, D]
        if not bool(output.isfinite().all()):
            raise NonFinite(
                f"Layer {len(self.weights)} of the model computes NaN or infinity on a short probe, so its maps would be meaningless."
            )
        self.weights.append(weights)
        self._trace.add(call, output)
        return output[None]

    def replay(self, query: Tensor, key: Tensor, value: Tensor, rest: dict[str, Any], module: Any) -> Tensor | None:
        """Return None: no layer is run again."""
        return None


def _captured(model: Model, encoded: Encoded, theirs: Any, expected: dict[Kind, list[Tensor]]) -> AttentionSites:
    with trace_modules(model.module, model.device) as trace:
        recorder = _ProbeRecorder(trace, model.device)
        try:
            with torch.inference_mode(), attending_with(NAME, model.module), recording(recorder):
                ours = model.module(**model.inputs(encoded), **forward_options(model))
        except NonFinite:
            raise
        except HeadscopeError as error:
            raise ModelNotExact(error.detail) from error
        except Exception as error:  # a model that cannot take an attention function may raise anything
            raise ModelNotExact("This model's attention cannot be replaced by a function.") from error
    if not recorder.weights:
        raise ModelNotExact("This model's attention does not go through transformers' AttentionInterface.")
    sites = _matched(model, encoded, trace, recorder.weights, expected)
    if not is_close(main_output(ours), main_output(theirs), max(10 * TOLERANCE, 2 * _limit(model))):
        raise ModelNotExact("Capturing its attention changes this model's output.")
    with torch.inference_mode(), attending_with(NAME, model.module):
        sites = [describe_site(site, trace, index) for index, site in enumerate(sites)]
        unembedding = find_unembedding(model.module, trace, sites[-1].block)
    return _replayable(model, encoded, AttentionSites(tuple(sites), captured=True, unembedding=unembedding))


def _limit(model: Model) -> float:
    """Return the largest difference between equal computations: where a quantised layer rounds, two inputs that are almost equal may come out a step apart."""
    return max(tolerance(model.module.dtype), QUANTISED_TOLERANCE if model.quantised_by else 0.0)


def _agrees(call: AttentionCall, ours: Tensor, theirs: Tensor, limit: float) -> bool:
    """Return whether the captured weights [H, Q, K] are those that the model returned. Some models take the share of a learned sink off the output only."""
    return is_close(ours, theirs, limit) or (
        call.sink is not None and is_close(ours / ours.sum(-1, keepdim=True), theirs, limit)
    )


def _difference(index: int, ours: Tensor, before: Tensor | None, left: dict[Kind, list[Tensor]], limit: float) -> str:
    """Return why captured weights are none of those that the model returned; `before` are those of an earlier call of the same module, `left` those to come."""
    if before is not None and is_close(ours, before, limit):
        return "Its layers attend twice with the same weights, each time to half of the values, which Headscope does not support."
    ahead = [maps[0][0] for maps in left.values() if maps]
    joined = (torch.cat([one, other], -1) for one, other in permutations(ahead, 2) if one.shape[:2] == other.shape[:2])
    if any(is_close(ours, one, limit) for one in joined):
        return "Its decoder attends to its own tokens and to the encoder's at once, with weights that sum to 1 over both, which Headscope does not support."
    return f"The weights captured in attention call {index} differ from those that the model itself returns."


def _matched(
    model: Model, encoded: Encoded, trace: Trace, weights: list[Tensor], expected: dict[Kind, list[Tensor]]
) -> list[Site]:
    """Return a site for every call of the attention function, matched by its weights [H, Q, K] with those that eager attention returned."""
    names = {id(part): name for name, part in model.module.named_modules()}
    lists = {name for name, part in model.module.named_modules() if isinstance(part, torch.nn.ModuleList)}
    left = {kind: list(maps) for kind, maps in expected.items()}
    limit, sites = _limit(model), list[Site]()
    for index, (event, ours) in enumerate(zip(trace.attention, weights, strict=True)):
        matching = (kind for kind, maps in left.items() if maps and _agrees(event.call, ours, maps[0][0], limit))
        kind = next(matching, None)
        if kind is None:
            same = index > 0 and trace.attention[index - 1].call.module is event.call.module
            raise ModelNotExact(_difference(index, ours, weights[index - 1] if same else None, left, limit))
        left[kind].pop(0)
        event.kind = kind
        call, keys = event.call, event.call.masks[0].keys
        missing = {} if encoded.pixels is None and encoded.pictured is None else dict(IMAGE)
        if call.sink is not None:
            missing["distribution"] = "A learned sink takes a share of every row, so rows sum to less than 1."
        if keys.rule in ("interval", "mask"):
            missing["bidirectional"] = "Its layers mask distant tokens."
        causal = keys.rule != "all" and kind != "cross" and not bool(keys.allowed(*ours.shape[1:]).triu(1).any())
        name = names.get(id(call.module))
        block = block_of(str(name), lists)
        sites.append(Site(kind, 0, ours.shape[0], call.value.shape[-1], causal, name, block, missing=missing))
    if any(left.values()):
        raise ModelNotExact("Some layers of this model attend in a way that cannot be captured.")
    return _numbered(sites)


def _numbered(sites: list[Site]) -> list[Site]:
    """Number the sites by their layer's index in the model, which may skip layers that do not attend; in order where layers are shared."""
    numbers: dict[Kind, list[int]] = {}
    for site in sites:
        numbers.setdefault(site.kind, []).append(int(site.block.rpartition(".")[2]) if site.block else -1)
    for kind, found in numbers.items():
        if found[0] < 0 or any(a >= b for a, b in pairwise(found)):
            numbers[kind] = list(range(len(found)))
    upcoming = {kind: iter(found) for kind, found in numbers.items()}
    return [replace(site, layer=next(upcoming[site.kind])) for site in sites]


def _replayable(model: Model, encoded: Encoded, sites: AttentionSites) -> AttentionSites:
    """Run every layer again with its own outputs, as a batch of two, and note where the result differs."""
    missing: dict[int, str] = {}
    limit = max(10 * TOLERANCE, 2 * _limit(model))
    for kind in dict.fromkeys(site.kind for site in sites.all):
        by_layer = {site.layer: site for site in sites.of(kind)}
        if any("hidden" in site.missing for site in by_layer.values()):
            continue

        def run_again(layer: Layer, by_layer: dict[int, Site] = by_layer) -> None:
            site, stream = by_layer[layer.index], layer.stream
            try:
                if stream.replay is None or stream.after is None:
                    raise ModelNotExact("no stream")
                twice = stream.replay(layer.output.expand(2, *layer.output.shape))
                if not all(is_close(one, stream.after, limit) for one in twice):
                    missing[id(site)] = "Its layers give different results when they are run again."
            except Exception:  # noqa: BLE001 - a layer may raise anything about a batch
                missing[id(site)] = "Its layers cannot be run again on their own."

        spec = CaptureSpec(lambda layer: None, run_again, frozenset({"hidden", "replay"}))
        capture(model, encoded, sites, spec, kind)
    replayable = [
        replace(site, missing={**site.missing, "replay": missing[id(site)]}) if id(site) in missing else site
        for site in sites.all
    ]
    return replace(sites, all=tuple(replayable))


def _fallback(expected: dict[Kind, list[Tensor]], reason: str) -> AttentionSites:
    """Return sites that offer only the weights that eager attention returns."""
    missing = dict.fromkeys(
        (
            "capture",
            "values",
            "scores",
            "projection",
            "gate",
            "residual",
            "hidden",
            "replay",
            "bilinear",
            "additive",
            "padding",
        ),
        reason,
    )
    sites = []
    for kind, maps in expected.items():
        for index, weights in enumerate(maps):
            causal = kind != "cross" and weights.shape[2] > 1 and not bool(weights.triu(1).any())
            sites.append(Site(kind, index, weights.shape[1], 0, causal, missing=dict(missing)))
    return AttentionSites(tuple(sites), captured=False)


NONE_RETURNED = (
    "This model does not return an attention weight for every pair of tokens, so captured weights cannot be verified."
)


def _faults(found: dict[Kind, list[Tensor]], encoded: Encoded, model: Model) -> dict[Kind, str]:
    """Return kind of attention -> what is wrong, for kinds in which a layer returned something other than weights over the input's tokens, or none did."""
    # The encoder of a model that listens has run before. An encoder or decoder alone has the configuration of both.
    alone = model.listens or "self" in found
    silent: list[Kind] = [] if alone else [kind for kind in model.facts.kinds if kind not in found]
    each = {kind: [_fault(weights, encoded.axes(kind)) for weights in maps] for kind, maps in found.items()}
    faults = {kind: next(filter(None, faults)) for kind, faults in each.items() if any(faults)}
    return {**faults, **dict.fromkeys(silent, NONE_RETURNED)}


def _fault(weights: Tensor, axes: Axes) -> str | None:
    """Return why these are not weights [1, H, Q, K]: finite, not negative, rows that sum to at most 1 (within two roundings); None if they are."""
    if weights.dim() != 4 or weights.shape[0] != 1 or weights.shape[2:] != (len(axes.queries), len(axes.keys)):
        return NONE_RETURNED
    if not bool(weights.isfinite().all()):
        return "The attention weights that this model returns on a short probe contain NaN or infinity."
    most = 1 + max(1e-3, 2 * torch.finfo(weights.dtype).eps)
    if bool((weights < 0).any()) or bool((weights.double().sum(-1) > most).any()):
        return (
            "The attentions that this model returns are not weights: entries are negative, or rows sum to more than 1."
        )
    return None


def main_output(output: Any) -> Tensor:
    """Return the model's logits, or else the first tensor of its output."""
    logits = getattr(output, "logits", None)
    result: Tensor = output[0] if logits is None else logits
    return result
