"""Whether what Headscope found around attention holds on an input that it did not find it on: projection, residual, layers run again, one matrix."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headscope.capture import CaptureSpec, capture
from headscope.core.attention import Layer

TOLERANCE = 1e-4  # relative to the largest entry, if that is above 1
CHECKED = ("projection", "residual", "replay", "bilinear")


def structure_apart(model: Any, sites: Any, encoded: Any, kind: str) -> str | None:
    """The first thing that does not hold; None if all do."""
    chosen, missing = sites.of(kind), sites.missing(kind)
    needs = frozenset({*CHECKED, "hidden"} - set(missing))
    layers: list[tuple[Layer, Tensor | None]] = []
    seen = _Seen()

    def keep(layer: Layer) -> None:
        seen.looking = False
        again = layer.stream.replay(layer.output.unsqueeze(0))[0] if "replay" in needs and layer.stream.replay else None
        seen.looking = True
        layers.append((layer, again))

    with _watched(model.module, chosen, seen):
        capture(model, encoded, sites, CaptureSpec(lambda layer: None, keep, needs), kind)
    if len(layers) != len(chosen):
        return f"{kind}: {len(layers)} whole layers, not {len(chosen)}"
    for site, (layer, again) in zip(chosen, layers, strict=True):
        for what, ours, theirs in _pairs(model.module, site, layer, again, seen, needs):
            if ours.shape != theirs.shape or not _close(ours, theirs):
                return f"{kind}: {what} of attention {site.layer} does not hold"
    return None


def _pairs(
    module: Any, site: Any, layer: Layer, again: Tensor | None, seen: Any, needs: frozenset[str]
) -> Iterator[tuple[str, Tensor, Tensor]]:
    """What Headscope says beside what the modules themselves were given and gave, layer by layer in the order they ran."""
    if "projection" in needs and layer.projection is not None:
        projection, output = seen.projected[site.projection].pop(0)
        bias = 0 if getattr(projection, "bias", None) is None else projection.bias
        yield "the projection", torch.einsum("hqc,hcd->qd", layer.written, layer.projection) + bias, output
    if again is not None and layer.stream.after is not None:
        yield "the layer run again", again, layer.stream.after
    if "residual" in needs and layer.stream.before is not None and site.kind != "cross":
        before, entered = layer.stream.before, seen.entered[site.block]
        # Other shapes in MobileBERT, which makes the stream narrower on its way into attention. Nothing is left where a layer attends twice.
        if entered and before.shape == entered[0].shape:
            yield "the residual", before, _with_gain(entered.pop(0), before)
    if "bilinear" in needs and layer.query_weights is not None and layer.key_weights is not None:
        read = {name: seen.read[name].pop(0) for name in {site.query.module, site.key.module}}
        for what, part, weights, vectors in (
            ("queries", site.query, layer.query_weights, layer.query),
            ("keys", site.key, layer.key_weights, layer.key),
        ):
            ours = read[part.module].double() @ weights.double()
            theirs = _turned_back(layer, vectors)
            if not layer.normalised:  # a bias is the same for all tokens
                yield f"the matrix of the {what}", ours + (theirs - ours)[:, :1], theirs
            elif getattr(module.get_submodule(part.module), "bias", None) is None:
                yield f"the direction of the {what}", *_across(ours, theirs)


def _with_gain(entered: Tensor, before: Tensor) -> Tensor:
    """The layer's input, or, where the model adds it with a gain, its input times one number per dimension, the same for all tokens."""
    if _close(before, entered):
        return entered
    return entered * (entered * before).sum(0) / entered.square().sum(0)


def _turned_back(layer: Layer, vectors: Tensor) -> Tensor:
    """Queries or keys [G, n, D'] as they would be at the first token, for every head: [H, n, D'] in float64."""
    vectors = vectors.double().repeat_interleave(len(layer.heads) // len(vectors), dim=0)
    if layer.turn is None:
        return vectors
    back = torch.stack([torch.linalg.matrix_power(layer.turn.mT, place) for place in range(vectors.shape[1])])
    return torch.einsum("hni,nij->hnj", vectors, back)


def _across(ours: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Split vectors [H, n, D'] that may be any multiple of ours plus a constant of the head: return the constant's and theirs, across the direction of ours."""
    direction = torch.nn.functional.normalize(ours, dim=-1)
    across = (
        torch.eye(ours.shape[-1], dtype=ours.dtype) - direction[..., None] * direction[..., None, :]
    )  # [H, n, D', D']
    left = (across @ theirs[..., None])[..., 0]
    constant = torch.linalg.lstsq(across.sum(1), left.sum(1)[..., None]).solution[:, None]  # [H, 1, D', 1]
    scale = theirs.norm(dim=-1, keepdim=True)
    return (across @ constant)[..., 0] / scale, left / scale


class _Seen:
    """What modules were given and gave, in the order they ran; not while a layer is run again."""

    def __init__(self) -> None:
        self.looking = True
        self.projected: dict[str, list[Any]] = defaultdict(list)
        self.entered: dict[str, list[Tensor]] = defaultdict(list)
        self.read: dict[str, list[Tensor]] = defaultdict(list)

    def note(self, where: dict[str, list[Any]], name: str, tensor: Tensor, module: Any = None) -> None:
        """Keep a tensor [1, Q, d] as [Q, d]."""
        if self.looking:
            flat = tensor.detach().clone().reshape(-1, tensor.shape[-1])
            where[name].append(flat if module is None else (module, flat))

    def note_read(self, name: str, tensor: Tensor) -> None:
        """Keep what a projection to queries or keys reads, unless the module that attends is run again: for a batch, or once more for a gate."""
        rerun = tensor.dim() == 3 and len(tensor) > 1
        if not rerun and not (
            self.read[name] and torch.equal(self.read[name][-1], tensor.reshape(-1, tensor.shape[-1]))
        ):
            self.note(self.read, name, tensor)


@contextmanager
def _watched(module: Any, sites: Any, seen: _Seen) -> Iterator[None]:
    """Within this context the modules around attention note what they are given and give."""
    parts = dict(module.named_modules())

    def entering(where: dict[str, list[Any]], name: str) -> Any:
        def hook(_: Any, args: Any, kwargs: Any) -> None:
            seen.note(where, name, args[0] if args else kwargs["hidden_states"])

        return parts[name].register_forward_pre_hook(hook, with_kwargs=True)

    def leaving(where: dict[str, list[Any]], name: str) -> Any:
        return parts[name].register_forward_hook(lambda part, _, output: seen.note(where, name, output, part))

    with ExitStack() as stack:
        for name in {site.projection for site in sites if site.projection}:
            stack.callback(leaving(seen.projected, name).remove)
        for name in {site.block for site in sites if site.block}:
            stack.callback(entering(seen.entered, name).remove)
        for name in {part.module for site in sites for part in (site.query, site.key) if part}:
            hook = partial(_reading, seen, name)
            stack.callback(parts[name].register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def _reading(seen: _Seen, name: str, _: Any, args: Any, kwargs: Any) -> None:
    seen.note_read(name, args[0] if args else kwargs["hidden_states"])


def _close(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max().item() <= TOLERANCE * max(1.0, theirs.abs().max().item()))
