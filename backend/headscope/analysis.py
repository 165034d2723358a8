"""The pipeline: model -> tokens -> capture -> lenses -> measures -> sink. One layer's blocks of heads at a time; none outlives its turn."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from . import budget
from .capture import capture, ensure_exact
from .errors import Unsupported
from .lenses import LENSES
from .measures import MEASURES
from .measures.thumbnail import pool, quantise
from .models.loading import Model
from .request import AnalysisRequest
from .types import Layer, Reading, Token, Warned

TILE = 32

Array = NDArray[Any]
Progress = Callable[[float, str, str], None]


class Sink(Protocol):
    """Where maps go, block of heads by block of heads, in order of layer and head."""

    def open(self, lenses: list[str], shape: tuple[int, int, int, int]) -> None:
        """Before the first block: the lenses that are kept and the shape [L, H, Q, K] of each."""

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """A block [h, Q, K] float32 that starts at place (layer, head) of the selection."""


@dataclass
class Result:
    """What an analysis gives beside the maps themselves. `layers` and `heads` name what axes L and H hold."""

    request: AnalysisRequest
    tokens: list[Token]
    layers: list[int]
    heads: list[int]
    head_width: int
    keys: Array  # [L, Q] number of keys each query may see
    causal: bool
    tiles: dict[str, dict[str, Array]] = field(default_factory=dict)  # lens -> tiles, scale, offset
    measures: dict[str, dict[str, Array]] = field(default_factory=dict)  # measure -> lens -> values
    notes: dict[str, dict[str, Array]] = field(default_factory=dict)  # lens -> rank, condition, identical, each [L, H]
    warnings: list[Warned] = field(default_factory=list)
    timing_ms: dict[str, float] = field(default_factory=dict)
    logits: Array | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """[L, H, Q, K] of every map."""
        return (len(self.layers), len(self.heads), len(self.tokens), len(self.tokens))


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

    Raises a HeadscopeError: see Model.encode, budget.check, capture.
    """
    started = time.perf_counter()
    encoded = model.encode(request.text, request.text_pair, token_ids=request.token_ids, max_tokens=request.max_tokens)
    planned = budget.plan(request, model.facts, len(encoded.tokens))
    if limit is not None:
        budget.check(planned, limit)
    ensure_exact(model)
    sink.open(
        request.lenses if request.maps else [],
        (len(planned.layers), len(planned.heads), planned.tokens, planned.tokens),
    )
    collector = _Collector(request, planned, sink, progress)
    progress(0.0, "forward", f"layer 1 of {max(planned.layers) + 1}")
    with model.lock, model.using(request.dtype):
        output = capture(model, encoded, collector.add, request.mechanism_name)
    result = collector.result(encoded.tokens, model.facts.head_width)
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


