"""A study as the Python library hands it out, and how one is made in a process of its own: chunk by chunk, each kept as soon as it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..errors import InvalidRequest, Unknown
from ..query import SearchResult
from ..store import export
from .aggregate import Aggregate
from .checkpoint import Checkpoint
from .data import formats, hub, subset
from .data.dataset import BadRows, Dataset, Row
from .plan import ChunkPlan
from .request import StudyRequest
from .results import finding, tables
from .results.summary import StudySummary
from .results.writing import ResultTable

if TYPE_CHECKING:
    from ..figures import Theme
    from ..models.loading import Model

# What a study can be made of: the name of a file, or the inputs themselves.
Data = str | Path | Iterable[Any]
GIVEN = "given"  # the name, and the format, of inputs that came as they are


@dataclass(frozen=True)
class Study(StudySummary):
    """Many inputs through one model or two variants, as aggregates. Immutable; `id` names its content. What it holds: see Summary."""

    id: str

    @property
    def request(self) -> dict[str, Any]:
        """What was asked for."""
        return dict(self.document["request"])

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The first inputs that could not be analysed: row, code and detail; `document["failed_count"]` counts all."""
        return list(self.document["failed"])

    def find(self, where: str = "", lens: str = "weights", variant: int = 0) -> SearchResult:
        """The heads that satisfy a query about their means over inputs, ranked; a head's class is that of most inputs.

        Raises InvalidQuery, or Unknown for a measure that was not computed.
        """
        return finding.find(self, where, lens, variant)

    def head(self, layer: int, head: int, lens: str = "weights", variant: int = 0) -> dict[str, Any]:
        """What is known of a head: its numbers with intervals, distributions and top inputs, its classes, and the heads like it. Raises Unknown."""
        return finding.head(self, layer, head, lens, variant)

    def figure(self, name: str, *, theme: Theme = "light", **params: Any) -> Any:
        """A plotly figure of this study; headscope.STUDY_FIGURES says which there are, their parameters, and what must have been asked for.

        Raises Unknown, InvalidRequest, NotReady for what the study lacks, or Unsupported.
        """
        from plotly.graph_objects import Figure

        from ..figures.studies import STUDY_FIGURES

        if name not in STUDY_FIGURES:
            raise Unknown("figure", f"There is no such figure of studies. There are: {', '.join(STUDY_FIGURES)}.")
        try:
            chosen = STUDY_FIGURES[name].params.model_validate(params)
        except ValidationError as error:
            raise invalid(error) from None
        return Figure(STUDY_FIGURES[name].drawn(self, chosen, theme).figure())

    @property
    def tables(self) -> list[str]:
        """The tables that can be made of this study."""
        return tables.names(self.document)

    def table(self, name: str, **params: Any) -> ResultTable:
        """A table of this study: `columns` and `rows`; `writing.WRITERS` turns one into JSON, CSV, Parquet or LaTeX. Raises Unknown, and what a figure raises."""
        return tables.table(self, name, params)

    def save(self, path: str | Path) -> None:
        """Write everything as one safetensors file with the document in its metadata; Study.open reads it."""
        export.write_safetensors(export.Flat({**self.document, "id": self.id}, self.arrays), Path(path))

    @classmethod
    def open(cls, path: str | Path) -> Study:
        """Read a file that `save` or the server's export wrote. Raises InvalidRequest for any other file."""
        try:
            document, arrays = export.read_safetensors(Path(path))
        except ValueError as error:
            raise InvalidRequest("That is not a study that Headscope wrote.") from error
        if document.get("kind_of") != "study":
            raise InvalidRequest("That file is not a study. Open an analysis with headscope.open.")
        return cls(document, arrays, str(document.get("id", "")))


def invalid(error: ValidationError) -> InvalidRequest:
    """The first thing that is wrong, in one sentence."""
    first = error.errors()[0]
    return InvalidRequest(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}.")


def read(data: Data, columns: Mapping[str, str] | None, bad_rows: BadRows) -> Dataset:
    """A file as a data set, one of the hub (`hub:org/name/path`), or inputs that come as they are: texts, pairs of texts, mappings with the fields of Row, or Rows.

    Raises InvalidDataset, Unknown, DatasetUnavailable, or InvalidRequest for what is none of these.
    """
    if isinstance(data, (str, Path)):
        path = hub.fetch(data) if isinstance(data, str) and data.startswith(hub.PREFIX) else Path(data).expanduser()
        if not path.is_file():
            raise InvalidRequest("There is no such file. Give the name of one, or a list of texts.", pointer="/dataset")
        return formats.read(path, columns=columns, bad_rows=bad_rows)
    if not isinstance(data, Iterable):
        raise InvalidRequest("Give the name of a file, or a list of texts.", pointer="/dataset")
    rows = [_row(number, given) for number, given in enumerate(data, start=1)]
    return Dataset(GIVEN, GIVEN, "utf-8", (), {}, rows, total=len(rows))


def _row(number: int, given: Any) -> Row:
    if isinstance(given, Row):
        return given
    fields = {"text": given} if isinstance(given, str) else given
    if isinstance(given, (tuple, list)) and len(given) == 2:
        fields = {"text": given[0], "text_pair": given[1]}
    try:
        row = Row.from_dict({"number": number, **fields})
    except TypeError:
        row = Row(number, "")
    if not isinstance(row.text, str) or not isinstance(row.text_pair, str | None) or not row.text:
        raise InvalidRequest(
            f"Input {number} is no text. Give a text, a pair of texts, or a mapping with text and, where you have them, text_pair, pos, labels and label.",
            pointer="/dataset",
        )
    return row


def conduct(
    models: Sequence[Model],
    dataset: Dataset,
    request: StudyRequest,
    *,
    checkpoint: Path | None = None,
    limit: int | None = None,
    progress: Callable[[float, str, str], None] = lambda fraction, stage, detail: None,
) -> Study:
    """Run a study here, one chunk after the other. `models` has one per variant; chunks that are in the checkpoint's folder are not run again."""
    from . import chunk

    chunk.check(models, request)
    rows = subset.choose(dataset.rows, request.limit, request.seed)
    planned = ChunkPlan(rows, models[0].tokenizer, request.max_tokens)
    digests = [model.digest for model in models]
    kept = None if checkpoint is None else Checkpoint(checkpoint)
    whole: Aggregate | None = None
    done = 0
    for part in planned:
        id_ = request.part(digests, part.digest)
        found = kept.get(id_) if kept else None
        if found is None:
            found = chunk.run(
                models, part.rows, request, limit=limit, progress=_telling(progress, done, planned.inputs)
            )
            if kept:
                kept.put(id_, found)
        done += len(part)
        progress(done / planned.inputs, "inputs", f"{done} of {planned.inputs}")
        whole = found if whole is None else whole.merge(found)
    if whole is None:
        raise InvalidRequest("The data set has no row that can be analysed.", pointer="/dataset")
    found_ = whole.summary(request, dataset.report())
    return Study(found_.document, found_.arrays, request.key(digests, planned.digest))


def _telling(progress: Callable[[float, str, str], None], before: int, inputs: int) -> Callable[[int], None]:
    def tell(done: int) -> None:
        progress((before + done) / inputs, "inputs", f"{before + done} of {inputs}")

    return tell
