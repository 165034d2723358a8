"""Fitted Jacobian lenses: for every layer, the mean derivative of the last layer's output by that of the layer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..core.lazy import Tensor, torch
from ..errors import InvalidRequest

UNREADABLE = "This is no file of a Jacobian lens: a safetensors file with the matrix of layer l as J_l. In Python, give the matrices of a pickled one by layer."
SHAPE = "A Jacobian lens has a square matrix of numbers for every layer, as wide as the hidden states of the model for which it was fitted."
POINTER = "/jacobian_lens"
NAME = re.compile(r"J_(\d{1,4})")
# In bytes: the names and shapes of some thousand matrices take less.
LARGEST_HEADER = 1024 * 1024


def read_jacobian_lens(given: str | Path | Mapping[int, Any], width: int) -> dict[int, Tensor]:
    """Return the matrices [width, width] of a lens by the layer's number, in float32: of a file, or of arrays or tensors by layer.

    A file is a safetensors file with the matrix of layer l as J_l. Pickled files, which jlens writes, are not read: give its `jacobians` instead.
    Raises InvalidRequest.
    """
    found = dict(given) if isinstance(given, Mapping) else _read(Path(given))
    try:
        matrices = {int(layer): torch.as_tensor(one) for layer, one in found.items()}
    except (TypeError, ValueError):
        raise InvalidRequest(SHAPE, pointer=POINTER) from None
    if not matrices or not all(_is_matrix(one, width) for one in matrices.values()):
        raise InvalidRequest(SHAPE, pointer=POINTER)
    return {layer: one.float() for layer, one in matrices.items()}


def _is_matrix(one: Tensor, width: int) -> bool:
    return one.shape == (width, width) and not one.is_complex() and bool(one.float().isfinite().all())


def describe_jacobian_lens(path: Path) -> tuple[list[int], int]:
    """Return the layers and the width of the matrices of a file, read from its header alone. Raises InvalidRequest."""
    try:
        with path.open("rb") as head:
            if int.from_bytes(head.read(8), "little") > LARGEST_HEADER:
                raise InvalidRequest(UNREADABLE, pointer=POINTER)
        with safe_open(path, framework="np") as file:
            names = [found for one in file.keys() if (found := NAME.fullmatch(one))]  # noqa: SIM118 - no mapping
            shapes = {int(name[1]): tuple(file.get_slice(name[0]).get_shape()) for name in names}
    except (OSError, SafetensorError) as error:
        raise InvalidRequest(UNREADABLE, pointer=POINTER) from error
    width = next((shape[0] for shape in shapes.values() if shape), 0)
    if width == 0 or any(shape != (width, width) for shape in shapes.values()):
        raise InvalidRequest(SHAPE, pointer=POINTER)
    return sorted(shapes), width


def _read(path: Path) -> dict[int, Any]:
    try:
        with safe_open(path, framework="pt") as file:
            names = file.keys()
            return {int(found[1]): file.get_tensor(one) for one in names if (found := NAME.fullmatch(one))}
    except (OSError, SafetensorError) as error:
        raise InvalidRequest(UNREADABLE, pointer=POINTER) from error
