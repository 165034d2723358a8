"""What the heads of a model write on one input, and the gradient of an output there: for all heads from one pass forward and one back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.attention import Kind
from ..errors import Unsupported
from ..models.loading import Model
from ..models.tokens import Encoded
from .direct import NO_HEAD, PlainRecorder
from .forward import options_at
from .interface import NAME, attending_with, recording
from .sites import AttentionSites, Site

NO_GRADIENT = "This model computes something from its heads through which no gradient flows, so effects cannot be estimated. Compute them exactly."
NOT_ONCE = (
    "This model does not run its output projections once per layer, so the outputs of its heads cannot be told apart."
)


@dataclass(frozen=True)
class ProjectionInputs:
    """The logits of a position, [vocabulary] or [classes], and what the output projection of every site is given, [Q, H, D] each."""

    logits: Tensor
    written: list[Tensor]


@dataclass(frozen=True)
class ProjectionGradients(ProjectionInputs):
    """Likewise, with the gradient of logit ids[0], minus logit ids[1] if there are two, there: [Q, H, D] each."""

    ids: tuple[int, ...]
    gradients: list[Tensor]


def outputs_of_heads(
    model: Model, encoded: Encoded, sites: AttentionSites, kind: Kind, position: int | None
) -> ProjectionInputs:
    """Return what the heads of a kind write. `position` is None for a model that classifies whole inputs. The caller holds the model's lock."""
    with torch.no_grad(), _kept(model, sites.of(kind)) as given:
        logits = _logits(model, encoded, sites, position)
    return ProjectionInputs(logits, _by_head(given, sites.of(kind)))


def gradients_of_heads(
    model: Model, encoded: Encoded, sites: AttentionSites, kind: Kind, ids: Sequence[int], position: int | None
) -> ProjectionGradients:
    """Return what the heads of a kind write, and the gradient of a target there, through everything that follows. The default target is the largest logit.

    `position` is None for a model that classifies whole inputs. The caller holds the model's lock. Raises Unsupported where gradients do not flow.
    """
    with torch.enable_grad(), _kept(model, sites.of(kind)) as given:
        logits = _logits(model, encoded, sites, position)
        ids = tuple(ids) or (int(logits.argmax()),)
        value = logits[ids[0]] - logits[ids[1]] if len(ids) > 1 else logits[ids[0]]
        if not value.requires_grad:
            raise Unsupported(NO_GRADIENT, pointer="/model")
        found = torch.autograd.grad(value, given, allow_unused=True)
    if any(one is None for one in found):
        raise Unsupported(NO_GRADIENT, pointer="/model")
    chosen = sites.of(kind)
    return ProjectionGradients(logits.detach(), _by_head(given, chosen), ids, _by_head(found, chosen))


@contextmanager
def _kept(model: Model, sites: Sequence[Site]) -> Iterator[list[Tensor]]:
    """Keep what the projections of the sites are given, in order. Where gradients are on, each has one."""
    given: list[Tensor] = []

    def keep(part: torch.nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        first, *rest = args
        given.append(first.detach().requires_grad_() if torch.is_grad_enabled() and not first.requires_grad else first)
        return (given[-1], *rest)

    names = dict.fromkeys(str(site.projection) for site in sites)
    handles = [model.module.get_submodule(name).register_forward_pre_hook(keep) for name in names]
    try:
        yield given
    finally:
        for handle in handles:
            handle.remove()
    if len(given) != len(sites):
        raise Unsupported(NOT_ONCE, pointer="/model")


def _logits(model: Model, encoded: Encoded, sites: AttentionSites, position: int | None) -> Tensor:
    """Run the model as it is and return the logits of the position."""
    options, row = options_at(model, position)
    with attending_with(NAME, model.module), recording(PlainRecorder(model, sites)):
        output = model.module(**model.inputs(encoded), **options)
    if getattr(output, "logits", None) is None:
        raise Unsupported(NO_HEAD, pointer="/model")
    logits: Tensor = output.logits[0] if row is None else output.logits[0, row]
    return logits


def _by_head(tensors: Sequence[Tensor], sites: Sequence[Site]) -> list[Tensor]:
    """[Q, H D] -> [Q, H, D], without gradients."""
    return [
        one.detach().reshape(-1, site.heads, one.shape[-1] // site.heads)
        for one, site in zip(tensors, sites, strict=True)
    ]
