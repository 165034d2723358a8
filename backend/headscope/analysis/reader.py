"""The reader of captured layers: applies lenses and measures, sends maps to sinks, and keeps the small arrays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from traceback import clear_frames
from typing import Any

import numpy as np
import torch

from ..capture import Batch, CaptureSpec, by_input
from ..capture.parallel import all_threads, one_thread
from ..core.arrays import Array
from ..core.attention import Keys, Kind, Layer, Reading, required
from ..core.factors import Factors, Whole
from ..core.tokens import BatchTokens, Token
from ..errors import HeadscopeError
from ..lenses import LENSES
from ..measures import MEASURES
from ..measures.thumbnail import TILE, pool, quantise
from ..settings import Keep
from .batch_parts import Places, Readings, in_order, part_of, parts_of, same_as_weights
from .kept_arrays import KeptArrays, Key, to_host
from .map_blocks import MapBlocks, undefined_blocks
from .memory import MemoryPlan, check_kept, check_whole
from .request import AnalysisRequest
from .result import MapSink, Result
from .row_reader import RowwiseReader, row_lenses
from .stopwatch import Stopwatch

# Blocks of at most this many weights are read by one thread: operations are so small that threads would wait for each other for longer than they compute.
SMALL = 100_000

Progress = Callable[[float, str, str], None]


@dataclass(frozen=True)
class AnalysisTask:
    """An analysis to run: its request, the sink for its maps, a progress callback (which may raise to stop it), whether thumbnails are made, and what is kept.

    Heads whose maps have at most `small_map` bytes are kept as maps.
    """

    request: AnalysisRequest
    sink: MapSink
    progress: Progress = lambda fraction, stage, detail: None
    tiles: bool = True
    keep: Keep = "maps"
    small_map: int = 0


@dataclass(frozen=True, slots=True)
class _RowsRead:
    """What was read of heads by rows: the arrays that are kept, the factors of each head by lens, and seconds by lens."""

    arrays: list[tuple[Key, torch.Tensor]]
    factors: dict[str, list[Factors]]
    seconds: dict[str, float]


class Reader:
    """Reads the blocks of heads, and the layers, of all inputs of a pass through the lenses and measures.

    The inputs are numbered in order of `tasks`. They share a recipe, a plan and `tiles`, but not whether maps are kept.
    """

    def __init__(self, plan: MemoryPlan, tasks: Sequence[AnalysisTask]) -> None:
        request = tasks[0].request
        self._request, self._plan, self._tasks = request, plan, tasks
        self._opened = set[int]()
        self._lenses = request.readings
        self._measures = {choice.name: choice for choice in request.measures}
        self._measured_lenses = request.measured
        self._shown = frozenset(request.lens_names if tasks[0].tiles else ())
        self._written = frozenset(number for number, task in enumerate(tasks) if task.request.maps)
        self._kept = request.lens_names if self._written else []
        self._factored = plan.factored if self._written else []
        self._kept_bytes = [0] * len(tasks)
        self._heads = frozenset(plan.heads)
        self._place = {layer: place for place, layer in enumerate(plan.layers)}
        self._last = max(plan.layers)
        self._arrays = KeptArrays(plan, len(tasks))
        self._keys = np.zeros((len(tasks), len(plan.layers), plan.queries), np.int32)
        self._causal = True
        self._counted: tuple[Keys, Array] | None = None  # of the layer before, which most layers share
        self._joined: dict[tuple[int, str], torch.Tensor] = {}
        self._alike: dict[tuple[str, Places], list[Places]] = {}
        self._tokens: dict[Places, BatchTokens] = {}
        self._reading = Stopwatch()
        self.writing_s = 0.0  # while nothing was read
        self.lens_s = dict[str, float]()  # of reading_s, what each lens took

    @property
    def reading_s(self) -> float:
        """Seconds during which something was read."""
        return self._reading.seconds

    def spec(self, number: int = 0) -> CaptureSpec:
        """Return what to capture of an input."""
        methods = self._request.methods
        of_layer = [method for method in methods if getattr(method, "of", "heads") == "layer"]
        needs = frozenset(need for method in methods for need in method.needs)
        pad_to = next((params.pad_to for name, params in self._lenses.items() if "padding" in LENSES[name].needs), None)
        on_layer = partial(self.read_layer, number=number) if of_layer else None
        return CaptureSpec(
            partial(self.read_heads, number=number),
            on_layer,
            needs,
            self._plan.whole,
            self.read_deferred if self._plan.by_rows else None,
            pad_to,
        )

    # -- heads ----------------------------------------------------------------------------------------------------------------------------

    def read_heads(self, layer: Layer, number: int = 0) -> None:
        """Read one block of an input's heads."""
        self._begin(number, layer.index)
        for maps in self._read(Batch(layer, layer, (layer.axes,), (number,))):
            self._write(number, maps, 0)

    def read_batch(self, batch: Batch) -> list[HeadscopeError | None]:
        """Read the heads of several inputs and return the error of each, None where there was none."""
        failures = [_failure(self._begin, number, batch.layer.index) for number in batch.places]
        found = list[MapBlocks]()
        error = _failure(lambda: found.extend(self._read(batch)))
        for place, number in enumerate(batch.places):
            if error is not None and len(batch.places) == 1:
                failures[place] = failures[place] or error
            elif error is not None:  # possibly the error of another input
                failures[place] = failures[place] or _failure(self.read_heads, batch.one(place), number)
            for maps in found:
                failures[place] = failures[place] or _failure(self._write, number, maps, place)
        return failures

    def _begin(self, number: int, layer: int) -> None:
        """Open the sink before the first block, and report progress."""
        task = self._tasks[number]
        if number not in self._opened:
            self._opened.add(number)
            kept, factored = (self._kept, self._factored) if number in self._written else ([], [])
            task.sink.open({lens: self._plan.shape(lens) for lens in kept}, factored)
        task.progress(min(1.0, (layer + 1) / (self._last + 1)), "forward", f"layer {layer + 1} of {self._last + 1}")

    def _read(self, batch: Batch) -> list[MapBlocks]:
        """Read a batch of heads, keep the measures, and return the maps for the sinks."""
        chosen, place = self._select(batch)
        if chosen is None:
            return self._without_heads(batch)
        small = chosen.layer.weights.numel() <= SMALL
        with self._reading, one_thread() if small else nullcontext():
            return self._read_maps(chosen, place, self._begin_block(chosen, place))

    def _select(self, batch: Batch) -> tuple[Batch | None, int]:
        """Return the selected heads of a batch, None without any, and the place of their layer."""
        place = self._place.get(batch.layer.index)
        return (None, 0) if place is None else (batch.select(self._heads), place)

    def _without_heads(self, batch: Batch) -> list[MapBlocks]:
        """Return empty maps for a selected layer that has none of the selected heads, with its first block."""
        index, absent = batch.layer.index, len(self._plan.heads)
        if index not in self._place or self._plan.present(index) or batch.layer.heads[0] > 0:
            return []
        place = self._place[index]
        self._note_keys(batch, place)
        return [undefined_blocks(self._plan, self._kept, self._factored, place, absent, len(batch.places))]

    def _note_keys(self, batch: Batch, place: int) -> None:
        """Note which keys the queries of a layer see."""
        self._keys[list(batch.places), place] = self._counts(batch.layer.keys)
        self._causal &= batch.layer.causal

    def _begin_block(self, chosen: Batch, place: int) -> int:
        """Note which keys the queries of a layer see, and return the place of the first head."""
        self._note_keys(chosen, place)
        return self._plan.heads.index(chosen.layer.heads[0])

    def _counts(self, keys: Keys) -> Array:
        """Return the number of keys that every query sees, [Q]."""
        if self._counted is None or self._counted[0] is not keys:
            self._counted = keys, keys.counts(self._plan.queries, self._plan.keys).cpu().numpy()
        return self._counted[1]

    def read_deferred(self, batch: Batch) -> Callable[[], None]:
        """Read heads of one input with deferred weights by rows, in any thread; return what keeps and writes them, in order."""
        chosen, place = self._select(batch)
        found = list[_RowsRead | None]()
        error = None if chosen is None else _failure(lambda: found.append(self._read_rows(chosen)))

        def finish() -> None:
            (number,) = batch.places
            self._begin(number, batch.layer.index)
            if error is not None:
                raise error
            blocks = self._without_heads(batch) if chosen is None else self._finish_rows(chosen, place, found[0])
            for maps in blocks:
                self._write(number, maps, 0)

        return finish

    def _read_rows(self, batch: Batch) -> _RowsRead | None:
        """Read a batch with deferred weights by rows; None if whole maps are needed after all."""
        with self._reading:
            lenses = row_lenses(batch.layer, self._lenses)
            if lenses is None:
                return None
            measures = [(self._measures[name], lens) for name, found in self._measured_lenses.items() for lens in found]
            rows = RowwiseReader(batch, self._tokens_of(batch, (0,)), lenses, measures, self._shown, self._kept)
            pooled, factors = rows.read(), rows.factors()
            if not all(self._plan.prefers(one.nbytes) for heads in factors.values() for one in heads):
                return None
            measured = [(("measure", name, lens), values) for name, lens, values in rows.values()]
            tiles = [one for name, cells in pooled.items() for one in _tiles(name, cells, LENSES[name].signed)]
            return _RowsRead([*_facts(rows.facts), *measured, *tiles], factors, rows.seconds)

    def _finish_rows(self, chosen: Batch, place: int, found: _RowsRead | None) -> list[MapBlocks]:
        """Keep what was read by rows, or read whole maps if nothing was; return the maps for the sinks."""
        head = self._begin_block(chosen, place)
        if found is None:
            check_whole(self._plan)
            with self._reading, all_threads():
                return self._read_maps(chosen.whole(), place, head)
        for name, spent in found.seconds.items():
            self.lens_s[name] = self.lens_s.get(name, 0.0) + spent
        self._arrays.put(found.arrays, chosen.places, place, head)
        factors = {name: [heads] for name, heads in found.factors.items()}
        return self._with_absent([MapBlocks(place, head, {}, factors)], chosen)

    def _read_maps(self, chosen: Batch, place: int, head: int) -> list[MapBlocks]:
        """Read a batch with weights."""
        block = chosen.layer
        readings = {
            name: self._apply(name, block, params)
            for name, params in self._lenses.items()
            if LENSES[name].of == "heads"
        }
        self._arrays.put((*self._notes(readings), *self._measured(chosen, readings)), chosen.places, place, head)
        return self._maps(chosen, readings, place, head)

    def _apply(self, name: str, layer: Layer, params: Any) -> Reading:
        """Read a layer through a lens, and time it."""
        started = time.perf_counter()
        reading = LENSES[name].read(layer, params)
        self.lens_s[name] = self.lens_s.get(name, 0.0) + time.perf_counter() - started
        return reading

    def _measured(self, batch: Batch, readings: Readings) -> Iterator[tuple[Key, torch.Tensor]]:
        """Compute the measures of heads, [B h, ...] each. Inputs whose tokens look the same to a measure are computed at once."""
        size, same = len(batch.places), same_as_weights(readings)
        parts = cache(lambda places: (self._some(batch, places), parts_of(readings, size, places)))
        for name, params in self._measures.items():
            measure, known = MEASURES[name], dict[str, torch.Tensor]()
            for lens in self._measured_lenses[name] if measure.of == "heads" else ():
                if lens not in readings:
                    continue
                if same.get(lens) in known:
                    known[lens] = known[same[lens]]
                else:
                    groups = self._groups(name, batch)
                    found = [measure.compute(layer, lens, of, params) for layer, of in map(parts, groups)]
                    known[lens] = in_order(found, groups)
                yield ("measure", name, lens), known[lens]

    def _some(self, batch: Batch, places: Places) -> Layer:
        """Return the heads of some inputs, with the tokens of each."""
        return replace(batch.some(places), inputs=self._tokens_of(batch, places))

    def _tokens_of(self, batch: Batch, places: Places) -> BatchTokens:
        """Return the tokens of some inputs, the same object for all layers."""
        numbers = tuple([batch.places[place] for place in places])
        if numbers not in self._tokens:
            self._tokens.setdefault(numbers, BatchTokens(tuple([batch.axes[place] for place in places])))
        return self._tokens[numbers]

    def _groups(self, name: str, batch: Batch) -> list[Places]:
        """Return the inputs in groups whose tokens look the same to a measure."""
        key = (name, batch.places)
        if key not in self._alike:
            looks, params, marks = MEASURES[name].looks, self._measures[name], dict[Any, list[int]]()
            for place, axes in enumerate(batch.axes):
                tokens = axes.keys if axes.queries is axes.keys else (*axes.queries, *axes.keys)
                mark = place if looks is None else tuple([looks(token, params) for token in tokens])
                marks.setdefault(mark, []).append(place)
            self._alike[key] = [tuple(places) for places in marks.values()]
        return self._alike[key]

    def _maps(self, batch: Batch, readings: Readings, place: int, head: int) -> list[MapBlocks]:
        """Return the maps for the sinks."""
        size = len(batch.places)
        whole = {name: readings[name].map for name in readings if name in self._kept and name not in self._factored}
        blocks = {name: by_input(maps, size) for name, maps in whole.items()}
        factors = {
            name: [self._factors(name, batch.one(one), part_of(readings[name], size, (one,))) for one in range(size)]
            for name in readings
            if name in self._factored
        }
        return self._with_absent([MapBlocks(place, head, blocks, factors)], batch)

    def _with_absent(self, maps: list[MapBlocks], batch: Batch) -> list[MapBlocks]:
        """Add empty maps of the selected heads that a layer does not have, after its last head."""
        index, place = batch.layer.index, maps[0].layer
        absent = self._plan.absent(index) if batch.layer.heads[-1] == self._plan.present(index)[-1] else 0
        if absent:
            maps.append(undefined_blocks(self._plan, self._kept, self._factored, place, absent, len(batch.places)))
        return maps

    def _factors(self, name: str, layer: Layer, reading: Reading) -> list[Factors]:
        """Return what is kept of each head of an input: its factors, or its map where it has none or a smaller map."""
        factoring = required(LENSES[name].factoring)
        factors = factoring.factor(layer, reading)
        heads = range(len(layer.heads))
        found: list[Factors | None] = [None if factors is None else factors.head(head) for head in heads]
        return [
            one if one is not None and self._plan.prefers(one.nbytes) else Whole(reading.map[[head]].cpu().numpy())
            for head, one in enumerate(found)
        ]

    # -- whole layers ---------------------------------------------------------------------------------------------------------------------

    def read_layer(self, layer: Layer, number: int = 0) -> None:
        """Read a whole layer of an input. Lenses that join layers also read layers that are not selected."""
        place = self._place.get(layer.index)
        if layer.index > self._last:
            return
        with self._reading:
            readings = self._read_layer(layer, number, place)
        if place is not None:
            found = {name: reading.map[None] for name, reading in readings.items() if name in self._kept}
            self._write(number, MapBlocks(place, 0, found), 0)

    def _read_layer(self, layer: Layer, number: int, place: int | None) -> Readings:
        """Read a whole layer, keep what is measured, and return the readings of lenses of layers."""
        readings: Readings = {}
        for name, params in self._lenses.items():
            join = LENSES[name].joining(params)
            if LENSES[name].of == "layer" and (place is not None or join is not None):
                readings[name] = self._join(number, name, self._apply(name, layer, params), join)
        if place is not None:
            self._arrays.put((*self._notes(readings), *self._measured_layer(layer, readings)), (number,), place, 0)
        return readings

    def _join(self, number: int, name: str, reading: Reading, join: Any) -> Reading:
        """Join the reading of a layer with those before, for a lens that joins layers."""
        if join is None:
            return reading
        before = self._joined.get((number, name))
        if before is not None:
            joined = join(reading.map, before)
            undefined = None if reading.undefined is None else joined.isnan().any(-1).sum(-1)
            reading = replace(reading, map=joined, undefined=undefined)
        self._joined[number, name] = reading.map
        return reading

    def _measured_layer(self, layer: Layer, readings: Readings) -> Iterator[tuple[Key, torch.Tensor]]:
        """Compute the measures of a whole layer."""
        for name, params in self._measures.items():
            measure = MEASURES[name]
            for lens in self._measured_lenses[name] if measure.of == "layer" else ():
                if lens in readings or lens == "weights":
                    values = measure.compute(layer, lens, readings, params)
                    yield ("measure", name, lens), self._chosen(values, measure.shape, layer.index)

    def _chosen(self, values: torch.Tensor, shape: str, layer: int) -> torch.Tensor:
        """Select the chosen heads along every axis H of `shape`; heads that the layer does not have are NaN."""
        present, absent = self._plan.present(layer), self._plan.absent(layer)
        for axis, letter in enumerate(shape.split()[1:]):
            if letter == "H":
                values = values.index_select(axis, torch.tensor(present, device=values.device))
                empty = [absent if place == axis else size for place, size in enumerate(values.shape)]
                values = torch.cat([values, values.new_full(empty, torch.nan)], axis) if absent else values
        return values

    # -- what is kept ---------------------------------------------------------------------------------------------------------------------

    def _notes(self, readings: Readings) -> Iterator[tuple[Key, torch.Tensor]]:
        """Return the notes of lenses about heads (rank, condition, ...), and thumbnails."""
        for name, reading in readings.items():
            if name in self._shown:
                shown = reading.map if reading.undefined is None else reading.map.nan_to_num()
                yield from _tiles(name, pool(shown, TILE, reading.signed), reading.signed)
        yield from _facts(readings)

    def _write(self, number: int, maps: MapBlocks, place: int) -> None:
        """Write the maps of an input, at index `place` of its batch, to its sink, if they are kept."""
        if number not in self._written:
            return
        started, alone = time.perf_counter(), not self._reading.runs
        sink = self._tasks[number].sink
        blocks = [block[place] for block in maps.blocks.values()]
        for name, block in zip(maps.blocks, to_host(blocks), strict=True):
            self._count(number, block.nbytes)
            sink.write(name, maps.layer, maps.head, block)
        for name, heads in maps.factors.items():
            self._count(number, sum(one.nbytes for one in heads[place]))
            sink.write_factors(name, maps.layer, maps.head, heads[place])
        self.writing_s += time.perf_counter() - started if alone else 0.0

    def _count(self, number: int, size: int) -> None:
        """Count bytes that are kept of an input. Raises BudgetExceeded."""
        self._kept_bytes[number] += size
        check_kept(self._plan, self._kept_bytes[number])

    def result(
        self,
        request: AnalysisRequest,
        kind: Kind,
        queries: tuple[Token, ...],
        keys: tuple[Token, ...],
        head_width: int,
        number: int = 0,
    ) -> Result:
        """Return everything kept of an input as the result of its request."""
        grouped = self._arrays.of_input(number)
        return Result(
            request, kind, list(queries), list(keys), self._plan.layers, self._plan.heads, head_width, self._keys[number], self._causal,
            shapes={name: self._plan.shape(name) for name in request.lens_names},
            tiles=grouped["tile"], measures=grouped["measure"], notes=grouped["note"],
        )  # fmt: skip


def _failure(work: Callable[..., None], *arguments: Any) -> HeadscopeError | None:
    """Call a function and return its HeadscopeError, None if there was none."""
    try:
        work(*arguments)
    except HeadscopeError as error:
        clear_frames(error.__traceback__)  # which would keep the layer's tensors
        return error
    return None


def _tiles(lens: str, cells: torch.Tensor, signed: bool) -> Iterator[tuple[Key, torch.Tensor]]:
    """Yield the thumbnails of a lens, of cells [H, t, t'], as they are kept."""
    for name, values in zip(("tiles", "scale", "offset"), quantise(cells, signed), strict=True):
        yield ("tile", lens, name), values


def _facts(readings: Readings) -> Iterator[tuple[Key, torch.Tensor]]:
    """Yield the notes of lenses about heads: rank, condition and so on."""
    for lens, reading in readings.items():
        for note in ("rank", "condition", "identical", "undefined"):
            if getattr(reading, note) is not None:
                yield ("note", lens, note), getattr(reading, note)
