"""What leads from the embedding of a token to a head's values, and from what the head writes to logits: by weights alone, with normalisations held fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..core.attention import Norm
from ..models.dispatch import embedding_matrix, tensor_of
from ..models.support import NO_TOKENS
from .affine import is_unchanged, matrix
from .residual import norm_form
from .sites import NOT_LINEAR, NormPlace, Site, Unembedding, head_weights, norm_at, scaled_branch
from .trace import Trace, TraceEvent, equal, is_linear

ROWS = 2**13  # of the vocabulary at once

# Output module -> fingerprints of the output matrix and of the embedding, and their product.
_known: WeakKeyDictionary[Any, tuple[Tensor, Tensor]] = WeakKeyDictionary()


def find_unembedding(module: Any, trace: Trace, last: str | None) -> Unembedding | str:
    """Return what makes logits of the output of the layer `last`, or why that is no matrix over the tokens that the model embeds."""
    head, embedding = module.get_output_embeddings(), embedding_matrix(module)
    if head is None or embedding is None:
        return NO_TOKENS
    read = next((event for event in reversed(trace.events) if event.module is head), None)
    left = next((event for event in reversed(trace.events) if event.name == last), None)
    if (
        read is None
        or left is None
        or not is_linear(read)
        or embedding.shape != (read.output.shape[-1], left.output.shape[-1])
    ):
        return NOT_LINEAR
    found = _norm_between(left.output, read.input, trace.events)
    return found if isinstance(found, str) else Unembedding(found)


def find_value_norm(module: str, block: str | None, trace: Trace, place: int) -> NormPlace | str | None:
    """Return the normalisation between the stream and a module that makes values before the event `place`; None without one, and why if there is more."""
    events = trace.events[:place]
    made = next(event for event in reversed(events) if event.name == module)
    entered = [stream for at, stream in trace.entered.get(str(block), []) if at <= place]
    return _norm_between(entered[-1], made.input, events) if entered else NOT_LINEAR


def _norm_between(stream: Tensor, read: Tensor, events: list[TraceEvent]) -> NormPlace | str | None:
    """Return the normalisation that makes what is `read` of the stream; None if that is the stream, and the reason if it is something else."""
    if equal(stream[-len(read) :], read):
        return None
    for event in reversed(events):
        if equal(event.input, stream) and equal(event.output[-len(read) :], read):
            form = norm_form(event)
            return NOT_LINEAR if form is None else NormPlace(event.name, form)
    return NOT_LINEAR


def token_map(modules: Mapping[str, Any], unembedding: Unembedding, site: Site, like: Tensor) -> Tensor:
    """Return N W_Uᵀ W_E [d, d] in float64, of the embedding W_E and the output matrix W_U less its mean over the tokens, which changes no probability.

    N are all normalisations between what a head of the site adds and the output matrix, without their scales.
    """
    found = _products(modules[""], like)
    if unembedding.norm is not None:
        found = _before(_norm(modules, unembedding.norm, found), found)
    if site.branch_norm_form is None and site.gain is None:
        return found
    rows = found.new_zeros(1, len(found))
    branch = (
        None if site.branch_norm_form is None else norm_at(modules[str(site.branch_norm)], site.branch_norm_form, rows)
    )
    branch = branch if site.gain is None else scaled_branch(modules, site.gain, branch, rows)
    return found if branch is None else _before(branch, found)


def value_weights(modules: Mapping[str, Any], site: Site, like: Tensor) -> Tensor:
    """Return N W_V [H, d, D] in float64, with N the normalisation that values read, without its scale."""
    if site.value is None:
        raise ValueError("the values of this site were not found")
    weights = head_weights(modules[site.value.module], site.value, like).double()  # [G, d, D]
    if site.value_norm is not None:
        weights = _before(_norm(modules, site.value_norm, weights[0].mT), weights)
    return weights.repeat_interleave(site.heads // len(weights), dim=0)


def _norm(modules: Mapping[str, Any], place: NormPlace, like: Tensor) -> Norm:
    return norm_at(modules[place.module], place.form, like.new_zeros(1, like.shape[-1]))


def _before(norm: Norm, weights: Tensor) -> Tensor:
    """Return N W for the linear part of a normalisation without its scale, x -> (x N) W: weights [..., d, n]."""
    found = norm.gain.to(weights)[:, None] * weights
    return found - found.mean(-2, keepdim=True) if norm.centred else found


def _products(root: Any, like: Tensor) -> Tensor:
    """Return W_Uᵀ W_E [d, d] in float64, with W_U less its mean over the tokens. Cached until the weights change in any way."""
    head, embedding = root.get_output_embeddings(), tensor_of(root.get_input_embeddings(), "weight", like)
    out = matrix(head, like)  # [V, d]
    vector = torch.randn(len(out), generator=torch.Generator("cpu").manual_seed(0), device="cpu").to(out)
    found, known = torch.stack([vector @ out, vector @ embedding]), _known.get(head)
    if known is None or not is_unchanged(known[0], found):
        parts = zip(torch.split(out - out.mean(0), ROWS), torch.split(embedding, ROWS), strict=True)
        known = _known[head] = found, torch.stack([(one.mT @ other).double() for one, other in parts]).sum(0)
    return known[1].to(like.device)