class _Collector:
    """Gets every block of heads from the capture, reads it through the lenses, and keeps what is small."""

    def __init__(self, request: AnalysisRequest, planned: budget.Plan, sink: Sink, progress: Progress) -> None:
        self._request, self._plan, self._sink, self._progress = request, planned, sink, progress
        self._heads = frozenset(planned.heads)
        self._place = {layer: place for place, layer in enumerate(planned.layers)}
        self._arrays: dict[tuple[str, str, str], Array] = {}
        self._keys = np.zeros((len(planned.layers), planned.tokens), np.int32)
        self._causal = True
        self.reading_s = self.writing_s = 0.0

    def add(self, layer: Layer) -> None:
        """Read one block and let it go."""
        place = self._place.get(layer.index)
        block = layer.select(self._heads) if place is not None else None
        last = max(self._place) + 1
        self._progress(min(1.0, (layer.index + 1) / last), "forward", f"layer {layer.index + 1} of {last}")
        if place is None or block is None:
            return
        started = time.perf_counter()
        head = self._plan.heads.index(block.heads[0])
        counts = block.keys.counts(*block.weights.shape[1:])
        self._keys[place] = counts.cpu().numpy()
        self._causal &= block.keys.rule == "prefix"
        readings: dict[str, Reading] = {name: LENSES[name].read(block) for name in self._request.readings}
        for name, reading in readings.items():
            self._keep_reading(name, reading, place, head)
        for name in self._request.measures:
            for lens, values in MEASURES[name].compute(block, readings).items():
                self._keep(("measure", name, lens), values, place, head)
        self.reading_s += time.perf_counter() - started
        started = time.perf_counter()
        for name in self._request.lenses if self._request.maps else ():
            self._sink.write(name, place, head, readings[name].map.cpu().numpy())
        self.writing_s += time.perf_counter() - started

    def _keep_reading(self, name: str, reading: Reading, place: int, head: int) -> None:
        if name in self._request.lenses:
            signed = LENSES[name].signed
            tiles, scale, offset = quantise(pool(reading.map, TILE, signed), signed)
            for part, values in (("tiles", tiles), ("scale", scale), ("offset", offset)):
                self._keep(("tile", name, part), values, place, head)
        for part in ("rank", "condition", "identical"):
            note = getattr(reading, part)
            if note is not None:
                self._keep(("note", name, part), note, place, head)

    def _keep(self, key: tuple[str, str, str], values: Any, place: int, head: int) -> None:
        block = values.detach().cpu().numpy()
        if block.dtype == np.float64:
            block = block.astype(np.float32)
        if key not in self._arrays:
            self._arrays[key] = np.zeros((len(self._plan.layers), len(self._plan.heads), *block.shape[1:]), block.dtype)
        self._arrays[key][place, head : head + block.shape[0]] = block

    def result(self, tokens: list[Token], head_width: int) -> Result:
        """Everything kept, as one result."""
        grouped: dict[str, dict[str, dict[str, Array]]] = {"tile": {}, "measure": {}, "note": {}}
        for (group, name, part), values in self._arrays.items():
            grouped[group].setdefault(name, {})[part] = values
        result = Result(
            self._request, tokens, self._plan.layers, self._plan.heads, head_width, self._keys, self._causal,
            tiles=grouped["tile"], measures=grouped["measure"], notes=grouped["note"],
        )  # fmt: skip
        result.warnings = list(_warnings(result))
        return result


def _warnings(result: Result) -> Any:
    """What has to be said next to a lens: identical to the weights, dependent or ill-conditioned values."""
    n = len(result.tokens)
    for lens, notes in result.notes.items():
        if lens not in result.request.lenses or "identical" not in notes:
            continue
        identical, width = notes["identical"], result.head_width + (lens == "effective-simplex")
        if identical.all():
            yield Warned(
                "identical-to-weights",
                f"Identical to the weights: {n} tokens fit into the head's {width} dimensions.",
                lens,
            )
        elif identical.any():
            yield Warned(
                "identical-to-weights",
                f"Identical to the weights in {identical.sum()} of {identical.size} heads.",
                lens,
            )
        deficient = int((notes["rank"] < min(n, width)).sum())
        if deficient:
            yield Warned(
                "rank-deficient",
                f"The values of {deficient} of {identical.size} heads are linearly dependent, so their null space is larger.",
                lens,
            )
        delicate = int((notes["condition"] > 1e4).sum())
        if delicate:
            yield Warned(
                "ill-conditioned",
                f"The values of {delicate} of {identical.size} heads are nearly dependent; there the map depends on small differences.",
                lens,
            )


class Memory:
    """A sink that keeps the maps as arrays."""

    def __init__(self) -> None:
        self.maps: dict[str, Array] = {}

    def open(self, lenses: list[str], shape: tuple[int, int, int, int]) -> None:
        """Room for every map. Allocated by torch: numpy asks for huge pages, which can take several times as long as the analysis."""
        self.maps = {lens: torch.empty(shape).numpy() for lens in lenses}

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """Copy the block to its place."""
        self.maps[lens][layer, head : head + block.shape[0]] = block
