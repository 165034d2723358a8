"""Arrays as bytes: safetensors, npy, or json for small ones."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from fastapi import Request
from numpy.typing import NDArray
from safetensors.numpy import save
from starlette.responses import Response

from ...errors import BudgetExceeded, InvalidRequest
from ..middleware.memory import MIB
from .negotiation import weights

Array = NDArray[Any]
Format = Literal["safetensors", "npy", "json"]
MEDIA: dict[Format, str] = {
    "safetensors": "application/vnd.safetensors",
    "npy": "application/x-npy",
    "json": "application/json",
}
MOST_JSON = 1_000_000
# All maps of 12 layers and 12 heads over 512 tokens have 144 MiB.
MOST_BYTES = 160 * MIB


def chosen_format(request: Request, asked: Format | None) -> Format:
    """?format= wins over Accept."""
    return asked or format_of(request.headers.get("accept", ""))


def format_of(accept: str) -> Format:
    """The format that an Accept header would have most of all; safetensors if none."""
    wanted = weights(accept)
    best = max(MEDIA, key=lambda name: wanted.get(MEDIA[name], 0.0))
    return best if wanted.get(MEDIA[best]) else "safetensors"


def check_size(count: int, itemsize: int) -> None:
    """Raise BudgetExceeded before an answer that is too large is put together."""
    if count * itemsize > MOST_BYTES:
        raise BudgetExceeded(
            "That is too much for one answer. Ask for fewer layers or heads at a time, or for the export.",
            limit=MOST_BYTES,
            actual=count * itemsize,
        )


def answer(arrays: Mapping[str, Array], format_: Format, more: Mapping[str, Any] | None = None) -> Response:
    """The arrays in the chosen format; the first is the one that npy holds. `more` joins the JSON, or the safetensors metadata."""
    first = next(iter(arrays.values()))
    if format_ == "json":
        if sum(array.size for array in arrays.values()) > MOST_JSON:
            raise InvalidRequest(
                f"JSON is for at most {MOST_JSON} numbers. Ask for safetensors or npy, or for fewer heads.",
                pointer="/format",
            )
        body = json.dumps(
            {**(more or {}), **{name: plain(array) for name, array in arrays.items()}}, allow_nan=False
        ).encode()
    elif format_ == "npy":
        buffer = io.BytesIO()
        np.save(buffer, first, allow_pickle=False)
        body = buffer.getvalue()
    else:
        body = save(
            {name: np.ascontiguousarray(array) for name, array in arrays.items()},
            {k: str(v) for k, v in (more or {}).items()},
        )
    return Response(body, media_type=MEDIA[format_])


def plain(array: Array) -> Any:
    """Nested lists with null for NaN and infinity."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        values = array.astype(object)
        values[~np.isfinite(array)] = None
        return values.tolist()
    return array.tolist()
