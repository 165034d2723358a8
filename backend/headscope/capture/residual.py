"""The residual connection around attention, found by following tensors through a probe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Norm
from ..models.dispatch import parameters_of
from .closeness import ROUNDINGS, is_close, tolerance
from .gates import Arguments
from .sites import Gain, NormForm, Site, joining, norm_at
from .trace import AttentionEvent, Trace, TraceEvent, equal, flat, is_linear

NO_SUM = "Its attention's result does not reach a sum with the hidden state in a supported way: directly, or through a normalisation, a gain or a factor."
LEAST = 100  # times the tolerance: parts of a sum that are smaller relative to it cannot be told from rounding


@dataclass(frozen=True)
class _Layer:
    """The calls of a layer's modules before and after one call of attention, up to the next one, and the tensors that the layer was given."""

    block: Any
    before: list[TraceEvent]
    after: list[TraceEvent]
    entered: list[Tensor]
    earlier: list[Tensor]  # every tensor from before attention, those that entered included
    left: Tensor | None  # what the layer returned
    arguments: dict[int, Arguments]

    def norms(self, like: Tensor) -> Iterator[TraceEvent]:
        """Yield the normalisations of such vectors after attention."""
        yield from (event for event in self.after if _is_norm(event) and event.input.shape == like.shape)

    def streams(self, like: Tensor) -> list[Tensor]:
        """Return the tensors before attention that may be the residual stream: what the layer was given, and what was normalised."""
        found = [*self.entered, *(event.input for event in self.before if _is_norm(event))]
        return [one for one in found if one.shape == like.shape]


