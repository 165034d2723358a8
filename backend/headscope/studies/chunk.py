"""Run one chunk of a study: analyse its rows in every variant and reduce them to an aggregate. Maps are in memory only while variants or heads are compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..analysis import pipeline
from ..analysis.effect_methods import Means
from ..analysis.request import AnalysisRequest, check_capabilities
from ..analysis.result import MemorySink, Result
from ..capture import examine
from ..core.arrays import Array
from ..core.right_key import SCORES
from ..errors import HeadscopeError, InvalidRequest, NonFinite, Unsupported
from ..measures import MEASURES
from ..models.loading import Model
from ..models.support import check_text_model
from . import kept_maps, scores, statistics
from .aggregate import MAX_FAILED, Aggregate, add_rows, collect, measure_shapes
from .comparison import HeadSimilarity, VariantComparison
from .data.dataset import Row
from .effects import effects_of
from .plan import count_tokens
from .request import StudyRequest, check_effects

# Maximum bytes of maps in memory when variants are compared.
MAP_BYTES = 256 * 2**20
# Inputs of a chunk on which the heads of a variant are compared with each other.
SIMILARITY_INPUTS = 8
# Permanent errors of one input; any other error ends the chunk.
INPUT_ERRORS = (InvalidRequest, NonFinite, Unsupported)

# Called with the number of finished inputs; may raise to stop.
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
    """Analyse rows with the model of every variant (the same one twice if only the mechanism differs) and reduce them to an aggregate.

    `limit` bounds the memory of each analysis in bytes. Inputs that cannot be analysed are counted and listed; errors that affect all inputs, such as
    Unsupported or OutOfMemory, are raised. `on_pass` is called after every successful forward pass.
    """
    check(models, request)
    reduction = _ChunkReduction(models, rows, request, limit, progress, on_pass)
    for batch in reduction.batches():
        reduction.add(batch)
    return reduction.aggregate()


def check(models: Sequence[Model], request: StudyRequest) -> None:
    """Raise Unsupported for methods that a model does not support, whatever the input."""
    for model, one in zip(models, request.requests, strict=True):
        check_text_model(model.facts, model.listens)
        check_capabilities(one.methods, {**examine(model).missing(one.kind), **model.missing})
        check_effects(model.facts, request, one)


class _ChunkReduction:
    """The state of a running chunk: what is kept of finished inputs until all are done."""

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
        # One request per variant for all rows, so that what they share is prepared once.
        self._requests = [_select_measures(each, fixed=False) for each in request.requests]
        self._limit, self._progress, self._on_pass = limit, progress, on_pass
        numbers = np.array([row.number for row in rows], np.int64)
        self._similarity_rows = set(statistics.draw_rows(request.seed, numbers, SIMILARITY_INPUTS).tolist())
        self._comparison, self._similarity = VariantComparison(request.seed), HeadSimilarity()
        self._done: list[Row] = []
        self._measured: list[list[dict[str, dict[str, Array]]]] = [[] for _ in models]
        self._times: list[dict[str, float]] = [{} for _ in models]
        self._means: list[Means] = [{} for _ in models]
        self._first: list[Result] = []  # of the first input, one per variant
        self._failed: list[dict[str, Any]] = []
        self._shown_row = _choose_shown(models[0], rows, request)
        self._kept_maps: dict[str, Array] = {}
        self._tokens = self._cut = 0

    def batches(self) -> Iterator[Sequence[Row]]:
        """Yield all rows at once for one variant; for two, or if lenses are scored, as many as fit into MAP_BYTES; for effects, which take longer than analyses, one by one."""
        if self._request.judges:
            yield from ([row] for row in self._rows)
            return
        if not self._reads_maps:
            yield self._rows
            return
        low = 0
        while low < len(self._rows):
            high, size = low, 0
            while high < len(self._rows) and (high == low or size < MAP_BYTES):
                size += sum(_map_bytes(model, self._rows[high], self._request.analysis) for model in self._models)
                high += 1
            yield self._rows[low:high]
            low = high

    def add(self, rows: Sequence[Row]) -> None:
        """Analyse rows in every variant and keep the results."""
        before = len(self._done) + len(self._failed)
        errors: dict[int, Exception] = {}
        outcomes = [self._analyse(variant, rows, before, errors) for variant in range(len(self._models))]
        for place, row in enumerate(rows):
            if place in errors:
                self._failed.append(_failure(row, errors[place]))
            else:
                self._keep(row, [by_row[place] for by_row in outcomes])
        self._progress(len(self._done) + len(self._failed))

    def _analyse(
        self, variant: int, rows: Sequence[Row], before: int, errors: dict[int, Exception]
    ) -> list[tuple[pipeline.Outcome, MemorySink]]:
        """Return the outcome of each row in a variant, and its maps where they are needed. Adds permanent errors to `errors`, by place."""
        done = set[int]()

        def reporter(place: int) -> Callable[[float, str, str], None]:
            def report(fraction: float, stage: str, detail: str) -> None:
                if fraction >= 1.0:
                    done.add(place)
                self._progress(before + (variant * len(rows) + len(done)) // len(self._models))

            return report

        tasks = []
        for place, row in enumerate(rows):
            maps = self._reads_maps or row.number in {*self._similarity_rows, self._shown_row}
            request = self._request.with_row(self._requests[variant], row, maps=maps)
            tasks.append(pipeline.AnalysisTask(request, MemorySink(), reporter(place), tiles=False))
        outcomes = pipeline.run_many(self._models[variant], tasks, limit=self._limit, on_pass=self._on_pass)
        outcomes = [self._with_effects(variant, row, outcome) for row, outcome in zip(rows, outcomes, strict=True)]
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Exception):
                if not isinstance(outcome, INPUT_ERRORS):
                    raise outcome
                errors.setdefault(place, outcome)
        return [(outcome, task.sink) for outcome, task in zip(outcomes, tasks, strict=True)]  # type: ignore[misc]

    def _with_effects(self, variant: int, row: Row, outcome: pipeline.Outcome) -> pipeline.Outcome:
        """Return the result of an input with the effects of its heads beside its measures, or why they cannot be computed."""
        if isinstance(outcome, Exception) or not self._request.judges:
            return outcome
        started, finished = time.perf_counter(), len(self._done) + len(self._failed)
        try:
            effects = effects_of(
                self._models[variant],
                row,
                self._request,
                outcome,
                means=self._means[variant],
                limit=self._limit,
                step=lambda _: self._progress(finished),
            )
        except INPUT_ERRORS as error:
            return error
        spent = 1e3 * (time.perf_counter() - started)
        times = {**outcome.timing_ms, "effects": spent, "total": outcome.timing_ms["total"] + spent}
        return replace(outcome, measures={**outcome.measures, **effects}, timing_ms=times)

    def _keep(self, row: Row, outcomes: Sequence[tuple[pipeline.Outcome, MemorySink]]) -> None:
        """Keep what the aggregate needs of an input that succeeded in every variant."""
        results = [result for result, _ in outcomes if isinstance(result, Result)]
        maps = [sink.maps for _, sink in outcomes]
        self._done.append(row)
        self._first = self._first or results
        self._tokens += len(results[0].tokens)
        self._cut += any(self._was_cut(row, *pair) for pair in zip(self._models, results, strict=True))
        for variant, result in enumerate(results):
            self._measured[variant].append({**result.measures, **self._scores(row, result, maps[variant])})
            for name, ms in result.timing_ms.items():
                self._times[variant][name] = self._times[variant].get(name, 0.0) + ms
            if row.number in self._similarity_rows:
                self._similarity.add(variant, maps[variant])
                if "weights" in maps[variant]:
                    texts = [token.text for token in result.tokens]
                    self._kept_maps |= kept_maps.sparse_arrays(variant, row.number, texts, maps[variant]["weights"])
        if row.number == self._shown_row:
            self._keep_shown(row.number, results, maps)
        if len(results) == 2 and self._not_compared is None:
            first, second = (
                (by_lens, result.tokens, result.key_tokens) for by_lens, result in zip(maps, results, strict=True)
            )
            self._comparison.add(row.number, first, second)

    def _scores(self, row: Row, result: Result, maps: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
        """Return the scores of all lenses on an input, if they are wanted."""
        if not self._request.scored:
            return {}
        asked = list(scores.questions_of(result.tokens, result.key_tokens, result.causal))
        return {SCORES.name: scores.score(maps, asked, row.number, self._request.seed)}

    def _keep_shown(self, row: int, results: Sequence[Result], maps: Sequence[Mapping[str, Array]]) -> None:
        """Keep the maps of this chunk's candidate for the input that the study shows."""
        rank = kept_maps.shown_rank(row, len(results[0].tokens), results[0].head_width, self._request.seed)
        for variant, (result, by_lens) in enumerate(zip(results, maps, strict=True)):
            if max(result.shape[2:]) <= kept_maps.MAX_TOKENS:
                self._kept_maps |= kept_maps.shown_arrays(variant, by_lens, result.tokens, result.key_tokens, row, rank)

    def _was_cut(self, row: Row, model: Model, result: Result) -> bool:
        """Return whether max_tokens truncated an input."""
        most = self._request.max_tokens
        if most is None or len(result.tokens) < most or model.tokenizer is None:
            return False
        pair = () if row.text_pair is None or model.facts.kind == "encoder-decoder" else (row.text_pair,)
        return len(model.tokenizer.encode(row.text, *pair)) > most

    @property
    def _reads_maps(self) -> bool:
        """Whether the maps of every input are needed."""
        return len(self._models) == 2 or self._request.scored

    @property
    def _not_compared(self) -> str | None:
        """Why the two variants cannot be compared head by head; None if they can."""
        shapes = [(result.layers, result.heads) for result in self._first]
        if len(shapes) == 2 and shapes[0] != shapes[1]:
            return "The two models have different numbers of layers or heads, so their heads cannot be paired."
        return None

    def aggregate(self) -> Aggregate:
        """Return the aggregate of all finished inputs."""
        numbers = np.array([row.number for row in self._done], np.int64)
        arrays: dict[str, Array] = {}
        for variant, measured in enumerate(self._measured):
            arrays |= collect(variant, measured, numbers, self._request.seed)
            arrays |= self._fixed(variant)
        arrays |= self._comparison.arrays() | self._similarity.arrays() | self._kept_maps
        return Aggregate(self._document(arrays), add_rows(arrays, self._done, self._request.seed))

    def _fixed(self, variant: int) -> dict[str, Array]:
        """Compute the measures that read the model's weights alone, on the first input only."""
        request = _select_measures(self._request.requests[variant], fixed=True)
        if not self._done or not request.measures:
            return {}
        request = self._request.with_row(request, self._done[0])
        result = pipeline.run(self._models[variant], request, MemorySink(), limit=self._limit)
        return {
            f"fixed/{variant}/{measure}/{lens}": values
            for measure, by_lens in result.measures.items()
            for lens, values in by_lens.items()
        }

    def _document(self, arrays: dict[str, Array]) -> dict[str, Any]:
        variants = [
            {
                "model": variant.model,
                "mechanism": variant.mechanism.model_dump(),
                "layers": result.layers,
                "heads": result.heads,
                "head_width": result.head_width,
                "causal": result.causal,
            }
            for variant, result in zip(self._request.variants, self._first, strict=False)
        ]
        return {
            "seed": self._request.seed,
            "inputs": len(self._done),
            "tokens": self._tokens,
            "cut": self._cut,
            "failed": sorted(self._failed, key=lambda failure: int(failure["row"]))[:MAX_FAILED],
            "failed_count": len(self._failed),
            "unaligned": self._comparison.unaligned,
            "not_compared": self._not_compared,
            "variants": variants,
            "measures": measure_shapes(arrays),
            "timing_ms": self._times,
        }


