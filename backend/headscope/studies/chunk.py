"""One chunk of a study: its rows through every variant, reduced to an aggregate. Maps live as long as two variants, or two heads, are compared on one input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..analysis import pipeline
from ..analysis.request import AnalysisRequest, check_capabilities
from ..analysis.result import MemorySink, Result
from ..capture import examine
from ..errors import HeadscopeError, InvalidRequest, NonFinite, Unsupported
from ..measures import MEASURES
from ..models.loading import Model
from . import sequences, shown, statistics
from .aggregate import KEPT_FAILED, Aggregate, collected, shapes, with_rows
from .data.dataset import Row
from .pairs import Alike, Pairs
from .plan import counted
from .request import StudyRequest

Array = NDArray[Any]
# Bytes of maps in memory at once, where variants are compared.
MAP_BYTES = 256 * 2**20
# Inputs of a chunk on which the heads of a variant are compared with each other.
ALIKE = 8
# What may be wrong with one input and always will be; anything else ends the chunk.
OF_INPUT = (InvalidRequest, NonFinite, Unsupported)

# Is told how many inputs are through; may raise to stop.
Progress = Callable[[int], None]


def run(
    models: Sequence[Model],
    rows: Sequence[Row],
    request: StudyRequest,
    *,
    limit: int | None = None,
    progress: Progress = lambda done: None,
    on_pass: Callable[[], None] = lambda: None,
) -> Aggregate:
    """Analyse some rows with the model of every variant (the same one twice, if only the mechanism differs) and reduce them to an aggregate.

    `limit` bytes hold for each analysis. An input that can't be analysed is counted and named; what is wrong with all of them is raised: Unsupported,
    OutOfMemory and the like. `on_pass` is called after every forward pass that gave a result.
    """
    check(models, request)
    work = _Work(models, rows, request, limit, progress, on_pass)
    for batch in work.batches():
        work.add(batch)
    return work.aggregate()


def check(models: Sequence[Model], request: StudyRequest) -> None:
    """Raise Unsupported for what can't be had of a model, whatever the input."""
    for model, one in zip(models, request.requests, strict=True):
        if model.facts.kind == "vision" or model.listens:
            raise Unsupported(
                "A study reads texts, and this model reads images or sound. Choose a text model.", pointer="/model"
            )
        check_capabilities(one.methods, {**examine(model).missing(one.kind), **model.missing})


