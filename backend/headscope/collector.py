"""Reads what the capture hands on: lenses and measures, block by block and layer by layer; maps go to the sink, what is small is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from .budget import Plan
from .capture import Wanted
from .lenses import LENSES
from .measures import MEASURES
from .measures.thumbnail import pool, quantise
from .request import AnalysisRequest
from .result import Array, Result, Sink
from .types import Kind, Layer, Reading, Token

TILE = 32

Progress = Callable[[float, str, str], None]


class Collector:
    """Gets every block of heads, and every layer, from the capture, reads it through the lenses, and keeps what is small."""

    def __init__(self, request: AnalysisRequest, planned: Plan, sink: Sink, progress: Progress) -> None:
        self._plan, self._sink, self._progress, self._opened = planned, sink, progress, False
        self._lenses = request.readings
        self._measures = {choice.name: choice for choice in request.measures}
        self._shown, self._kept = frozenset(request.lens_names), frozenset(planned.kept)
        self._request = request
        self._heads = frozenset(planned.heads)
        self._place = {layer: place for place, layer in enumerate(planned.layers)}
        self._last = max(planned.layers)
        self._arrays: dict[tuple[str, str, str], Array] = {}
        self._keys = np.zeros((len(planned.layers), planned.queries), np.int32)
        self._causal = True
        self._joined: dict[str, torch.Tensor] = {}
        self.reading_s = self.writing_s = 0.0

    @property
    def wanted(self) -> Wanted:
        """What the capture shall hand on."""
        methods = self._request.methods
        of_layer = [method for method in methods if getattr(method, "of", "heads") == "layer"]
        needs = frozenset(need for method in methods for need in method.needs)
        pad_to = next((params.pad_to for name, params in self._lenses.items() if "padding" in LENSES[name].needs), None)
        return Wanted(self.add_heads, self.add_layer if of_layer else None, needs, self._plan.whole, pad_to)

    def add_heads(self, layer: Layer) -> None:
        """Read one block of heads and let it go."""
        if not self._opened:
            self._opened = True
            self._sink.open({lens: self._plan.shape(lens) for lens in self._plan.kept})
        self._progress(
            min(1.0, (layer.index + 1) / (self._last + 1)), "forward", f"layer {layer.index + 1} of {self._last + 1}"
        )
        place = self._place.get(layer.index)
        block = layer.select(self._heads) if place is not None else None
        if place is None or block is None:
            return
        started = time.perf_counter()
        head = self._plan.heads.index(block.heads[0])
        self._keys[place] = block.keys.counts(*block.weights.shape[1:]).cpu().numpy()
        self._causal &= block.keys.rule == "prefix"
        readings = {
            name: LENSES[name].read(block, params)
            for name, params in self._lenses.items()
            if LENSES[name].of == "heads"
        }
        self._measure("heads", block, readings, place, head)
        self.reading_s += time.perf_counter() - started
        self._write(readings, place, head)
        absent = self._plan.absent(layer.index) if block.heads[-1] == self._plan.present(layer.index)[-1] else 0
        if absent:
            empty = torch.full((absent, *block.weights.shape[1:]), torch.nan)
            self._write({name: Reading(empty) for name in readings}, place, len(self._plan.heads) - absent)

    def add_layer(self, layer: Layer) -> None:
        """Read a whole layer and let it go. Lenses that join layers read those that were not chosen, too."""
        place = self._place.get(layer.index)
        if layer.index > self._last:
            return
        started = time.perf_counter()
        readings: dict[str, Reading] = {}
        for name, params in self._lenses.items():
            lens = LENSES[name]
            join = lens.joining(params)
            if lens.of == "heads" or (place is None and join is None):
                continue
            reading = lens.read(layer, params)
            if join is not None and name in self._joined:
                joined = join(reading.map, self._joined[name])
                undefined = None if reading.undefined is None else joined.isnan().any(-1).sum(-1)
                reading = replace(reading, map=joined, undefined=undefined)
            if join is not None:
                self._joined[name] = reading.map
            readings[name] = reading
        if place is not None:
            self._measure("layer", layer, readings, place, 0)
        self.reading_s += time.perf_counter() - started
        if place is not None:
            self._write(readings, place, 0)

    def _measure(self, of: str, layer: Layer, readings: dict[str, Reading], place: int, head: int) -> None:
        for name, reading in readings.items():
            self._keep_reading(name, reading, place, head)
        for name, params in self._measures.items():
            measure = MEASURES[name]
            if measure.of != of:
                continue
            about = [lens for lens in measure.lenses if lens in readings or (of == "layer" and lens == "weights")]
            for lens in about:
                values = measure.compute(layer, lens, readings, params)
                if of == "layer":
                    values = self._chosen(values, measure.shape, layer.index)
                self._keep(("measure", name, lens), values, place, head)

    def _chosen(self, values: torch.Tensor, shape: str, layer: int) -> torch.Tensor:
        """Values of all heads of a layer -> those of the chosen heads, along every axis H of `shape`; NaN for heads that the layer does not have."""
        present, absent = self._plan.present(layer), self._plan.absent(layer)
        for axis, letter in enumerate(shape.split()[1:]):
            if letter == "H":
                values = values.index_select(axis, torch.tensor(present, device=values.device))
                empty = [absent if place == axis else size for place, size in enumerate(values.shape)]
                values = torch.cat([values, values.new_full(empty, torch.nan)], axis) if absent else values
        return values

    def _write(self, readings: dict[str, Reading], place: int, head: int) -> None:
        started = time.perf_counter()
        for name in readings:
            if name in self._kept:
                self._sink.write(name, place, head, readings[name].map.cpu().numpy())
        self.writing_s += time.perf_counter() - started

    def _keep_reading(self, name: str, reading: Reading, place: int, head: int) -> None:
        if name in self._shown:
            tiles, scale, offset = quantise(pool(reading.map.nan_to_num(), TILE, reading.signed), reading.signed)
            for part, values in (("tiles", tiles), ("scale", scale), ("offset", offset)):
                self._keep(("tile", name, part), values, place, head)
        for part in ("rank", "condition", "identical", "undefined"):
            note = getattr(reading, part)
            if note is not None:
                self._keep(("note", name, part), note, place, head)

    def _keep(self, key: tuple[str, str, str], values: torch.Tensor, place: int, head: int) -> None:
        """Values of a block of heads, [h, ...], go to their place in [L, H, ...]; those of a layer may have any shape."""
        block = values.detach().cpu().numpy()
        if block.dtype == np.float64:
            block = block.astype(np.float32)
        group, name, _ = key
        per_head = MEASURES[name].of == "heads" if group == "measure" else LENSES[name].of == "heads"
        if key not in self._arrays:
            axes = (len(self._plan.heads), *block.shape[1:]) if per_head else block.shape
            empty = np.nan if block.dtype.kind == "f" else 0
            self._arrays[key] = np.full((len(self._plan.layers), *axes), empty, block.dtype)
        self._arrays[key][place, slice(head, head + block.shape[0]) if per_head else ...] = block

    def result(self, kind: Kind, queries: tuple[Token, ...], keys: tuple[Token, ...], head_width: int) -> Result:
        """Everything kept, as one result."""
        grouped: dict[str, dict[str, dict[str, Array]]] = {"tile": {}, "measure": {}, "note": {}}
        for (group, name, part), values in self._arrays.items():
            grouped[group].setdefault(name, {})[part] = values
        return Result(
            self._request, kind, list(queries), list(keys), self._plan.layers, self._plan.heads, head_width, self._keys, self._causal,
            shapes={name: self._plan.shape(name) for name in self._request.lens_names},
            tiles=grouped["tile"], measures=grouped["measure"], notes=grouped["note"],
        )  # fmt: skip