def _choose_shown(model: Model, rows: Sequence[Row], request: StudyRequest) -> int | None:
    """Return the row whose maps the chunk keeps to be shown; None if all rows are too long."""
    width = model.facts.tower(request.kind).head_width
    counts = count_tokens(model.tokenizer, rows, request.max_tokens)
    ranked = [
        (kept_maps.shown_rank(row.number, count, width, request.seed), row.number)
        for row, count in zip(rows, counts, strict=True)
        if count <= kept_maps.MAX_TOKENS
    ]
    return min(ranked)[1] if ranked else None


def _select_measures(request: AnalysisRequest, *, fixed: bool) -> AnalysisRequest:
    """Return the request with only the measures that are `fixed` (the same for every input), or only the others."""
    chosen = [choice for choice in request.measures if MEASURES[choice.name].fixed is fixed]
    return request.model_copy(update={"measures": chosen})


def _map_bytes(model: Model, row: Row, request: AnalysisRequest) -> int:
    """Return the size of the maps of an input."""
    count = len(row.text.encode())
    if model.tokenizer is not None:
        count = len(model.tokenizer.encode(row.text, *(() if row.text_pair is None else (row.text_pair,))))
    tower = model.facts.tower(request.kind)
    tokens = min(count, request.max_tokens or count, tower.max_tokens or count)
    return 4 * tokens * tokens * tower.layers * tower.heads * len(request.lenses)


def _failure(row: Row, error: Exception) -> dict[str, Any]:
    code = error.code if isinstance(error, HeadscopeError) else "internal"
    return {"row": row.number, "code": code, "detail": str(error)}
