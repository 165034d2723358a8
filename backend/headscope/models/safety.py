"""Safety checks on a model's files before transformers reads them: no code, no pickles, nothing outside the folder."""

from __future__ import annotations

import fnmatch
import json
import math
import re
import struct
from pathlib import Path
from typing import Any

from ..errors import CorruptModel, UnsafeModel, UnsafeWeights
from .facts import find_quantiser

# Keys that make transformers, or a library it calls, import or download code.
DENIED = frozenset(
    [
        "auto_map",
        "trust_remote_code",
        "custom_pipelines",
        "code_revision",
        "kernels",
        "kernel_config",
        "custom_generate",
    ]
)
# Keys that choose an implementation. Their value may also be a kernel on the hub ("org/kernel"), whose code transformers would run, for the internal
# keys without any check (CVE-2026-4372). Headscope removes these keys and chooses the implementation itself.
IMPLEMENTATIONS = ("_attn_implementation", "attn_implementation", "_experts_implementation", "experts_implementation")
# Implementations in transformers, torch or an installed package.
ORDINARY = frozenset(
    {"eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm", *(f"flash_attention_{n}" for n in (2, 3, 4))}
)

# The only files that transformers gets to see.
ALLOWED = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja",
    "vocab.txt", "vocab.json", "merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
    "preprocessor_config.json", "processor_config.json", "model.safetensors.index.json", "*.safetensors",
)  # fmt: skip
_IS_ALLOWED = re.compile("|".join(map(fnmatch.translate, ALLOWED))).match
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.h5", "*.msgpack")
LARGEST_JSON = 4 * 1024 * 1024
LARGEST_TOKENIZER = 64 * 1024 * 1024
LARGEST_HEADER = 100 * 1024 * 1024

# Types of 16 bits in the headers of safetensors files.
NARROW = {"BF16": "bfloat16", "F16": "float16"}
FLOATING = re.compile(r"B?F(\d+)")  # and how many bits they have


def is_allowed(name: str) -> bool:
    """Return whether transformers gets to see a file of that name."""
    return _IS_ALLOWED(name) is not None


def check(folder: Path) -> dict[str, Any]:
    """Check a model folder and return its config. Raises UnsafeModel, UnsafeWeights, CorruptModel or Unsupported."""
    config = read_json(folder / "config.json")
    for name in ALLOWED:
        if name.endswith("config.json") and (folder / name).is_file():
            reject_code(read_json(folder / name))
    if (folder / "tokenizer.json").is_file():
        read_json(folder / "tokenizer.json", LARGEST_TOKENIZER)
    find_quantiser(config)
    for shard in weight_files(folder):
        check_header(shard)
    return config


def read_json(path: Path, limit: int = LARGEST_JSON) -> dict[str, Any]:
    """Read a JSON object from a file of bounded size. Raises CorruptModel."""
    try:
        if path.exists() and not path.is_file():
            raise CorruptModel(f"The model's {path.name} is not a file.")
        if path.stat().st_size > limit:
            raise CorruptModel(f"The model's {path.name} is larger than {limit} bytes.")
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise CorruptModel(f"The model's folder has no {path.name}.") from None
    except (ValueError, RecursionError, OSError):
        raise CorruptModel(f"The model's {path.name} cannot be read as JSON.") from None
    if not isinstance(document, dict):
        raise CorruptModel(f"The model's {path.name} is not a JSON object.")
    return document


