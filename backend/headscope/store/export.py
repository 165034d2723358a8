"""Export of an analysis as one file: safetensors, which the library saves and opens, npz, or a table as CSV or Parquet.

Each format is a stream, so that it can be sent without a copy.

Tensors are named map/<lens>, measure/<measure>/<lens>, tile/<lens>/<part>, note/<lens>/<part>, keys and picture. The document is in the safetensors metadata
under `headscope`, in an npz the string `headscope`.
"""

from __future__ import annotations

import json
import math
import struct
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open

from ..core.arrays import Array
from ..core.csv_text import csv_text
from ..core.factored_map import FactoredMap
from ..core.factors import EVERY, Factors, Whole
from ..core.lazy import pa, pq
from ..core.streams import PIECE, ByteSink, Chunks, save, zip_stream
from ..errors import BudgetExceeded
from .factor_file import join, parts_of, split
from .map_file import MapPart, blocks

MOST_LINES = 2_000_000
MOST_ROWS = 200_000_000
# Lines of a row group of a Parquet table.
GROUP = 1_000_000
COLUMNS = ("lens", "layer", "head", "query", "key", "query_token", "key_token", "value")
TYPES = {
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}


class Source(Protocol):
    """Something to export: a document, small arrays, and maps part by part."""

    @property
    def document(self) -> dict[str, Any]:
        """The description of the analysis, as JSON."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        """Small arrays by name."""

    def maps(self, lens: str, layers: slice, heads: slice) -> Array:
        """Return the map of a lens for slices of its layers and heads: [L', H', Q, K] float32."""

    def parts(self, lens: str) -> Iterator[MapPart]:
        """Yield all maps of a lens, some megabytes at a time: layer by layer, head by head, row by row."""

    def is_factored(self, lens: str) -> bool:
        """Return whether factors of the maps of a lens are kept, where they have some."""

    def factors(self, lens: str, layers: slice, heads: slice) -> Iterator[Factors]:
        """Yield what is kept of each of these heads."""


@dataclass(frozen=True)
class Flat:
    """A source in memory: an analysis with maps [L, H, Q, K] by lens, some of which may be computed from factors, or a study, which has none."""

    document: dict[str, Any]
    arrays: Mapping[str, Array]
    whole_maps: Mapping[str, Array] = field(default_factory=dict)

    def maps(self, lens: str, layers: slice, heads: slice) -> Array:
        return self.whole_maps[lens][layers, heads]

    def parts(self, lens: str) -> Iterator[MapPart]:
        if self.is_factored(lens):
            yield from parts_of(self.factors(lens, EVERY, EVERY), self.document["shapes"][lens][1])
            return
        for layers, heads in blocks(self.document["shapes"][lens]):
            yield MapPart(layers.start, heads.start, 0, self.whole_maps[lens][layers, heads][0])

    def is_factored(self, lens: str) -> bool:
        return isinstance(self.whole_maps[lens], FactoredMap)

    def factors(self, lens: str, layers: slice, heads: slice) -> Iterator[Factors]:
        maps = self.whole_maps[lens]
        if isinstance(maps, FactoredMap):
            yield from maps.factors(layers, heads)
        else:
            yield from (Whole(head[None]) for layer in maps[layers, heads] for head in layer)


def _pieces(array: Array) -> Chunks:
    """Yield the bytes of an array, PIECE at a time."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE].tobytes()


def write_safetensors(source: Source, path: Path) -> None:
    """Write the file of stream_safetensors with the factors that the source keeps, with the same errors."""
    save(stream_safetensors(source, factors=True), path)


