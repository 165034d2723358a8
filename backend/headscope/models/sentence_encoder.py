"""Embeddings of short phrases by MiniLM, computed with numpy, so that the server finds phrases by meaning without importing torch."""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, Thread

import numpy as np
from numpy.typing import NDArray

from ..core.lazy import tokenizers
from ..errors import CorruptModel, ModelUnavailable
from ..settings import Settings
from .catalog import Catalog

Floats = NDArray[np.float32]
MODEL = "minilm"
MAX_TOKENS = 128
UNAVAILABLE = (
    "The model MiniLM, which finds phrases by meaning, is not part of this installation. Use a query such as "
    "vertical and entropy < 1, or the names of measures."
)
logger = logging.getLogger(__name__)


class SentenceEncoder:
    """Loads MiniLM when it first encodes something. Phrases that never change are encoded once and stored under the data directory. Thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = Lock()
        self._model: _Bert | None = None
        self._digest, self._prepared = "", False
        self._fixed: tuple[tuple[str, ...], Floats] = ((), np.zeros((0, 0), np.float32))

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return the embeddings of texts, [N, D] of length 1. Raises ModelUnavailable."""
        with self._lock:
            return self._load().encode(texts)

    def prepare(self, fixed: Sequence[str]) -> None:
        """Load the model and encode these texts in a thread of its own, once; do not wait for it."""
        if not self._prepared:
            self._prepared = True
            Thread(target=self._prepare, args=(fixed,), name="phrases", daemon=True).start()

    def _prepare(self, fixed: Sequence[str]) -> None:
        with suppress(ModelUnavailable):  # the first search reports it
            self.encode_fixed(fixed)

    def encode_fixed(self, texts: Sequence[str]) -> Floats:
        """Return the same of texts that are asked for again and again. Raises ModelUnavailable."""
        key = tuple(texts)
        with self._lock:
            if self._fixed[0] != key:
                self._fixed = key, self._read_or_encode(key)
            return self._fixed[1]

    def _load(self) -> _Bert:
        if self._model is None:
            located = Catalog(self._settings).locate(MODEL)
            if located.folder is None:
                raise ModelUnavailable(UNAVAILABLE)
            try:
                self._model, self._digest = _Bert(located.folder), located.digest()
            except (OSError, KeyError, ValueError, CorruptModel):
                raise ModelUnavailable(UNAVAILABLE) from None
        return self._model

    def _read_or_encode(self, texts: tuple[str, ...]) -> Floats:
        model = self._load()
        digest = hashlib.sha256(json.dumps([self._digest, *texts]).encode()).hexdigest()
        path = self._settings.home / "phrases" / f"{digest[:32]}.f32"
        with suppress(OSError):
            data = path.read_bytes()
            if data[:32] == hashlib.sha256(data[32:]).digest():
                return np.frombuffer(data, "<f4", offset=32).reshape(len(texts), model.width)
        found = model.encode(texts)
        _write(path, found)
        return found


def _write(path: Path, array: Floats) -> None:
    """Store an array behind its SHA-256, whole or not at all. A disk that is full or read-only costs only time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            file = Path(folder) / path.name
            file.write_bytes(hashlib.sha256(array.tobytes()).digest() + array.tobytes())
            file.replace(path)
    except OSError:
        logger.warning("Embeddings of phrases could not be stored; the next start computes them again.")


class _Bert:
    """A BERT encoder with mean pooling, whose weights stay in the mapped safetensors file."""

    def __init__(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text("utf-8"))
        self.width = int(config["hidden_size"])
        self._heads, self._layers = int(config["num_attention_heads"]), int(config["num_hidden_layers"])
        self._epsilon = float(config["layer_norm_eps"])
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        self._weights = _map_safetensors(folder / "model.safetensors")

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return [N, D]. All texts go through the linear layers together; attention runs per text."""
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        ends = np.cumsum([len(row) for row in ids])
        parts = [slice(end - len(row), end) for row, end in zip(ids, ends, strict=True)]
        words, places = (self._weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position"))
        states = words[np.concatenate(ids)] + places[np.concatenate([np.arange(len(row)) for row in ids])]  # [T, D]
        states = self._norm(states + self._weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
        for number in range(self._layers):
            states = self._layer(states, parts, f"encoder.layer.{number}")
        pooled = np.stack([states[part].mean(0) for part in parts])
        normed: Floats = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return normed

    def _layer(self, states: Floats, parts: Sequence[slice], at: str) -> Floats:
        query, key, value = (
            self._linear(states, f"{at}.attention.self.{name}").reshape(len(states), self._heads, -1)
            for name in ("query", "key", "value")
        )  # [T, H, D/H]
        mixed = np.empty_like(value)
        for part in parts:
            scores = np.einsum("qhd,khd->hqk", query[part], key[part]) / np.sqrt(np.float32(value.shape[-1]))
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            mixed[part] = np.einsum("hqk,khd->qhd", weights, value[part])
        attended = self._linear(mixed.reshape(states.shape), f"{at}.attention.output.dense")
        states = self._norm(states + attended, f"{at}.attention.output")
        inner = _gelu(self._linear(states, f"{at}.intermediate.dense"))
        return self._norm(states + self._linear(inner, f"{at}.output.dense"), f"{at}.output")

    def _linear(self, states: Floats, name: str) -> Floats:
        result: Floats = states @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return result

    def _norm(self, states: Floats, name: str) -> Floats:
        centred = states - states.mean(-1, keepdims=True)
        scale = np.sqrt(np.square(centred).mean(-1, keepdims=True) + self._epsilon)
        result: Floats = (
            centred / scale * self._weights[f"{name}.LayerNorm.weight"] + self._weights[f"{name}.LayerNorm.bias"]
        )
        return result


def _gelu(x: Floats) -> Floats:
    """Return x Phi(x), with erf of Abramowitz and Stegun, formula 7.1.26 (absolute error at most 1.5e-7)."""
    z = np.abs(x) * np.float32(np.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - series * np.exp(-z * z))
    result: Floats = (x * (1 + erf) / 2).astype(np.float32)
    return result


def _map_safetensors(path: Path) -> dict[str, Floats]:
    """Return the float32 tensors of a safetensors file, which are read from disk when they are used."""
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    return {
        name: np.frombuffer(data, "<f4", int(np.prod(entry["shape"])), start + entry["data_offsets"][0]).reshape(
            entry["shape"]
        )
        for name, entry in header.items()
        if name != "__metadata__" and entry["dtype"] == "F32"
    }
