"""The JSON of the interface. The page's TypeScript types are generated from these."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from ...analysis.request import AnalysisRequest, Count, Tag
from ...core.attention import Kind, ModelKind
from ...core.tokens import TokenKind
from ...models.generation import Generate

T = TypeVar("T")


class Strict(BaseModel):
    """Nothing but what is declared."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class Page(Strict, Generic[T]):
    """A page of a list; `next` is the cursor of the following page, null at the end."""

    items: list[T]
    next: str | None = None


class ModelCard(Strict):
    """A model on offer. `available` false comes with the reason; `local` false means it is fetched on first use.

    `mechanism` is the one it was trained with, which holds where a request names none. `siblings` differ from it in little: in their mechanism, say.
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


class ModelDetail(ModelCard):
    """The same with what can be done with it."""

    lenses: list[Support]
    mechanisms: list[Support]
    measures: list[Support]
    kinds: Annotated[
        list[KindDetail],
        Field(description="The same per kind of attention, the default one first. Empty before anything is known."),
    ]


class KindDetail(Strict):
    """One kind of attention of a model: its numbers, and what can be done with it."""

    kind: Kind
    layers: int
    heads: int
    head_width: int
    max_tokens: int | None
    lenses: list[Support]
    mechanisms: list[Support]
    measures: list[Support]


class Support(Strict):
    """Whether a lens, mechanism or measure works with a model, and if not, why."""

    name: str
    supported: bool
    reason: str | None


class DeclarationSchema(BaseModel):
    """A mechanism, lens or measure: what it is (doc), what it is not (not), the JSON Schema of its params, unit, range and source."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    name: str
    title: str
    doc: str
    not_: str = Field(alias="not")
    citation: str
    params: Annotated[dict[str, Any], Field(description="JSON Schema of the parameters.")]
    unit: str
    range: tuple[float | None, float | None]
    needs: list[str]


class LensSchema(DeclarationSchema):
    """A lens; `signed` maps may be negative."""

    signed: bool
    shape: str


class MeasureSchema(DeclarationSchema):
    """A measure; `lenses` are those it can be asked about, `reads` those it needs, `columns` what its axis C holds.

    `units` holds the unit of each column, `classes` what the numbers in a column class mean.
    """

    shape: str
    lenses: list[str]
    reads: list[str]
    columns: list[str]
    units: dict[str, str]
    classes: list[str]


class TokenSchema(Strict):
    """One token; start and end are characters of the text of its segment."""

    text: str
    id: int
    start: int
    end: int
    word: int | None
    segment: int
    kind: TokenKind
    pos: str | None
    label: str | None = None
    box: tuple[int, int, int, int] | None = Field(
        default=None,
        description="A patch of an image: left, top, right, bottom in pixels of the image as the model sees it.",
    )


class Progress(Strict):
    """How far a job is. `position` is the number of jobs before it in the queue."""

    fraction: float
    stage: Literal["queued", "loading", "forward", "writing", "done", "failed", "cancelled"]
    detail: str
    position: int | None


class WarningSchema(Strict):
    """Something to say next to a lens."""

    code: str
    lens: str | None
    message: str


class MapSchema(Strict):
    """A map that can be asked for, and what the lens noted per layer and head."""

    shape: list[int]
    by_layer: Annotated[bool, Field(description="One map for all heads of a layer: axis H has one entry.")]
    params: dict[str, Any]
    signed: bool
    stored: bool
    rank: list[list[int]] | None
    condition: list[list[float | None]] | None
    identical: list[list[bool]] | None
    undefined: Annotated[
        list[list[int]] | None,
        Field(description="Number of queries without a reading (NaN), per layer and head; null where all have one."),
    ]


class Word(Strict):
    """Tokens that are one word, or one that stands alone."""

    tokens: list[int]
    text: str


class Spread(Strict):
    """Smallest, mean and largest of some values; null where none is defined."""

    min: float | None
    mean: float | None
    max: float | None


class ColumnSpread(Spread):
    """The spread of one column of a measure."""

    unit: str


class Summary(Spread):
    """A measure in short. What has columns has a spread for each of them, and none over all."""

    unit: str
    shape: list[int]
    columns: dict[str, ColumnSpread]


class MechanismSchema(BaseModel):
    """Name and parameters of a mechanism."""

    model_config = ConfigDict(extra="allow")

    name: str


class ErrorItem(Strict):
    """One field that is wrong; `pointer` is a JSON pointer into the request."""

    pointer: str
    message: str


class Problem(BaseModel):
    """RFC 9457 problem document. `code` is stable; `detail` says in one sentence what to do."""

    model_config = ConfigDict(extra="forbid")

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str | None = None
    errors: list[ErrorItem] = []
    limit: int | None = None
    actual: int | None = None
    position: Annotated[int | None, Field(description="Where a query cannot be read, in characters from 0.")] = None


class GridSchema(Strict):
    """How an image became tokens: rows and columns of patches; a patch and the image as the model sees it in pixels, [width, height]."""

    rows: int
    columns: int
    patch: tuple[int, int]
    size: tuple[int, int]


