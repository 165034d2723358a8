"""The maps of one lens as a file of heads, each of which is its factors or its map: written head by head, and read so.

Every head is a safetensors document of its own. These follow one another; the manifest has the number of bytes of each, and its SHA-256. The metadata of a head
says how its tensors are put together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ..core.arrays import Array
from ..core.factors import Bias, Factors, ProjectionFactors, Remainder, Visible, WeightFactors, Whole
from .map_file import BLOCK, Corrupt, Fill, MapPart, Shape, bytes_of, safetensors_header

# What a head may consist of, by its name in files.
PARTS: dict[str, Any] = {
    "map": Whole,
    "weights": WeightFactors,
    "projection": ProjectionFactors,
    "remainder": Remainder,
    "visible": Visible,
    "bias": Bias,
}
NAMES = {part: name for name, part in PARTS.items()}
# The names that safetensors gives to the types of arrays.
DTYPES = {"float64": "F64", "float32": "F32", "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}
TYPES = {name: np.dtype(dtype) for dtype, name in DTYPES.items()}


def encode(factors: Factors) -> list[memoryview]:
    """Return the document of a head: its header, and the memory of its arrays, the widest numbers first, so that all are aligned."""
    described, tensors = split(factors)
    ordered = sorted(tensors.items(), key=lambda item: -item[1].itemsize)
    ends = list(accumulate((values.nbytes for _, values in ordered), initial=0))
    entries = {
        name: {"dtype": DTYPES[values.dtype.name], "shape": values.shape, "data_offsets": offsets}
        for (name, values), offsets in zip(ordered, pairwise(ends), strict=True)
    }
    head = safetensors_header({"__metadata__": {"head": json.dumps(described)}, **entries})
    return [memoryview(head), *(bytes_of(values) for _, values in ordered)]


def decode(data: bytes | memoryview) -> Factors:
    """Return the factors of a document, whose arrays stay where they are in memory. Raises Corrupt for any other bytes."""
    try:
        start = 8 + int.from_bytes(data[:8], "little")
        entries = json.loads(bytes(data[8:start]))
        described = json.loads(entries.pop("__metadata__")["head"])
        tensors = {
            name: np.ndarray(one["shape"], TYPES[one["dtype"]], data, start + one["data_offsets"][0])
            for name, one in entries.items()
        }
        return join(described, tensors)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise Corrupt from error


def split(factors: Factors) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the fields of the factors of a head that are not arrays, as JSON, and the arrays by name."""
    tensors: dict[str, Array] = {}
    return _describe(factors, "", tensors), tensors


def join(described: Mapping[str, Any], tensors: Mapping[str, Array]) -> Factors:
    """Return the factors that `split` took apart."""
    factors: Factors = _build(described, "", tensors)
    return factors


def parts_of(factors: Iterable[Factors], heads: int) -> Iterator[MapPart]:
    """Yield the maps of heads, `heads` of them in a layer, some rows at a time."""
    for place, one in enumerate(factors):
        _, queries, keys = one.shape
        rows = max(1, BLOCK // (4 * keys))
        for row in range(0, queries, rows):
            yield MapPart(*divmod(place, heads), row, one.tile(0, slice(row, row + rows))[None])


def _describe(part: Any, prefix: str, tensors: dict[str, Array]) -> dict[str, Any]:
    """Return the fields of a part that are not arrays; put the others into `tensors`."""
    described: dict[str, Any] = {"kind": NAMES[type(part)]}
    for name in (one.name for one in fields(part)):
        value = getattr(part, name)
        if isinstance(value, np.ndarray):
            tensors[prefix + name] = np.ascontiguousarray(value)
        else:
            described[name] = _describe(value, f"{prefix}{name}.", tensors) if type(value) in NAMES else value
    return described


def _build(described: Mapping[str, Any], prefix: str, tensors: Mapping[str, Array]) -> Any:
    """Return the part that _describe described."""
    part = PARTS[described["kind"]]
    parts = {
        name: _build(value, f"{prefix}{name}.", tensors) if isinstance(value, dict) else value
        for name, value in described.items()
        if name != "kind"
    }
    arrays = {one.name: tensors[prefix + one.name] for one in fields(part) if prefix + one.name in tensors}
    return part(**parts, **arrays)


def read_factors(
    fill: Fill, shape: Shape, layers: slice, heads: slice, sizes: Sequence[int], digests: Sequence[str]
) -> Iterator[Factors]:
    """Yield the factors of some layers and heads, verified, a few in memory at a time. `fill` reads from the file. Raises Corrupt."""
    ends = list(accumulate(sizes))
    for layer in range(shape[0])[layers]:
        places = [layer * shape[1] + head for head in range(shape[1])[heads]]
        most = max(1, BLOCK // max(sizes[layer * shape[1] :][: shape[1]]))  # heads that are read at once
        for low in range(0, len(places), most):
            found = {place: np.empty(sizes[place], np.uint8).data for place in places[low : low + most]}
            fill([(ends[place] - sizes[place], data) for place, data in found.items()])
            for place in tuple(found):  # a head that was yielded is the caller's alone
                yield _decode_verified(found.pop(place), digests[place])


def _decode_verified(data: memoryview, digest: str) -> Factors:
    if hashlib.sha256(data).hexdigest() != digest:
        raise Corrupt
    return decode(data)
