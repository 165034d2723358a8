"""Arrays as response bodies: safetensors, npy, the binary extension of the Open Inference Protocol, or JSON if they are small."""

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

Format = Literal["safetensors", "npy", "open-inference", "json"]
MEDIA: dict[Format, str] = {
    "safetensors": "application/vnd.safetensors",
    "npy": "application/x-npy",
    "open-inference": "application/octet-stream",
    "json": "application/json",
}
# Of open-inference, in the OpenAPI document.
LENGTH_HEADER = {
    "Inference-Header-Content-Length": {
        "description": "Of `open-inference`: bytes of the JSON before the tensors.",
        "schema": {"type": "integer"},
    }
}
# The kinds of numbers in the Open Inference Protocol: FP32, UINT8.
KINDS = {"f": "FP", "i": "INT", "u": "UINT"}
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


def encode(arrays: Mapping[str, Array], format_: Format, model: str, more: Mapping[str, Any] | None = None) -> Response:
    """Respond with arrays of a model. npy contains only the first; `more` is added to the JSON object or the metadata of the file."""
    if format_ == "open-inference":
        return _encode_inference(arrays, model, more or {})
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


def _encode_inference(arrays: Mapping[str, Array], model: str, more: Mapping[str, Any]) -> Response:
    """Respond with an inference response of the Open Inference Protocol, version 2, whose tensors follow its JSON: little-endian, in row-major order.

    https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol/binary-tensor-data-extension
    """
    tensors = {name: array.astype(array.dtype.newbyteorder("<"), "C", copy=False) for name, array in arrays.items()}
    outputs = [
        {
            "name": name,
            "shape": list(tensor.shape),
            "datatype": f"{KINDS[tensor.dtype.kind]}{8 * tensor.itemsize}",
            "parameters": {"binary_data_size": tensor.nbytes},
        }
        for name, tensor in tensors.items()
    ]
    document = {
        "model_name": model,
        "parameters": {name: str(value) for name, value in more.items()},
        "outputs": outputs,
    }
    head = json.dumps(document).encode()
    body = b"".join((head, *(tensor.data for tensor in tensors.values())))
    return Response(body, media_type=MEDIA["open-inference"], headers=dict.fromkeys(LENGTH_HEADER, str(len(head))))
