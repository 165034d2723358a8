"""The pipeline: model -> tokens -> capture -> lenses -> measures -> sink. One layer's blocks of heads at a time; none outlives its turn."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..capture import INPUT_ERRORS, AttentionSites, ModelInput, Site, batches_exactly, capture_many, examine
from ..errors import OutOfMemory, Unsupported
from ..mechanisms import MECHANISMS
from ..mechanisms.base import PassContext
from ..models.loading import Model
from ..models.modules import is_out_of_memory
from ..models.tokens import Encoded
from . import memory as budget
from .reader import Progress, Reader
from .request import TEXT, AnalysisRequest, check_capabilities
from .result import Array, MapSink, Result
from .warnings import find_warnings

logger = logging.getLogger("headscope.analysis")

NO_ROOM = "There is not enough memory for this analysis. Ask for fewer tokens or layers."


@dataclass(frozen=True)
class AnalysisTask:
    """One of the analyses that are run at a time: what is asked, where its maps go, and who hears how far it is (and may raise to stop it).

    Without `tiles` no thumbnails are made.
    """

    request: AnalysisRequest
    sink: MapSink
    progress: Progress = lambda fraction, stage, detail: None
    tiles: bool = True


Outcome = Result | Exception


def run(
    model: Model,
    request: AnalysisRequest,
    sink: MapSink,
    *,
    limit: int | None = None,
    progress: Progress = lambda fraction, stage, detail: None,
    keep_logits: bool = False,
) -> Result:
    """Analyse one input. `progress(fraction, stage, detail)` is called at every layer and may raise to stop.

    Raises a HeadscopeError: see examine, request.check_capabilities, Model.encode, budget.check, capture; and OutOfMemory.
    """
    (outcome,) = run_many(model, [AnalysisTask(request, sink, progress)], limit=limit, keep_logits=keep_logits)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def run_many(
    model: Model,
    several: Sequence[AnalysisTask],
    *,
    limit: int | None = None,
    keep_logits: bool = False,
    on_pass: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Analyse several inputs: what comes of each, in their order. What goes wrong with one is its outcome, and the others do not notice.

    Those of one recipe that have equally many tokens go through the model in one forward pass, where that is proven to change nothing; all else is done
    for each by itself, so that a result differs by rounding only (1e-5) from the one that `run` gives. `limit` bytes hold for each, and for the work on
    all that are in a pass. What is not among INPUT_ERRORS is raised, and ends all of them. `on_pass` is called after every forward pass that gave a result.
    """
    outcomes: dict[int, Outcome] = {}
    groups: dict[Any, dict[int, _Ready]] = {}
    recipes = _Recipes(model)
    for place, asked in enumerate(several):
        ready = _prepared(model, recipes, asked, limit)
        if isinstance(ready, Exception):
            outcomes[place] = ready
        else:
            name = ready.recipe.name
            alike = (name, len(ready.encoded.tokens), asked.tiles) if name else place
            groups.setdefault(alike, {})[place] = ready
    for members in groups.values():
        places, group = list(members), list(members.values())
        most = _most(model, group, limit)
        for low in range(0, len(group), most):
            done = _analysed(model, group[low : low + most], keep_logits, on_pass)
            outcomes.update(zip(places[low : low + most], done, strict=True))
    return [outcomes[place] for place in range(len(several))]


@dataclass(frozen=True)
class _Recipe:
    """What analyses have in common that differ in their input only. `name` is empty where each has to go alone."""

    name: str
    mechanism: Any
    sites: AttentionSites
    chosen: tuple[Site, ...]
    missing: dict[str, str]
    heads: Mapping[int, int]  # of every layer that attends

    def of(self, request: AnalysisRequest) -> AnalysisRequest:
        """The request with the mechanism that holds for it."""
        return request if request.mechanism else request.model_copy(update={"mechanism": self.mechanism})


class _Recipes:
    """The recipes of several analyses by a model: each made, and checked, once for all that share their parts, as the inputs of a study do."""

    def __init__(self, model: Model) -> None:
        self._model, self._known = model, dict[tuple[int, ...], _Recipe]()

    def of(self, request: AnalysisRequest) -> _Recipe:
        """Raises what is wrong with it: see examine and request.check_capabilities."""
        parts = tuple([id(value) for name, value in request if name not in TEXT])
        if parts not in self._known:
            self._known[parts] = self._made(request.settled(self._model.facts.mechanism))
        return self._known[parts]

    def _made(self, request: AnalysisRequest) -> _Recipe:
        sites = examine(self._model, request.dtype)
        chosen, missing = sites.of(request.kind), {**sites.missing(request.kind), **self._model.missing}
        check_capabilities(request.methods, missing)
        heads = {site.layer: site.heads for site in chosen}
        return _Recipe(request.recipe(""), request.mechanism, sites, chosen, missing, heads)


@dataclass(frozen=True)
class _Ready:
    """An analysis that can be run: its tokens, its plan, and what its mechanism may know."""

    asked: AnalysisTask
    recipe: _Recipe
    encoded: Encoded
    planned: budget.MemoryPlan
    setting: PassContext
    trained: Mapping[str, Any]  # the mechanism that the model was trained with
    seconds: float  # that it took to get here


