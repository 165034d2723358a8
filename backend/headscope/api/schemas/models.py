"""Schemas of models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...core.attention import Kind, ModelKind
from .common import MechanismSchema, Strict


class Support(Strict):
    """Whether a model supports a lens, mechanism or measure, and if not, why."""

    name: str
    supported: bool
    reason: str | None


class ModelCard(Strict):
    """An available model. If `available` is false, `reason` says why; if `local` is false, the model is downloaded on first use.

    `mechanism` is the one it was trained with and the default of requests. `siblings` are models that differ from it in one respect, such as the mechanism.
    """

    name: str
    title: str
    description: str
    license: str | None
    default: bool
    local: bool
    available: bool
    reason: str | None
    family: str
    kind: ModelKind
    layers: int
    heads: int
    head_width: int
    max_tokens: int | None
    mechanism: MechanismSchema
    siblings: list[str]


class KindDetail(Strict):
    """One kind of attention of a model: its dimensions and the methods it supports."""

    kind: Kind
    layers: int
    heads: int
    head_width: int
    max_tokens: int | None
    lenses: list[Support]
    mechanisms: list[Support]
    measures: list[Support]


class ModelDetail(ModelCard):
    """A model and the methods it supports."""

    lenses: list[Support]
    mechanisms: list[Support]
    measures: list[Support]
    kinds: Annotated[
        list[KindDetail],
        Field(
            description="The same for each kind of attention, the default kind first. Empty if the model cannot be inspected."
        ),
    ]
