"""Reads what the capture hands on: lenses and measures, block by block and layer by layer; maps go to sinks, what is small is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from traceback import clear_frames
from typing import Any

import numpy as np
import torch

from ..capture import Batch, CaptureSpec, by_input, part
from ..core.attention import Kind, Layer, Reading
from ..core.tokens import BatchTokens, Token
from ..errors import HeadscopeError
from ..lenses import LENSES
from ..measures import MEASURES
from ..measures.thumbnail import pool, quantise
from .memory import MemoryPlan
from .request import AnalysisRequest
from .result import Array, MapSink, Result

TILE = 32
ROUNDING = 1e-5  # of the sum of a row of weights

Progress = Callable[[float, str, str], None]
Readings = dict[str, Reading]
# What is kept: group (measure, note or tile), name, and lens or part.
Key = tuple[str, str, str]
# Inputs of a pass, by their places in what was computed together.
Places = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Maps:
    """Blocks of maps that go to the sinks: lens -> [B, h, Q, K], which start at (place, head) of the selection."""

    place: int
    head: int
    blocks: dict[str, torch.Tensor]


class Reader:
    """Gets every block of heads, and every layer, of the inputs of one pass, reads it through the lenses, and keeps what is small.

    The inputs go by their numbers. They have one recipe, and one plan but for whether maps are kept; each has a sink for its maps, somebody who hears how far it
    is, and says whether its maps are kept. `tiles` says whether thumbnails are made.
    """

    def __init__(
        self,
        request: AnalysisRequest,
        planned: MemoryPlan,
        inputs: Sequence[tuple[MapSink, Progress, bool]],
        *,
        tiles: bool = True,
    ) -> None:
        self._request, self._plan, self._inputs = request, planned, inputs
        self._opened = set[int]()
        self._lenses = request.readings
        self._measures = {choice.name: choice for choice in request.measures}
        self._shown = frozenset(request.lens_names if tiles else ())
        self._written = frozenset(number for number, (_, _, kept) in enumerate(inputs) if kept)
        self._kept = request.lens_names if self._written else []
        self._heads = frozenset(planned.heads)
        self._place = {layer: place for place, layer in enumerate(planned.layers)}
        self._last = max(planned.layers)
        self._arrays: dict[Key, Array] = {}  # [B, L, ...]
        self._keys = np.zeros((len(inputs), len(planned.layers), planned.queries), np.int32)
        self._causal = True
        self._joined: dict[tuple[int, str], torch.Tensor] = {}
        self._alike: dict[tuple[str, Places], list[Places]] = {}
        self._tokens: dict[Places, BatchTokens] = {}
        self.reading_s = self.writing_s = 0.0
        self.lens_s = dict[str, float]()  # of reading_s, what each lens took

    def spec(self, number: int = 0) -> CaptureSpec:
        """What the capture shall hand on of an input."""
        methods = self._request.methods
        of_layer = [method for method in methods if getattr(method, "of", "heads") == "layer"]
        needs = frozenset(need for method in methods for need in method.needs)
        pad_to = next((params.pad_to for name, params in self._lenses.items() if "padding" in LENSES[name].needs), None)
        on_layer = partial(self.read_layer, number=number) if of_layer else None
        return CaptureSpec(partial(self.read_heads, number=number), on_layer, needs, self._plan.whole, pad_to)

    # -- heads ----------------------------------------------------------------------------------------------------------------------------

    def read_heads(self, layer: Layer, number: int = 0) -> None:
        """Read one block of an input's heads and let it go."""
        self._begin(number, layer.index)
        for maps in self._read(Batch(layer, layer, (layer.axes,), (number,))):
            self._write(number, maps, 0)

    def read_batch(self, together: Batch) -> list[HeadscopeError | None]:
        """Read the heads of several inputs and let them go -> what went wrong with each."""
        failures = [_failure(self._begin, number, together.layer.index) for number in together.places]
        found = list[_Maps]()
        error = _failure(lambda: found.extend(self._read(together)))
        for place, number in enumerate(together.places):
            if error is not None:  # which may be about another input
                failures[place] = failures[place] or _failure(self.read_heads, together.one(place), number)
            for maps in found:
                failures[place] = failures[place] or _failure(self._write, number, maps, place)
        return failures

    def _begin(self, number: int, layer: int) -> None:
        """Open the sink before the first block, and say how far the input is."""
        sink, progress, kept = self._inputs[number]
        if number not in self._opened:
            self._opened.add(number)
            sink.open({lens: self._plan.shape(lens) for lens in self._kept} if kept else {})
        progress(min(1.0, (layer + 1) / (self._last + 1)), "forward", f"layer {layer + 1} of {self._last + 1}")

    def _read(self, together: Batch) -> list[_Maps]:
        """Keep what measures make of some heads -> what goes to the sinks."""
        place = self._place.get(together.layer.index)
        chosen = together.select(self._heads) if place is not None else None
        if place is None or chosen is None:
            return []
        started = time.perf_counter()
        block, head = chosen.layer, self._plan.heads.index(chosen.layer.heads[0])
        self._keys[list(chosen.places), place] = block.keys.counts(*block.weights.shape[1:]).cpu().numpy()
        self._causal &= block.keys.rule == "prefix"
        readings = {
            name: self._through(name, block, params)
            for name, params in self._lenses.items()
            if LENSES[name].of == "heads"
        }
        for key, values in (*self._notes(readings), *self._measured(chosen, readings)):
            self._keep(key, values, chosen.places, place, head)
        self.reading_s += time.perf_counter() - started
        return self._maps(chosen, readings, place, head)

    def _through(self, name: str, layer: Layer, params: Any) -> Reading:
        """A layer read through a lens; how long that took is added up."""
        started = time.perf_counter()
        reading = LENSES[name].read(layer, params)
        self.lens_s[name] = self.lens_s.get(name, 0.0) + time.perf_counter() - started
        return reading

    def _measured(self, together: Batch, readings: Readings) -> Iterator[tuple[Key, torch.Tensor]]:
        """What measures of heads give, [B h, ...] each. Inputs that are alike in what a measure looks at are computed at once, others one by one."""
        size, twins = len(together.places), _twins(readings)
        parts = cache(lambda places: (self._some(together, places), _part(readings, size, places)))
        for name, params in self._measures.items():
            measure, known = MEASURES[name], dict[str, torch.Tensor]()
            for lens in measure.lenses if measure.of == "heads" else ():
                if lens not in readings:
                    continue
                if twins.get(lens) in known:
                    known[lens] = known[twins[lens]]
                else:
                    groups = self._groups(name, together)
                    found = [measure.compute(layer, lens, of, params) for layer, of in map(parts, groups)]
                    known[lens] = _in_order(found, groups)
                yield ("measure", name, lens), known[lens]

    def _some(self, together: Batch, places: Places) -> Layer:
        """The heads of some inputs, with the tokens of each."""
        numbers = tuple([together.places[place] for place in places])
        if numbers not in self._tokens:
            self._tokens[numbers] = BatchTokens(tuple([together.axes[place] for place in places]))
        return replace(together.some(places), inputs=self._tokens[numbers])

    def _groups(self, name: str, together: Batch) -> list[Places]:
        """The inputs in groups that are alike in what a measure of heads looks at beside the maps."""
        key = (name, together.places)
        if key not in self._alike:
            looks, params, marks = MEASURES[name].looks, self._measures[name], dict[Any, list[int]]()
            for place, axes in enumerate(together.axes):
                tokens = axes.keys if axes.queries is axes.keys else (*axes.queries, *axes.keys)
                mark = place if looks is None else tuple([looks(token, params) for token in tokens])
                marks.setdefault(mark, []).append(place)
            self._alike[key] = [tuple(places) for places in marks.values()]
        return self._alike[key]

    def _maps(self, together: Batch, readings: Readings, place: int, head: int) -> list[_Maps]:
        """The maps that go to the sinks; with them, after the last head that a layer has, those of the heads that it does not have."""
        size, index = len(together.places), together.layer.index
        found = {name: by_input(reading.map, size) for name, reading in readings.items() if name in self._kept}
        maps = [_Maps(place, head, found)]
        absent = self._plan.absent(index) if together.layer.heads[-1] == self._plan.present(index)[-1] else 0
        if absent:
            empty = torch.full((size, absent, *together.layer.weights.shape[1:]), torch.nan)
            maps.append(_Maps(place, len(self._plan.heads) - absent, dict.fromkeys(found, empty)))
        return maps

    # -- whole layers ---------------------------------------------------------------------------------------------------------------------

    def read_layer(self, layer: Layer, number: int = 0) -> None:
        """Read a whole layer of an input and let it go. Lenses that join layers read those that were not chosen, too."""
        place = self._place.get(layer.index)
        if layer.index > self._last:
            return
        started = time.perf_counter()
        readings: Readings = {}
        for name, params in self._lenses.items():
            join = LENSES[name].joining(params)
            if LENSES[name].of == "layer" and (place is not None or join is not None):
                readings[name] = self._join(number, name, self._through(name, layer, params), join)
        if place is not None:
            for key, values in (*self._notes(readings), *self._measured_layer(layer, readings)):
                self._keep(key, values, (number,), place, 0)
        self.reading_s += time.perf_counter() - started
        if place is not None:
            found = {name: reading.map[None] for name, reading in readings.items() if name in self._kept}
            self._write(number, _Maps(place, 0, found), 0)

    def _join(self, number: int, name: str, reading: Reading, join: Any) -> Reading:
        """The reading of a layer joined with those before, for a lens that joins layers."""
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
        """What measures of whole layers give."""
        for name, params in self._measures.items():
            measure = MEASURES[name]
            for lens in measure.lenses if measure.of == "layer" else ():
                if lens in readings or lens == "weights":
                    values = measure.compute(layer, lens, readings, params)
                    yield ("measure", name, lens), self._chosen(values, measure.shape, layer.index)

    def _chosen(self, values: torch.Tensor, shape: str, layer: int) -> torch.Tensor:
        """Values of all heads of a layer -> those of the chosen heads, along every axis H of `shape`; NaN for heads that the layer does not have."""
        present, absent = self._plan.present(layer), self._plan.absent(layer)
        for axis, letter in enumerate(shape.split()[1:]):
            if letter == "H":
                values = values.index_select(axis, torch.tensor(present, device=values.device))
                empty = [absent if place == axis else size for place, size in enumerate(values.shape)]
                values = torch.cat([values, values.new_full(empty, torch.nan)], axis) if absent else values
        return values

    # -- what is kept ---------------------------------------------------------------------------------------------------------------------

    def _notes(self, readings: Readings) -> Iterator[tuple[Key, torch.Tensor]]:
        """What lenses say about heads beside their maps, and thumbnails."""
        for name, reading in readings.items():
            if name in self._shown:
                tiles, scale, offset = quantise(pool(reading.map.nan_to_num(), TILE, reading.signed), reading.signed)
                yield from (
                    (("tile", name, "tiles"), tiles),
                    (("tile", name, "scale"), scale),
                    (("tile", name, "offset"), offset),
                )
            for note in ("rank", "condition", "identical", "undefined"):
                if getattr(reading, note) is not None:
                    yield ("note", name, note), getattr(reading, note)

    def _keep(self, key: Key, values: torch.Tensor, numbers: Places, place: int, head: int) -> None:
        """Values of blocks of heads, [B h, ...], go to their places in [B, L, H, ...]; those of one input's layer may have any shape."""
        block = values.detach().cpu().numpy()
        if block.dtype == np.float64:
            block = block.astype(np.float32)
        group, name, _ = key
        per_head = MEASURES[name].of == "heads" if group == "measure" else LENSES[name].of == "heads"
        block = block.reshape(len(numbers), -1, *block.shape[1:]) if per_head else block[None]
        if key not in self._arrays:
            axes = (len(self._plan.heads), *block.shape[2:]) if per_head else block.shape[1:]
            empty = np.nan if block.dtype.kind == "f" else 0
            self._arrays[key] = np.full((len(self._inputs), len(self._plan.layers), *axes), empty, block.dtype)
        heads = (slice(head, head + block.shape[1]),) if per_head else ()
        self._arrays[key][(list(numbers), place, *heads)] = block

    def _write(self, number: int, maps: _Maps, place: int) -> None:
        """Maps of the input that is at `place` in what was computed together go to its sink, if they are kept."""
        if number not in self._written:
            return
        started = time.perf_counter()
        for name, block in maps.blocks.items():
            self._inputs[number][0].write(name, maps.place, maps.head, block[place].cpu().numpy())
        self.writing_s += time.perf_counter() - started

    def result(
        self,
        request: AnalysisRequest,
        kind: Kind,
        queries: tuple[Token, ...],
        keys: tuple[Token, ...],
        head_width: int,
        number: int = 0,
    ) -> Result:
        """Everything kept of an input, as the result of its request."""
        grouped: dict[str, dict[str, dict[str, Array]]] = {"tile": {}, "measure": {}, "note": {}}
        for (group, name, lens), values in self._arrays.items():
            grouped[group].setdefault(name, {})[lens] = values[number]
        return Result(
            request, kind, list(queries), list(keys), self._plan.layers, self._plan.heads, head_width, self._keys[number], self._causal,
            shapes={name: self._plan.shape(name) for name in request.lens_names},
            tiles=grouped["tile"], measures=grouped["measure"], notes=grouped["note"],
        )  # fmt: skip


