"""The result of an analysis: maps, which go to a sink as they are computed, and everything else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, Self, cast

from pydantic import TypeAdapter

from ..core.arrays import Array
from ..core.attention import Kind, ResultWarning
from ..core.factored_map import FactoredMap
from ..core.factors import Factors
from ..core.lazy import torch
from ..core.tokens import TOKENS, Token
from ..models.tokens import Grid
from .predictions import Predictions
from .request import AnalysisRequest

Shape = tuple[int, int, int, int]
# Prefix of an array's flat name -> the field of Result that holds it.
GROUPS = {"tile": "tiles", "measure": "measures", "note": "notes"}
PREDICTED = ("ids", "logits", "probabilities")
# Parser of a part of a document.
GRID = TypeAdapter[Grid | None](Grid | None)


class MapSink(Protocol):
    """A destination for maps, which arrive in blocks of heads, each lens in order of layer and head."""

    def open(self, shapes: dict[str, Shape], factored: Collection[str] = ()) -> None:
        """Begin with the shape [L, H, Q, K] of each lens that is kept, and the lenses of which factors arrive.

        If the analysis restarts, this is called again and discards what was written.
        """

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """Write a block [h, Q, K] of float32 that starts at (layer, head) of the selection."""

    def write_factors(self, lens: str, layer: int, head: int, heads: Sequence[Factors]) -> None:
        """Write the heads from (layer, head) of the selection on, each as what determines its map."""


class MemorySink:
    """A sink that keeps the maps in memory: as arrays, or as arrays that are computed from factors."""

    def __init__(self) -> None:
        self.maps: dict[str, Array] = {}

    def open(self, shapes: dict[str, Shape], factored: Collection[str] = ()) -> None:
        """Allocate every map, by torch: numpy requests huge pages, which can take several times as long as the analysis."""
        self._factored = {lens: FactoredMap(shape) for lens, shape in shapes.items() if lens in factored}
        self.maps = {
            lens: cast("Array", self._factored[lens])
            if lens in factored
            else torch.empty(shape, dtype=torch.float32, device="cpu").numpy()
            for lens, shape in shapes.items()
        }

    def write(self, lens: str, layer: int, head: int, block: Array) -> None:
        """Copy the block into its map, by all threads of torch: the first write to every page of new memory takes longer than the copy."""
        torch.from_numpy(self.maps[lens])[layer, head : head + block.shape[0]].copy_(torch.from_numpy(block))

    def write_factors(self, lens: str, layer: int, head: int, heads: Sequence[Factors]) -> None:
        """Keep the factors."""
        self._factored[lens].add(heads)


@dataclass(frozen=True)
class Result:
    """Everything about an analysis but the maps themselves. `layers` and `heads` are the indices along axes L and H."""

    request: AnalysisRequest
    kind: Kind
    tokens: list[Token]  # along axis Q
    key_tokens: list[Token]  # along axis K: different from `tokens` only in cross-attention
    layers: list[int]
    heads: list[int]
    head_width: int
    keys: Array  # [L, Q] number of keys that each query may attend to
    causal: bool
    shapes: dict[str, Shape] = field(default_factory=dict)  # of every lens that was read
    tiles: dict[str, dict[str, Array]] = field(default_factory=dict)  # lens -> tiles, scale, offset
    measures: dict[str, dict[str, Array]] = field(default_factory=dict)  # measure -> lens -> values
    # lens -> rank, condition, identical, undefined: each [L, H]
    notes: dict[str, dict[str, Array]] = field(default_factory=dict)
    warnings: list[ResultWarning] = field(default_factory=list)  # caveats to consider when reading the maps
    timing_ms: dict[str, float] = field(default_factory=dict)
    logits: Array | None = None  # [Q, vocabulary], if they were kept
    predictions: Predictions | None = None  # likewise
    full_text: str | None = None  # the text that token offsets refer to, with what the model generated
    target_text: str | None = None  # the same for the decoder of an encoder-decoder
    generated: int = 0  # tokens at the end that the model generated
    grid: Grid | None = None  # how an image was cut into tokens: rows and columns of patches, and their sizes in pixels
    picture: Array | None = None  # uint8 [height, width, 3], the image as the model sees it, scaled and cropped

    @property
    def shape(self) -> Shape:
        """[L, H, Q, K] of a map per head."""
        return (len(self.layers), len(self.heads), len(self.tokens), len(self.key_tokens))

    def to_document(self) -> dict[str, Any]:
        """Return everything but the arrays as plain JSON."""
        same = self.key_tokens == self.tokens
        return {
            "request": self.request.record,
            "kind": self.kind,
            "tokens": TOKENS.dump_python(self.tokens),
            "key_tokens": None if same else TOKENS.dump_python(self.key_tokens),
            "full_text": self.full_text,
            "target_text": self.target_text,
            "generated": self.generated,
            "predictions": None if self.predictions is None else self.predictions.texts,
            "grid": None if self.grid is None else asdict(self.grid),
            "shape": list(self.shape),
            "shapes": {lens: list(shape) for lens, shape in self.shapes.items()},
            "layers": self.layers,
            "heads": self.heads,
            "head_width": self.head_width,
            "causal": self.causal,
            "kept": self.request.lens_names if self.request.maps else [],
            "lenses": self.request.lens_names,
            "measures": {
                name: {lens: list(values.shape) for lens, values in by_lens.items()}
                for name, by_lens in self.measures.items()
            },
            "warnings": [warning.as_dict() for warning in self.warnings],
            "timing_ms": {name: round(spent, 1) for name, spent in self.timing_ms.items()},
        }

    def to_arrays(self) -> dict[str, Array]:
        """Return the small arrays under flat names: tile/weights/scale, measure/entropy/weights, note/effective/rank, keys, picture, predictions/ids."""
        flat = {"keys": self.keys}
        if self.picture is not None:
            flat["picture"] = self.picture
        if self.predictions is not None:
            flat |= {f"predictions/{name}": getattr(self.predictions, name) for name in PREDICTED}
        for group, attribute in GROUPS.items():
            for name, parts in getattr(self, attribute).items():
                flat |= {f"{group}/{name}/{part}": values for part, values in parts.items()}
        return flat

    @classmethod
    def from_document(cls, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Rebuild a result from `to_document` and `to_arrays` (with "logits", if they were kept). Raises ValueError, KeyError or TypeError for anything else."""
        groups: dict[str, Any] = {attribute: {} for attribute in GROUPS.values()}
        for flat, array in arrays.items():
            group, _, rest = flat.partition("/")
            if group in GROUPS:
                name, _, part = rest.partition("/")
                groups[GROUPS[group]].setdefault(name, {})[part] = array
        texts = document.get("predictions")
        tokens, copied = TOKENS.validate_python(document["tokens"]), ("kind", "layers", "heads", "head_width", "causal")
        return cls(
            request=AnalysisRequest.model_validate(document["request"]),
            tokens=tokens,
            key_tokens=TOKENS.validate_python(document["key_tokens"]) if document["key_tokens"] else tokens,
            keys=arrays["keys"],
            grid=GRID.validate_python(document["grid"]),
            picture=arrays.get("picture"),
            shapes={lens: (a, b, c, d) for lens, (a, b, c, d) in document["shapes"].items()},
            warnings=[ResultWarning(**warning) for warning in document["warnings"]],
            logits=arrays.get("logits"),
            predictions=None
            if texts is None
            else Predictions(texts=texts, **{name: arrays[f"predictions/{name}"] for name in PREDICTED}),
            **{name: document[name] for name in (*copied, "full_text", "target_text", "generated", "timing_ms")},
            **groups,
        )
