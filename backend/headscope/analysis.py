"""The pipeline: model -> tokens -> capture -> lenses -> measures -> sink. One layer's blocks of heads at a time; none outlives its turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from . import budget
from .capture import Wanted, capture, examine
from .caveats import caveats
from .errors import Unsupported
from .lenses import LENSES
from .measures import MEASURES
from .measures.thumbnail import pool, quantise
from .mechanisms import MECHANISMS
from .models.loading import Model
from .models.tokens import Grid
from .request import AnalysisRequest, check_needs
from .types import Kind, Layer, Reading, Setting, Token, Warned

TILE = 32

Array = NDArray[Any]
Progress = Callable[[float, str, str], None]
Shape = tuple[int, int, int, int]


class Sink(Protocol):
    """Where maps go, block of heads by block of heads, each lens in order of layer and head."""

    def open(self, shapes: dict[str, Shape]) -> None:
        """Before the first block: the lenses that are kept and the shape [L, H, Q, K] of each."""

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """A block [h, Q, K] float32 that starts at place (layer, head) of the selection."""


@dataclass
class Result:
    """What an analysis gives beside the maps themselves. `layers` and `heads` name what axes L and H hold."""

    request: AnalysisRequest
    kind: Kind
    tokens: list[Token]  # along axis Q
    key_tokens: list[Token]  # along axis K
    layers: list[int]
    heads: list[int]
    head_width: int
    keys: Array  # [L, Q] number of keys each query may see
    causal: bool
    shapes: dict[str, Shape] = field(default_factory=dict)  # of every lens that was read
    tiles: dict[str, dict[str, Array]] = field(default_factory=dict)  # lens -> tiles, scale, offset
    measures: dict[str, dict[str, Array]] = field(default_factory=dict)  # measure -> lens -> values
    notes: dict[str, dict[str, Array]] = field(
        default_factory=dict
    )  # lens -> rank, condition, identical, undefined: each [L, H]
    warnings: list[Warned] = field(default_factory=list)
    timing_ms: dict[str, float] = field(default_factory=dict)
    logits: Array | None = None
    full_text: str | None = None  # what offsets of the (encoder's) tokens count in, with what the model wrote
    target_text: str | None = None  # the same of a decoder beside an encoder
    generated: int = 0  # tokens at the end that the model wrote
    grid: Grid | None = None  # how an image became tokens

    @property
    def shape(self) -> Shape:
        """[L, H, Q, K] of a map per head."""
        return (len(self.layers), len(self.heads), len(self.tokens), len(self.key_tokens))


def run(
    model: Model,
    request: AnalysisRequest,
    sink: Sink,
    *,
    limit: int | None = None,
    progress: Progress = lambda fraction, stage, detail: None,
    keep_logits: bool = False,
) -> Result:
    """Analyse one input. `progress(fraction, stage, detail)` is called at every layer and may raise to stop.

    Raises a HeadscopeError: see examine, request.check_needs, Model.encode, budget.check, capture.
    """
    started = time.perf_counter()
    anatomy = examine(model)
    check_needs(request.methods, anatomy.lacks(request.kind))
    encoded = model.encode(**request.input)
    sites = anatomy.of(request.kind)
    axes = encoded.axes(sites[0].kind)
    planned = budget.plan(request, {site.layer: site.heads for site in sites}, len(axes.queries), len(axes.keys))
    if limit is not None:
        budget.check(planned, limit)
    collector = Collector(request, planned, sink, progress)
    progress(0.0, "forward", f"layer 1 of {sites[-1].layer + 1}")
    mechanism = MECHANISMS[request.mechanism.name]
    heads, numbers = tuple(site.heads for site in sites), tuple(site.layer for site in sites)
    setting = Setting(heads, model.width, sites[0].kind, sites[0].causal, axes, numbers)
    with model.lock, model.using(request.dtype):
        output = capture(
            model, encoded, anatomy, collector.wanted, request.kind, lambda: mechanism.begin(request.mechanism, setting)
        )
    result = collector.result(sites[0].kind, axes.queries, axes.keys, sites[0].width)
    result.warnings = [*encoded.warnings, *caveats(result, anatomy.lacks(request.kind))]
    result.full_text, result.target_text = encoded.text, encoded.target_text
    result.generated, result.grid = encoded.generated, encoded.grid
    if keep_logits:
        if not hasattr(output, "logits"):
            raise Unsupported("This model has no head that gives logits. Load it with one, or leave keep_logits out.")
        result.logits = output.logits[0].float().cpu().numpy()
    total = time.perf_counter() - started
    result.timing_ms = {
        "forward": round((total - collector.reading_s - collector.writing_s) * 1e3, 1),
        "lenses": round(collector.reading_s * 1e3, 1),
        "write": round(collector.writing_s * 1e3, 1),
        "total": round(total * 1e3, 1),
    }
    return result


class Collector:
    """Gets every block of heads, and every layer, from the capture, reads it through the lenses, and keeps what is small."""

    def __init__(self, request: AnalysisRequest, planned: budget.Plan, sink: Sink, progress: Progress) -> None:
        self._plan, self._sink, self._progress = planned, sink, progress
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
        sink.open({lens: planned.shape(lens) for lens in planned.kept})

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


class Memory:
    """A sink that keeps the maps as arrays."""

    def __init__(self) -> None:
        self.maps: dict[str, Array] = {}

    def open(self, shapes: dict[str, Shape]) -> None:
        """Room for every map. Allocated by torch: numpy asks for huge pages, which can take several times as long as the analysis."""
        self.maps = {lens: torch.empty(shape).numpy() for lens, shape in shapes.items()}

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """Copy the block to its place."""
        self.maps[lens][layer, head : head + block.shape[0]] = block


__all__ = ["Array", "Collector", "Memory", "Progress", "Result", "Sink", "run"]
