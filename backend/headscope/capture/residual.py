"""The residual connection around attention, found by following tensors through a probe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from .closeness import ROUNDINGS, is_close
from .sites import NormForm, Site, norm_at
from .trace import AttentionEvent, Trace, TraceEvent, equal, is_linear


def with_residual(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Find the sum x + y, where y is the projection's output, or what a normalisation or a gain makes of it.

    Either x + y enters a normalisation of the same layer, with x an earlier tensor; or the layer's output is x + y + z, with x its input and z the output
    of one of its modules.
    """
    site.missing["residual"] = "No residual connection of a supported form was found around its attention."
    if site.projection is None or site.block is None:
        return site
    inside = f"{site.block}."
    after = [event for event in trace.events[attention.place : span[1]] if event.name.startswith(inside)]
    projected = next(event.output for event in after if event.name == site.projection)
    start = max((place for place, _ in trace.entered.get(site.block, ()) if place <= attention.place), default=0)
    before = [event for event in trace.events[start : attention.place] if event.name.startswith(inside)]
    entered = [given for place, given in trace.entered.get(site.block, ()) if place == start]
    candidates = entered + [tensor for event in before for tensor in (event.input, event.output)]
    candidates += _entered_inside(trace, inside, start, attention.place)
    for found, added in _branches(site, after, projected):
        for event in after:
            if not _is_norm(event) or event.input.shape != added.shape or event.name == found.branch_norm:
                continue
            residual = event.input - added
            if not any(is_close(one, residual) for one in candidates):
                continue
            if not any(is_linear(one) and is_close(one.input, residual) for one in before):
                return replace(found, norm=event.name)  # attention reads a normalised copy: pre-LN
            form = _form(event)
            return site if form is None else replace(found, norm=event.name, norm_form=form)
        if _is_output(site, trace, attention, added, entered, [*before, *after]):
            return found
    return site


def _branches(site: Site, after: list[TraceEvent], projected: Tensor) -> Iterator[tuple[Site, Tensor]]:
    """Yield the site with a residual connection, and what attention adds there: the projection's output itself, or what one module makes of it."""
    site = replace(site, missing={need: why for need, why in site.missing.items() if need != "residual"})
    yield site, projected
    for event in after:
        if not equal(event.input, projected) or event.output.shape != projected.shape:
            continue
        form = (_form(event) if _is_norm(event) else None) or _gain(event)
        if form is not None:
            yield replace(site, branch_norm=event.name, branch_norm_form=form), event.output


def _gain(event: TraceEvent) -> NormForm | None:
    """Return the form of a module that multiplies its input by one of its parameters."""
    for name, weight in event.module.named_parameters(recurse=False):
        if weight.shape == event.input.shape[-1:] and torch.equal(event.input * weight, event.output):
            return NormForm(centred=False, plus_one=False, epsilon=0.0, weight=name, scaled=False)
    return None


def _is_output(
    site: Site, trace: Trace, attention: AttentionEvent, added: Tensor, entered: list[Tensor], events: list[TraceEvent]
) -> bool:
    """Return whether the layer's output is its input + what attention adds + the output of one of its modules, up to rounding in every number."""
    left = next((event.output for event in trace.events[attention.place :] if event.name == site.block), None)
    if left is None or not entered or {entered[0].shape, left.shape} != {added.shape}:
        return False
    rounding = ROUNDINGS * torch.finfo(left.dtype).eps
    for event in events:
        terms = (entered[0], added, event.output)
        if event.output.shape != left.shape or event.name == site.projection:
            continue
        off = (sum(terms) - left).abs()
        if bool((off <= rounding * sum(term.abs() for term in terms)).all()):
            return True
    return False


def _entered_inside(trace: Trace, inside: str, start: int, stop: int) -> list[Tensor]:
    """Return the inputs of the layer's parts that were called between two events, including those that have not returned yet."""
    return [
        given
        for name, calls in trace.entered.items()
        if name.startswith(inside)
        for place, given in calls
        if start <= place <= stop
    ]


def _form(event: TraceEvent) -> NormForm | None:
    """Return the form that reproduces the normalisation's output."""
    module = event.module
    epsilon = next(
        (getattr(module, name) for name in ("eps", "variance_epsilon", "epsilon") if hasattr(module, name)), None
    )
    if epsilon is None or getattr(module, "weight", None) is None:
        return None
    for centred in (True, False):
        for plus_one in (False, True):
            form = NormForm(centred, plus_one, float(epsilon))
            norm = norm_at(module, form, event.input)
            if is_close(norm.linear(event.input, norm.scale[:, None]) + norm.shift, event.output):
                return form
    return None


def _is_norm(event: TraceEvent) -> bool:
    weight = getattr(event.module, "weight", None)
    named = "norm" in type(event.module).__name__.lower()
    return event.input.shape == event.output.shape and (named or (isinstance(weight, Tensor) and weight.dim() == 1))
