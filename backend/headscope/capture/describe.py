"""The modules around attention, found by following tensors through a probe, never by the names that architectures give them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ..models.quantisation import is_quantised
from .closeness import is_close
from .gates import Follows, find_factor
from .query_key import HeadProjection
from .query_key_search import find_origin
from .residual import with_residual
from .sites import Site
from .token_map import find_value_norm
from .trace import AttentionEvent, Trace, TraceEvent, equal, is_affine, is_linear, rounding

BY_HEAD = (
    "Each head divides its queries or keys by a number of its own, so the products of its heads have no common scale."
)


def describe_site(site: Site, trace: Trace, index: int) -> Site:
    """Add to the site the modules around it that the trace shows, and why others are missing."""
    event = trace.attention[index]
    site = replace(site, missing=dict(site.missing))
    later = trace.attention[index + 1].place if index + 1 < len(trace.attention) else len(trace.events)
    earlier = trace.attention[index - 1].place if index else 0
    for find in (_with_projection, with_residual, _with_bilinear, _with_values, _with_hidden):
        site = find(site, trace, event, (earlier, later))
    return replace(site, rounding=_rounding(site, trace.events[earlier:later]))


def _rounding(site: Site, events: list[TraceEvent]) -> float:
    """Return by how much the site's quantised projections differ from their matrices, relative to the largest number of their outputs."""
    names = {site.projection, *(part.module for part in (site.query, site.key, site.value) if part is not None)}
    found = (rounding(event) for event in events if event.name in names and is_quantised(event.module))
    return max((one for one in found if one is not None), default=0.0)


def _with_projection(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Find the outermost linear module that takes the heads' outputs, if all others that take them contain it or are parts of it.

    It may take what a factor makes of them: a gate, or a normalisation.
    """
    site.missing["gate"] = "The outputs of its heads are not gated."
    after = trace.events[attention.place : span[1]]
    name = _reader(after, attention.output)
    if name is not None:
        return replace(site, projection=name)
    gated = _with_factor(site, after, attention)
    if gated is not None:
        return gated
    reason = "The heads' outputs do not go into a single linear projection, be it directly or through a gate or a normalisation."
    if any(is_quantised(event.module) and equal(event.input, attention.output) for event in after):
        reason = "The quantised layer that takes the heads' outputs rounds them so much that no matrix describes it."
    site.missing.update(projection=reason, gate=reason)
    return site


def _reader(events: list[TraceEvent], vectors: Tensor) -> str | None:
    """Return the outermost linear module that takes these vectors, if all others that take them contain it or are parts of it."""
    readers = [event for event in events if equal(event.input, vectors) and not equal(event.input, event.output)]
    linear = [event for event in readers if is_affine(event)]
    if linear and all(_nested(event.name, linear[-1].name) for event in readers):  # modules return after their parts
        return linear[-1].name
    return None


def _with_factor(site: Site, events: list[TraceEvent], attention: AttentionEvent) -> Site | None:
    """Return the site with the projection that takes the heads' outputs times a factor, None if no linear module of its does."""
    module, size = attention.call.module, attention.call.value.shape[-1]
    outputs = attention.output.reshape(len(attention.output), -1, size).transpose(0, 1)[
        None
    ]  # [Q, H D] -> [1, H, Q, D]
    for event in events:
        inside = _nested(event.name, str(site.module)) and event.input.shape == attention.output.shape
        if not inside or not is_affine(event) or _reader(events, event.input) != event.name:
            continue
        found = find_factor(module, attention.arguments, outputs, event.module)
        if found is not None:
            follows, factor = found
            return replace(site, projection=event.name, follows=follows, missing=_about_gate(site, factor, follows))
    return None


def _nested(one: str, other: str) -> bool:
    """Return whether one of two modules, given by name, is the other or a part of it."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _about_gate(site: Site, factor: Tensor, follows: Follows) -> dict[str, str]:
    """Return what the site lacks, given the factor [1, H, Q, D] between its heads and the projection."""
    missing = dict(site.missing)
    if follows != "query":
        missing["gate"] = (
            "What multiplies the outputs of its heads includes a normalisation of them, so it is not a gate."
        )
    elif is_close(factor, factor[:, :, :1].expand_as(factor)):
        missing["gate"] = "What multiplies the outputs of its heads is the same for every token, so it is not a gate."
    else:
        del missing["gate"]
    return missing


def _with_bilinear(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Find the linear modules whose outputs are the queries and the keys, or become them by a rotation or a normalisation."""
    queries, keys = attention.call.query[0], attention.call.key[0]  # [H, Q, D'], [G, K, D']
    events = [event for event in trace.events[span[0] : attention.place] if is_linear(event)]
    query = _head_projection(queries, [event for event in events if event.output.shape[0] == queries.shape[1]])
    key = _head_projection(keys, [event for event in events if event.output.shape[0] == keys.shape[1]])
    if query is not None and key is not None:
        return replace(site, query=query, key=key)
    origin = find_origin(attention, [event for event in events if _nested(event.name, str(site.module))], trace)
    if isinstance(origin, str):
        site.missing.update(bilinear=origin, additive=origin)
        return site
    if origin.normalised == "head":
        site.missing["additive"] = BY_HEAD
    return replace(site, query=origin.query, key=origin.key, rerun=origin.rerun, normalised=origin.normalised != "no")


def _with_values(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Find the linear module whose output is the values, where heads write to the stream without a gate, and without a normalisation after the sum."""
    values = attention.call.value[0]  # [G, K, D]
    events = [event for event in trace.events[span[0] : attention.place] if is_linear(event)]
    found = _head_projection(values, [event for event in events if event.output.shape[0] == values.shape[1]])
    plain = site.norm_form is None and site.follows is None and not site.missing.keys() & {"projection", "residual"}
    if found is None or site.kind not in ("self", "decoder") or not plain:
        return site
    norm = find_value_norm(found.module, site.block, trace, attention.place)
    return site if isinstance(norm, str) else replace(site, value=found, value_norm=norm)


def _head_projection(vectors: Tensor, events: list[TraceEvent]) -> HeadProjection | None:
    """Find vectors [H, Q, D'] in the output [Q, ...] of a linear module: heads side by side from some offset, or a stride apart."""
    heads, _, width = vectors.shape
    for event in reversed(events):
        size = event.output.shape[-1]
        strides = {width} | ({size // heads} if size % heads == 0 else set())
        for stride in sorted(strides):
            for offset in range(0, size - stride * (heads - 1) - width + 1, width):
                starts = tuple(offset + head * stride for head in range(heads))
                pieces = [event.output[:, start : start + width] for start in starts]
                found = torch.equal(pieces[0], vectors[0]) and torch.equal(torch.stack(pieces), vectors)
                if found and is_affine(event):
                    return HeadProjection(event.name, starts, width)
    return None


def _with_hidden(site: Site, trace: Trace, attention: AttentionEvent, span: tuple[int, int]) -> Site:
    """Require that the layer returns before the model attends in the same way again."""
    left = next(
        (place for place, event in enumerate(trace.events) if place >= attention.place and event.name == site.block),
        None,
    )
    if site.block is None:
        reason = "Its layers are not separate modules."
    elif left is None:
        reason = "Its layers do not return one hidden state for every token."
    elif any(attention.place < other.place <= left and other.kind == site.kind for other in trace.attention):
        reason = "Its layers attend more than once."
    else:
        return site
    site.missing.update(hidden=reason, replay=reason)
    return site
