"""The architectures of GGUF files: their settings as a config.json, and the names of their tensors in transformers.

A file with a setting or tensor that is not listed here is rejected: without it the numbers might be wrong.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import CorruptModel, Unsupported
from .header import Header

# Architecture -> class of transformers.
CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
# Only here neighbouring rows of the query and key projections are rotated together, so that transformers needs them in another order.
PERMUTED = frozenset({"llama"})
SETTINGS = frozenset(
    """
block_count context_length embedding_length feed_forward_length vocab_size attention.head_count attention.head_count_kv attention.key_length
attention.value_length attention.layer_norm_rms_epsilon rope.dimension_count rope.freq_base rope.scaling.type rope.scaling.factor
rope.scaling.original_context_length rope.scaling.finetuned rope.scaling.attn_factor rope.scaling.yarn_attn_factor rope.scaling.yarn_ext_factor
rope.scaling.yarn_beta_fast rope.scaling.yarn_beta_slow
""".split()  # noqa: SIM905 - a table of words
)
# Settings that may be there with the value that they have where they are omitted.
DEFAULTS = {
    "attention.causal": True,
    "attention.sliding_window": 0,
    "expert_count": 0,
    "expert_shared_count": 0,
    "expert_used_count": 0,
    "use_parallel_residual": False,
}
NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
# Inside a layer, blk.N of the file and model.layers.N of transformers.
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Projections that have a bias all together or not at all, as in the classes of transformers.
ATTENTION = frozenset({"attn_q", "attn_k", "attn_v", "attn_output"})
FEED_FORWARD = frozenset({"ffn_gate", "ffn_up", "ffn_down"})
BIASED = {"llama": (ATTENTION, FEED_FORWARD), "qwen2": (ATTENTION - {"attn_output"},), "qwen3": (ATTENTION,)}
NORMALISED = frozenset({"attn_q_norm", "attn_k_norm"})  # in Qwen 3 only
LAYER = re.compile(r"blk\.(\d{1,4})\.(\w+)\.(weight|bias)")
# Factors of YaRN -> the value that means that they are not set. Otherwise they must be 1.
MIXED = {"attn_factor": 1.0, "yarn_attn_factor": -1.0, "yarn_ext_factor": -1.0}
# The factors by which Llama 3 slows its rotary frequencies, as a tensor.
FREQUENCIES = "rope_freqs.weight"
UNKNOWN_TENSORS = "The GGUF file has tensors that its architecture usually lacks, such as experts or adapters, and Headscope does not know what they do."
LARGEST_FREQUENCIES = 64 * 1024
# How Llama 3.1 and later slow them, in the terms of transformers; only `factor` differs between models.
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def to_config(path: Path, header: Header) -> dict[str, Any]:
    """Return the config.json of a GGUF file with this header. Raises CorruptModel or Unsupported."""
    name = header.architecture
    if name not in CLASSES:
        raise Unsupported(
            f"Headscope reads GGUF files of the architectures {', '.join(CLASSES)}, and this file has another one. Use the model's safetensors."
        )
    if header.values.get("split.count", 0) not in (0, 1):
        raise Unsupported("This GGUF file is a part of a model. Join its parts with llama-gguf-split --merge.")
    settings = _settings(header, name)
    width, heads = _count(settings, "embedding_length"), _count(settings, "attention.head_count")
    head_width = _count(settings, "attention.key_length", width // max(heads, 1))
    if any(
        _count(settings, key, head_width) != head_width for key in ("attention.value_length", "rope.dimension_count")
    ):
        raise Unsupported(
            "The GGUF file has heads whose values or rotated dimensions are narrower than their keys, which Headscope does not read."
        )
    epsilon = settings.get("attention.layer_norm_rms_epsilon")
    if not isinstance(epsilon, float) or not 0 < epsilon < 1:
        raise CorruptModel("The GGUF file has no valid attention.layer_norm_rms_epsilon.")
    tensors = {translate(name_) for name_ in header.tensors if name_ != FREQUENCIES}
    biased = _biased(header, name, _count(settings, "block_count"))
    tokenizer = {key: header.values.get(f"tokenizer.ggml.{key}") for key in ("bos_token_id", "eos_token_id")}
    return {
        "architectures": [CLASSES[name]],
        "model_type": name,
        "num_hidden_layers": _count(settings, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _count(settings, "attention.head_count_kv", heads),
        "head_dim": head_width,
        "hidden_size": width,
        "intermediate_size": _count(settings, "feed_forward_length"),
        "max_position_embeddings": _count(settings, "context_length"),
        "vocab_size": _vocabulary(header),
        "hidden_act": "silu",
        "rms_norm_eps": _shortest(epsilon),
        "rope_parameters": _rotation(settings, head_width, _frequencies(path, header)),
        "tie_word_embeddings": "lm_head.weight" not in tensors,
        **({"attention_bias": biased >= ATTENTION} if name != "qwen2" else {}),
        **({"mlp_bias": biased >= FEED_FORWARD} if name == "llama" else {}),
        **{key: value for key, value in tokenizer.items() if isinstance(value, int)},
        "headscope": {"quantisation": header.quantisation},
    }


def translate(name: str) -> str:
    """Return the name in transformers of a tensor of a GGUF file. Raises Unsupported."""
    module, _, kind = name.rpartition(".")
    if module in NAMES and kind == "weight":
        return f"{NAMES[module]}.weight"
    found = LAYER.fullmatch(name)
    if found is None or found[2] not in LAYER_NAMES:
        raise Unsupported(UNKNOWN_TENSORS)
    return f"model.layers.{int(found[1])}.{LAYER_NAMES[found[2]]}.{found[3]}"


def _biased(header: Header, name: str, layers: int) -> set[str]:
    """Return the projections with a bias. Raises Unsupported for tensors of layers for which transformers' class has no place."""
    found: dict[int, set[str]] = {}
    for layer, module, kind in (match.groups() for one in header.tensors if (match := LAYER.fullmatch(one))):
        if int(layer) >= layers or (module in NORMALISED and name != "qwen3"):
            raise Unsupported(UNKNOWN_TENSORS)
        if kind == "bias":
            found.setdefault(int(layer), set()).add(module)
    for biased in found.values():
        known = [group for group in BIASED[name] if group <= biased]
        if biased != set().union(*known) or biased != next(iter(found.values())):
            raise Unsupported(
                "The GGUF file has biases in projections or layers in which models of its architecture have none. Use the model's safetensors."
            )
    return next(iter(found.values()), set())