class AnalysisDocument(Strict):
    """An analysis, whatever its state. What only a finished one has is empty before."""

    id: str
    status: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: Progress
    attempts: int
    batch: str | None
    model: str
    mechanism: MechanismSchema
    lenses: list[str]
    measures: list[str]
    text: str | None
    text_pair: str | None
    image: Annotated[str | None, Field(description="SHA-256 of the image as it was sent.")]
    full_text: Annotated[
        str | None, Field(description="What the offsets of tokens count in, with what the model wrote at its end.")
    ]
    target_text: Annotated[str | None, Field(description="The same of a decoder beside an encoder.")]
    generate: Annotated[Generate | None, Field(description="How the model was asked to write on.")]
    generated: Annotated[int, Field(description="How many tokens at the end the model wrote itself.")]
    max_tokens: Annotated[int | None, Field(description="How many tokens the input was to be cut to.")]
    grid: GridSchema | None
    layers: int
    heads: int
    layer_numbers: list[int]
    head_numbers: list[int]
    head_width: int
    causal: bool
    kind: Kind
    tokens: list[TokenSchema]
    key_tokens: Annotated[
        list[TokenSchema] | None, Field(description="Along the key axis, where these are other tokens.")
    ]
    words: Annotated[list[Word], Field(description="What the rows of maps by word stand for.")]
    key_words: Annotated[
        list[Word] | None, Field(description="The same along the key axis, where it has other tokens.")
    ]
    maps: dict[str, MapSchema]
    summaries: dict[str, dict[str, Summary]]
    warnings: list[WarningSchema]
    timing_ms: dict[str, float]
    links: dict[str, str]
    error: Problem | None


class AnalysisItem(Strict):
    """An analysis in a list."""

    id: str
    status: Literal["queued", "running", "done", "failed", "cancelled"]
    model: str
    mechanism: MechanismSchema
    text: str | None
    text_pair: str | None
    image: Annotated[str | None, Field(description="SHA-256 of the image as it was sent.")]
    created: float


class Event(Strict):
    """What an event of the stream carries."""

    id: str
    status: Literal["queued", "running", "done", "failed", "cancelled"]
    progress: Progress
    attempts: int
    error: Problem | None


class BatchInput(Strict):
    """One input of a batch."""

    model_config = ConfigDict(strict=True)

    text: str | None = None
    text_pair: str | None = None
    token_ids: list[Count] | None = Field(default=None, fail_fast=True, min_length=1, max_length=100_000)
    target_ids: list[Count] | None = Field(default=None, fail_fast=True, min_length=1, max_length=100_000)
    image: str | None = Field(default=None, max_length=20_000_000)
    pos: list[Tag] | None = Field(default=None, fail_fast=True, max_length=100_000)
    labels: list[Tag] | None = Field(default=None, fail_fast=True, max_length=100_000)


# A batch is an analysis' request with `inputs` in place of its input.
_shared: dict[str, Any] = {
    name: (field.annotation, field)
    for name, field in AnalysisRequest.model_fields.items()
    if name not in BatchInput.model_fields
}
BatchRequest = create_model(
    "BatchRequest",
    __config__=ConfigDict(extra="forbid", strict=True, protected_namespaces=()),
    __doc__="Up to 1,000 inputs, read in the same way.",
    inputs=(list[BatchInput], Field(min_length=1, max_length=1000)),
    **_shared,
)


class BatchAccepted(Strict):
    """The ids of a batch's analyses, in the order of its inputs; the same input twice has the same id twice."""

    batch: str
    ids: list[str]


class Edge(Strict):
    """One connection: query token attends to key token."""

    layer: int
    head: int
    query: int
    key: int
    weight: float


class Edges(Strict):
    """The strongest connections, largest magnitude first. `total` is how many the rule selects, whether sent or not."""

    edges: list[Edge]
    total: int


class TokenPair(Strict):
    """Tokens that stand for the same in two analyses, by their numbers."""

    tokens: list[int]
    other_tokens: list[int]
    text: str
    other_text: str


class AlignedTokens(Strict):
    """Which tokens of two analyses stand for the same. `share`, 0 to 1, is that of the tokens that have a counterpart; `keys` is null where they are as the queries."""

    by: Literal["token", "word"]
    share: float
    queries: list[TokenPair]
    keys: list[TokenPair] | None


class ComparedAnalyses(Strict):
    """Two maps of every head compared, [L][H]; null where that is undefined. Layers and heads are those of the other analysis."""

    lens: str
    other_lens: str
    by: Literal["token", "word"]
    layer_numbers: list[int]
    head_numbers: list[int]
    cosine: list[list[float | None]]
    js_divergence: list[list[float | None]] | None


class MeasureValues(Strict):
    """Values of a measure, null where undefined. `axes` names the axes of `values`, `columns` what an axis C holds, `units` in which units."""

    name: str
    lens: str
    unit: str
    axes: list[str]
    columns: list[str]
    units: list[str]
    shape: list[int]
    values: list[Any]


class Health(Strict):
    """Whether the server takes work, and what it holds."""

    status: Literal["ok", "degraded"]
    version: str
    queued: int | None = Field(description="Analyses that wait; null while the queue can't be reached.")
    workers: int | None = Field(
        description="Workers of a cluster; null where a child process of the server does the work."
    )
    results: int | None
    result_bytes: int | None
