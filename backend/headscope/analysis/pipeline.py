"""The pipeline: model -> tokens -> capture -> lenses -> measures -> sink, one block of one layer's heads at a time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from ..capture import INPUT_ERRORS, AttentionSites, ModelInput, Site, batches_exactly, capture_many, examine
from ..core.arrays import Array
from ..core.attention import ResultWarning
from ..errors import OutOfMemory, Unsupported
from ..mechanisms import MECHANISMS
from ..mechanisms.base import PassContext
from ..models.facts import Facts
from ..models.image_text import unlocated
from ..models.loading import Model
from ..models.modules import is_out_of_memory
from ..models.tokens import Encoded
from ..settings import Keep
from . import memory
from .memory import FLOAT
from .reader import AnalysisTask, Progress, Reader
from .request import TEXT, AnalysisRequest, check_capabilities
from .result import MapSink, Result
from .warnings import find_warnings

logger = logging.getLogger("headscope.analysis")

NO_ROOM = "There is not enough memory for this analysis. Analyse fewer tokens or layers."


Outcome = Result | Exception


def run(
    model: Model,
    request: AnalysisRequest,
    sink: MapSink,
    *,
    limit: int | None = None,
    progress: Progress = lambda fraction, stage, detail: None,
    keep_logits: bool = False,
    keep: Keep = "maps",
    small_map: int = 0,
) -> Result:
    """Analyse one input; `keep` and `small_map` are those of AnalysisTask. `progress(fraction, stage, detail)` is called at every layer and may raise to stop.

    Raises OutOfMemory, and the errors of examine, check_capabilities, Model.encode, memory.check and capture.
    """
    task = AnalysisTask(request, sink, progress, keep=keep, small_map=small_map)
    (outcome,) = run_many(model, [task], limit=limit, keep_logits=keep_logits)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def run_many(
    model: Model,
    tasks: Sequence[AnalysisTask],
    *,
    limit: int | None = None,
    keep_logits: bool = False,
    on_pass: Callable[[], None] = lambda: None,
) -> list[Outcome]:
    """Analyse several inputs and return each one's result or error, in order. An error of one input does not affect the others.

    Inputs with the same recipe and equally many tokens share a forward pass if the model allows it (see batches_exactly); everything else is done for each
    input by itself, so results differ from those of `run` by rounding only (1e-5). `limit` in bytes applies to each input, and to the memory in use for all
    inputs of a pass. Errors other than INPUT_ERRORS are raised and end all of them. `on_pass` is called after every forward pass that gave a result.
    """
    outcomes: dict[int, Outcome] = {}
    groups: dict[Any, dict[int, _Prepared]] = {}
    recipes = dict[tuple[int, ...], _Recipe]()
    for place, task in enumerate(tasks):
        prepared = _prepare(model, recipes, task, limit)
        if isinstance(prepared, Exception):
            outcomes[place] = prepared
        else:
            name = prepared.recipe.name
            key = (name, len(prepared.encoded.tokens), task.tiles) if name else place
            groups.setdefault(key, {})[place] = prepared
    for members in groups.values():
        places, group = list(members), list(members.values())
        size = _largest_pass(model, group, limit)
        for low in range(0, len(group), size):
            done = _analyse(model, group[low : low + size], keep_logits, on_pass)
            outcomes.update(zip(places[low : low + size], done, strict=True))
    return [outcomes[place] for place in range(len(tasks))]


@dataclass(frozen=True)
class _Recipe:
    """What analyses share that differ only in their input. `name` is empty if each needs a pass of its own."""

    name: str
    mechanism: Any
    sites: AttentionSites
    chosen: tuple[Site, ...]  # of the requested kind
    missing: dict[str, str]


def _recipe_of(model: Model, known: dict[tuple[int, ...], _Recipe], request: AnalysisRequest) -> _Recipe:
    """Return the recipe of a request, made and checked once for all inputs of a study. Raises the errors of examine and check_capabilities."""
    parts = tuple([id(value) for name, value in request if name not in TEXT])
    if parts not in known:
        request = request.settled(model.facts.mechanism_of(request.kind))
        sites = examine(model, request.dtype, request.image is not None and model.facts.kind != "vision")
        chosen, missing = sites.of(request.kind), {**sites.missing(request.kind), **model.missing}
        check_capabilities(request.methods, missing)
        known[parts] = _Recipe(request.recipe(""), request.mechanism, sites, chosen, missing)
    return known[parts]


@dataclass(frozen=True)
class _Prepared:
    """An analysis that is ready to run: its task with the mechanism filled in, its tokens, its memory plan and its mechanism's setting."""

    task: AnalysisTask
    recipe: _Recipe
    encoded: Encoded
    plan: memory.MemoryPlan
    setting: PassContext
    seconds: float  # spent on preparation


