"""Arrays as response bodies: safetensors, npy, or JSON if they are small."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from fastapi import Request
from safetensors.numpy import save
from starlette.responses import Response

from ...core.arrays import Array, to_lists
from ...errors import BudgetExceeded, InvalidRequest
from .negotiation import choose_media

Format = Literal["safetensors", "npy", "json"]
MEDIA: dict[Format, str] = {
    "safetensors": "application/vnd.safetensors",
    "npy": "application/x-npy",
    "json": "application/json",
}
MAX_JSON_NUMBERS = 1_000_000
# All maps of 12 layers and 12 heads over 512 tokens take 144 MiB.
MAX_BYTES = 160 * 1024 * 1024


def choose_format(request: Request, requested: Format | None) -> Format:
    """Return the format of `?format=`, otherwise of the Accept header; safetensors if it names none."""
    return choose_media(request, requested, MEDIA)


def check_size(count: int, itemsize: int) -> None:
    """Raise BudgetExceeded if a response of `count` numbers of `itemsize` bytes would be too large."""
    if count * itemsize > MAX_BYTES:
        raise BudgetExceeded(
            "This is too much data for one response. Request fewer layers or heads at a time, or export the analysis.",
            limit=MAX_BYTES,
            actual=count * itemsize,
        )


def encode(arrays: Mapping[str, Array], format_: Format, more: Mapping[str, Any] | None = None) -> Response:
    """Respond with arrays. npy contains only the first; `more` is added to the JSON object or the safetensors metadata."""
    if format_ == "json":
        if sum(array.size for array in arrays.values()) > MAX_JSON_NUMBERS:
            raise InvalidRequest(
                f"A JSON response has at most {MAX_JSON_NUMBERS:,} numbers. Request safetensors, npy, or fewer heads.",
                pointer="/format",
            )
        lists = {name: to_lists(array) for name, array in arrays.items()}
        body = json.dumps({**(more or {}), **lists}, allow_nan=False).encode()
    elif format_ == "npy":
        buffer = io.BytesIO()
        np.save(buffer, next(iter(arrays.values())), allow_pickle=False)
        body = buffer.getvalue()
    else:
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        body = save(contiguous, {name: str(value) for name, value in (more or {}).items()})
    return Response(body, media_type=MEDIA[format_])
