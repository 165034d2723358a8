"""What is answered about studies and their data sets."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from .analyses import MechanismSchema, Problem, Strict

Status = Literal["queued", "running", "done", "failed", "cancelled"]


class StudyProgress(Strict):
    """How far a study is: `inputs` of `of` are done. `seconds_left` goes by the pace so far; null before there is one, and at the end."""

    fraction: float
    stage: str
    detail: str
    position: Annotated[int | None, Field(description="Number of jobs before its next part in the queue.")]
    inputs: int
    of: int
    seconds_left: float | None


class BadRowSchema(Strict):
    """A row that could not be read: its line (or row) in the source, counted from 1, and what is wrong with it."""

    row: int
    problem: str


class StudyData(Strict):
    """The data set of a study: how it was read, which column is which, and the rows that were left out (the first of them)."""

    id: str | None = None
    name: str
    format: str
    encoding: str
    columns: list[str]
    chosen: Annotated[dict[str, str], Field(description="Column by role: text, text_pair, words, pos, labels, label.")]
    guessed: bool
    rows: int
    reasons: Annotated[dict[str, str], Field(description="Why that column, by role.")]
    bad_rows: list[BadRowSchema]
    bad_count: int


class VariantSchema(Strict):
    """A model under a mechanism. `layers` and `heads` are the numbers of those studied; empty before the study is done."""

    model: str
    mechanism: MechanismSchema
    layers: list[int]
    heads: list[int]
    head_width: int
    causal: bool


class FailedInput(Strict):
    """An input that the model could not take, by its row in the source."""

    row: int
    code: str
    detail: str


class StudyDocument(Strict):
    """A study, whatever its state. What only a finished one has is empty before."""

    id: str
    status: Status
    progress: StudyProgress
    attempts: int
    request: Annotated[
        dict[str, Any], Field(description="What was asked for; text that came with it is named by its data set.")
    ]
    dataset: StudyData
    variants: list[VariantSchema]
    lenses: list[str]
    measures: list[str]
    inputs: Annotated[int, Field(description="Inputs that went through the model.")]
    tokens: int
    cut: Annotated[int, Field(description="Inputs that were cut to max_tokens.")]
    failed: Annotated[list[FailedInput], Field(description="The first of the inputs that failed.")]
    failed_count: int
    unaligned: Annotated[int, Field(description="Inputs whose tokens in the two variants could not be aligned.")]
    not_compared: Annotated[str | None, Field(description="Why the two variants were not compared.")]
    figures: Annotated[list[str], Field(description="Figures that can be drawn of it.")]
    tables: Annotated[list[str], Field(description="Tables that can be made of it.")]
    timing_ms: Annotated[list[dict[str, float]], Field(description="By variant, where the time went.")]
    created: float | None
    finished: float | None
    links: dict[str, str]
    error: Problem | None


class StudyItem(Strict):
    """A study in a list."""

    id: str
    status: Status
    progress: StudyProgress
    dataset: str
    variants: list[VariantSchema]
    lenses: list[str]
    measures: list[str]
    created: float


class StudyEvent(Strict):
    """What an event of a study's stream carries."""

    id: str
    status: Status
    progress: StudyProgress
    attempts: int
    error: Problem | None


class Example(Strict):
    """An input of the data set, by its row in the source; long texts are cut."""

    row: int
    text: str
    text_pair: str | None = None
    label: str | None = None


class DatasetRow(Example):
    """A row as it will be analysed; `pos` and `labels` have one entry per word."""

    pos: list[str] | None = None
    labels: list[str] | None = None


class DatasetDocument(StudyData):
    """A data set: how it was read, and its first rows."""

    id: str
    bytes: int
    sample: list[DatasetRow]


class DatasetItem(Strict):
    """A data set in a list. Those of the server's folders have their name as id."""

    id: str
    name: str
    bytes: int


class TopInput(Example):
    """An input, and what was measured of it: its mean over tokens."""

    value: float


class Distribution(Strict):
    """How often values fell between two edges: counts[i] of them between edges[i] and edges[i + 1]."""

    edges: list[float]
    counts: list[int]


class StudyNumber(Strict):
    """A measure of a head over all inputs; `column` where it has several. `interval` holds the mean over inputs with 95 %, by bootstrap.

    `mean` and `std` are over all values (tokens of all inputs), `input_mean` counts each input once. Values are counted in bins: the median is between the
    ends of `median_within`, and `median` is an estimate inside. `top` are the inputs with the largest values. Of a measure of
    the weights alone there is the mean only.
    """

    measure: str
    lens: str
    column: str | None
    unit: str
    count: int
    mean: float | None
    std: float | None
    low: float | None
    high: float | None
    inputs: int
    input_mean: float | None
    interval: tuple[float, float] | None
    median: float | None
    median_within: tuple[float, float] | None
    distribution: Distribution | None
    top: list[TopInput]


class ClassShare(Strict):
    """In what part of the inputs a head was of a class."""

    measure: str
    name: str
    count: int
    share: float


class Neighbour(Strict):
    """A head whose maps are alike: the mean cosine over inputs."""

    layer: int
    head: int
    cosine: float


class StudyHead(Strict):
    """A head over all inputs of a study."""

    layer: int
    head: int
    lens: str
    variant: int
    numbers: list[StudyNumber]
    classes: list[ClassShare]
    neighbours: list[Neighbour]
