"""What stands around attention, found by following numbers on a probe: never by the names that architectures give their modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Kind
from . import affine
from .interface import Call
from .sites import HeadProjection, NormForm, Site, norm_at

CLOSE = 1e-5
ROUNDINGS = 4  # of the epsilon of half precision, where that is more


@dataclass
class TraceEvent:
    """One call of a module: name, what went in and what came out, as [tokens, features]."""

    name: str
    module: Any
    input: Tensor
    output: Tensor


@dataclass
class Attended:
    """One call of the attention function, between the events before and after it."""

    call: Call
    output: Tensor  # [Q, H * D]
    place: int
    kind: Kind = "self"


@dataclass
class Trace:
    """Everything that a forward pass called, in order."""

    events: list[TraceEvent] = field(default_factory=list)
    attended: list[Attended] = field(default_factory=list)
    entered: dict[str, list[tuple[int, Tensor]]] = field(default_factory=dict)  # what modules got, and when

    def note(self, call: Call, output: Tensor) -> None:
        """Remember a call of the attention function; output [H, Q, D]."""
        self.attended.append(Attended(call, _flat(output), len(self.events)))


@contextmanager
def traced(module: Any) -> Iterator[Trace]:
    """Within this context every call of a part of the module is noted."""
    trace, handles = Trace(), []

    def noting(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
        def entering(part: Any, args: Any, kwargs: Any) -> None:
            given = _tensor((*args, *kwargs.values()))
            if given is not None:
                trace.entered.setdefault(name, []).append((len(trace.events), given))

        def leaving(part: Any, args: Any, kwargs: Any, output: Any) -> None:
            given, made = (
                _tensor((*args, *kwargs.values())),
                _tensor(output if isinstance(output, tuple) else (output,)),
            )
            if given is not None and made is not None:
                trace.events.append(TraceEvent(name, part, given, made))

        return entering, leaving

    for name, part in module.named_modules():
        entering, leaving = noting(name)
        handles += [
            part.register_forward_pre_hook(entering, with_kwargs=True),
            part.register_forward_hook(leaving, with_kwargs=True),
        ]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def describe(site: Site, trace: Trace, index: int, module: Any) -> Site:
    """The site with whatever the trace proves about it, and why the rest can't be had."""
    attended = trace.attended[index]
    lists = {name for name, part in module.named_modules() if isinstance(part, torch.nn.ModuleList)}
    site = replace(site, block=_block(str(site.module), lists), missing=dict(site.missing))
    later = trace.attended[index + 1].place if index + 1 < len(trace.attended) else len(trace.events)
    earlier = trace.attended[index - 1].place if index else 0
    for find in (_with_projection, _with_residual, _with_bilinear, _with_hidden):
        site = find(site, trace, attended, (earlier, later))
    return site


def _with_projection(site: Site, trace: Trace, attended: Attended, span: tuple[int, int]) -> Site:
    """The outermost linear module that takes the heads' outputs, if all others that take them are parts of it or have it as a part."""
    readers = [
        event
        for event in trace.events[attended.place : span[1]]
        if _equal(event.input, attended.output) and not _equal(event.input, event.output)
    ]
    linear = [event for event in readers if _affine(event)]
    if linear and all(_nested(event.name, linear[-1].name) for event in readers):  # modules return after their parts
        return replace(site, projection=linear[-1].name)
    site.missing["projection"] = "The heads' outputs do not go straight into one linear projection."
    return site


