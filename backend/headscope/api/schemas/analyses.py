"""Schemas of analyses: documents, list items, events and batches."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, create_model

from ...analysis.request import AnalysisRequest, Count, Tag
from ...core.attention import Kind
from ...core.tokens import TokenKind
from ...models.conversation import Message
from ...models.generation import Generate
from .common import ComputedBy, MechanismSchema, Problem, Status, Strict


class TokenSchema(Strict):
    """One token. `start` and `end` are character offsets into the text of its segment."""

    text: str
    id: int
    start: int
    end: int
    word: int | None
    segment: int
    kind: TokenKind
    pos: str | None
    label: str | None = None
    role: str | None = Field(
        default=None,
        description="In a conversation, the role of the message whose content the token is part of; null for tokens of the chat template.",
    )
    box: tuple[int, int, int, int] | None = Field(
        default=None,
        description="For a patch of an image: left, top, right, bottom in pixels of the image as the model sees it.",
    )


class Word(Strict):
    """The tokens of one word; a token outside any word forms its own."""

    tokens: list[int]
    text: str


class Progress(Strict):
    """Progress of a job. `position` is the largest number of jobs that may run before it."""

    fraction: float
    stage: Literal["queued", "loading", "forward", "writing", "done", "failed", "cancelled"]
    detail: str
    position: int | None


class WarningSchema(Strict):
    """What to know before reading the maps of a lens, or of all lenses (null)."""

    code: str
    lens: str | None
    message: str


class MapSchema(Strict):
    """The map of a lens, and what the lens reports per layer and head."""

    shape: list[int]
    by_layer: Annotated[
        bool, Field(description="Whether there is one map per layer instead of per head: axis H has one entry.")
    ]
    params: dict[str, Any]
    signed: bool
    stored: bool
    rank: list[list[int]] | None
    condition: list[list[float | None]] | None
    identical: list[list[bool]] | None
    undefined: Annotated[
        list[list[int]] | None,
        Field(description="Number of undefined rows (NaN) per layer and head; null if there are none."),
    ]


class GridSchema(Strict):
    """The patches of an image: number of rows and columns; sizes in pixels, [width, height], of a patch and of the image as the model sees it."""

    rows: int
    columns: int
    patch: tuple[int, int]
    size: tuple[int, int]


class Spread(Strict):
    """Minimum, mean and maximum of the finite values; null if there are none."""

    min: float | None
    mean: float | None
    max: float | None


class ColumnSpread(Spread):
    """The spread of one column of a measure."""

    unit: str


class Summary(Spread):
    """A summary of a measure. A measure with columns has a spread per column and none over all."""

    unit: str
    shape: list[int]
    columns: dict[str, ColumnSpread]


class Event(Strict):
    """The data of a server-sent event of an analysis."""

    id: str
    status: Status
    progress: Progress
    attempts: int
    error: Problem | None


class AnalysisDocument(Event):
    """An analysis in any state. Fields that only a finished analysis has are empty until then."""

    batch: str | None
    model: str
    mechanism: MechanismSchema
    lenses: list[str]
    measures: list[str]
    text: str | None
    text_pair: str | None
    messages: Annotated[list[Message] | None, Field(description="The conversation, if one was analysed.")] = None
    image: Annotated[str | None, Field(description="SHA-256 of the image file as it was sent.")]
    full_text: Annotated[
        str | None, Field(description="The text that token offsets refer to, including generated text at its end.")
    ]
    target_text: Annotated[str | None, Field(description="The same for the decoder of an encoder-decoder.")]
    generate: Annotated[Generate | None, Field(description="The requested generation.")]
    generated: Annotated[int, Field(description="Number of tokens at the end that the model generated.")]
    max_tokens: Annotated[int | None, Field(description="The requested maximum number of tokens.")]
    mask: Annotated[list[int] | None, Field(description="The tokens that the mask token replaced, counted from 0.")] = (
        None
    )
    grid: GridSchema | None
    layers: int
    heads: int
    layer_numbers: list[int]
    head_numbers: list[int]
    head_width: int
    causal: bool
    windows: Annotated[
        list[tuple[int, int] | None],
        Field(
            description="For every analysed layer, how many tokens before and after itself a query can attend to; null where it attends to all keys."
        ),
    ]
    kind: Kind
    tokens: list[TokenSchema]
    key_tokens: Annotated[
        list[TokenSchema] | None,
        Field(description="Tokens along the key axis; null if they are the same as `tokens`."),
    ]
    words: Annotated[list[Word], Field(description="Words along the query axis of maps by word.")]
    key_words: Annotated[
        list[Word] | None,
        Field(description="Words along the key axis of maps by word; null if they are the same as `words`."),
    ]
    maps: dict[str, MapSchema]
    summaries: dict[str, dict[str, Summary]]
    warnings: list[WarningSchema]
    timing_ms: dict[str, float]
    versions: ComputedBy
    links: dict[str, str]


class AnalysisItem(Strict):
    """An analysis in a list."""

    id: str
    status: Status
    model: str
    mechanism: MechanismSchema
    text: str | None
    text_pair: str | None
    messages: Annotated[list[Message] | None, Field(description="The conversation, if one was analysed.")] = None
    image: Annotated[str | None, Field(description="SHA-256 of the image file as it was sent.")]
    generate: Annotated[Generate | None, Field(description="The requested generation.")]
    mask: Annotated[list[int] | None, Field(description="The tokens that the mask token replaced, counted from 0.")]
    created: float


class BatchInput(Strict):
    """One input of a batch."""

    model_config = ConfigDict(strict=True)

    text: str | None = None
    text_pair: str | None = None
    messages: list[Message] | None = Field(default=None, fail_fast=True, min_length=1, max_length=1_000)
    token_ids: list[Count] | None = Field(default=None, fail_fast=True, min_length=1, max_length=100_000)
    target_ids: list[Count] | None = Field(default=None, fail_fast=True, min_length=1, max_length=100_000)
    image: str | None = Field(default=None, max_length=20_000_000)
    mask: list[Count] | None = Field(default=None, fail_fast=True, min_length=1, max_length=100_000)
    pos: list[Tag] | None = Field(default=None, fail_fast=True, max_length=100_000)
    labels: list[Tag] | None = Field(default=None, fail_fast=True, max_length=100_000)


# The request for a batch is that for one analysis, with `inputs` in place of the input fields.
_shared: dict[str, Any] = {
    name: (field.annotation, field)
    for name, field in AnalysisRequest.model_fields.items()
    if name not in BatchInput.model_fields
}
BatchRequest = create_model(
    "BatchRequest",
    __config__=ConfigDict(extra="forbid", strict=True, protected_namespaces=()),
    __doc__="Up to 1,000 inputs; the other fields apply to all of them.",
    inputs=(list[BatchInput], Field(min_length=1, max_length=1000)),
    **_shared,
)


class BatchAccepted(Strict):
    """The ids of a batch's analyses in the order of the inputs. Identical inputs have the same id."""

    batch: str
    ids: list[str]