class _Work:
    """A chunk at work: what is kept of its inputs until all are through."""

    def __init__(
        self,
        models: Sequence[Model],
        rows: Sequence[Row],
        request: StudyRequest,
        limit: int | None,
        progress: Progress,
        on_pass: Callable[[], None],
    ) -> None:
        self._models, self._rows, self._request = models, rows, request
        # One request for all rows of a variant: what is the same for all of them is then prepared once.
        self._asked = [_with(one, fixed=False) for one in request.requests]
        self._limit, self._progress, self._on_pass = limit, progress, on_pass
        numbers = np.array([row.number for row in rows], np.int64)
        self._alike_rows = set(statistics.drawn(request.seed, numbers, ALIKE).tolist())
        self._pairs, self._alike = Pairs(request.seed), Alike()
        self._through: list[Row] = []
        self._measured: list[list[dict[str, dict[str, Array]]]] = [[] for _ in models]
        self._times: list[dict[str, float]] = [{} for _ in models]
        self._first: list[Result] = []
        self._failed: list[dict[str, Any]] = []
        self._shown_row = _shown_row(models[0], rows, request)
        self._shown: dict[str, Array] = {}  # maps of that input
        self._tokens = self._cut = 0

    def batches(self) -> Iterator[Sequence[Row]]:
        """All rows at once where few maps are kept; else as many as their maps may take together."""
        if len(self._models) == 1:
            yield self._rows
            return
        low = 0
        while low < len(self._rows):
            high, taken = low, 0
            while high < len(self._rows) and (high == low or taken < MAP_BYTES):
                taken += sum(_map_bytes(model, self._rows[high], self._request.analysis) for model in self._models)
                high += 1
            yield self._rows[low:high]
            low = high

    def add(self, rows: Sequence[Row]) -> None:
        """Some rows through every variant, and what comes of them."""
        before = len(self._through) + len(self._failed)
        wrong: dict[int, Exception] = {}
        found = [self._variant(number, rows, before, wrong) for number in range(len(self._models))]
        for place, row in enumerate(rows):
            if place in wrong:
                self._failed.append(_failure(row, wrong[place]))
            else:
                self._keep(row, [one[place] for one in found])
        self._progress(len(self._through) + len(self._failed))

    def _variant(
        self, number: int, rows: Sequence[Row], before: int, wrong: dict[int, Exception]
    ) -> list[tuple[pipeline.Outcome, MemorySink]]:
        """What comes of each row in a variant, and its maps where they are wanted; what goes wrong is noted by place."""
        done = set[int]()

        def telling(place: int) -> Callable[[float, str, str], None]:
            def tell(fraction: float, stage: str, detail: str) -> None:
                if fraction >= 1.0:
                    done.add(place)
                self._progress(before + (number * len(rows) + len(done)) // len(self._models))

            return tell

        asked = []
        for place, row in enumerate(rows):
            maps = len(self._models) == 2 or row.number in {*self._alike_rows, self._shown_row}
            wanted = self._request.given(self._asked[number], row, maps=maps)
            asked.append(pipeline.AnalysisTask(wanted, MemorySink(), telling(place), tiles=False))
        outcomes = pipeline.run_many(self._models[number], asked, limit=self._limit, on_pass=self._on_pass)
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Exception):
                if not isinstance(outcome, OF_INPUT):
                    raise outcome
                wrong.setdefault(place, outcome)
        return [(outcome, one.sink) for outcome, one in zip(outcomes, asked, strict=True)]  # type: ignore[misc]

    def _keep(self, row: Row, found: Sequence[tuple[pipeline.Outcome, MemorySink]]) -> None:
        """An input that came through every variant."""
        results = [result for result, _ in found if isinstance(result, Result)]
        maps = [sink.maps for _, sink in found]
        self._through.append(row)
        self._first = self._first or results
        self._tokens += len(results[0].tokens)
        self._cut += any(self._was_cut(row, *pair) for pair in zip(self._models, results, strict=True))
        for variant, result in enumerate(results):
            self._measured[variant].append(result.measures)
            for name, taken in result.timing_ms.items():
                self._times[variant][name] = self._times[variant].get(name, 0.0) + taken
            if row.number in self._alike_rows:
                self._alike.add(variant, maps[variant])
                if "weights" in maps[variant]:
                    texts = [token.text for token in result.tokens]
                    self._shown |= sequences.arrays(variant, row.number, texts, maps[variant]["weights"])
        if row.number == self._shown_row:
            self._show(row.number, results, maps)
        if len(results) == 2 and self._not_compared is None:
            one, other = ((held, result.tokens, result.key_tokens) for held, result in zip(maps, results, strict=True))
            self._pairs.add(row.number, one, other)

    def _show(self, row: int, results: Sequence[Result], maps: Sequence[Mapping[str, Array]]) -> None:
        """Keep the maps of the input that this chunk would show."""
        ranked = shown.rank(row, len(results[0].tokens), results[0].head_width, self._request.seed)
        for variant, (result, held) in enumerate(zip(results, maps, strict=True)):
            if max(result.shape[2:]) <= shown.MOST:
                self._shown |= shown.arrays(variant, held, result.tokens, result.key_tokens, row, ranked)

    def _was_cut(self, row: Row, model: Model, result: Result) -> bool:
        """Whether max_tokens left something of an input out."""
        most = self._request.max_tokens
        if most is None or len(result.tokens) < most or model.tokenizer is None:
            return False
        pair = () if row.text_pair is None or model.facts.kind == "encoder-decoder" else (row.text_pair,)
        return len(model.tokenizer.encode(row.text, *pair)) > most

    @property
    def _not_compared(self) -> str | None:
        """Why the two variants can't be compared head by head; None if they can."""
        shapes = [(result.layers, result.heads) for result in self._first]
        if len(shapes) == 2 and shapes[0] != shapes[1]:
            return "The two models have different numbers of layers or heads, so no head of one stands for a head of the other."
        return None

    def aggregate(self) -> Aggregate:
        """Everything kept, reduced."""
        numbers = np.array([row.number for row in self._through], np.int64)
        arrays: dict[str, Array] = {}
        for variant, measured in enumerate(self._measured):
            arrays |= collected(variant, measured, numbers, self._request.seed)
            arrays |= self._fixed(variant)
        arrays |= self._pairs.arrays() | self._alike.arrays() | self._shown
        return Aggregate(self._document(arrays), with_rows(arrays, self._through, self._request.seed))

    def _fixed(self, variant: int) -> dict[str, Array]:
        """Measures of the weights alone, computed on the first input only."""
        asked = _with(self._request.requests[variant], fixed=True)
        if not self._through or not asked.measures:
            return {}
        request = self._request.given(asked, self._through[0])
        result = pipeline.run(self._models[variant], request, MemorySink(), limit=self._limit)
        return {
            f"fixed/{variant}/{measure}/{lens}": values
            for measure, by_lens in result.measures.items()
            for lens, values in by_lens.items()
        }

    def _document(self, arrays: dict[str, Array]) -> dict[str, Any]:
        variants = [
            {
                "model": one.model,
                "mechanism": one.mechanism.model_dump(),
                "layers": result.layers,
                "heads": result.heads,
                "head_width": result.head_width,
                "causal": result.causal,
            }
            for one, result in zip(self._request.variants, self._first, strict=False)
        ]
        return {
            "seed": self._request.seed,
            "inputs": len(self._through),
            "tokens": self._tokens,
            "cut": self._cut,
            "failed": sorted(self._failed, key=lambda one: int(one["row"]))[:KEPT_FAILED],
            "failed_count": len(self._failed),
            "unaligned": self._pairs.unaligned,
            "not_compared": self._not_compared,
            "variants": variants,
            "measures": shapes(arrays),
            "timing_ms": [{name: round(taken, 1) for name, taken in times.items()} for times in self._times],
        }


