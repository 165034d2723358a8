"""Schemas of studies and data sets."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from ...analysis.request import Versions
from .common import MechanismSchema, Problem, Status, Strict


class StudyProgress(Strict):
    """Progress of a study: `inputs` of `of` are done. `seconds_left` is estimated from the pace so far; null if there is none yet, and at the end."""

    fraction: float
    stage: str
    detail: str
    position: Annotated[int | None, Field(description="Largest number of jobs that may run before its next chunk.")]
    inputs: int
    of: int
    seconds_left: float | None


class BadRowSchema(Strict):
    """A row that could not be read: its line (or row) in the source, counted from 1, and the reason."""

    row: int
    problem: str


class StudyData(Strict):
    """The data set of a study: how it was parsed, the roles of its columns, and the first of the rows that were skipped."""

    id: str | None = None
    name: str
    format: str
    encoding: str
    columns: list[str]
    chosen: Annotated[
        dict[str, str],
        Field(description="Column for each role: text, text_pair, words, pos, labels, label, target, minus, against."),
    ]
    guessed: bool
    rows: int
    reasons: Annotated[dict[str, str], Field(description="Why this column was chosen for the role.")]
    bad_rows: list[BadRowSchema]
    bad_count: int


class ModelMechanism(Strict):
    """A model under a mechanism."""

    model: str
    mechanism: MechanismSchema


class VariantSchema(ModelMechanism):
    """A model under a mechanism. `layers` and `heads` are the indices of those studied; empty until the study is done."""

    layers: list[int]
    heads: list[int]
    head_width: int
    causal: bool


class FailedInput(Strict):
    """An input that failed, by its row in the source."""

    row: int
    code: str
    detail: str


class StudyEvent(Strict):
    """The data of a server-sent event of a study."""

    id: str
    status: Status
    progress: StudyProgress
    attempts: int
    error: Problem | None


class StudyDocument(StudyEvent):
    """A study in any state. Fields that only a finished study has are empty until then."""

    request: Annotated[
        dict[str, Any],
        Field(description="The request; data that was sent with it is replaced by the id of its data set."),
    ]
    dataset: StudyData
    variants: list[VariantSchema]
    lenses: list[str]
    measures: list[str]
    inputs: Annotated[int, Field(description="Number of inputs analysed.")]
    tokens: int
    cut: Annotated[int, Field(description="Number of inputs truncated to max_tokens.")]
    failed: Annotated[list[FailedInput], Field(description="The first inputs that failed.")]
    failed_count: int
    unaligned: Annotated[
        int, Field(description="Number of inputs whose tokens could not be aligned between the two variants.")
    ]
    not_compared: Annotated[str | None, Field(description="Why the two variants were not compared, if they were not.")]
    figures: Annotated[list[str], Field(description="Figures available for this study.")]
    tables: Annotated[list[str], Field(description="Tables available for this study.")]
    timing_ms: Annotated[list[dict[str, float]], Field(description="Time spent per stage, for each variant.")]
    versions: Annotated[
        list[Versions],
        Field(
            description="Versions of Headscope, torch and transformers that computed parts of it: one entry if all workers had the same."
        ),
    ]
    created: float | None
    finished: float | None
    links: dict[str, str]


class StudyItem(Strict):
    """A study in a list."""

    id: str
    status: Status
    progress: StudyProgress
    dataset: str
    variants: list[ModelMechanism]
    lenses: list[str]
    measures: list[str]
    created: float


class Example(Strict):
    """An input of the data set, by its row in the source. Long texts are truncated."""

    row: int
    text: str
    text_pair: str | None = None
    label: str | None = None


class DatasetRow(Example):
    """A row as it will be analysed. `pos` and `labels` have one entry per word; `target` and `minus` are tokens or classes, `against` is the other text of patching."""

    pos: list[str] | None = None
    labels: list[str] | None = None
    target: str | int | None = None
    minus: str | int | None = None
    against: str | None = None


class DatasetDocument(StudyData):
    """A data set: how it was parsed, and its first rows."""

    id: str
    bytes: int
    sample: list[DatasetRow]


class DatasetItem(Strict):
    """A data set in a list. The id of a file in one of the server's folders is its name."""

    id: str
    name: str
    bytes: int


class TopInput(Example):
    """An input and the value of a measure on it, averaged over tokens."""

    value: float


class Distribution(Strict):
    """A histogram: counts[i] values lie between edges[i] and edges[i + 1]."""

    edges: list[float]
    counts: list[int]


class StudyNumber(Strict):
    """One measure (or one column of it) of a head over all inputs. `interval` is the 95 % bootstrap interval of the mean over inputs.

    `mean` and `std` are over all values (tokens of all inputs); `input_mean` weights inputs equally. Values are binned: `median_within` bounds the
    median, and `median` is an estimate within these bounds. `top` are the inputs with the largest values. Measures of the model's weights alone only have
    a mean.
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
    """The share of inputs in which a head belonged to a class."""

    measure: str
    name: str
    count: int
    share: float


class Neighbour(Strict):
    """A head with similar maps. `cosine` is the mean over inputs."""

    layer: int
    head: int
    cosine: float


class StudyHead(Strict):
    """The results of one head over all inputs of a study."""

    layer: int
    head: int
    lens: str
    variant: int
    numbers: list[StudyNumber]
    classes: list[ClassShare]
    neighbours: list[Neighbour]
