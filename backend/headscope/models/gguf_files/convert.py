"""Conversion of a GGUF file into a model folder as transformers writes it: the same numbers, dequantised.

Tensors that are not quantised keep their type. Quantised ones become float32: their numbers are products and sums of half-precision numbers and small
integers, and for most of them neither half precision nor bfloat16 has enough digits.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ...core.lazy import LazyModule
from ...errors import CorruptModel, StorageFull
from . import architecture, header, tokenizer
from .header import Header, StoredTensor

quants = LazyModule("gguf.quants")
constants = LazyModule("gguf.constants")
# Type in a GGUF file -> type of safetensors; quantised types become F32.
KEPT = {"F32": "F32", "F16": "F16", "BF16": "BF16"}
BYTES = {"F32": 4, "F16": 2, "BF16": 2}
# Free disk space that is left.
RESERVE = 64 * 1024 * 1024
Data = np.ndarray[Any, np.dtype[Any]]


def convert(path: Path, folder: Path) -> None:
    """Convert a GGUF file into a new model folder, which appears complete or not at all. An existing one is left as it is.

    Raises CorruptModel, Unsupported or StorageFull.
    """
    if folder.is_dir():
        return
    found = header.read_whole(path)
    config, files = architecture.to_config(path, found), tokenizer.to_files(found)
    folder.parent.mkdir(parents=True, exist_ok=True)
    needed = sum(_bytes(tensor) for tensor in found.tensors.values())
    if shutil.disk_usage(folder.parent).free < needed + RESERVE:
        raise StorageFull(
            f"The converted model needs {needed // 2**20:,} MiB of disk space. Free some space, then try again."
        )
    with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent, ignore_cleanup_errors=True) as name:
        place = Path(name) / folder.name
        place.mkdir()
        for file, text in {"config.json": json.dumps(config), **files}.items():
            (place / file).write_text(text, "utf-8")
        _write_weights(path, found, config, place / "model.safetensors")
        try:
            place.rename(folder)
        except OSError:
            if not folder.is_dir():  # another process was faster
                raise


def _write_weights(path: Path, found: Header, config: dict[str, Any], target: Path) -> None:
    """Write the weights as safetensors, one tensor at a time."""
    tensors = {
        architecture.translate(name): tensor
        for name, tensor in found.tensors.items()
        if name != architecture.FREQUENCIES
    }
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + _bytes(tensor)
        entries[name] = {
            "dtype": KEPT.get(tensor.type.name, "F32"),
            "shape": tensor.shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with target.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, tensor in tensors.items():
            file.write(_ordered(_values(path, tensor), name, config).data)


def _ordered(values: Data, name: str, config: dict[str, Any]) -> Data:
    """Return a tensor with the rows of each head in the order of transformers: first the one half of every rotated pair, then the other."""
    module = name.rsplit(".", 2)[-2]
    if config["model_type"] not in architecture.PERMUTED or module not in ("q_proj", "k_proj"):
        return np.ascontiguousarray(values)
    heads = config["num_attention_heads" if module == "q_proj" else "num_key_value_heads"]
    if len(values) != heads * config["head_dim"]:
        raise CorruptModel("The GGUF file's query or key projections do not fit its number of heads.")
    halves = values.reshape(heads, config["head_dim"] // 2, 2, -1)
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def _values(path: Path, tensor: StoredTensor) -> Data:
    """Read a tensor: float32, float16, or bfloat16 as uint16."""
    raw: Data = np.memmap(path, np.uint8, "r", tensor.start, (tensor.size,))
    if tensor.type.name in KEPT:
        return raw.view({"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[tensor.type.name]).reshape(tensor.shape)
    blocks = raw.reshape(*tensor.shape[:-1], tensor.shape[-1] // tensor.type.block * tensor.type.size)
    with np.errstate(
        all="ignore"
    ):  # a hostile file may hold infinite scales; the check of the loaded model reports them
        found: Data = quants.dequantize(blocks, constants.GGMLQuantizationType[tensor.type.name])
    return found


def _bytes(tensor: StoredTensor) -> int:
    return int(np.prod(tensor.shape)) * BYTES[KEPT.get(tensor.type.name, "F32")]
