"""PASTA: vectors added to the special tokens before chosen layers (Yang et al. 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from ..core.lazy import Tensor, torch
from ..errors import InvalidRequest
from .base import Mechanism, Pass, PassContext

Vector = Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1, max_length=16_384)]
Vectors = Annotated[list[Vector], Field(min_length=1, max_length=64)]


class PastaParams(BaseModel):
    """What is added where."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    vectors: list[Vectors] | None = Field(
        default=[],
        max_length=256,
        description="One list per layer, of one vector per special token of the input, as wide as the model. An empty list changes nothing; "
        "null stands for those that came with a model that was tuned this way.",
    )
    layers: list[Annotated[int, Field(ge=0, le=9_999)]] | None = Field(
        default=None,
        max_length=256,
        description="Layers that the vectors are added before, counted from 0, in the order of the vectors. By default the first ones: 0, 1, 2, ...",
    )


@dataclass
class Adding(Pass):
    """Adds vectors [S, d] to the hidden states at `places` [S] before a layer, or [B, S] in a batch."""

    vectors: Mapping[int, Tensor]
    places: Tensor

    def enter(self, layer: int, hidden: Tensor) -> Tensor:
        if layer not in self.vectors:
            return hidden
        places = self.places.to(hidden.device)
        vectors = self.vectors[layer].to(hidden).expand(*places.shape, -1)
        return hidden.scatter_add(-2, places[..., None].expand_as(vectors), vectors)


def begin(params: PastaParams, setting: PassContext) -> Pass:
    """The pass that adds vectors[i][k] to the k-th special token's hidden state before layers[i]. Raises InvalidRequest unless counts and width fit."""
    given = _given(params, setting)
    if not given and not params.layers:
        return Pass()
    layers, places = _layers(params.layers, len(given), list(setting.heads_of)), _places(setting)
    specials = places.shape[-1]
    for vectors in given:
        if len(vectors) != specials and params.vectors is None:
            raise InvalidRequest(
                f"This model was tuned on inputs with {len(vectors)} special tokens, and this one has {specials}. Take another input or another mechanism.",
                pointer="/mechanism",
                limit=len(vectors),
                actual=specials,
            )
        if len(vectors) != specials:
            raise _refuse("The special tokens of this input", "vectors for every layer", specials, len(vectors))
        for vector in vectors:
            if len(vector) != setting.width:
                raise _refuse("The width of this model", "numbers in every vector", setting.width, len(vector))
    return Adding(dict(zip(layers, torch.tensor(given, dtype=torch.float64), strict=True)), places)


def _places(setting: PassContext) -> Tensor:
    """Where the special tokens are, [S], or [B, S] in a batch."""
    if setting.special is not None:
        return setting.special
    special = [place for place, token in enumerate(setting.axes.queries) if token.kind == "special"]
    return torch.tensor(special, dtype=torch.long)


def _refuse(what: str, counted: str, limit: int, actual: int) -> InvalidRequest:
    return InvalidRequest(
        f"{what}: {limit}. Give that many {counted}.", pointer="/mechanism/vectors", limit=limit, actual=actual
    )


def _given(params: PastaParams, setting: PassContext) -> list[list[list[float]]]:
    """[layers, specials, d], or nothing. InvalidRequest for a model that came without vectors."""
    if params.vectors is not None:
        return params.vectors
    if setting.vectors is None:
        raise InvalidRequest("This model came without vectors of its own. Give some.", pointer="/mechanism/vectors")
    return setting.vectors


def _layers(named: list[int] | None, wanted: int, attending: list[int]) -> list[int]:
    """The layer of each list of vectors. InvalidRequest unless they are as many different layers of the model that attend."""
    layers = attending[:wanted] if named is None else named
    if len(layers) != wanted:
        raise InvalidRequest(
            f"There are vectors for {wanted} layers, but {len(layers)} layers to add them in. Give one list of vectors for each.",
            pointer="/mechanism/layers",
            limit=wanted,
            actual=len(layers),
        )
    if len(set(layers)) < wanted or not set(layers) <= set(attending):
        raise InvalidRequest(
            "A layer for vectors is named twice, or is not in this model, or does not attend; layers are counted from 0.",
            pointer="/mechanism/layers",
        )
    return layers


PASTA = Mechanism(
    name="pasta",
    title="PASTA",
    doc="Vectors are added to the special tokens' hidden states before chosen layers, so that what these tokens broadcast through attention changes.",
    not_="Not tuning: nothing is learned here. The vectors are yours, or those that the model came with; without vectors its attention is plain softmax.",
    citation="Yang et al. 2023, Parameter-Efficient Tuning with Special Token Adaptation",
    range=(0.0, 1.0),
    params=PastaParams,
    needs=("capture", "hidden"),
    begin=begin,
)
