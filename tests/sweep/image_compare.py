"""Compare Headscope's capture of a tiny vision-language model, on an image and a text, with the model's own eager attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image

import headscope
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer
from headscope.errors import HeadscopeError
from headscope.models.support import EQUAL, FALLBACK, UNLOCATED

from .compare import apart, outputs_apart
from .pictured import build
from .pictured_types import WRAPPED
from .structure import structure_apart

# Width and height, and text: wide and tall, with the image before the text and within it.
INPUTS = (((70, 50), "What is this?"), ((40, 66), "Is {image} a cat?"))


def judge(model_type: str) -> str:
    """Return what becomes of an image (one of READ), why Headscope refuses it, or `wrong: ` and what differs."""
    built, processor = build(model_type)
    try:
        model = headscope.load(built.module, processor)
        sites = examine(model, pictured=True)
        if not sites.captured:
            return FALLBACK
        located = sites.located
        for number, (size, text) in enumerate(INPUTS):
            pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
            prompt = text.format(image=_image_token(processor))
            encoded = model.encode(prompt, image=pixels)
            wrong = _difference(model, sites, encoded, _eager(built.module, processor, prompt, pixels))
            if wrong is not None:
                return f"wrong: {size}: {wrong}"
            located = located and encoded.grid is not None
    except HeadscopeError as error:
        return error.detail
    return EQUAL if located else UNLOCATED


def _difference(model: Any, sites: Any, encoded: Any, expected: Any) -> str | None:
    """How the maps, the output and what was found around attention differ from eager ones; None if they do not."""
    blocks: dict[int, list[torch.Tensor]] = {}

    def keep(layer: Layer) -> None:
        blocks.setdefault(layer.index, []).append(layer.weights.clone())

    output = capture(model, encoded, sites, CaptureSpec(keep))
    ours = [torch.cat(blocks[layer]) for layer in sorted(blocks)]
    theirs = [one[0].float() for one in expected.attentions if one is not None]
    return apart(ours, theirs) or outputs_apart(output, expected) or structure_apart(model, sites, encoded, "self")


def _eager(module: Any, processor: Any, prompt: str, pixels: Any) -> Any:
    """The model's own eager forward pass, on what its processor returns for the image and a text with one image token."""
    image = _image_token(processor)
    first = prompt if image in prompt else _around(module.config, processor.tokenizer, image) + prompt
    if module.config.model_type in WRAPPED:
        first = first.replace(image, f"{processor.image_start_token}{image}{processor.image_end_token}")
    options = {"return_mm_token_type_ids": True} if "mm_token_type_ids" in processor.model_input_names else {}
    given = processor(text=[first], images=[Image.fromarray(pixels)], return_tensors="pt", **options)
    given.pop("labels", None)
    module.set_attn_implementation("eager")
    with torch.no_grad():
        return module(**given, use_cache=False, output_attentions=True, return_dict=True)


def _image_token(processor: Any) -> str:
    """What stands for an image in a prompt."""
    found: str = getattr(processor, "image_placeholder_token", processor.image_token)
    return found


def _around(config: Any, tokenizer: Any, image: str) -> str:
    """The image token, with the tokens that the family's prompts have around it."""
    for kind in ("vision", "image"):
        start, end = (getattr(config, f"{kind}_{edge}_token_id", None) for edge in ("start", "end"))
        if start is not None and end is not None:
            return tokenizer.convert_ids_to_tokens(start) + image + tokenizer.convert_ids_to_tokens(end)
    return image