def _prepare(
    model: Model, recipes: dict[tuple[int, ...], _Recipe], task: AnalysisTask, limit: int | None
) -> _Prepared | Exception:
    """Tokenize the input and check that the analysis is possible and fits; return the error if not."""
    started = time.perf_counter()
    try:
        recipe = _recipe_of(model, recipes, task.request)
        if task.request.mechanism is None:
            task = replace(task, request=task.request.model_copy(update={"mechanism": recipe.mechanism}))
        encoded, first = model.encode(**task.request.input), recipe.chosen[0]
        if encoded.pictured and encoded.grid and not recipe.sites.located:
            encoded = unlocated(encoded)
        axes, heads = encoded.axes(first.kind), {site.layer: site.heads for site in recipe.chosen}
        sides = len(axes.queries), len(axes.keys)
        keep = task.keep if prod(sides) * FLOAT > task.small_map else "maps"
        plan = memory.plan(task.request, heads, *sides, keep=keep, width=first.width)
        if limit is not None:
            plan = memory.check(plan, limit)
        task.progress(0.0, "forward", f"layer 1 of {recipe.chosen[-1].layer + 1}")
        setting = PassContext(heads, model.width, axes, model.vectors)
        return _Prepared(task, recipe, encoded, plan, setting, time.perf_counter() - started)
    except INPUT_ERRORS as error:
        return error


def _largest_pass(model: Model, group: Sequence[_Prepared], limit: int | None) -> int:
    """Return how many inputs of the group may share a forward pass."""
    if len(group) == 1 or not batches_exactly(model, group[0].task.request.dtype):
        return 1
    return len(group) if limit is None else max(1, limit // group[0].plan.work_bytes)


def _analyse(model: Model, group: Sequence[_Prepared], keep_logits: bool, on_pass: Callable[[], None]) -> list[Outcome]:
    """Return the outcome of each input. If a pass of several fails as a whole, such as for lack of memory, its halves are run."""
    outcomes = _try_pass(model, group, keep_logits, on_pass)
    if outcomes is None:  # by now the error is gone, and with it the tensors that it held
        half = len(group) // 2
        parts = (group[:half], group[half:])
        outcomes = [outcome for part in parts for outcome in _analyse(model, part, keep_logits, on_pass)]
    return outcomes


def _try_pass(
    model: Model, group: Sequence[_Prepared], keep_logits: bool, on_pass: Callable[[], None]
) -> list[Outcome] | None:
    """Run one forward pass and return the outcome of each input, None if a pass of several failed."""
    try:
        outcomes = _run_pass(model, group, keep_logits)
    except INPUT_ERRORS as error:
        if len(group) > 1:
            logger.warning("a pass of %d inputs failed with %s, retrying in halves", len(group), type(error).__name__)
            return None
        return [OutOfMemory(NO_ROOM) if is_out_of_memory(error) else error]
    if any(isinstance(outcome, Result) for outcome in outcomes):
        on_pass()
    return outcomes


def _run_pass(model: Model, group: Sequence[_Prepared], keep_logits: bool) -> list[Outcome]:
    started, first = time.perf_counter(), group[0]
    request, mechanism = first.task.request, MECHANISMS[first.task.request.mechanism.name]
    reader = Reader(first.plan, [one.task for one in group])
    inputs = [
        ModelInput(one.encoded, reader.spec(number), partial(mechanism.begin, one.task.request.mechanism, one.setting))
        for number, one in enumerate(group)
    ]
    with model.lock, model.using(request.dtype):
        output, failures = capture_many(
            model, inputs, first.recipe.sites, request.kind, reader.read_batch, logits=keep_logits
        )
    seconds = {"lenses": reader.reading_s, "write": reader.writing_s}
    seconds = {"forward": time.perf_counter() - started - sum(seconds.values()), **seconds}
    seconds |= {f"lens/{name}": spent for name, spent in reader.lens_s.items()}
    shares = {name: spent / len(group) for name, spent in seconds.items()}
    outcomes = list[Outcome]()
    for number, (one, failed) in enumerate(zip(group, failures, strict=True)):
        if failed is None:
            logits = _logits(output, number) if keep_logits else None
            outcomes.append(_finish(one, model.facts, reader, number, shares, logits))
        else:
            outcomes.append(failed)
    return outcomes


def _finish(
    one: _Prepared,
    facts: Facts,
    reader: Reader,
    number: int,
    shares: Mapping[str, float],
    logits: Array | None,
) -> Result:
    """Return the result of one input, with its share of the pass in seconds."""
    encoded, setting = one.encoded, one.setting
    axes, site = (setting.axes.queries, setting.axes.keys), one.recipe.chosen[0]
    result = reader.result(one.task.request, site.kind, *axes, site.width, number)
    seconds = {**shares, "forward": one.seconds + shares["forward"]}
    seconds["total"] = sum(seconds[name] for name in ("forward", "lenses", "write"))
    return replace(
        result,
        warnings=[*encoded.warnings, *_warnings(result, one.recipe, facts)],
        timing_ms={name: spent * 1e3 for name, spent in seconds.items()},
        logits=logits,
        full_text=encoded.text,
        target_text=encoded.target_text,
        generated=encoded.generated,
        grid=encoded.grid,
        picture=encoded.picture,
    )


def _warnings(result: Result, recipe: _Recipe, facts: Facts) -> Iterator[ResultWarning]:
    rounding = max(site.rounding for site in recipe.chosen)
    return find_warnings(
        result, recipe.missing, facts.mechanism, facts.quantisation, recipe.sites.quantised_by, rounding
    )


def _logits(output: Any, row: int) -> Array:
    if not hasattr(output, "logits"):
        raise Unsupported(
            "This model has no head that returns logits. Load it with one, or omit keep_logits and predictions."
        )
    found: Array = output.logits[row].float().cpu().numpy()
    return found


__all__ = ["AnalysisTask", "Outcome", "Result", "run", "run_many"]
