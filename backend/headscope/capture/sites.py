"""The sites where a model attends, and what is known about the modules before and after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..core.attention import Kind, Norm
from ..core.declarations import CAPABILITIES
from ..errors import ModelNotExact, Unsupported
from ..models.dispatch import tensor_of
from ..models.support import NO_TOKENS, by_mask
from .affine import matrix
from .gates import Follows
from .query_key import NOT_BY_DISTANCE, HeadProjection, Rerun, Sources, VectorSource, is_turned, maps_by_token, read_map

NOT_LINEAR = (
    "Between its embeddings, its heads and its logits there is more than a linear map and a normalisation each, so its weights alone do not show what "
    "heads copy."
)


@dataclass(frozen=True)
class NormForm:
    """The form of a normalisation: whether it subtracts the mean, whether its gain is the weight or 1 + weight, and where the weight is.

    If it is not `scaled`, it divides by nothing: a gain and a shift alone.
    """

    centred: bool
    plus_one: bool
    epsilon: float
    weight: str = "weight"
    scaled: bool = True


@dataclass(frozen=True)
class NormPlace:
    """A normalisation of the stream: a module and its form."""

    module: str
    form: NormForm


@dataclass(frozen=True)
class Unembedding:
    """What makes logits of the tokens that a model embeds: the output matrix, after a normalisation of the stream if there is one."""

    norm: NormPlace | None


@dataclass(frozen=True)
class Gain:
    """What multiplies the result of attention, after the normalisation that it may go through first, before it is added to the stream.

    A number; a parameter of the model, by name; or what the module `join` does to its argument at `place` of `count`, when it adds them up.
    """

    number: float = 1.0
    parameter: str | None = None
    join: str | None = None
    place: int = 0
    count: int = 0


@dataclass(frozen=True)
class Site:
    """A place where the model attends. Sites come in the order of the forward pass; a layer that is used twice has two.

    `layer` counts the layers of its kind. `missing` maps each capability that the site lacks to the reason.
    """

    kind: Kind
    layer: int
    heads: int
    width: int
    causal: bool
    module: str | None = None
    block: str | None = None
    projection: str | None = None
    follows: Follows | None = (
        None  # what a factor between the heads and the projection depends on; None without a factor
    )
    branch_norm: str | None = None  # between the projection and the sum
    branch_norm_form: NormForm | None = None
    gain: Gain | None = None  # between that and the sum
    norm: str | None = None  # reads the sum; None if no module does, as in parallel blocks
    norm_form: NormForm | None = None  # if the sum itself is normalised (post-LN)
    query: HeadProjection | None = None
    key: HeadProjection | None = None
    value: HeadProjection | None = None  # of the stream, or of a normalisation of it, `value_norm`
    value_norm: NormPlace | None = None
    rounding: float = 0.0  # by how much quantised projections differ from their matrices, relative to the largest number of their outputs
    rerun: Rerun | None = None  # if something comes between these projections and the queries and keys
    normalised: bool = False  # queries or keys
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class AttentionSites:
    """All sites of a model, verified against its eager attention on a probe. `captured` is False if only the weights that eager returns are available.

    `faults` maps kinds of attention for which the model returns something other than weights to what is wrong. `quantised_by` has the packages that compute with
    its quantised weights. `located` is whether image tokens were verified to be the patches that their boxes say. `unembedding` is a reason where there is none.
    """

    all: tuple[Site, ...]
    captured: bool
    faults: Mapping[Kind, str] = field(default_factory=dict)
    quantised_by: str = ""
    located: bool = False
    unembedding: Unembedding | str = NO_TOKENS

    def of(self, kind: Kind) -> tuple[Site, ...]:
        """Return the sites of one kind of attention, in order of layers. Raises Unsupported if there are none."""
        kinds = {site.kind for site in self.all}
        if kind == "self" and "encoder" in {*kinds, *self.faults}:
            kind = "encoder"
        found = tuple(site for site in self.all if site.kind == kind)
        if not found and kind in self.faults:
            raise ModelNotExact(self.faults[kind], pointer="/kind")
        if not found:
            offered = ", ".join(sorted(kinds))
            raise Unsupported(f"This model has no attention of that kind. It has: {offered}.", pointer="/kind")
        return found

    def missing(self, kind: Kind) -> dict[str, str]:
        """Return missing capability -> reason, for one kind of attention."""
        sites = self.of(kind)
        missing = {need: reason for site in sites for need, reason in site.missing.items()}
        if len({site.heads for site in sites}) > 1:
            missing["equal-heads"] = "Its layers have different numbers of heads."
        if isinstance(self.unembedding, str):
            missing["unembedding"] = self.unembedding
        elif any(site.value is None for site in sites):
            missing["unembedding"] = NOT_LINEAR
        missing |= by_mask(kind=sites[0].kind, causal=any(site.causal for site in sites))
        return {need: reason for need, reason in missing.items() if need in CAPABILITIES}


def norm_at(module: Any, form: NormForm, summed: Tensor) -> Norm:
    """Return a normalisation module at the statistics of `summed` [Q, d], or [..., H, d] for a module with a gain of its own for each head."""
    weight = tensor_of(module, form.weight, summed)
    weight = summed.new_ones(summed.shape[-1]) if weight is None else weight
    gain = weight + 1 if form.plus_one else weight
    shift = tensor_of(module, "bias", summed)
    shift = gain.new_zeros(gain.shape) if shift is None else shift
    if not form.scaled:
        return Norm(gain, shift, summed.new_ones(summed.shape[:-1]), centred=False)
    variance = summed.var(-1, unbiased=False) if form.centred else summed.square().mean(-1)
    return Norm(gain, shift, (variance + form.epsilon).rsqrt(), form.centred)


def scaled_branch(modules: Mapping[str, Any], gain: Gain, norm: Norm | None, result: Tensor) -> Norm:
    """Return a normalisation of attention's result [Q, d], or none, followed by the gain."""
    if gain.join is not None:
        weight, shift = joining(modules[gain.join], gain.place, gain.count, result)
    else:
        one = result.new_tensor(gain.number)
        if gain.parameter is not None:
            module, _, name = gain.parameter.rpartition(".")
            one = tensor_of(modules[module], name, result)
        weight, shift = one.expand(result.shape[-1]), result.new_zeros(result.shape[-1])
    if norm is None:
        return Norm(weight, shift, result.new_ones(len(result)), centred=False)
    return Norm(norm.gain * weight, norm.shift * weight + shift, norm.scale, norm.centred)


