"""Schemas of models."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ...core.attention import Kind, ModelKind
from ...models.facts import Predicts
from .common import MechanismSchema, Problem, Status, Strict


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
    hub: str | None = Field(description="Its id on the hub, null if it comes from a folder only.")
    default: bool
    local: bool
    removable: bool = Field(
        description="Whether you may remove it: it is in the hub's cache, and the server has no users."
    )
    parameters: int | None = Field(description="Number of weights; rounded until the model is on the server.")
    bytes: int | None = Field(description="Size of its weights on disk; until then, of the download, rounded.")
    available: bool
    reason: str | None
    family: str
    kind: ModelKind
    layers: int
    heads: int
    head_width: int
    max_tokens: int | None
    mechanism: MechanismSchema
    chats: bool = Field(
        default=False,
        description="Whether its tokenizer has a chat template, so that it takes `messages`; false until the model is on the server.",
    )
    quantisation: str | None = Field(
        description='Types of a GGUF file, such as "Q4_1, Q8_0", from which the weights were dequantised; null if they never were quantised.'
    )
    quantised_by: str | None = Field(
        description="The package that computes with its quantised weights, such as bitsandbytes; null if they are not quantised."
    )
    images: bool = Field(description="Whether it reads an image beside a text.")
    predicts: Predicts | None = Field(
        description="What its logits are about: the next token, the token in the place of another, or a class of the whole input; "
        "null if it has no head for any of these, and until the model is on the server."
    )
    siblings: list[str]


class KindDetail(Strict):
    """One kind of attention of a model: its dimensions and the methods it supports. Effects of a model that is not on the server count as supported."""

    kind: Kind
    layers: int
    heads: int
    head_width: int
    max_tokens: int | None
    lenses: list[Support]
    mechanisms: list[Support]
    measures: list[Support]
    effects: list[Support]


class AddModel(Strict):
    """A model to download."""

    model: str = Field(min_length=1, max_length=200, description="Catalogue name or hub id.")


class Download(Strict):
    """The unfinished or failed download of a model: `fraction` is from 0 to 1, `detail` says how much has arrived."""

    status: Status
    fraction: float
    detail: str
    error: Problem | None


class ModelDetail(ModelCard):
    """A model and the methods it supports; `download` is null unless a download is under way or has failed."""

    download: Download | None = None

    lenses: list[Support]
    mechanisms: list[Support]
    measures: list[Support]
    kinds: Annotated[
        list[KindDetail],
        Field(
            description="The same for each kind of attention, the default kind first. Empty if the model cannot be inspected."
        ),
    ]
