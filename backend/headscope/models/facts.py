"""What a model's configuration says about its attention, read without torch or transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import UnsafeModel, Unsupported
from ..types import ModelKind

# Configurations name the same thing differently; the first name present wins.
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
WIDTH = ("hidden_size", "n_embd", "dim", "d_model")
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
VOCABULARY = ("vocab_size",)

# Families whose position ids start after the padding id, so that two positions less can be used.
OFFSET_POSITIONS = {"roberta": 2, "xlm-roberta": 2, "camembert": 2, "mpnet": 2, "xlm-roberta-xl": 2}
VISION = {"vit", "deit", "dinov2", "beit", "clip", "swin"}
# More than any model has. Building what a damaged or hostile configuration claims would keep the worker busy for minutes.
MOST = {LAYERS: 1_000, HEADS: 4_096, WIDTH: 1_000_000, POSITIONS: 1_000_000_000, VOCABULARY: 10_000_000}


@dataclass(frozen=True, slots=True)
class Facts:
    """Numbers of a model: layers, heads per layer, head width, and the most tokens it takes (None: no limit known)."""

    family: str
    kind: ModelKind
    layers: int
    heads: int
    head_width: int
    max_tokens: int | None


def read(config: Mapping[str, Any]) -> Facts:
    """The facts of a config.json. Raises UnsafeModel where a number is missing or absurd."""
    family, architectures = config.get("model_type", ""), config.get("architectures") or []
    if not isinstance(family, str) or not isinstance(architectures, list):
        raise UnsafeModel("The model's config.json names its architecture in a way that nothing can be made of.")
    heads = _number(config, HEADS)
    width = _number(config, ("head_dim",), default=0) or _number(config, WIDTH) // heads
    if width < 1:
        raise UnsafeModel("The model's config.json gives its heads no width.")
    _number(config, VOCABULARY, default=0)
    positions = _number(config, POSITIONS, default=0) - OFFSET_POSITIONS.get(family, 0)
    return Facts(
        family, _kind(config, family), _number(config, LAYERS), heads, width, positions if positions > 0 else None
    )


def check_kind(kind: ModelKind) -> None:
    """Raise Unsupported for kinds of models that can't be analysed in this version."""
    if kind in ("vision", "encoder-decoder"):
        raise Unsupported("Image and encoder-decoder models can't be analysed in this version.", pointer="/model")


def _kind(config: Mapping[str, Any], family: str) -> ModelKind:
    if config.get("is_encoder_decoder"):
        return "encoder-decoder"
    if family in VISION:
        return "vision"
    names = " ".join(str(name) for name in config.get("architectures") or ())
    decoder = "CausalLM" in names or "LMHead" in names or family in DECODERS or bool(config.get("is_decoder"))
    return "decoder" if decoder else "encoder"


DECODERS = {
    "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text",
    "phi", "phi3", "falcon", "olmo", "olmo2", "smollm3", "stablelm", "starcoder2", "granite", "cohere", "gpt_bigcode",
}  # fmt: skip


def _number(config: Mapping[str, Any], names: tuple[str, ...], default: int | None = None) -> int:
    value = next((config[name] for name in names if config.get(name) is not None), default)
    least, most = 0 if default is not None else 1, MOST.get(names, 1_000_000)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UnsafeModel(f"The model's config.json has no usable {names[0]}; it must be a whole number above 0.")
    return value
