"""What the heads of a model write on one input, and the gradient of an output there: for all heads from one pass forward and one back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.attention import Kind, required
from ..errors import Unsupported
from ..models.loading import Model
from ..models.tokens import Encoded
from .direct import HeadOutputs, PlainRecorder
from .forward import options_at, returned_logits
from .interface import NAME, AttentionCall, attending_with, recording
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


@dataclass(frozen=True)
class AttentionGradients:
    """The logits of a position, what the heads of every site attend to, and the gradient of logit ids[0], minus logit ids[1] if there are two.

    gradients  with respect to the output of the attention, [H, Q, D] each
    """

    logits: Tensor
    ids: tuple[int, ...]
    heads: list[HeadOutputs]
    gradients: list[Tensor]


def outputs_of_heads(
    model: Model, encoded: Encoded, sites: AttentionSites, kind: Kind, position: int | None
) -> ProjectionInputs:
    """Return what the heads of a kind write. `position` is None for a model that classifies whole inputs. The caller holds the model's lock."""
    with torch.no_grad(), _kept(model, sites.of(kind)) as given:
        logits = _logits(model, encoded, sites, position)
    return ProjectionInputs(logits, _by_head(given, sites.of(kind)))


def mean_outputs(
    model: Model, inputs: Iterable[Encoded], sites: AttentionSites, kind: Kind, position: int | None
) -> list[Tensor]:
    """Return the mean of what each head of a kind writes, over all tokens of all inputs, [1, H, D] per site, in float64; none without inputs."""
    sums, tokens = list[Tensor](), 0
    for encoded in inputs:
        written = outputs_of_heads(model, encoded, sites, kind, position).written
        more = [one.double().sum(0, keepdim=True) for one in written]
        sums = [one + other for one, other in zip(sums, more, strict=True)] if sums else more
        tokens += len(written[0])
    return [one / tokens for one in sums]


def gradients_of_heads(
    model: Model, encoded: Encoded, sites: AttentionSites, kind: Kind, ids: Sequence[int], position: int | None
) -> ProjectionGradients:
    """Return what the heads of a kind write, and the gradient of a target there, through everything that follows. The default target is the largest logit.

    `position` is None for a model that classifies whole inputs. The caller holds the model's lock. Raises Unsupported where gradients do not flow.
    """
    with torch.enable_grad(), _kept(model, sites.of(kind)) as given:
        logits = _logits(model, encoded, sites, position)
        ids, found = differentiate(logits, ids, given)
    chosen = sites.of(kind)
    return ProjectionGradients(logits.detach(), _by_head(given, chosen), ids, _by_head(found, chosen))


def gradients_of_attention(
    model: Model, encoded: Encoded, sites: AttentionSites, kind: Kind, ids: Sequence[int], position: int | None
) -> AttentionGradients:
    """Return what the heads of a kind attend to, and the gradient of a target at their outputs, before gates and projections. Otherwise as gradients_of_heads."""
    recorder = _GradientRecorder(model, sites, sites.of(kind))
    with torch.enable_grad():
        logits = _logits(model, encoded, sites, position, recorder)
        ids, found = differentiate(logits, ids, recorder.attended)
    heads = [HeadOutputs(*(one.detach() for one in (h.weights, h.values, h.output))) for h in recorder.outputs]
    return AttentionGradients(logits.detach(), ids, heads, [one[0] for one in found])


def differentiate(
    logits: Tensor, ids: Sequence[int], tensors: Sequence[Tensor]
) -> tuple[tuple[int, ...], Sequence[Tensor]]:
    """Return the ids of the target, by default that of the largest logit, and its gradient with respect to each tensor. Raises Unsupported if it has none.

    logits [vocabulary] or [B, vocabulary] of B inputs, whose targets are differentiated each on its own.
    """
    ids = tuple(ids) or (int(logits.argmax()),)
    value = values_of(logits, ids).sum()
    found = torch.autograd.grad(value, tensors, allow_unused=True) if value.requires_grad else (None,)
    if any(one is None for one in found):
        raise Unsupported(NO_GRADIENT, pointer="/model")
    return ids, [required(one) for one in found]


def values_of(logits: Tensor, ids: Sequence[int]) -> Tensor:
    """Return the target of these ids for every input: [..., vocabulary] -> [...]."""
    return logits[..., ids[0]] - logits[..., ids[1]] if len(ids) > 1 else logits[..., ids[0]]


class _GradientRecorder(PlainRecorder):
    """Keeps the outputs of the attention of the chosen sites, too, [1, H, Q, D] each, such that each has a gradient."""

    def __init__(self, model: Model, sites: AttentionSites, chosen: Sequence[Site]) -> None:
        super().__init__(model, sites, chosen)
        self.attended: list[Tensor] = []

    def attend(self, call: AttentionCall) -> Tensor:
        """Return the heads' outputs [1, H, Q, D]."""
        found = super().attend(call)
        if len(self.outputs) > len(self.attended):
            found = found if found.requires_grad else found.detach().requires_grad_()
            self.attended.append(found)
        return found


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


def _logits(
    model: Model, encoded: Encoded, sites: AttentionSites, position: int | None, recorder: PlainRecorder | None = None
) -> Tensor:
    """Run the model as it is and return the logits of the position."""
    options, row = options_at(model, position)
    with attending_with(NAME, model.module), recording(recorder or PlainRecorder(model, sites)):
        output = model.module(**model.inputs(encoded), **options)
    return returned_logits(output, row)[0]


def _by_head(tensors: Sequence[Tensor], sites: Sequence[Site]) -> list[Tensor]:
    """[Q, H D] -> [Q, H, D], without gradients."""
    return [
        one.detach().reshape(-1, site.heads, one.shape[-1] // site.heads)
        for one, site in zip(tensors, sites, strict=True)
    ]
