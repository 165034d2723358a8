"""Routes that read maps, thumbnails, edges and measures of a finished analysis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query
from pydantic import BaseModel, BeforeValidator
from starlette.responses import Response, StreamingResponse

from ...core import arrow
from ...core.arrays import Array
from ...core.declarations import TOKEN_AXES
from ...core.factors import Factors
from ...core.streams import PIECE
from ...errors import InvalidRequest, Unknown, Unsupported
from ...lenses import LENSES
from ...measures import MEASURES
from ...measures import edges as edge_rules
from ...measures.base import Measure
from ...measures.concentration import Unit, convert
from ...query.search import token_mean
from ...server.limiters import MemoryLimiter
from ...store import Stored
from ...store.map_file import BLOCK, blocks
from ..dependencies import ResourceDep, check_kept, check_lens, check_name, heads_of, parse_slice
from ..documents.arrays import encode_image, pool_cells, pool_tiles, quantise, sum_rows
from ..documents.tables import edges_table, measure_table
from ..documents.thumbnails import Without, draw_without
from ..error_responses import Responses, media
from ..http.compression import compress
from ..http.conditional import CONDITIONAL
from ..http.grouping import By, Grouping, Groups, KeyGroups, parse_grouping
from ..http.negotiation import choose_media
from ..http.response_cache import CachedRoute
from ..http.tensors import LENGTH_HEADER, MEDIA, Format, check_size, choose_format, encode
from ..schemas.results import Edge, Edges, MeasureValues
from ..windows import COMPUTED, Window, has_windows, held_bytes, open_heads

router = APIRouter(prefix="/analyses/{id}", tags=["results"], responses=CONDITIONAL, route_class=CachedRoute)

SliceQuery = Annotated[
    str | None, Query(max_length=20, description="An index such as 4, or a range such as 2:5 (end excluded).")
]
FormatQuery = Annotated[Format | None, Query(alias="format", description="Overrides the Accept header.")]
# A + in a URL is decoded as a space.
RuleQuery = Annotated[edge_rules.Rule, BeforeValidator(lambda rule: rule.replace(" ", "+"))]
TENSOR: Responses = {200: {**media(*MEDIA.values())[200], "headers": LENGTH_HEADER}}
EdgesFormat = Literal["json", "arrow"]
EDGES_MEDIA: dict[EdgesFormat, str] = {"json": "application/json", "arrow": arrow.MEDIA}
MeasureFormat = Literal[Format, "arrow"]
MEASURE_MEDIA: dict[MeasureFormat, str] = dict((*MEDIA.items(), ("arrow", arrow.MEDIA)))
MAX_EDGES = 20_000
# Entries of a map among which edges are chosen at once, and the bytes of memory that each takes.
EDGE_ENTRIES = COMPUTED // 4
EDGE_BYTES = 80
# Larger thumbnails are compressed: those of 270 causal maps, half of them zero, to two fifths.
LARGE_GRID = 200_000
# Copies of a block of maps, some in float64, while thumbnails are drawn from them.
COPIES = 6
# A lens, and slices of its layers and heads.
Chosen = tuple[str, slice, slice]


class MapSlice(BaseModel):
    """The requested part of the maps of a lens or an effect, and how to encode it."""

    layer: SliceQuery = None
    head: SliceQuery = None
    query: SliceQuery = None
    key: SliceQuery = None
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    by: By = "token"
    groups: Groups = None
    key_groups: KeyGroups = None
    pool: Annotated[int, Query(ge=1, le=100_000, description="Size of the cells to pool, in queries and keys.")] = 1
    format: FormatQuery = None

    def is_computed(self, format_: Format) -> bool:
        """Return whether the stored values are converted or merged."""
        as_stored = ("float32", "token", None, None, 1)
        unchanged = (self.dtype, self.by, self.groups, self.key_groups, self.pool) == as_stored
        return not unchanged or format_ == "json"

    def respond(self, room: MemoryLimiter, lens: str, format_: Format, stored: Stored) -> Response:
        """Read the slice from an analysis. Raises TooManyRequests if `room` is full, BudgetExceeded if it is too small."""
        check_kept(stored, lens)
        axes = {**stored.document, "model": _model_of(stored), "heads": heads_of(stored.document, lens)}
        return self.read(room, lens, format_, stored, axes, LENSES[lens].signed)

    def read(
        self, room: MemoryLimiter, name: str, format_: Format, stored: Stored, axes: Mapping[str, Any], signed: bool
    ) -> Response:
        """Read the slice from the maps that a result has under `name`; `axes` has their model, layers, heads and tokens. Raises TooManyRequests if `room` is full."""
        grouping = parse_grouping(axes, self.by, self.groups, self.key_groups)
        layers = parse_slice("layer", self.layer, axes["layers"])
        heads = parse_slice("head", self.head, axes["heads"])
        _, _, q, k = stored.document["shapes"][name]
        queries = parse_slice("query", self.query, range(len(grouping.queries or range(q))))
        keys = parse_slice("key", self.key, range(len(grouping.keys or range(k))))
        cells = [-(-(part.stop - part.start) // self.pool) for part in (queries, keys)]
        count = prod((layers.stop - layers.start, heads.stop - heads.start, *cells))
        itemsize = np.dtype(self.dtype).itemsize
        check_size(count, itemsize)
        window, chosen = Window(grouping, queries, keys), (name, layers, heads)
        windows = has_windows(stored, name)
        # Where whole heads are read, it is one at least.
        needed = max(count * itemsize, held_bytes(stored, *chosen) + window.needs() if windows else q * k * 4)
        if needed > PIECE:
            room.take(needed)
        if not self.is_computed(format_) and (format_, self.query, self.key) == ("safetensors", None, None):
            opened = stored.open_map(*chosen) if count * itemsize > PIECE else None
            if opened is not None:
                length = {"Content-Length": str(opened.length)}
                return StreamingResponse(opened.pieces(), headers=length, media_type=MEDIA[format_])
            return Response(stored.map_file(*chosen), media_type=MEDIA[format_])
        found = (self._read_windows if windows else self._read_heads)(stored, chosen, window, signed)
        parts = [_convert(values, self.dtype, signed) for values in found]
        joined = {name: np.concatenate([part[name][0] for part in parts]) for name in parts[0]}
        sides = layers.stop - layers.start, heads.stop - heads.start
        arrays = {name: values.reshape(*sides, *values.shape[1:]) for name, values in joined.items()}
        return encode(arrays, format_, axes["model"])

    def _read_heads(self, stored: Stored, chosen: Chosen, window: Window, signed: bool) -> Iterator[Array]:
        """Yield the slice of some heads of a layer after others, [1, H', Q', K']: it may be much smaller than their maps."""
        name, layers, heads = chosen
        shape = (layers.stop - layers.start, heads.stop - heads.start, *stored.document["shapes"][name][2:])
        for layer, head in blocks(shape):
            values = window.grouping.apply(stored.maps(name, _shift(layer, layers), _shift(head, heads)))
            yield pool_cells(values[:, :, window.queries, window.keys], self.pool, self.pool, signed)

    def _read_windows(self, stored: Stored, chosen: Chosen, window: Window, signed: bool) -> Iterator[Array]:
        """Yield the slice of one head after the other, [1, 1, Q', K']."""
        with open_heads(stored, *chosen) as found:
            # Unlike a loop, `map` holds no reference to a head while the next one is read.
            yield from map(partial(self._compute, window=window, signed=signed), found)

    def _compute(self, factors: Factors, window: Window, signed: bool) -> Array:
        """Compute the slice of a head, [1, 1, Q', K'], a few rows at a time: while it is pooled, memory does not grow with the number of tokens."""
        parts = []
        for part in window.parts(self.pool):
            bands = [pool_cells(rows, self.pool, self.pool, signed) for _, rows in part.read(factors)]
            parts.append(pool_cells(np.concatenate(bands), len(bands), 1, signed))
        return np.concatenate(parts)[None, None]


@router.get("/maps/{lens}", responses=TENSOR, response_class=Response)
async def maps(analysis: ResourceDep, lens: str, part: Annotated[MapSlice, Query()]) -> Response:
    """Return `map` [L', H', Q', K']; undefined rows are NaN (null in JSON). With by=word or groups, query and key count words or groups.

    With pool=p, an entry is the one of largest magnitude in a cell of p queries and p keys, counted from the start of the slice; the last cells may be smaller.

    With dtype=uint8, the response also has `scale`, `offset` and `max_error` [L', H']: value = offset + scale * byte, with an error of at most max_error; and
    `undefined` uint8 [L', H', Q'], which is 1 for undefined rows (0 in the map).
    """
    format_ = choose_format(analysis.request, part.format)
    reader = partial(part.respond, analysis.service.limiters.memory, lens, format_)
    return await analysis.respond(format_, reader, computed=part.is_computed(format_))


@router.get("/sums/{lens}", responses=TENSOR, response_class=Response)
async def sums(
    analysis: ResourceDep,
    lens: str,
    layer: Annotated[int, Query(ge=0, le=100_000)],
    head: Annotated[int, Query(ge=0, le=100_000)],
    format_: FormatQuery = None,
) -> Response:
    """Return the sums of one map over all keys, `queries` [Q], and over all queries, `keys` [K]; of magnitudes, so that a key's sum is the attention it receives.

    An undefined row has the sum NaN, and does not count for the keys.
    """
    format_ = choose_format(analysis.request, format_)

    def respond(stored: Stored) -> Response:
        check_kept(stored, lens)
        layers = parse_slice("layer", str(layer), stored.document["layers"])
        heads = parse_slice("head", str(head), heads_of(stored.document, lens))
        _, _, q, k = stored.document["shapes"][lens]
        window = Window(Grouping(), slice(0, q), slice(0, k))
        analysis.service.limiters.memory.take(held_bytes(stored, lens, layers, heads) + window.needs())
        with open_heads(stored, lens, layers, heads) as found:
            rows = window.read(next(found))
            return encode(sum_rows(values for _, values in rows), format_, _model_of(stored))

    return await analysis.respond(format_, respond)


def _model_of(stored: Stored) -> str:
    """Return the name of the model of an analysis."""
    return str(stored.document["request"]["model"])


def _shift(block: slice, part: slice) -> slice:
    return slice(part.start + block.start, part.start + block.stop)


def _convert(values: Array, dtype: str, signed: bool) -> dict[str, Array]:
    if dtype == "float16" and np.nanmax(np.abs(values), initial=0) > np.finfo(np.float16).max:
        raise InvalidRequest("Some values are too large for float16. Request float32.", pointer="/dtype")
    return quantise(values, signed) if dtype == "uint8" else {"map": values.astype(dtype, copy=False)}


@router.get("/grid/{lens}", responses=TENSOR, response_class=Response)
async def grid(
    analysis: ResourceDep,
    lens: str,
    tile: Annotated[int, Query(ge=1, le=32, description="Maximum size of a thumbnail, in cells.")] = 32,
    without: Annotated[
        Without | None, Query(description="Keys that do not count: special tokens, sinks, or both.")
    ] = None,
    format_: FormatQuery = None,
) -> Response:
    """Return one thumbnail per head: `tiles` uint8 [L, H, t, t'] with t = min(tile, queries), t' = min(tile, keys). A cell is its entry of largest magnitude.

    value = offset + scale * byte, with `scale` and `offset` [L, H], NaN for heads that a layer does not have. Undefined rows count as 0; their number is in
    `maps.{lens}.undefined` of the analysis. H is 1 for lenses with one map per layer.

    With `without`, which requires stored maps, some keys count as 0, and `without` uint8 [L, H, K] is 1 for these. A sink of a head is a key that receives more
    than 30 % of the attention of the queries that can see it; at least half as many must see it as see any other key.
    """
    format_ = choose_format(analysis.request, format_)

    def tiles(stored: Stored) -> Response:
        if without is not None:
            check_kept(stored, lens)
            analysis.service.limiters.memory.take(min(4 * prod(stored.document["shapes"][lens]), BLOCK) * COPIES)
            return encode(draw_without(stored, lens, without, tile), format_, _model_of(stored))
        check_lens(stored, lens)
        parts = {part: stored.arrays[f"tile/{lens}/{part}"] for part in ("tiles", "scale", "offset")}
        parts["tiles"] = pool_tiles(parts["tiles"], tile, LENSES[lens].signed)
        return encode(parts, format_, _model_of(stored))

    return compress(await analysis.respond(format_, tiles), analysis.request, LARGE_GRID, level=1)


@router.get("/image", responses=media("image/png"), response_class=Response)
async def image(analysis: ResourceDep) -> Response:
    """Return the image as the model sees it, scaled and cropped, as PNG. The boxes of patches refer to its pixels."""

    def respond(stored: Stored) -> Response:
        return Response(encode_image(stored), media_type="image/png")

    return await analysis.respond("png", respond)


@router.get("/edges/{lens}", responses={200: {"model": Edges, **media(arrow.MEDIA)[200]}}, response_class=Response)
async def edges(
    analysis: ResourceDep,
    lens: str,
    layer: Annotated[int, Query(ge=0, le=100_000)],
    head: Annotated[int, Query(ge=0, le=100_000)],
    rule: RuleQuery = "mass",
    k: Annotated[int, Query(ge=1, le=10_000, description="For rule top-k: number of keys per query.")] = 3,
    mass: Annotated[
        float,
        Query(gt=0, le=1, allow_inf_nan=False, description="For rule mass: share of each query's total magnitude."),
    ] = 0.7,
    value: Annotated[
        float, Query(ge=0, le=1e6, allow_inf_nan=False, description="For rule value: smallest magnitude.")
    ] = 0.1,
    limit: Annotated[int, Query(ge=1, le=MAX_EDGES, description="Maximum number of edges.")] = 2_000,
    by: By = "token",
    groups: Groups = None,
    key_groups: KeyGroups = None,
    format_: Annotated[EdgesFormat | None, Query(alias="format", description="Overrides the Accept header.")] = None,
) -> Response:
    """Return the connection graph of one head, strongest edges first. Undefined rows have no edges. With by=word or groups, query and key count words or groups."""
    format_ = choose_media(analysis.request, format_, EDGES_MEDIA)

    def select(stored: Stored) -> Response:
        check_kept(stored, lens)
        grouping = parse_grouping(stored.document, by, groups, key_groups)
        layers = parse_slice("layer", str(layer), stored.document["layers"])
        heads = parse_slice("head", str(head), heads_of(stored.document, lens))
        _, _, q, k_ = stored.document["shapes"][lens]
        sides = slice(0, len(grouping.queries or range(q))), slice(0, len(grouping.keys or range(k_)))
        window = Window(grouping, *sides, computed=EDGE_ENTRIES)
        analysis.service.limiters.memory.take(held_bytes(stored, lens, layers, heads) + window.needs(EDGE_BYTES))
        ties = LENSES[lens].shows == "ties"
        with open_heads(stored, lens, layers, heads) as kept:
            rows = partial(window.read, next(kept))
            found = edge_rules.find_strongest(rows, rule, limit, k=k, mass=mass, value=value, unmasked=ties)
        if format_ == "arrow":
            return Response(edges_table(found, lens, layer, head), media_type=arrow.MEDIA)
        selected = [
            Edge(layer=layer, head=head, query=query, key=key, weight=weight)
            for (query, key), weight in zip(found.pairs.tolist(), found.weights.tolist(), strict=True)
        ]
        document = Edges(edges=selected, total=found.total)
        return Response(document.model_dump_json(), media_type="application/json")

    return await analysis.respond(format_, select)


@router.get(
    "/measures/{measure}",
    responses={200: {"model": MeasureValues, **media(*MEASURE_MEDIA.values())[200], "headers": LENGTH_HEADER}},
    response_class=Response,
)
async def measures(
    analysis: ResourceDep,
    measure: str,
    lens: Annotated[str, Query(max_length=100, description="Lens of the measure.")] = "weights",
    layer: SliceQuery = None,
    head: SliceQuery = None,
    summary: Annotated[
        Literal["none", "head"], Query(description="`head` averages over tokens, which removes the axes Q and K.")
    ] = "none",
    unit: Annotated[Unit | None, Query(description="Unit of the entropy.")] = None,
    format_: Annotated[MeasureFormat | None, Query(alias="format", description="Overrides the Accept header.")] = None,
) -> Response:
    """Return `values` in the shape that the measure declares; NaN (null in JSON) where undefined. `columns` and `units` describe the entries of axis C."""
    if unit is not None and measure != "entropy":
        raise InvalidRequest("Only the measure entropy has a choice of units. Omit unit.", pointer="/unit")
    format_ = choose_media(analysis.request, format_, MEASURE_MEDIA)

    def select(stored: Stored) -> Response:
        check_measure(stored, measure, lens)
        axes = MEASURES[measure].shape.split()
        values = stored.arrays[f"measure/{measure}/{lens}"]
        if unit is not None:
            values = convert(values, unit, stored.arrays["keys"][:, None, :]).astype(np.float32)
        layers, heads = list(stored.document["layers"]), list(stored.document["heads"])
        rows, columns = parse_slice("layer", layer, layers), slice(None)
        values = values[rows]
        if "H" in axes:
            columns = parse_slice("head", head, heads)
            values = values[:, columns]
        elif head is not None:
            raise InvalidRequest("This measure has one value per layer, not per head. Omit head.", pointer="/head")
        if summary == "head":
            values, axes = token_mean(values, axes), [axis for axis in axes if axis not in TOKEN_AXES]
        metadata = {"name": measure, "lens": lens, "unit": unit or MEASURES[measure].unit}
        metadata |= _describe_axes(MEASURES[measure], axes, values, format_)
        if format_ == "arrow":
            numbers = {"layer": layers[rows], "head": heads[columns], "other_head": heads}
            body = measure_table(MEASURES[measure], values, axes, numbers, metadata)
            return Response(body, media_type=arrow.MEDIA)
        return encode({"values": values}, format_, _model_of(stored), metadata)

    return await analysis.respond(format_, select)


def _describe_axes(measure: Measure, axes: Sequence[str], values: Array, format_: MeasureFormat) -> dict[str, Any]:
    """Describe the axes of a measure's values: as lists in JSON, as space-separated strings in the metadata of files."""
    columns = measure.columns if "C" in axes else ()
    units = [measure.unit_of(column) for column in columns]
    if format_ == "json":
        return {"axes": list(axes), "columns": list(columns), "units": units, "shape": list(values.shape)}
    return {"axes": " ".join(axes), "columns": " ".join(columns), "units": " ".join(units)}


def check_measure(stored: Stored, measure: str, lens: str) -> None:
    """Raise Unknown or Unsupported unless the analysis includes the measure for the lens."""
    check_name("measure", measure, MEASURES)
    check_name("lens", lens, LENSES)
    if measure not in stored.document["measures"]:
        raise Unknown(
            "measure",
            "This analysis does not include that measure. Send its request with the measure added.",
            pointer="/measure",
        )
    if lens not in stored.document["measures"][measure]:
        raise Unsupported(
            f"{measure} was not computed for this lens. Choose one of: {', '.join(stored.document['measures'][measure])}.",
            pointer="/lens",
        )