def _nested(one: str, other: str) -> bool:
    """Whether one of two modules is the other or a part of it, by their names."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _with_residual(site: Site, trace: Trace, attended: Attended, span: tuple[int, int]) -> Site:
    """The sum x + y must enter a normalisation of the same layer, and x must be a tensor that was there before."""
    site.missing["residual"] = "No residual connection of a known form was found around its attention."
    if site.projection is None or site.block is None:
        return site
    inside = f"{site.block}."
    after = [event for event in trace.events[attended.place : span[1]] if event.name.startswith(inside)]
    projected = next(event.output for event in after if event.name == site.projection)
    start = max((place for place, _ in trace.entered.get(site.block, ()) if place <= attended.place), default=0)
    before = [event for event in trace.events[start : attended.place] if event.name.startswith(inside)]
    candidates = [given for place, given in trace.entered.get(site.block, ()) if place == start]
    candidates += [tensor for event in before for tensor in (event.input, event.output)]
    candidates += _entered_inside(trace, inside, start, attended.place)
    for event in after:
        if not _norm(event) or event.input.shape != projected.shape:
            continue
        residual = event.input - projected
        if not any(one.shape == residual.shape and _near(one, residual) for one in candidates):
            continue
        found = replace(site, norm=event.name, missing={k: v for k, v in site.missing.items() if k != "residual"})
        reads_it = any(
            _linear(one) and one.input.shape == residual.shape and _near(one.input, residual) for one in before
        )
        if not reads_it:
            return found  # attention reads a normalised copy: pre-LN
        form = _form(event)
        return site if form is None else replace(found, norm_form=form)
    return site


def _entered_inside(trace: Trace, inside: str, start: int, stop: int) -> list[Tensor]:
    """What parts of the layer got that have not returned yet when attention runs."""
    return [
        given
        for name, calls in trace.entered.items()
        if name.startswith(inside)
        for place, given in calls
        if start <= place <= stop
    ]


def _form(event: TraceEvent) -> NormForm | None:
    """What the normalisation computes, by trying."""
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
            if _near(norm.linear(event.input, norm.scale[:, None]) + norm.shift, event.output):
                return form
    return None


def _with_bilinear(site: Site, trace: Trace, attended: Attended, span: tuple[int, int]) -> Site:
    call = attended.call
    events = [event for event in trace.events[span[0] : attended.place] if _linear(event)]
    query = _part(call.query, [event for event in events if event.output.shape[0] == call.query.shape[1]])
    key = _part(call.key, [event for event in events if event.output.shape[0] == call.key.shape[1]])
    if query is None or key is None:
        site.missing["bilinear"] = (
            "Its queries and keys are not one matrix times the hidden state: positions or a normalisation come in between."
        )
        return site
    return replace(site, query=query, key=key)


def _part(vectors: Tensor, events: list[TraceEvent]) -> HeadProjection | None:
    """Where vectors [H, Q, D] stand in the output of a linear module: side by side from some offset, or one stride apart."""
    heads, _, width = vectors.shape
    for event in reversed(events):
        size = event.output.shape[-1]
        strides = {width} | ({size // heads} if size % heads == 0 else set())
        for stride in sorted(strides):
            for offset in range(0, size - stride * (heads - 1) - width + 1, width):
                pieces = [event.output[:, offset + h * stride : offset + h * stride + width] for h in range(heads)]
                found = torch.equal(pieces[0], vectors[0]) and torch.equal(torch.stack(pieces), vectors)
                if found and _affine(event):
                    return HeadProjection(event.name, offset, stride, width)
    return None


def _with_hidden(site: Site, trace: Trace, attended: Attended, span: tuple[int, int]) -> Site:
    """The layer must return after this place and before the model attends in the same way again."""
    left = next(
        (place for place, event in enumerate(trace.events) if place >= attended.place and event.name == site.block),
        None,
    )
    if site.block is None or left is None:
        reason = "Its layers are not modules of their own."
    elif any(attended.place < other.place <= left and other.kind == site.kind for other in trace.attended):
        reason = "Its layers attend more than once."
    else:
        return site
    site.missing.update(hidden=reason, replay=reason, residual=reason)
    return site


def _block(name: str, lists: set[str]) -> str | None:
    """The layer that a module belongs to: the outermost element of a list of modules on its path."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        if ".".join(parts[:length]) in lists:
            return ".".join(parts[: length + 1])
    return None


def _linear(event: TraceEvent) -> bool:
    return affine.width(event.module) == event.input.shape[-1]


def _affine(event: TraceEvent) -> bool:
    """Whether the module's matrix and offset give what the module gave."""
    if not _linear(event):
        return False
    try:
        expected, shift = event.input @ affine.matrix(event.module).mT, affine.offset(event.module)
    except Exception:  # noqa: BLE001 - a module may raise anything about an input that it was not made for
        return False
    return _near(expected if shift is None else expected + shift, event.output)


def _norm(event: TraceEvent) -> bool:
    weight = getattr(event.module, "weight", None)
    named = "norm" in type(event.module).__name__.lower()
    return event.input.shape == event.output.shape and (named or (isinstance(weight, Tensor) and weight.dim() == 1))


def _near(ours: Tensor, theirs: Tensor) -> bool:
    if ours.shape != theirs.shape:
        return False
    limit = max(CLOSE, ROUNDINGS * torch.finfo(theirs.dtype).eps)
    return float((ours - theirs).abs().max()) <= limit * max(1.0, float(theirs.abs().max()))


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)


def _flat(output: Tensor) -> Tensor:
    return output.transpose(0, 1).reshape(output.shape[1], -1)


def _tensor(values: tuple[Any, ...]) -> Tensor | None:
    """The first floating tensor [1, n, d] or [n, d], as [n, d]."""
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point() and value.dim() in (2, 3):
            return value.reshape(-1, value.shape[-1]).clone()
    return None