def reject_code(value: object) -> None:
    """Raise UnsafeModel if a key anywhere in the document requests to run code."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            for key, inner in item.items():
                # A false trust_remote_code or an empty auto_map has no effect.
                if key in DENIED and inner not in (None, False, {}, []):
                    raise UnsafeModel(
                        "The model's configuration requests to run its own code, which Headscope never does. "
                        "Use a model whose architecture transformers knows."
                    )
                if key.startswith(IMPLEMENTATIONS) and not _is_ordinary(key, inner):
                    raise UnsafeModel(
                        "The model's configuration names an attention or expert kernel to download and run, which Headscope never does. "
                        "Remove that entry from the file."
                    )
                stack.append(inner)
        elif isinstance(item, list):
            stack.extend(item)


def _is_ordinary(key: str, value: object) -> bool:
    """Return whether the value of a key that chooses an implementation names only local ones."""
    if value is None or isinstance(value, bool):
        return True
    if key not in IMPLEMENTATIONS:  # an internal key
        return False
    if isinstance(value, dict):
        return all(_is_ordinary(key, inner) for inner in value.values())
    return isinstance(value, str) and value in ORDINARY


def _without_implementations(value: Any) -> Any:
    """Remove the keys that choose an implementation."""
    if isinstance(value, dict):
        return {
            key: _without_implementations(inner) for key, inner in value.items() if not key.startswith(IMPLEMENTATIONS)
        }
    return [_without_implementations(inner) for inner in value] if isinstance(value, list) else value


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files with the weights, all inside the folder. Raises UnsafeModel, UnsafeWeights or CorruptModel."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = read_json(index, LARGEST_TOKENIZER).get("weight_map")
        if not isinstance(shards, dict) or not shards:
            raise CorruptModel("The model's index of weight files is empty.")
        names = sorted({str(name) for name in shards.values()})
        if any(Path(name).name != name or not name.endswith(".safetensors") for name in names):
            raise UnsafeModel("The model's index of weight files points outside its folder.")
    elif (folder / "model.safetensors").is_file():
        names = ["model.safetensors"]
    elif any(any(folder.glob(pattern)) for pattern in PICKLES):
        raise UnsafeWeights(
            "The model has only pickled weights, which can run code. Convert them to safetensors first."
        )
    else:
        raise CorruptModel("The model's folder has no model.safetensors.")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise CorruptModel(f"{len(missing)} of the model's weight files are missing.")
    return [folder / name for name in names]


def count_weights(path: Path) -> int:
    """Return the number of floating-point weights in a safetensors file. Raises CorruptModel."""
    try:
        return sum(map(_count, _read_header(path).values()))
    except (KeyError, TypeError, ValueError):
        raise CorruptModel("A weight file of the model is damaged.") from None


def weight_bytes(path: Path, itemsize: int | None) -> dict[str, int]:
    """Return the bytes in memory of each tensor of a safetensors file: `itemsize` for every number of 16 bits or more, None for as many as in the file.

    Raises CorruptModel.
    """
    try:
        return {name: _bytes(tensor, itemsize) for name, tensor in _read_header(path).items()}
    except (KeyError, TypeError, ValueError):
        raise CorruptModel("A weight file of the model is damaged.") from None


def _bytes(tensor: dict[str, Any], itemsize: int | None) -> int:
    start, end = tensor["data_offsets"]
    floating = FLOATING.match(str(tensor["dtype"]))
    wide = itemsize is not None and floating is not None and int(floating[1]) >= 16
    return _count(tensor) * int(itemsize or 0) if wide else int(end - start)


def _count(tensor: dict[str, Any]) -> int:
    """Return how many floating-point numbers a tensor has. Raises ValueError if its shape does not fit its bytes."""
    floating = FLOATING.match(str(tensor["dtype"]))
    if floating is None:
        return 0
    (start, end), numbers = tensor["data_offsets"], int(math.prod(tensor["shape"]))
    if numbers * int(floating[1]) != 8 * (end - start):
        raise ValueError
    return numbers


def has_quantised(folder: Path) -> bool:
    """Return whether any weights are integers, or floats of fewer than 16 bits. Raises CorruptModel or UnsafeWeights."""
    floats = (FLOATING.match(name) for name in _types(folder))
    return any(one is None or int(one[1]) < 16 for one in floats)


def _types(folder: Path) -> set[str]:
    """Return the types of the weights, as the headers of their files name them."""
    return {str(tensor.get("dtype")) for path in weight_files(folder) for tensor in _read_header(path).values()}


def stored_dtype(folder: Path) -> str:
    """Return bfloat16 or float16 if all floating-point weights are of that type, and float32 otherwise. Raises CorruptModel or UnsafeWeights."""
    types = _types(folder)
    floating = {name for name in types if name.startswith(("F", "BF"))}
    return NARROW.get(floating.pop(), "float32") if len(floating) == 1 else "float32"


def check_header(path: Path) -> None:
    """Raise CorruptModel unless the safetensors header describes exactly the bytes that follow it."""
    _read_header(path)


def _read_header(path: Path) -> dict[str, dict[str, Any]]:
    """Return the description of every tensor in a safetensors file by name. Raises CorruptModel."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > min(LARGEST_HEADER, size - 8):
                raise ValueError
            header = json.loads(file.read(length))
            tensors = {name: tensor for name, tensor in header.items() if name != "__metadata__"}
            if 8 + length + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0) != size:
                raise ValueError
            return tensors
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, struct.error):
        raise CorruptModel("A weight file of the model is damaged or truncated. Download the model again.") from None


def stage(folder: Path, target: Path) -> Path:
    """Link only the allowed files of `folder` into `target`, with a config.json that chooses no implementation."""
    for pattern in ALLOWED:
        for path in folder.glob(pattern):
            (target / path.name).symlink_to(path.resolve())
    (target / "config.json").unlink()
    config = _without_implementations(read_json(folder / "config.json"))
    (target / "config.json").write_text(json.dumps(config), "utf-8")
    return target
