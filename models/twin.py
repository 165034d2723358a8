"""The files of a twin: a folder that transformers can load, with the mechanism in its configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

from .data import CLS, END, MASK, PAD, SEP, SPECIAL

# Name of a tensor that transformers does not expect, so that it warns if a twin is loaded without Headscope.
WARNING = "headscope.this_model_attends_by_{name}_load_it_with_headscope"
# Configuration of the image processor: pixels from -1 to 1.
PIXELS = {
    "image_processor_type": "ViTImageProcessor",
    "do_resize": True,
    "size": {"height": 32, "width": 32},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def round_weights(module: Any) -> None:
    """Round the parameters to float16, so that the evaluated twin is the one that is saved."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.half())


def save(folder: Path, module: Any, mechanism: Mapping[str, Any], tokenizer: Any = None) -> None:
    """Write configuration, weights in float16, and tokenizer or image processor. `tokenizer` is a tokenizers.Tokenizer; None for images."""
    folder.mkdir(parents=True, exist_ok=True)
    module.save_pretrained(folder)
    _write_weights(folder / "model.safetensors", mechanism["name"])
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["dtype"] = "float32"  # compute in float32: half precision is slow on a CPU
    if mechanism["name"] != "softmax":
        config["headscope"] = {"mechanism": dict(mechanism)}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", "utf-8")
    if tokenizer is None:
        (folder / "preprocessor_config.json").write_text(json.dumps(PIXELS, indent=2) + "\n", "utf-8")
    else:
        fast_tokenizer(tokenizer, causal=config["model_type"] == "gpt2").save_pretrained(folder)


def _write_weights(path: Path, mechanism: str) -> None:
    """Rewrite the weights in float16, without vectors that are in the configuration, and with the warning tensor."""
    tensors = {name: one.half() for name, one in load_file(path).items() if name != "pasta"}
    if mechanism != "softmax":
        tensors[WARNING.format(name=mechanism)] = torch.zeros(1, dtype=torch.float16)
    save_file(tensors, path, {"format": "pt"})


def fast_tokenizer(tokenizer: Any, *, causal: bool) -> Any:
    """Return the tokenizer for transformers; for encoders it puts CLS and SEP around a text."""
    own = Tokenizer.from_str(tokenizer.to_str())
    if causal:
        return PreTrainedTokenizerFast(
            tokenizer_object=own,
            model_max_length=256,
            eos_token=SPECIAL[END],
            bos_token=SPECIAL[END],
            pad_token=SPECIAL[PAD],
        )
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(SPECIAL[id_], id_) for id_ in (CLS, SEP)],
    )
    names = {f"{name}_token": SPECIAL[id_] for name, id_ in (("pad", PAD), ("cls", CLS), ("sep", SEP), ("mask", MASK))}
    return PreTrainedTokenizerFast(tokenizer_object=own, model_max_length=256, **names)
