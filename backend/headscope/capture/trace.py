"""The modules around attention, found by following tensors through a probe, never by the names that architectures give them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Kind
from . import affine
from .interface import AttentionCall
from .sites import HeadProjection, NormForm, Site, norm_at

TOLERANCE = 1e-5
ROUNDINGS = 4  # multiple of the arithmetic's epsilon that is tolerated in half precision


@dataclass
class TraceEvent:
    """One call of a module: its name, input and output, as [tokens, features]."""

    name: str
    module: Any
    input: Tensor
    output: Tensor


@dataclass
class AttentionEvent:
    """One call of the attention function, after the first `place` events of the trace."""

    call: AttentionCall
    output: Tensor  # [Q, H D]
    place: int
    kind: Kind = "self"


@dataclass
class Trace:
    """All calls of a forward pass, in order."""

    events: list[TraceEvent] = field(default_factory=list)
    attention: list[AttentionEvent] = field(default_factory=list)
    entered: dict[str, list[tuple[int, Tensor]]] = field(default_factory=dict)  # module -> its inputs, and when

    def add(self, call: AttentionCall, output: Tensor) -> None:
        """Add a call of the attention function; output [H, Q, D]."""
        flat = output.transpose(0, 1).reshape(output.shape[1], -1)  # [H, Q, D] -> [Q, H D]
        self.attention.append(AttentionEvent(call, flat, len(self.events)))


@contextmanager
def trace_modules(module: Any) -> Iterator[Trace]:
    """Trace every call of a part of the module."""
    trace, handles = Trace(), []

    def enter(name: str, part: Any, args: Any, kwargs: Any) -> None:
        entered = _first_tensor((*args, *kwargs.values()))
        if entered is not None:
            trace.entered.setdefault(name, []).append((len(trace.events), entered))

    def leave(name: str, part: Any, args: Any, kwargs: Any, output: Any) -> None:
        entered = _first_tensor((*args, *kwargs.values()))
        left = _first_tensor(output if isinstance(output, tuple) else (output,))
        if entered is not None and left is not None:
            trace.events.append(TraceEvent(name, part, entered, left))

    for name, part in module.named_modules():
        handles += [
            part.register_forward_pre_hook(partial(enter, name), with_kwargs=True),
            part.register_forward_hook(partial(leave, name), with_kwargs=True),
        ]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def describe_site(site: Site, trace: Trace, index: int) -> Site:
    """Add to the site the modules around it that the trace shows, and why others are missing."""
    event = trace.attention[index]
    site = replace(site, missing=dict(site.missing))
    later = trace.attention[index + 1].place if index + 1 < len(trace.attention) else len(trace.events)
    earlier = trace.attention[index - 1].place if index else 0
    for find in (_with_projection, _with_residual, _with_bilinear, _with_hidden):
        site = find(site, trace, event, (earlier, later))
    return site


def _with_projection(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Find the outermost linear module that takes the heads' outputs, if all others that take them contain it or are parts of it."""
    readers = [
        event
        for event in trace.events[attention.place : span[1]]
        if _equal(event.input, attention.output) and not _equal(event.input, event.output)
    ]
    linear = [event for event in readers if _is_affine(event)]
    if linear and all(_nested(event.name, linear[-1].name) for event in readers):  # modules return after their parts
        return replace(site, projection=linear[-1].name)
    site.missing["projection"] = "The heads' outputs do not go directly into a single linear projection."
    return site


def _nested(one: str, other: str) -> bool:
    """Return whether one of two modules, given by name, is the other or a part of it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _with_residual(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
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
            if not any(_is_linear(one) and is_close(one.input, residual) for one in before):
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
        if not _equal(event.input, projected) or event.output.shape != projected.shape:
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


def _with_bilinear(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Find the linear modules whose outputs are the queries and the keys."""
    queries, keys = attention.call.query[0], attention.call.key[0]  # [H, Q, D'], [G, K, D']
    events = [event for event in trace.events[span[0] : attention.place] if _is_linear(event)]
    query = _head_projection(queries, [event for event in events if event.output.shape[0] == queries.shape[1]])
    key = _head_projection(keys, [event for event in events if event.output.shape[0] == keys.shape[1]])
    if query is None or key is None:
        site.missing["bilinear"] = (
            "Its queries and keys are not a single linear map of the hidden state: a position encoding or normalisation comes in between."
        )
        return site
    return replace(site, query=query, key=key)


