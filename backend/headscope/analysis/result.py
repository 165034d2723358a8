"""What an analysis gives: its maps, which go to a sink as they come, and everything else that is known of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from numpy.typing import NDArray

from ..core.attention import Kind, ResultWarning
from ..core.tokens import Token
from ..models.tokens import Grid
from .request import AnalysisRequest

Array = NDArray[Any]
Shape = tuple[int, int, int, int]


class MapSink(Protocol):
    """Where maps go, block of heads by block of heads, each lens in order of layer and head."""

    def open(self, shapes: dict[str, Shape]) -> None:
        """Before the first block: the lenses that are kept and the shape [L, H, Q, K] of each. Again where the analysis starts anew: what was written is void."""

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """A block [h, Q, K] float32 that starts at place (layer, head) of the selection."""


class MemorySink:
    """A sink that keeps the maps as arrays."""

    def __init__(self) -> None:
        self.maps: dict[str, Array] = {}

    def open(self, shapes: dict[str, Shape]) -> None:
        """Room for every map. Allocated by torch: numpy asks for huge pages, which can take several times as long as the analysis."""
        self.maps = {lens: torch.empty(shape, dtype=torch.float32).numpy() for lens, shape in shapes.items()}

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """Copy the block to its place."""
        self.maps[lens][layer, head : head + block.shape[0]] = block


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
    warnings: list[ResultWarning] = field(default_factory=list)
    timing_ms: dict[str, float] = field(default_factory=dict)
    logits: Array | None = None
    full_text: str | None = None  # what offsets of the (encoder's) tokens count in, with what the model wrote
    target_text: str | None = None  # the same of a decoder beside an encoder
    generated: int = 0  # tokens at the end that the model wrote
    grid: Grid | None = None  # how an image became tokens
    picture: Array | None = None  # uint8 [height, width, 3], the image as the model sees it

    @property
    def shape(self) -> Shape:
        """[L, H, Q, K] of a map per head."""
        return (len(self.layers), len(self.heads), len(self.tokens), len(self.key_tokens))