def _prepared(model: Model, recipes: _Recipes, asked: AnalysisTask, limit: int | None) -> _Ready | Exception:
    """The input as tokens, and whether what is asked can be had and fits; else what is wrong."""
    started = time.perf_counter()
    try:
        recipe = recipes.of(asked.request)
        asked = replace(asked, request=recipe.of(asked.request))
        encoded, first = model.encode(**asked.request.input), recipe.chosen[0]
        axes, heads = encoded.axes(first.kind), recipe.heads
        planned = budget.plan(asked.request, heads, len(axes.queries), len(axes.keys))
        if limit is not None:
            budget.check(planned, limit)
        asked.progress(0.0, "forward", f"layer 1 of {recipe.chosen[-1].layer + 1}")
        numbers = tuple(heads)
        setting = PassContext(
            tuple(heads.values()), model.width, first.kind, first.causal, axes, numbers, model.vectors
        )
        seconds = time.perf_counter() - started
        return _Ready(asked, recipe, encoded, planned, setting, model.facts.mechanism, seconds)
    except INPUT_ERRORS as error:
        return error


def _most(model: Model, group: Sequence[_Ready], limit: int | None) -> int:
    """How many of the group may go through the model at once."""
    if len(group) == 1 or not batches_exactly(model, group[0].asked.request.dtype):
        return 1
    return len(group) if limit is None else max(1, limit // group[0].planned.work_bytes)


def _analysed(model: Model, group: Sequence[_Ready], keep_logits: bool, on_pass: Callable[[], None]) -> list[Outcome]:
    """What comes of each. A pass of several that fails as a whole, for lack of memory for instance, is run again in halves."""
    outcomes = _attempt(model, group, keep_logits, on_pass)
    if outcomes is None:  # by now the error is gone, and with it the tensors that it held
        half = len(group) // 2
        parts = (group[:half], group[half:])
        outcomes = [outcome for part in parts for outcome in _analysed(model, part, keep_logits, on_pass)]
    return outcomes


def _attempt(
    model: Model, group: Sequence[_Ready], keep_logits: bool, on_pass: Callable[[], None]
) -> list[Outcome] | None:
    """What comes of each after one forward pass; None if the pass of several failed."""
    try:
        outcomes = _pass(model, group, keep_logits)
    except INPUT_ERRORS as error:
        if len(group) > 1:
            logger.warning("a pass of %d inputs ended with %s; they go in halves", len(group), type(error).__name__)
            return None
        return [OutOfMemory(NO_ROOM) if is_out_of_memory(error) else error]
    if any(isinstance(outcome, Result) for outcome in outcomes):
        on_pass()
    return outcomes


def _pass(model: Model, group: Sequence[_Ready], keep_logits: bool) -> list[Outcome]:
    started, first = time.perf_counter(), group[0]
    request, asked = first.asked.request, [one.asked for one in group]
    places = [(one.sink, one.progress, one.request.maps) for one in asked]
    reader = Reader(request, first.planned, places, tiles=first.asked.tiles)
    mechanism = MECHANISMS[request.mechanism.name]
    inputs = [
        ModelInput(one.encoded, reader.spec(number), partial(mechanism.begin, one.asked.request.mechanism, one.setting))
        for number, one in enumerate(group)
    ]
    with model.lock, model.using(request.dtype):
        output, failures = capture_many(model, inputs, first.recipe.sites, request.kind, reader.read_batch)
    seconds = {"lenses": reader.reading_s, "write": reader.writing_s}
    seconds = {"forward": time.perf_counter() - started - sum(seconds.values()), **seconds}
    seconds |= {f"lens/{name}": taken for name, taken in reader.lens_s.items()}
    shares = {name: taken / len(group) for name, taken in seconds.items()}
    outcomes = list[Outcome]()
    for number, (one, failed) in enumerate(zip(group, failures, strict=True)):
        if failed is None:
            logits = _logits(output, number) if keep_logits else None
            outcomes.append(_finished(one, reader, number, shares, logits))
        else:
            outcomes.append(failed)
    return outcomes


def _finished(one: _Ready, reader: Reader, number: int, shares: dict[str, float], logits: Array | None) -> Result:
    """The result of one input, with its share of the pass in seconds."""
    encoded, setting = one.encoded, one.setting
    axes = (setting.axes.queries, setting.axes.keys)
    result = reader.result(one.asked.request, setting.kind, *axes, one.recipe.chosen[0].width, number)
    result.warnings = [*encoded.warnings, *find_warnings(result, one.recipe.missing, one.trained)]
    result.full_text, result.target_text = encoded.text, encoded.target_text
    result.generated, result.grid, result.picture = encoded.generated, encoded.grid, encoded.picture
    result.logits = logits
    seconds = {**shares, "forward": one.seconds + shares["forward"]}
    seconds["total"] = sum(seconds[name] for name in ("forward", "lenses", "write"))
    result.timing_ms = {name: round(taken * 1e3, 1) for name, taken in seconds.items()}
    return result


def _logits(output: Any, row: int) -> Array:
    if not hasattr(output, "logits"):
        raise Unsupported("This model has no head that gives logits. Load it with one, or leave keep_logits out.")
    found: Array = output.logits[row].float().cpu().numpy()
    return found


__all__ = ["AnalysisTask", "Outcome", "Result", "run", "run_many"]
