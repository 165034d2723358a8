"""The tokenizer in a GGUF file, as the files that transformers reads: tokenizer.json and tokenizer_config.json."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...core.lazy import tokenizers
from ...errors import CorruptModel, Unsupported
from .header import Header

# Types of tokens: control tokens are special, and those that a user defined are found in a text before it is split.
NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
SPECIAL = ("bos", "eos", "unknown", "padding")
# The patterns of Llama 3 and Qwen 2 differ in the digits only: groups of up to three, or single ones.
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# Name of the way to split a text -> what it is called here; llama.cpp has many names for the same way.
SPLITS = {
    **dict.fromkeys(("gpt-2", "phi-2"), "gpt-2"),
    **dict.fromkeys(("smollm", "starcoder", "refact"), "smollm"),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3"), "llama-3"),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), "qwen-2"),
}
INVALID = "The GGUF file's tokenizer is damaged: its tokens, merges and types do not fit together."


def to_files(header: Header) -> dict[str, str]:
    """Return the name and content of the files of the tokenizer. Raises CorruptModel or Unsupported."""
    values, split = header.values, find_split(header)
    tokens, types = _strings(values, "tokens"), values.get("tokenizer.ggml.token_type", [])
    vocabulary = {token: id_ for id_, token in enumerate(tokens)}
    embedding = header.tensors.get("token_embd.weight")
    too_many = embedding is not None and len(tokens) > embedding.shape[0]
    if not isinstance(types, list) or len(types) not in (0, len(tokens)) or len(vocabulary) != len(tokens) or too_many:
        raise CorruptModel(INVALID)
    named = _special(values, tokens)
    tokenizer = _bpe(vocabulary, _merges(values), split)
    tokenizer.add_special_tokens(
        [_added(token) for token, type_ in zip(tokens, types, strict=False) if type_ == CONTROL]
    )
    tokenizer.add_tokens([_added(token) for token, type_ in zip(tokens, types, strict=False) if type_ == USER_DEFINED])
    begins = values.get("tokenizer.ggml.add_bos_token", split == "llama-3")
    _frame(
        tokenizer,
        named["bos"] if begins else None,
        named["eos"] if values.get("tokenizer.ggml.add_eos_token") else None,
    )
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": named["bos"],
        "eos_token": named["eos"],
        "unk_token": named["unknown"],
        "pad_token": named["padding"],
    }
    template = values.get("tokenizer.chat_template")
    if isinstance(template, str):
        config["chat_template"] = template
    return {"tokenizer.json": tokenizer.to_str(), "tokenizer_config.json": json.dumps(config)}


def find_split(header: Header) -> str:
    """Return the way to split a text into words. Raises Unsupported if it is unknown, or if the tokenizer is of another kind."""
    if header.values.get("tokenizer.ggml.model") != "gpt2":
        raise Unsupported(
            "The GGUF file has no byte-level BPE tokenizer, the only kind that Headscope reads from GGUF. Use the model's safetensors."
        )
    split = SPLITS.get(str(header.values.get("tokenizer.ggml.pre", "")))
    if split is None:
        raise Unsupported(
            f"The GGUF file splits texts into words in a way that Headscope does not know. It knows {', '.join(SPLITS)}. Use the model's safetensors."
        )
    return split


def _bpe(vocabulary: dict[str, int], merges: list[tuple[str, str]], split: str) -> tokenizers.Tokenizer:
    """Return a byte-level BPE tokenizer that splits texts in one of the known ways."""
    try:
        # Llama 3 takes a word that is in the vocabulary whole, even if no merges lead to it.
        tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges, ignore_merges=split == "llama-3"))
    except Exception as error:  # tokenizers raises nothing more precise
        raise CorruptModel(INVALID) from error
    as_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split in ("gpt-2", "smollm"))
    if split == "gpt-2":
        tokenizer.pre_tokenizer = as_bytes
    else:
        pattern = tokenizers.Regex(PATTERN.replace("DIGITS", "{1,3}" if split == "llama-3" else ""))
        split_ = tokenizers.pre_tokenizers
        before = split_.Digits(individual_digits=True) if split == "smollm" else split_.Split(pattern, "isolated")
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([before, as_bytes])
    if split == "qwen-2":
        tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _frame(tokenizer: tokenizers.Tokenizer, first: str | None, last: str | None) -> None:
    """Let every text begin and end with these special tokens."""
    if not first and not last:
        return
    used = [(token, tokenizer.token_to_id(token)) for token in dict.fromkeys((first, last)) if token]
    one, other = ([*filter(None, (first,)), f"${name}", *filter(None, (last,))] for name in "AB")
    pair = [*(f"{piece}:0" for piece in one), *(f"{piece}:1" for piece in other)]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single=one, pair=pair, special_tokens=used)


def _added(token: str) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(token, normalized=False)


def _special(values: Any, tokens: Sequence[str]) -> dict[str, str | None]:
    """Return the special tokens by their role; None if there is none."""
    found = dict[str, str | None]()
    for role in SPECIAL:
        id_ = values.get(f"tokenizer.ggml.{role}_token_id")
        if id_ is not None and not (isinstance(id_, int) and 0 <= id_ < len(tokens)):
            raise CorruptModel(INVALID)
        found[role] = None if id_ is None else tokens[id_]
    return found


def _strings(values: Any, name: str) -> list[str]:
    found = values.get(f"tokenizer.ggml.{name}")
    if not isinstance(found, list) or not found or not all(isinstance(entry, str) for entry in found):
        raise CorruptModel(INVALID)
    return found


def _merges(values: Any) -> list[tuple[str, str]]:
    pairs = [tuple(merge.split(" ")) for merge in _strings(values, "merges")]
    if any(len(pair) != 2 for pair in pairs):
        raise CorruptModel(INVALID)
    return [(first, second) for first, second in pairs]