def _settings(header: Header, name: str) -> dict[str, Any]:
    """Return the settings of the architecture, without its name. Raises Unsupported for others than these, unless they have the usual value."""
    found = {key.removeprefix(f"{name}."): value for key, value in header.values.items() if key.startswith(f"{name}.")}
    if any(DEFAULTS.get(key) != value for key, value in found.items() if key not in SETTINGS):
        raise Unsupported(
            "The GGUF file has settings that Headscope does not know, such as experts or a sliding window, and without them numbers would be wrong."
        )
    return found


def _count(settings: dict[str, Any], key: str, default: int | None = None) -> int:
    value = settings.get(key, default)
    if isinstance(value, list):
        raise Unsupported(
            "The GGUF file has layers that differ in their numbers of heads, which Headscope does not read."
        )
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CorruptModel(f"The GGUF file has no valid {key}; it must be a positive integer.")
    return value


def _frequencies(path: Path, header: Header) -> tuple[float, ...] | None:
    """Return the factors of the rotary frequencies, None if the file has none."""
    found = header.tensors.get(FREQUENCIES)
    if found is None:
        return None
    if found.type.name != "F32" or found.size > LARGEST_FREQUENCIES:
        raise CorruptModel("The GGUF file has no valid factors of its rotary frequencies.")
    with path.open("rb") as file:
        file.seek(found.start)
        return struct.unpack(f"<{found.size // 4}f", file.read(found.size))