def _shown_row(model: Model, rows: Sequence[Row], request: StudyRequest) -> int | None:
    """The row whose maps the chunk would show; None if all are too long."""
    width = model.facts.tower(request.kind).head_width
    counts = counted(model.tokenizer, rows, request.max_tokens)
    ranked = [
        (shown.rank(row.number, count, width, request.seed), row.number)
        for row, count in zip(rows, counts, strict=True)
        if count <= shown.MOST
    ]
    return min(ranked)[1] if ranked else None


def _with(request: AnalysisRequest, *, fixed: bool) -> AnalysisRequest:
    """Only the measures that are the same for every input, or only the others."""
    chosen = [choice for choice in request.measures if MEASURES[choice.name].fixed is fixed]
    return request.model_copy(update={"measures": chosen})


def _map_bytes(model: Model, row: Row, request: AnalysisRequest) -> int:
    """Size of the maps of an input."""
    most = len(row.text.encode())
    if model.tokenizer is not None:
        most = len(model.tokenizer.encode(row.text, *(() if row.text_pair is None else (row.text_pair,))))
    tower = model.facts.tower(request.kind)
    tokens = min(most, request.max_tokens or most, tower.max_tokens or most)
    return 4 * tokens * tokens * tower.layers * tower.heads * len(request.lenses)


def _failure(row: Row, error: Exception) -> dict[str, Any]:
    code = error.code if isinstance(error, HeadscopeError) else "internal"
    return {"row": row.number, "code": code, "detail": str(error)}