def _failure(work: Callable[..., None], *arguments: Any) -> HeadscopeError | None:
    """What went wrong with an input's own part of the work."""
    try:
        work(*arguments)
    except HeadscopeError as error:
        clear_frames(error.__traceback__)  # which would keep the layer's tensors
        return error
    return None


def _part(readings: Readings, size: int, places: Places) -> Readings:
    """What the readings of `size` inputs say of some of them."""
    if len(places) == size:
        return readings
    return {name: _of(reading, size, places) for name, reading in readings.items()}


def _twins(readings: Readings) -> dict[str, str]:
    """Lens -> `weights`, where its map is the weights themselves and their rows sum to 1: what is said of one is then said of the other, whatever it is divided by."""
    weights = readings.get("weights")
    same = [name for name, reading in readings.items() if weights is not None and reading.map is weights.map]
    if weights is None or len(same) < 2 or float((weights.row_sums() - 1).abs().max()) > ROUNDING:
        return {}
    return dict.fromkeys(same, "weights")


def _of(reading: Reading, size: int, places: Places) -> Reading:
    tensors = {one.name: getattr(reading, one.name) for one in fields(reading) if one.init and one.name != "signed"}
    parts: dict[str, Any] = {name: part(one, size, places) for name, one in tensors.items() if one is not None}
    return replace(reading, **parts)


def _in_order(found: list[torch.Tensor], groups: list[Places]) -> torch.Tensor:
    """Values [b h, ...] of every group of b inputs -> values of all inputs in order, [B h, ...]."""
    if len(groups) == 1:
        return found[0]
    values = torch.cat([by_input(one, len(group)) for one, group in zip(found, groups, strict=True)])
    order = torch.tensor([place for group in groups for place in group], device=values.device)
    return values[order.argsort()].flatten(0, 1)