def _vocabulary(header: Header) -> int:
    embedding = header.tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CorruptModel("The GGUF file has no embedding of tokens.")
    return embedding.shape[0]


def _rotation(settings: dict[str, Any], head_width: int, frequencies: Sequence[float] | None) -> dict[str, Any]:
    """Return transformers' rope_parameters. Raises CorruptModel or Unsupported."""
    base = _positive(settings, "rope.freq_base", 10000.0)
    # Like llama.cpp: a factor without a type is linear.
    kind = settings.get("rope.scaling.type", "linear" if settings.get("rope.scaling.factor") else "none")
    found = {"rope_theta": base, "rope_type": "default"}
    if kind not in ("none", "linear", "yarn") or (kind != "none" and frequencies is not None):
        raise Unsupported(
            "The GGUF file scales its rotary positions in a way that Headscope does not read. It reads linear, yarn and that of Llama 3."
        )
    if any(settings.get(f"rope.scaling.{key}", 1.0) not in (1.0, unset) for key, unset in MIXED.items()):
        raise Unsupported(
            "The GGUF file has a YaRN factor of its own for mixing or for attention, which Headscope does not read: its meaning differs between versions of llama.cpp."
        )
    if frequencies is not None:
        return {**found, **_llama3(base, head_width, frequencies)}
    if kind == "none":
        return found
    factor = settings.get("rope.scaling.factor") or 1.0  # also as in llama.cpp
    scaled = {**found, "rope_type": kind, "factor": _positive({"rope.scaling.factor": factor}, "rope.scaling.factor")}
    return {**scaled, **_yarn(settings, scaled["factor"])} if kind == "yarn" else scaled


def _yarn(settings: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return the parameters of YaRN, with the defaults of llama.cpp. Raises CorruptModel."""
    context = _count(settings, "context_length")
    return {
        "original_max_position_embeddings": _count(settings, "rope.scaling.original_context_length", context),
        "beta_fast": _positive(settings, "rope.scaling.yarn_beta_fast", 32.0),
        "beta_slow": _positive(settings, "rope.scaling.yarn_beta_slow", 1.0),
        "attention_factor": 1 + 0.1 * math.log(factor),
    }


def _positive(settings: dict[str, Any], key: str, default: float | None = None) -> float:
    value = settings.get(key, default)
    if not isinstance(value, float) or not 0 < value < math.inf:
        raise CorruptModel(f"The GGUF file has no valid {key}; it must be a positive number.")
    return _shortest(value)


def _llama3(base: float, head_width: int, frequencies: Sequence[float]) -> dict[str, Any]:
    """Return the parameters whose factors are those in the file. Raises Unsupported if there are none."""
    factor = max(frequencies, default=0.0)
    low, high, length = (
        LLAMA3["low_freq_factor"],
        LLAMA3["high_freq_factor"],
        LLAMA3["original_max_position_embeddings"],
    )
    expected = []
    for index in range(head_width // 2):
        wave = 2 * math.pi * base ** (2 * index / head_width)
        smooth = min(max((length / wave - low) / (high - low), 0.0), 1.0)
        expected.append(1 / ((1 - smooth) / factor + smooth) if factor > 0 else math.nan)
    close = len(expected) == len(frequencies) and all(map(_is_close, expected, frequencies))
    if not close:
        raise Unsupported(
            "The GGUF file changes its rotary frequencies by factors other than those of Llama 3, which Headscope does not read."
        )
    return {"rope_type": "llama3", "factor": factor, **LLAMA3}


def _is_close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-4)


def _shortest(value: float) -> float:
    """Return the shortest decimal that is the same float32: the number before it was stored."""
    return next(
        short
        for digits in range(6, 10)
        if struct.pack("<f", short := float(f"{value:.{digits}g}")) == struct.pack("<f", value)
    )
