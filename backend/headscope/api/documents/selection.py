"""Chosen heads of an analysis, as an analysis that has no others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from ...core.arrays import Array
from ...core.factors import EVERY, Factors, Whole
from ...errors import InvalidRequest
from ...measures import MEASURES
from ...store.export import Source
from ...store.factor_file import parts_of
from ...store.map_file import MapPart


def select(source: Source, heads: Collection[str]) -> Source:
    """Return the source with these heads only, or as it is if `heads` is empty. Raises InvalidRequest for a head that was not analysed."""
    return Selection(source, heads) if heads else source


class Selection:
    """The layers and heads of a source that include the chosen heads. Its other heads are absent: like those that a layer does not have."""

    def __init__(self, source: Source, heads: Collection[str]) -> None:
        """`heads` are names such as 4.5. Raises InvalidRequest for a head that was not analysed."""
        self._source = source
        document = source.document
        layers, numbers = document["layers"], document["heads"]
        known = {f"{layers[i]}.{numbers[j]}": (i, j) for i, j in np.ndindex(len(layers), len(numbers))}
        if not known.keys() >= set(heads):
            raise InvalidRequest(
                "heads must be names of heads that were analysed, such as 4.5,7.2: layer and head, both counted from 0.",
                pointer="/heads",
            )
        self.names = list(heads)
        self._chosen = {known[name] for name in self.names}
        self._layers, self._heads = (sorted(set(places)) for places in zip(*self._chosen, strict=True))
        self._absent = np.array([[(i, j) not in self._chosen for j in self._heads] for i in self._layers])

    @cached_property
    def document(self) -> dict[str, Any]:
        """The description of the analysis, with a warning that says which heads there are."""
        document = self._source.document
        layers = [document["layers"][place] for place in self._layers]
        heads = [document["heads"][place] for place in self._heads]
        names = [f"{document['layers'][i]}.{document['heads'][j]}" for i, j in sorted(self._chosen)]
        message = f"This file has {len(names)} of the {len(document['layers']) * len(document['heads'])} heads: {', '.join(names)}."
        return {
            **document,
            "layers": layers,
            "heads": heads,
            "shape": [len(layers), len(heads), *document["shape"][2:]],
            "shapes": {lens: self._shape(lens) for lens in document["shapes"]},
            "warnings": [*document["warnings"], {"code": "chosen-heads", "lens": None, "message": message}],
        }

    @cached_property
    def arrays(self) -> Mapping[str, Array]:
        """Those of the source, with NaN for thumbnails and measures of absent heads."""
        return {name: self._cut(name, values) for name, values in self._source.arrays.items()}

    def maps(self, lens: str, layers: slice, heads: slice) -> Array:
        count = len(range(len(self._layers))[layers])
        found = [one.tile(0) for one in self.factors(lens, layers, heads)]
        return np.stack(found).reshape(count, -1, *found[0].shape)

    def parts(self, lens: str) -> Iterator[MapPart]:
        yield from parts_of(self.factors(lens, EVERY, EVERY), self._shape(lens)[1])

    def is_factored(self, lens: str) -> bool:
        return self._source.is_factored(lens)

    def factors(self, lens: str, layers: slice, heads: slice) -> Iterator[Factors]:
        shape = self._shape(lens)
        by_head = shape[1] == len(self._heads)
        for layer, head in product(range(shape[0])[layers], range(shape[1])[heads]):
            if by_head and self._absent[layer, head]:
                yield Whole(np.full((1, *shape[2:]), np.nan, np.float32))
            else:
                place, at = self._layers[layer], self._heads[head] if by_head else 0
                yield from self._source.factors(lens, slice(place, place + 1), slice(at, at + 1))

    def _shape(self, lens: str) -> list[int]:
        """Return the shape of a lens' maps here; lenses of whole layers have one map per layer."""
        _, heads, queries, keys = self._source.document["shapes"][lens]
        whole = heads != len(self._source.document["heads"])
        return [len(self._layers), heads if whole else len(self._heads), queries, keys]

    def _cut(self, name: str, values: Array) -> Array:
        """Return the part of an array that these heads have."""
        kind, *path = name.split("/")
        axes = {"tile": ["L", "H"], "note": ["L", "H"], "keys": ["L"]}.get(kind, [])
        if kind == "measure":
            axes = MEASURES[path[0]].shape.split()
        if axes[:1] != ["L"]:
            return values
        values = values[self._layers]
        if axes[1:2] != ["H"] or values.shape[1] != len(self._source.document["heads"]):
            return values
        values = np.ascontiguousarray(values[:, self._heads])  # safetensors writes bytes in their order in memory
        if values.dtype.kind == "f":
            values[self._absent] = np.nan
        return values