def stream_safetensors(source: Source, *, factors: bool = False) -> Chunks:
    """Yield a safetensors file, with a few heads in memory at a time. Raises Corrupt if the source is.

    With `factors`, lenses of which the source keeps factors have these, factors/<lens>/<head>/<tensor>, in place of maps. What else describes them is in
    the metadata under `factors`: lens -> one document per head.
    """
    document = source.document
    factored = [lens for lens in document.get("kept", ()) if factors and source.is_factored(lens)]
    shapes = {lens: list(document["shapes"][lens]) for lens in document.get("kept", ()) if lens not in factored}
    described, tensors = _split_heads(source, factored)
    small = dict(sorted(source.arrays.items())) | tensors
    layout = {f"map/{lens}": ("float32", shape, 4 * math.prod(shape)) for lens, shape in shapes.items()}
    layout |= {name: (str(array.dtype), list(array.shape), array.nbytes) for name, array in small.items()}
    metadata = {"headscope": json.dumps(document, allow_nan=False)}
    header: dict[str, Any] = {"__metadata__": metadata | ({"factors": json.dumps(described)} if factored else {})}
    position = 0
    for name, (dtype, shape, size) in layout.items():
        header[name] = {"dtype": TYPES[dtype], "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for lens in shapes:
        for part in source.parts(lens):
            yield from _pieces(part.values)
    for array in small.values():
        yield from _pieces(array)


def _split_heads(source: Source, lenses: Sequence[str]) -> tuple[dict[str, list[Any]], dict[str, Array]]:
    """Return what describes the factors of every head, by lens, and their tensors by their names in a file."""
    described: dict[str, list[Any]] = {lens: [] for lens in lenses}
    tensors: dict[str, Array] = {}
    for lens in lenses:
        for name, one in zip(_names(source.document), source.factors(lens, EVERY, EVERY), strict=True):
            description, parts = split(one)
            described[lens].append(description)
            tensors |= {f"factors/{lens}/{name}/{part}": values for part, values in parts.items()}
    return described, tensors


def _names(document: Mapping[str, Any]) -> list[str]:
    """Return the names of all heads, such as 4.5, layer by layer."""
    return [f"{layer}.{head}" for layer in document["layers"] for head in document["heads"]]


def stream_npz(source: Source) -> Chunks:
    """Yield an uncompressed npz file, with a few heads in memory at a time. Raises Corrupt if the source is."""

    def write(archive: zipfile.ZipFile) -> Iterator[None]:
        for lens in source.document["kept"]:
            with archive.open(f"map/{lens}.npy", "w", force_zip64=True) as file:
                shape = tuple(source.document["shapes"][lens])
                np.lib.format.write_array_header_2_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
                for part in source.parts(lens):
                    for piece in _pieces(part.values):
                        file.write(piece)
                        yield
        for name, array in sorted(source.arrays.items()):
            _write_npy(archive, name, array)
            yield
        _write_npy(archive, "headscope", np.array(json.dumps(source.document, allow_nan=False)))

    return zip_stream(write)


def _write_npy(archive: zipfile.ZipFile, name: str, array: Array) -> None:
    with archive.open(f"{name}.npy", "w") as file:
        target: BinaryIO = file  # type: ignore[assignment]
        np.lib.format.write_array(target, np.ascontiguousarray(array).reshape(array.shape), allow_pickle=False)


def stream_csv(source: Source, by_layer: Collection[str] = ()) -> Chunks:
    """Yield a CSV file with one line per entry of every map, except NaN. Raises BudgetExceeded if there are too many entries, Corrupt if the source is.

    `by_layer` are the lenses whose maps are of whole layers: their lines have no head.
    Tokens are JSON strings including quotes, so that no spreadsheet reads one as a formula; json.loads decodes them.
    """
    check_lines(source.document)
    queries, keys = tokens_of(source.document)
    yield csv_text([COLUMNS]).encode()
    for lens, layer, head, first, rows in _rows(source, by_layer):
        for q, row in enumerate(rows, first):
            valid = np.flatnonzero(~np.isnan(row)).tolist()
            yield csv_text((lens, layer, head, q, k, queries[q], keys[k], row[k]) for k in valid).encode()


def stream_parquet(source: Source, by_layer: Collection[str] = ()) -> Chunks:
    """Yield the table of stream_csv as Parquet, as stream_arrow does."""
    return _stream_table(source, by_layer, lambda sink, schema: pq.ParquetWriter(sink, schema, compression="zstd"))


def stream_arrow(source: Source, by_layer: Collection[str] = ()) -> Chunks:
    """Yield the table of stream_csv as an Arrow stream, with typed columns, plain tokens, and the document in the metadata under `headscope`.

    About a million lines are in memory at a time. Raises BudgetExceeded if there are too many entries, Corrupt if the source is.
    """
    return _stream_table(source, by_layer, pa.ipc.new_stream)


def _stream_table(source: Source, by_layer: Collection[str], new_file: Callable[[ByteSink, Any], Any]) -> Chunks:
    check_lines(source.document, MOST_ROWS)
    number, text = pa.int32(), pa.dictionary(pa.int32(), pa.string())
    types = (text, number, number, number, number, text, text, pa.float32())
    metadata = {"headscope": json.dumps(source.document, allow_nan=False)}
    schema = pa.schema(zip(COLUMNS, types, strict=True), metadata)
    sink = ByteSink()
    with new_file(sink, schema) as file:
        for group in _groups(_tables(source, schema, by_layer)):
            file.write_table(pa.concat_tables(group))
            yield from sink.take()
    yield from sink.take()


def _groups(tables: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield lists of tables with GROUP lines together; the last one may have fewer."""
    group: list[Any] = []
    for table in tables:
        group.append(table)
        if sum(map(len, group)) >= GROUP:
            yield group
            group = []
    if group:
        yield group


def _tables(source: Source, schema: Any, by_layer: Collection[str]) -> Iterator[Any]:
    """Yield the entries of some rows of every map as a pyarrow.Table."""
    kept, number = source.document["kept"], pa.int32()
    queries, keys = (pa.array([json.loads(text) for text in side]) for side in tokens_of(source.document))
    for lens, layer, head, first, rows in _rows(source, by_layer):
        valid = ~np.isnan(rows)  # [R, K]
        places_q, places_k = np.nonzero(valid)  # [n] each
        q, k = pa.array(places_q + first, number), pa.array(places_k, number)
        places, layers, heads = (
            pa.repeat(pa.scalar(value, number), len(q)) for value in (kept.index(lens), layer, head)
        )
        texts = [pa.DictionaryArray.from_arrays(indices, names) for indices, names in ((q, queries), (k, keys))]
        lenses = pa.DictionaryArray.from_arrays(places, pa.array(kept))
        yield pa.Table.from_arrays([lenses, layers, heads, q, k, *texts, pa.array(rows[valid])], schema=schema)


def _rows(source: Source, by_layer: Collection[str]) -> Iterator[tuple[str, int, int | None, int, Array]]:
    """Yield the lens, the layer and head in the model, and some rows [R, K] with the number of the first; the head is None for a map of a whole layer."""
    document = source.document
    for lens in document["kept"]:
        for part in source.parts(lens):
            layer = document["layers"][part.layer]
            for place, rows in enumerate(part.values, part.head):
                yield lens, layer, None if lens in by_layer else document["heads"][place], part.row, rows


def check_lines(document: dict[str, Any], most: int = MOST_LINES) -> None:
    """Raise BudgetExceeded if the maps have more entries than a table may have lines, by default a CSV table."""
    lines = sum(math.prod(document["shapes"][lens]) for lens in document["kept"])
    if lines > most:
        raise BudgetExceeded(
            "These maps have too many entries for a table. Export them as safetensors or npz, or analyse fewer layers, heads or lenses.",
            limit=most,
            actual=lines,
        )


def tokens_of(document: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts of the tokens along queries and keys, as JSON strings."""
    queries = [json.dumps(token["text"], ensure_ascii=False) for token in document["tokens"]]
    if document["key_tokens"] is None:
        return queries, queries
    return queries, [json.dumps(token["text"], ensure_ascii=False) for token in document["key_tokens"]]


def read_safetensors(path: Path) -> Flat:
    """Return the analysis or study of a file from write_safetensors. Raises ValueError for any other file."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata()
            document, described = json.loads(metadata["headscope"]), json.loads(metadata.get("factors", "{}"))
            found: dict[str, dict[str, Array]] = {"map": {}, "factors": {}, "": {}}
            for name in file.keys():  # noqa: SIM118 - not a dict
                group, _, rest = name.partition("/")
                group, rest = (group, rest) if group in found else ("", name)
                found[group][rest] = file.get_tensor(name)
            factored = {lens: _join_heads(document, lens, heads, found["factors"]) for lens, heads in described.items()}
            maps = found["map"] | factored
            # A safetensors file has its tensors in an order of its own.
            kept = {lens: list(document["shapes"][lens]) for lens in document.get("kept", ())}
            if {lens: list(one.shape) for lens, one in maps.items()} != kept:
                raise ValueError("other maps than the document lists")
            return Flat(document, found[""], {lens: maps[lens] for lens in kept})
    except (KeyError, TypeError, AttributeError, OSError, ValueError, SafetensorError) as error:
        raise ValueError("not a file that Headscope wrote") from error


def _join_heads(
    document: Mapping[str, Any], lens: str, described: Sequence[Mapping[str, Any]], tensors: Mapping[str, Array]
) -> Any:
    """Return the maps of a lens whose factors are in a file. Raises ValueError, KeyError or TypeError if they are not complete."""
    by_head: dict[str, dict[str, Array]] = {name: {} for name in _names(document)}
    for path, values in tensors.items():
        of, head, part = path.split("/")
        if of == lens:
            by_head[head][part] = values
    heads = [join(one, parts) for one, parts in zip(described, by_head.values(), strict=True)]
    shape = document["shapes"][lens]
    if any(list(one.shape) != [1, *shape[2:]] for one in heads):
        raise ValueError("factors of another shape")
    return FactoredMap(shape, heads)