def _head_projection(vectors: Tensor, events: list[TraceEvent]) -> HeadProjection | None:
    """Find vectors [H, Q, D] in the output [Q, ...] of a linear module: heads side by side from some offset, or a stride apart."""
    heads, _, width = vectors.shape
    for event in reversed(events):
        size = event.output.shape[-1]
        strides = {width} | ({size // heads} if size % heads == 0 else set())
        for stride in sorted(strides):
            for offset in range(0, size - stride * (heads - 1) - width + 1, width):
                pieces = [event.output[:, offset + h * stride : offset + h * stride + width] for h in range(heads)]
                found = torch.equal(pieces[0], vectors[0]) and torch.equal(torch.stack(pieces), vectors)
                if found and _is_affine(event):
                    return HeadProjection(event.name, offset, stride, width)
    return None


def _with_hidden(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Require that the layer returns before the model attends in the same way again."""
    left = next(
        (place for place, event in enumerate(trace.events) if place >= attention.place and event.name == site.block),
        None,
    )
    if site.block is None or left is None:
        reason = "Its layers are not separate modules."
    elif any(attention.place < other.place <= left and other.kind == site.kind for other in trace.attention):
        reason = "Its layers attend more than once."
    else:
        return site
    site.missing.update(hidden=reason, replay=reason, residual=reason)
    return site


def block_of(name: str, lists: set[str]) -> str | None:
    """Return the layer that a module belongs to: the outermost element of a module list on its path."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        if ".".join(parts[:length]) in lists:
            return ".".join(parts[: length + 1])
    return None


def _is_linear(event: TraceEvent) -> bool:
    return affine.width(event.module) == event.input.shape[-1]


def _is_affine(event: TraceEvent) -> bool:
    """Return whether the module's matrix and offset reproduce its output."""
    if not _is_linear(event):
        return False
    try:
        expected, shift = event.input @ affine.matrix(event.module).mT, affine.offset(event.module)
    except Exception:  # noqa: BLE001 - a module may raise anything about unit vectors
        return False
    return is_close(expected if shift is None else expected + shift, event.output)


def _is_norm(event: TraceEvent) -> bool:
    weight = getattr(event.module, "weight", None)
    named = "norm" in type(event.module).__name__.lower()
    return event.input.shape == event.output.shape and (named or (isinstance(weight, Tensor) and weight.dim() == 1))


def is_close(ours: Tensor, theirs: Tensor, limit: float | None = None) -> bool:
    """Return whether two tensors have the same shape and differ by at most `limit`, relative to the largest entry if that is above 1.

    By default the limit is the `tolerance` of their dtype.
    """
    if ours.shape != theirs.shape:
        return False
    limit = tolerance(theirs.dtype) if limit is None else limit
    return bool((ours - theirs).abs().max().item() <= limit * max(1.0, theirs.abs().max().item()))


def tolerance(dtype: torch.dtype) -> float:
    """Return the largest difference between equal computations: 1e-5, or four roundings of the arithmetic if that is more."""
    return max(TOLERANCE, ROUNDINGS * torch.finfo(dtype).eps)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _first_tensor(values: tuple[Any, ...]) -> Tensor | None:
    """Return a copy of the first floating-point tensor [1, n, d] or [n, d], as [n, d]."""
    found = first_tensor(values)
    return None if found is None else found.reshape(-1, found.shape[-1]).clone()


def first_tensor(values: tuple[Any, ...]) -> Tensor | None:
    """Return the first floating-point tensor with two or three axes: the hidden states that a module is called with."""
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point() and value.dim() in (2, 3):
            return value
    return None
