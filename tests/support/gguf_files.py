"""Small random GGUF files, written by the gguf package as llama.cpp's converter writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.models import byte_bpe

LAYERS, HEADS, SHARED, HEAD_WIDTH, INNER = 2, 4, 2, 16, 96
WIDTH = HEADS * HEAD_WIDTH
Type = gguf.GGMLQuantizationType


def write(
    path: Path,
    architecture: str = "llama",
    *,
    settings: dict[str, Any] | None = None,
    values: dict[str, Any] | None = None,
    types: dict[str, Type] | None = None,
    tensors: dict[str, Any] | None = None,
    pre: str = "gpt-2",
    model: str = "gpt2",
    template: str | None = None,
    base: float = 500.0,
) -> Path:
    """Write a model with two layers; `types` are those of tensors by the end of their name, else F32.

    `settings` of the architecture, other `values` and `tensors` are added to it.
    """
    writer, random = gguf.GGUFWriter(path, architecture), np.random.default_rng(0)
    tokens = _write_tokenizer(writer, pre, model, template)
    writer.add_license("mit")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(SHARED)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(base)
    if architecture == "qwen3":
        writer.add_key_length(HEAD_WIDTH)
        writer.add_value_length(HEAD_WIDTH)
    named = {f"{architecture}.{key}": value for key, value in (settings or {}).items()}
    for key, value in {**named, **(values or {})}.items():
        add = {str: writer.add_string, float: writer.add_float32, bool: writer.add_bool, list: writer.add_array}
        add.get(type(value), writer.add_uint32)(key, value)
    for name, values in {**_random_tensors(architecture, tokens, random), **(tensors or {})}.items():
        type_ = next((known for end, known in (types or {}).items() if name.endswith(end)), Type.F32)
        writer.add_tensor(name, gguf.quantize(values.astype(np.float32), type_), raw_dtype=type_)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer: gguf.GGUFWriter, pre: str, model: str, template: str | None) -> int:
    """Write the tokens of a small byte-level tokenizer, two control tokens among them, and return their number, a multiple of 32."""
    found = json.loads(byte_bpe().backend_tokenizer.to_str())["model"]
    tokens = [*sorted(found["vocab"], key=found["vocab"].get), "<|im_start|>", "<|im_end|>"]
    tokens += [f"[PAD{index}]" for index in range(-len(tokens) % 32)]
    kinds = {"<|endoftext|>": 3, "<|im_start|>": 3, "<|im_end|>": 3}
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, 5 if token.startswith("[PAD") else 1) for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in found["merges"]])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    if template is not None:
        writer.add_chat_template(template)
    return len(tokens)


def _random_tensors(architecture: str, tokens: int, random: np.random.Generator) -> dict[str, Any]:
    def matrix(*shape: int) -> Any:
        return random.normal(size=shape) / np.sqrt(shape[-1])

    def norm(width: int) -> Any:
        return 1 + 0.2 * random.normal(size=width)

    found = {"token_embd.weight": 4 * matrix(tokens, WIDTH), "output_norm.weight": norm(WIDTH)}
    if architecture != "qwen3":  # its embedding is tied
        found["output.weight"] = matrix(tokens, WIDTH)
    for layer in range(LAYERS):
        at = f"blk.{layer}"
        for name in ("attn_norm", "ffn_norm"):
            found[f"{at}.{name}.weight"] = norm(WIDTH)
        for name, heads in (("attn_q", HEADS), ("attn_k", SHARED), ("attn_v", SHARED)):
            found[f"{at}.{name}.weight"] = 2 * matrix(heads * HEAD_WIDTH, WIDTH)
            if architecture == "qwen2":
                found[f"{at}.{name}.bias"] = random.normal(size=heads * HEAD_WIDTH)
            if architecture == "qwen3" and name != "attn_v":
                found[f"{at}.{name}_norm.weight"] = norm(HEAD_WIDTH)
        found[f"{at}.attn_output.weight"] = matrix(WIDTH, WIDTH)
        found[f"{at}.ffn_gate.weight"], found[f"{at}.ffn_up.weight"] = matrix(INNER, WIDTH), matrix(INNER, WIDTH)
        found[f"{at}.ffn_down.weight"] = matrix(WIDTH, INNER)
    return found


# As in Qwen and SmolLM2, but without a system message of its own.
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
