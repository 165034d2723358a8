"""PASTA: vectors are added to the special tokens before chosen layers (Yang et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from ..core.declarations import Params
from ..core.lazy import Tensor, torch
from ..errors import InvalidRequest, Unsupported
from .base import Mechanism, Pass, PassContext

Vector = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1, max_length=16_384)]
Vectors = Annotated[list[Vector], Field(min_length=1, max_length=64)]


class PastaParams(Params):
    """The vectors and their layers."""

    vectors: list[Vectors] | None = Field(
        default=[],
        max_length=256,
        description="One list per layer with one vector per special token of the input, as wide as the model. An empty list changes nothing; "
        "null stands for the vectors of a model that was tuned this way.",
    )
    layers: list[Annotated[int, Field(ge=0, le=9_999)]] | None = Field(
        default=None,
        max_length=256,
        description="Layers before which the vectors are added, counted from 0, in the order of the vectors. By default the first layers: 0, 1, 2, ...",
    )


@dataclass
class PastaPass(Pass):
    """A pass that adds vectors [S, d] to the hidden states at `places` [S] before a layer, or [B, S] in a batch."""

    vectors: Mapping[int, Tensor]
    places: Tensor

    def enter(self, layer: int, hidden: Tensor) -> Tensor:
        if layer not in self.vectors:
            return hidden
        places = self.places.to(hidden.device)
        vectors = self.vectors[layer].to(hidden).expand(*places.shape, -1)
        return hidden.scatter_add(-2, places[..., None].expand_as(vectors), vectors)


def begin(params: PastaParams, context: PassContext) -> Pass:
    """Return the pass that adds vectors[i][k] to the k-th special token's hidden state before layers[i]. Raises InvalidRequest unless counts and width fit."""
    vectors_by_layer = _vectors(params, context)
    if not vectors_by_layer and not params.layers:
        return Pass()
    layers, places = _layers(params.layers, len(vectors_by_layer), list(context.heads)), _places(context)
    if context.continued:
        return continued_pass(places)
    specials = places.shape[-1]
    for vectors in vectors_by_layer:
        if len(vectors) != specials and params.vectors is None:
            raise InvalidRequest(
                f"This model was tuned on inputs with {len(vectors)} special tokens, but this input has {specials}. Choose another input or another mechanism.",
                pointer="/mechanism",
                limit=len(vectors),
                actual=specials,
            )
        if len(vectors) != specials:
            raise _mismatch("The special tokens of this input", "vectors for every layer", specials, len(vectors))
        for vector in vectors:
            if len(vector) != context.width:
                raise _mismatch("The width of this model", "numbers in every vector", context.width, len(vector))
    return PastaPass(dict(zip(layers, torch.tensor(vectors_by_layer, dtype=torch.float64), strict=True)), places)


def continued_pass(places: Tensor) -> Pass:
    """Return the pass of tokens after those of a cache, which had the special tokens. Raises Unsupported if there are more at `places` [B, S]."""
    if places.shape[-1]:
        raise Unsupported(
            "There are special tokens after those in the cache, so it is not known which vectors are theirs. Call the model with the whole text."
        )
    return Pass()


def _places(context: PassContext) -> Tensor:
    """Return the positions of the special tokens, [S], or [B, S] in a batch."""
    if context.special is not None:
        return context.special
    special = [place for place, token in enumerate(context.axes.queries) if token.kind == "special"]
    return torch.tensor(special, dtype=torch.long)


def _mismatch(what: str, counted: str, limit: int, actual: int) -> InvalidRequest:
    return InvalidRequest(
        f"{what}: {limit}. Give that many {counted}.", pointer="/mechanism/vectors", limit=limit, actual=actual
    )


def _vectors(params: PastaParams, context: PassContext) -> list[list[list[float]]]:
    """Return vectors [layers, specials, d], possibly none. Raises InvalidRequest for a model without vectors of its own."""
    if params.vectors is not None:
        return params.vectors
    if context.vectors is None:
        raise InvalidRequest(
            "This model has no vectors of its own. Give some in the request.", pointer="/mechanism/vectors"
        )
    return context.vectors


def _layers(named: list[int] | None, wanted: int, attending: list[int]) -> list[int]:
    """Return the layer of each list of vectors. Raises InvalidRequest unless they are as many different layers with attention."""
    layers = attending[:wanted] if named is None else named
    if len(layers) != wanted:
        raise InvalidRequest(
            f"There are vectors for {wanted} layers, but {len(layers)} layers are named. Give one list of vectors for each layer.",
            pointer="/mechanism/layers",
            limit=wanted,
            actual=len(layers),
        )
    if len(set(layers)) < wanted or not set(layers) <= set(attending):
        raise InvalidRequest(
            "A layer for vectors is repeated, is not in this model, or has no attention. Layers are counted from 0.",
            pointer="/mechanism/layers",
        )
    return layers


PASTA = Mechanism(
    name="pasta",
    title="PASTA",
    doc="Vectors are added to the special tokens' hidden states before chosen layers, which changes what these tokens broadcast through attention.",
    not_="Not tuning: nothing is learned here. The vectors come from the request or from the model; without vectors it is plain softmax attention.",
    citation="Yang et al. 2023, Parameter-Efficient Tuning with Special Token Adaptation",
    range=(0.0, 1.0),
    params=PastaParams,
    needs=("capture", "hidden"),
    begin=begin,
)
