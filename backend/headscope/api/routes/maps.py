"""Routes: the numbers of a finished analysis, as bytes and slice by slice."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Query, Request
from pydantic import BeforeValidator
from starlette.responses import Response
from starlette.types import Scope

from ...core.streams import PIECE
from ...errors import InvalidRequest, NotReady, Unknown, Unsupported
from ...lenses import LENSES
from ...measures import MEASURES
from ...measures import edges as edge_rules
from ...measures.base import Measure
from ...measures.entropy import Unit, convert
from ...query.search import TOKEN_AXES, token_mean
from ...server.limiters import MemoryLimiter
from ...store import Stored
from ...store.export import Source
from ...store.map_file import values_of
from ..dependencies import AnalysisId, ServiceDep, Slice, check_kept, check_lens, heads_of, places
from ..error_responses import media
from ..grouping import By, Groups, KeyGroups, grouping
from ..http.conditional import FIXED, fixed, named, question_of
from ..http.tensors import MEDIA, Array, Format, answer, check_size, chosen_format, format_of
from ..middleware.reads import ReadAnswer, ReadRequest
from ..schemas.analyses import Edge, Edges, MeasureValues

router = APIRouter(prefix="/analyses/{id}", tags=["results"], responses=FIXED)

SliceQuery = Annotated[Slice | None, Query(max_length=20, description="A number such as 4, or a range such as 2:5.")]
FormatQuery = Annotated[Format | None, Query(alias="format", description="Instead of an Accept header.")]
# Typed into an address, the + of a rule is a space.
RuleQuery = Annotated[edge_rules.Rule, BeforeValidator(lambda rule: rule.replace(" ", "+"))]
TENSOR = media(*MEDIA.values())
# No answer holds more edges than a person or a drawing can take in.
MOST_EDGES = 20_000
# So many bytes are read and verified at once; more of them are for a thread.
QUICK = 256 * 1024
MAPS = re.compile(r"/maps/([a-z-]+)")
AXES = frozenset({"layer", "head", "query", "key"})


@router.get("/maps/{lens}", responses=TENSOR, response_class=Response)
async def maps(
    id_: AnalysisId,
    lens: str,
    request: Request,
    service: ServiceDep,
    layer: SliceQuery = None,
    head: SliceQuery = None,
    query: SliceQuery = None,
    key: SliceQuery = None,
    dtype: Literal["float32", "float16", "uint8"] = "float32",
    by: By = "token",
    groups: Groups = None,
    key_groups: KeyGroups = None,
    format_: FormatQuery = None,
) -> Response:
    """`map` [L', H', Q', K']; NaN (null in JSON) in rows without a reading. By word, query and key count words.

    With dtype=uint8 also `scale`, `offset` and `max_error` [L', H'], value = offset + scale * byte, off by at most max_error; and `undefined`
    uint8 [L', H', Q'], 1 for rows without a reading, which stand as 0 in the map.
    """
    format_ = chosen_format(request, format_)
    cut = Cut(lens, layer, head, query, key, dtype, by, groups, key_groups, format_)
    answer = partial(cut.answer, service.limiters.memory)
    return await fixed(request, service, id_, format_, answer, computed=cut.computed)


ROUTE = router.routes[-1]


@dataclass(frozen=True, slots=True)
class Cut:
    """What is asked of the maps of a lens."""

    lens: str
    layer: str | None = None
    head: str | None = None
    query: str | None = None
    key: str | None = None
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    by: Literal["token", "word"] = "token"
    groups: str | None = None
    key_groups: str | None = None
    format: Format = "safetensors"

    @property
    def computed(self) -> bool:
        """Whether more is done than reading."""
        plain = (self.dtype, self.by, self.groups, self.key_groups) == ("float32", "token", None, None)
        return not plain or self.format == "json"

    def answer(self, room: MemoryLimiter, stored: Stored, *, wait: bool = True) -> Response:
        """Read from a result. Raises BlockingIOError rather than `wait` for a disk, or for more than QUICK bytes, and TooManyRequests where there is no room."""
        check_kept(stored, self.lens)
        document = stored.document
        together = grouping(document, self.by, self.groups, self.key_groups)
        layers = places("layer", self.layer, document["layers"])
        heads = places("head", self.head, heads_of(document, self.lens))
        _, _, q, k = document["shapes"][self.lens]
        rows, columns = len(together.queries or range(q)), len(together.keys or range(k))
        queries = places("query", self.query, range(rows))
        keys = places("key", self.key, range(columns))
        count, itemsize = (
            prod(one.stop - one.start for one in (layers, heads, queries, keys)),
            np.dtype(self.dtype).itemsize,
        )
        check_size(count, itemsize)
        if not wait and (layers.stop - layers.start) * (heads.stop - heads.start) * q * k * 4 > QUICK:
            raise BlockingIOError
        if count * itemsize > PIECE:
            room.take(count * itemsize)
        if not self.computed and (self.format, self.query, self.key) == ("safetensors", None, None):
            return Response(stored.map_file(self.lens, layers, heads, wait=wait), media_type=MEDIA[self.format])
        parts = []
        # One layer after the other: the slice may be small, and the maps large.
        for layer in range(layers.start, layers.stop):
            values = values_of(stored.map_file(self.lens, slice(layer, layer + 1), heads, wait=wait))
            values = together.apply(values)[:, :, queries, keys]
            parts.append(_encoded(values, self.dtype, LENSES[self.lens].signed))
        return answer({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, self.format)


def simple(room: MemoryLimiter, scope: Scope, asked: ReadRequest) -> ReadAnswer | None:
    """How to answer a question that asks for numbers as they are stored; None for any other."""
    lens, query = MAPS.fullmatch(asked.part), asked.question[1].decode("latin-1")
    parts = [part.partition("=") for part in query.split("&")] if query else []
    axes = {name: value for name, _, value in parts if name != "share"}
    format_ = format_of(asked.accept)
    if lens is None or format_ == "json" or not axes.keys() <= AXES or len({name for name, _, _ in parts}) < len(parts):
        return None
    cut = Cut(lens[1], **axes, format=format_)

    def reading(stored: Stored, *, wait: bool) -> Response:
        return named(stored, question_of(scope), format_, "", partial(cut.answer, room, wait=wait))

    return reading


def _encoded(values: Array, dtype: str, signed: bool) -> dict[str, Array]:
    if dtype == "float16" and np.nanmax(np.abs(values), initial=0) > np.finfo(np.float16).max:
        raise InvalidRequest("Some values are too large for float16. Ask for float32.", pointer="/dtype")
    return quantise(values, signed) if dtype == "uint8" else {"map": values.astype(dtype, copy=False)}


def quantise(values: Array, signed: bool) -> dict[str, Array]:
    """[L, H, Q, K] -> map uint8, scale, offset, max_error [L, H], undefined [L, H, Q]. In a signed map byte 128 is exactly 0, in others byte 0 is."""
    undefined = np.asarray(np.isnan(values).any(axis=3))
    values = np.where(undefined[..., None], np.float32(0), values)
    largest = np.maximum(np.abs(values).max(axis=(2, 3)), np.finfo(np.float32).tiny * 256)
    scale = (largest / (127 if signed else 255)).astype(np.float32)
    middle = 128 if signed else 0
    steps = np.rint(values / scale[:, :, None, None]) + middle
    return {
        "map": np.clip(steps, 0, 255).astype(np.uint8),
        "scale": scale,
        "offset": (-middle * scale).astype(np.float32),
        "max_error": (scale * np.float32(0.5001)).astype(np.float32),
        "undefined": undefined.astype(np.uint8),
    }


@router.get("/grid/{lens}", responses=TENSOR, response_class=Response)
async def grid(
    id_: AnalysisId,
    lens: str,
    request: Request,
    service: ServiceDep,
    tile: Annotated[int, Query(ge=1, le=32)] = 32,
    format_: FormatQuery = None,
) -> Response:
    """A thumbnail per head: `tiles` uint8 [L, H, t, t'] with t = min(tile, queries), t' = min(tile, keys), each cell its entry of largest magnitude.

    value = offset + scale * byte, with `scale` and `offset` [L, H]: NaN for heads that a layer does not have. Rows without a reading count as 0;
    `maps.{lens}.undefined` of the document says how many there are. H is 1 for lenses of whole layers.
    """
    format_ = chosen_format(request, format_)

    def tiles(stored: Stored) -> Response:
        check_lens(stored, lens)
        parts = {part: stored.arrays[f"tile/{lens}/{part}"] for part in ("tiles", "scale", "offset")}
        return answer({**parts, "tiles": shrink(parts["tiles"], tile, LENSES[lens].signed)}, format_)

    return await fixed(request, service, id_, format_, tiles)


def shrink(tiles: Array, size: int, signed: bool) -> Array:
    """Thumbnails [L, H, t, t'] pooled further, by the entry of largest magnitude."""
    middle = 128 if signed else 0
    distance = tiles.astype(np.int16) - middle
    for axis in (2, 3):
        cells = tiles.shape[axis]
        edges = [(i * cells // size, -(-(i + 1) * cells // size)) for i in range(size if size < cells else 0)]
        if not edges:
            continue
        bands = [np.take(distance, range(low, high), axis=axis) for low, high in edges]
        distance = np.stack([np.where(b.max(axis) >= -b.min(axis), b.max(axis), b.min(axis)) for b in bands], axis=axis)
    return (distance + middle).astype(np.uint8)


@router.get("/image", responses=media("image/png"), response_class=Response)
async def image(id_: AnalysisId, request: Request, service: ServiceDep) -> Response:
    """The image as the model sees it, scaled and cut, in which the boxes of its patches count: a PNG."""
    return await fixed(request, service, id_, "png", lambda stored: Response(picture(stored), media_type="image/png"))


def picture(stored: Source) -> bytes:
    """A PNG of the image that was analysed. Raises NotReady where none is kept."""
    from PIL import Image

    pixels = stored.arrays.get("picture")
    if pixels is None:
        raise NotReady("This analysis keeps no image: it is of a text, or was made by an earlier version.")
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG")
    return written.getvalue()


@router.get("/edges/{lens}", response_model=Edges)
async def edges(
    id_: AnalysisId,
    lens: str,
    request: Request,
    service: ServiceDep,
    layer: Annotated[int, Query(ge=0, le=100_000)],
    head: Annotated[int, Query(ge=0, le=100_000)],
    rule: RuleQuery = "mass",
    k: Annotated[int, Query(ge=1, le=10_000, description="Keys per query of rule top-k.")] = 3,
    mass: Annotated[
        float, Query(gt=0, le=1, allow_inf_nan=False, description="Share of each query's magnitude of rule mass.")
    ] = 0.7,
    value: Annotated[
        float, Query(ge=0, le=1e6, allow_inf_nan=False, description="Smallest magnitude of rule value.")
    ] = 0.1,
    limit: Annotated[int, Query(ge=1, le=MOST_EDGES)] = 2_000,
    by: By = "token",
    groups: Groups = None,
    key_groups: KeyGroups = None,
) -> Response:
    """The connection graph of one head, strongest first; rows without a reading have no edges. By word, query and key count words."""

    def select(stored: Stored) -> Response:
        check_kept(stored, lens)
        together = grouping(stored.document, by, groups, key_groups)
        where = (
            places("layer", str(layer), stored.document["layers"]),
            places("head", str(head), heads_of(stored.document, lens)),
        )
        weights = together.apply(stored.maps(lens, *where))[0, 0]
        pairs = edge_rules.select(weights, rule, k=k, mass=mass, value=value)
        chosen = [
            Edge(layer=layer, head=head, query=q, key=j, weight=float(weights[q, j])) for q, j in pairs[:limit].tolist()
        ]
        return Response(Edges(edges=chosen, total=len(pairs)).model_dump_json(), media_type=MEDIA["json"])

    return await fixed(request, service, id_, "json", select)


@router.get("/measures/{measure}", responses={200: {"model": MeasureValues, **TENSOR[200]}}, response_class=Response)
async def measures(
    id_: AnalysisId,
    measure: str,
    request: Request,
    service: ServiceDep,
    lens: Annotated[str, Query(max_length=100)] = "weights",
    layer: SliceQuery = None,
    head: SliceQuery = None,
    summary: Annotated[
        Literal["none", "head"], Query(description="`head`: the mean over tokens, which leaves no axis Q or K.")
    ] = "none",
    unit: Annotated[Unit | None, Query(description="Of the entropy.")] = None,
    format_: FormatQuery = None,
) -> Response:
    """`values`, shaped as the measure declares; NaN (null in JSON) where undefined. `columns` names what an axis C holds, `units` in which units."""
    if unit is not None and measure != "entropy":
        raise InvalidRequest("Only the entropy has a choice of units.", pointer="/unit")

    format_ = chosen_format(request, format_)

    def values(stored: Stored) -> Response:
        check_measure(stored, measure, lens)
        axes = MEASURES[measure].shape.split()
        found = stored.arrays[f"measure/{measure}/{lens}"]
        if unit is not None:
            found = convert(found, unit, stored.arrays["keys"][:, None, :]).astype(np.float32)
        found = found[places("layer", layer, stored.document["layers"])]
        if "H" in axes:
            found = found[:, places("head", head, list(stored.document["heads"]))]
        elif head is not None:
            raise InvalidRequest("That measure has one value per layer, not per head. Leave head out.", pointer="/head")
        if summary == "head":
            found, axes = token_mean(found, axes), [axis for axis in axes if axis not in TOKEN_AXES]
        named = {"name": measure, "lens": lens, "unit": unit or MEASURES[measure].unit}
        return answer({"values": found}, format_, named | _axes(MEASURES[measure], axes, found, format_))

    return await fixed(request, service, id_, format_, values)


def _axes(measure: Measure, axes: Sequence[str], values: Array, format_: Format) -> dict[str, Any]:
    """What the axes of a measure's values hold: lists in JSON, words in the metadata of files."""
    columns = measure.columns if "C" in axes else ()
    units = [measure.unit_of(column) for column in columns]
    if format_ == "json":
        return {"axes": list(axes), "columns": list(columns), "units": units, "shape": list(values.shape)}
    return {"axes": " ".join(axes), "columns": " ".join(columns), "units": " ".join(units)}


def check_measure(stored: Stored, measure: str, lens: str) -> None:
    """Raise Unknown or Unsupported unless the measure of the lens was computed in this analysis."""
    if measure not in MEASURES:
        raise Unknown("measure", f"There is no such measure. There are: {', '.join(MEASURES)}.", pointer="/measure")
    if lens not in LENSES:
        raise Unknown("lens", f"There is no such lens. There are: {', '.join(LENSES)}.", pointer="/lens")
    if measure not in stored.document["measures"]:
        raise Unknown(
            "measure",
            "That measure was not computed in this analysis. Send the request again with it.",
            pointer="/measure",
        )
    if lens not in stored.document["measures"][measure]:
        raise Unsupported(
            f"{measure} is defined for: {', '.join(stored.document['measures'][measure])}.", pointer="/lens"
        )