def joining(module: Any, place: int, count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return a and c [d] of a module that gives a x + ... + c for its argument x at `place` of `count`, as its outputs for zeros and ones show."""
    zeros = [like.new_zeros(1, 1, like.shape[-1]) for _ in range(count)]
    shift = module.forward(*zeros)[0, 0].to(like.device)
    zeros[place] = zeros[place] + 1
    return module.forward(*zeros)[0, 0].to(like.device) - shift, shift


def query_key_weights(modules: Mapping[str, Any], site: Site, like: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return matrices M [H, d, D'] and N [H, d, D'], and a rotation T [D', D'] or None, of a site where they were found, on the device of `like`.

    The query of a hidden state x at the i-th token is x M Tⁱ, the key of y at the j-th is y N Tʲ, but for biases, and up to a factor of each if they are
    normalised. Raises Unsupported if the parameters have changed so that there are none left.
    """
    parts = [part for part in (site.query, site.key) if part is not None]
    query, key = (head_weights(modules[part.module], part, like) for part in parts)
    turn = None
    if site.rerun is not None:
        sources = _sources(modules, site, like)
        found = read_map(maps_by_token(modules[str(site.module)], site.rerun, sources), like.dtype)
        if isinstance(found, str):
            raise Unsupported(found)
        query, key, turn = query.double() @ found.query, key.double() @ found.key, found.turn
    return query, key.repeat_interleave(len(query) // len(key), dim=0), turn


def rotation(modules: Mapping[str, Any], site: Site, text: Rerun, like: Tensor) -> Tensor | None:
    """Return the rotation T [D', D'] from one token of a text to the next, None if there is none. `text` is what the module that attends was called with on it.

    It is that of the probe, or, where a model turns longer texts by other angles, that of the text. Raises Unsupported if neither leads to every token.
    """
    if site.rerun is None:
        return None
    module, sources = modules[str(site.module)], _sources(modules, site, like)
    for rerun in (site.rerun, text):
        found = read_map(maps_by_token(module, rerun, sources), like.dtype)
        if not isinstance(found, str) and is_turned(module, text, sources, found.turn):
            return found.turn
    raise Unsupported(NOT_BY_DISTANCE, pointer="/model")


def _sources(modules: Mapping[str, Any], site: Site, like: Tensor) -> Sources:
    """Return the linear modules that make the queries and the keys."""
    query, key = (
        VectorSource(modules[part.module], part, len(matrix(modules[part.module], like)), like)
        for part in (site.query, site.key)
        if part is not None
    )
    return query, key


def head_weights(module: Any, part: HeadProjection, like: Tensor) -> Tensor:
    """Return the rows of a linear module's matrix that make each head's query or key, on the device of `like`: [H, d, D']."""
    rows = matrix(module, like)  # [output, d]
    return torch.stack([rows[start : start + part.width].mT for start in part.starts])


def split_projection(module: Any, heads: int, like: Tensor) -> Tensor:
    """Return each head's part of the output projection, on the device of `like`: [H, D, d]."""
    rows = matrix(module, like)  # [d, H D]
    return rows.mT.reshape(heads, -1, rows.shape[0])  # [H D, d] -> [H, D, d]