def with_residual(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Find the sum of the residual stream and y, where y is the projection's output, or what a normalisation or a gain makes of it.

    Either the sum enters a normalisation of the same layer; or the layer's output is x + y + z, with x its input and z the output of one of its modules.
    """
    if site.projection is None or site.block is None:
        site.missing["residual"] = site.missing.get("projection", "Its layers are not separate modules.")
        return site
    layer = _layer(site.block, trace, attention, span)
    projected = next(event.output for event in layer.after if event.name == site.projection)
    missing = {need: why for need, why in site.missing.items() if need != "residual"}
    branches = list(_branches(replace(site, missing=missing), layer, projected))
    for find in (_plain, _joined, _scaled):
        for found, added in branches:
            result = find(found, layer, added)
            if result is not None:
                return result
    site.missing["residual"] = NO_SUM
    return site


def _layer(block: str, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> _Layer:
    inside, entered = f"{block}.", trace.entered.get(block, [])
    start = max((place for place, _ in entered if place <= attention.place), default=0)
    before, after = (
        [event for event in trace.events[low:high] if event.name.startswith(inside)]
        for low, high in ((start, attention.place), (attention.place, span[1]))
    )
    given = [one for place, one in entered if place == start]
    earlier = given + [tensor for event in before for tensor in (event.input, event.output)]
    # The inputs of the layer's parts, including those that have not returned yet.
    earlier += [
        one
        for name, calls in trace.entered.items()
        if name.startswith(inside)
        for place, one in calls
        if start <= place <= attention.place
    ]
    left = next((event.output for event in trace.events[attention.place :] if event.name == block), None)
    return _Layer(trace.modules[block], before, after, given, earlier, left, trace.arguments)


def _branches(site: Site, layer: _Layer, projected: Tensor) -> Iterator[tuple[Site, Tensor]]:
    """Yield the site, and what attention may add to the stream: the projection's output itself, or what one module makes of it; both also with a gain."""
    found = [(site, projected)]
    for event in layer.after:
        if equal(event.input, projected) and event.output.shape == projected.shape:
            form = (norm_form(event) if _is_norm(event) else None) or _gain(event)
            if form is not None:
                found.append((replace(site, branch_norm=event.name, branch_norm_form=form), event.output))
    yield from found
    for name, parameter in parameters_of(layer.block, projected).items():
        if parameter.shape in (projected.shape[-1:], (1,), ()):
            gain = Gain(parameter=f"{site.block}.{name}")
            yield from ((replace(one, gain=gain), parameter * added) for one, added in found)


def _plain(site: Site, layer: _Layer, added: Tensor) -> Site | None:
    """Find a sum x + y or p * x + y, with x an earlier tensor and p a parameter of the layer."""
    vectors = [p for p in parameters_of(layer.block, added).values() if p.shape == added.shape[-1:]]
    for event in layer.norms(added):
        residual = event.input - added
        if event.name == site.branch_norm:
            continue
        x = next((one for one in layer.earlier if is_close(one, residual)), None)
        if x is None:
            scaled = ((one, p * one) for p in vectors for one in layer.entered if one.shape == added.shape)
            x = next((one for one, product in scaled if is_close(product, residual)), None)
        if x is not None:
            return _before_or_after(site, layer, event, x)
    return site if _is_output(site, layer, added) else None


def _before_or_after(site: Site, layer: _Layer, event: TraceEvent, x: Tensor) -> Site | None:
    """Return the site with the normalisation that reads the sum: the part after attention does (pre-LN), or the stream itself goes through it (post-LN)."""
    if (after := _carries(layer, event)) is None:
        after = _reads_stream(layer, x)
    if not after:
        return replace(site, norm=event.name)
    form = norm_form(event)
    return None if form is None else replace(site, norm=event.name, norm_form=form)


def _carries(layer: _Layer, event: TraceEvent) -> bool | None:
    """Return whether the next sum has what the normalisation gives (post-LN) or what it was given (pre-LN); None if it is neither, with the output of one module.

    The next sum is what the next normalisation is given, or what the layer returns.
    """
    place = next(place for place, one in enumerate(layer.after) if one is event)
    later = layer.after[place + 1 :]
    sums = [*(one.input for one in later if _is_norm(one)), *([] if layer.left is None else [layer.left])]
    for total in (one for one in sums if one.shape == event.input.shape):
        for carried, post in ((event.output, True), (event.input, False)):
            added = total - carried
            if any(one.output.shape == added.shape and is_close(one.output, added) for one in later):
                return post
    return None


def _reads_stream(layer: _Layer, x: Tensor) -> bool:
    """Return whether attention reads the stream x itself, so that x has been normalised by the layer before."""
    normalised = [one.output for one in layer.before if _is_norm(one)]
    direct = (one.input for one in layer.before if is_linear(one) and is_close(one.input, x))
    # Where attention reads a normalised copy, that may be the stream itself once more: a stream that is already normalised.
    return not all(any(equal(one, copy) for copy in normalised) for one in direct)


def _is_output(site: Site, layer: _Layer, added: Tensor) -> bool:
    """Return whether the layer's output is its input + what attention adds + the output of one of its modules, up to rounding in every number."""
    left, entered = layer.left, layer.entered
    if left is None or not entered or {entered[0].shape, left.shape} != {added.shape}:
        return False
    rounding = ROUNDINGS * torch.finfo(left.dtype).eps
    for event in [*layer.before, *layer.after]:
        terms = (entered[0], added, event.output)
        if event.output.shape != left.shape or event.name == site.projection:
            continue
        off = (sum(terms) - left).abs()
        if bool((off <= rounding * sum(term.abs() for term in terms)).all()):
            return True
    return False


def _joined(site: Site, layer: _Layer, added: Tensor) -> Site | None:
    """Find a module that is given x and y and returns a x + b y + c, with fixed vectors, before a normalisation reads it."""
    for event in layer.after:
        args, kwargs = layer.arguments[id(event.module)]
        if len(args) < 2 or kwargs or not all(isinstance(one, Tensor) and one.shape == args[0].shape for one in args):
            continue
        given = [flat(one).to(added.device) for one in args]
        places = [place for place, one in enumerate(given) if equal(one, added)]
        reader = next((one for one in layer.norms(added) if equal(one.input, event.output)), None)
        if len(places) != 1 or reader is None:
            continue
        gain = Gain(join=event.name, place=places[0], count=len(args))
        parts = [joining(event.module, place, len(args), added) for place in range(len(args))]
        terms = [one * weight for one, (weight, _) in zip(given, parts, strict=True)]
        others = [one for place, one in enumerate(given) if place != places[0]]
        if is_close(sum(terms) + parts[0][1], event.output) and all(
            any(equal(one, early) for early in layer.earlier) for one in others
        ):
            return _before_or_after(replace(site, gain=gain), layer, reader, others[0])
    return None


def _scaled(site: Site, layer: _Layer, added: Tensor) -> Site | None:
    """Find a sum a x + b y, or a x + b y + c z with z the output of a module before attention, with fixed numbers."""
    if site.gain is not None:
        return None
    for event in layer.norms(added):
        for x in layer.streams(added):
            numbers = _fit(event.input, [x, added])
            if numbers is not None:
                return _before_or_after(replace(site, gain=Gain(number=numbers[1])), layer, event, x)
            for other in layer.before:
                numbers = _fit(event.input, [x, added, other.output])
                if numbers is None:
                    continue
                scaled = replace(site, gain=Gain(number=numbers[1]))
                if _is_own(layer, other.output, x):
                    return _before_or_after(scaled, layer, event, x)
                # What other tokens bring there is not the token's own: the stream is what the layer was given, as in parallel blocks.
                if x is layer.entered[0] and abs(numbers[0] - 1) <= LEAST * tolerance(x.dtype):
                    return scaled
    return None


def _fit(total: Tensor, parts: list[Tensor]) -> list[float] | None:
    """Return the numbers with which the parts sum to the total, None if there are none or a part is too small for its number to be certain."""
    if any(part.shape != total.shape for part in parts):
        return None
    matrix = torch.stack([part.flatten() for part in parts], -1).double()
    gram = matrix.mT @ matrix
    if bool(torch.linalg.cond(gram) > 1e8):
        return None
    numbers = torch.linalg.solve(gram, matrix.mT @ total.flatten().double())
    least = LEAST * tolerance(total.dtype) * total.abs().max().item()
    if bool((matrix.abs().amax(0) * numbers.abs() < least).any()):
        return None
    return numbers.tolist() if is_close((matrix @ numbers).to(total.dtype).view_as(total), total) else None


def _is_own(layer: _Layer, vectors: Tensor, x: Tensor) -> bool:
    """Return whether a module makes these vectors from x, or from a normalised x, token by token: other tokens change nothing."""
    sources = [x, *(event.output for event in layer.before if _is_norm(event) and equal(event.input, x))]
    for event in layer.before:
        if not equal(event.output, vectors) or not any(equal(event.input, one) for one in sources):
            continue
        return is_close(_alone(event), vectors)
    return False


def _alone(event: TraceEvent) -> Tensor:
    """Return what the module gives for each token alone, [n, d]; nothing where it cannot be run on one."""
    try:
        return torch.stack([event.module.forward(one[None, None])[0, 0].to(one.device) for one in event.input])
    except Exception:  # noqa: BLE001 - a module that is run again may raise anything
        return event.output[:0]


def _gain(event: TraceEvent) -> NormForm | None:
    """Return the form of a module that multiplies its input by one of its parameters."""
    for name, weight in parameters_of(event.module, event.input).items():
        if weight.shape == event.input.shape[-1:] and torch.equal(event.input * weight, event.output):
            return NormForm(centred=False, plus_one=False, epsilon=0.0, weight=name, scaled=False)
    return None


def norm_form(event: TraceEvent) -> NormForm | None:
    """Return the form that reproduces the normalisation's output."""
    module = event.module
    epsilon = next(
        (getattr(module, name) for name in ("eps", "variance_epsilon", "epsilon") if hasattr(module, name)), None
    )
    if epsilon is None:
        form = NormForm(centred=False, plus_one=False, epsilon=0.0, scaled=False)
        norm = norm_at(module, form, event.input)
        return form if is_close(event.input * norm.gain + norm.shift, event.output) else None
    for centred in (True, False):
        for plus_one in (False, True):
            form = NormForm(centred, plus_one, float(epsilon))
            norm = norm_at(module, form, event.input)
            if is_close(norm.linear(event.input, norm.scale[:, None]) + norm.shift, event.output):
                return form
    return None


def frozen_norm(event: TraceEvent) -> Norm | None:
    """Return the normalisation with the statistics [...] that it had on its input [..., d], as its output shows: its epsilon need not be known."""
    for centred in (True, False):
        for plus_one in (False, True):
            norm = norm_at(event.module, NormForm(centred, plus_one, 0.0), event.input)
            plain = norm.linear(event.input, torch.ones_like(norm.scale)[..., None]).double()
            along = ((event.output - norm.shift).double() * plain).sum(-1)
            scale = (along / plain.square().sum(-1).clamp_min(torch.finfo(plain.dtype).tiny)).to(norm.scale.dtype)
            if is_close(norm.linear(event.input, scale[..., None]) + norm.shift, event.output):
                return replace(norm, scale=scale)
    return None


def _is_norm(event: TraceEvent) -> bool:
    weight = getattr(event.module, "weight", None)
    named = "norm" in type(event.module).__name__.lower()
    return event.input.shape == event.output.shape and (named or (isinstance(weight, Tensor) and weight.dim() == 1))
