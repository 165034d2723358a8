"""Text and image to tokens, by the processor of a vision-language model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tokenizers import Tokenizer

from ..core.tokens import Token
from ..errors import InvalidImage, InvalidRequest, Unsupported
from . import image_layout, images, processors, tokens
from .image_layout import Cell, Layout
from .tokens import Encoded, Grid

NOT_PATCHES = "The image tokens of this model are not patches in rows and columns, so their places in the image are unknown. Omit the image."
# Outputs of a processor that follow from the text; `labels` are for training.
OF_TEXT = ("input_ids", "attention_mask", "labels")
# Ids in the configuration of the tokens around an image, which processors leave to the prompt.
AROUND = (("vision_start_token_id", "vision_end_token_id"), ("image_start_token_id", "image_end_token_id"))


def encode(
    processor: Any,
    config: Any,
    tokenizer: Tokenizer,
    image: Any,
    text: str,
    special: frozenset[int],
    unknown: str | None,
) -> Encoded:
    """Encode an image and a text, by a processor, the model's configuration and the processor's prepared tokenizer.

    The image comes before the text, or where the text has the processor's image token. Image tokens are of kind "image", with the box of their patch.

    Raises InvalidImage, InvalidText, InvalidRequest or Unsupported.
    """
    tokens.check_text(text)
    picture = images.read(image)
    images.check_target(processor.image_processor, *picture.size)
    outputs, details = _process(processor, picture, _prompt(processor, config, tokenizer, text))
    ids = [int(id_) for id_ in outputs["input_ids"][0]]
    patch = image_token(processor, config)
    layout = image_layout.find(details, processor, config, picture, ids.count(patch))
    if layout is None or len(layout.cells) != ids.count(patch):
        raise Unsupported(NOT_PATCHES, pointer="/image")
    named = {id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    encoded = tokens.extend(tokenizer, Encoded([], [], text=""), ids, special | named | {patch}, unknown)
    whole, main, cells = layout.picture(), layout.views[0], iter(layout.cells)
    return replace(
        encoded,
        tokens=[_place(token, next(cells), layout) if token.id == patch else token for token in encoded.tokens],
        generated=0,
        pictured={name: value for name, value in outputs.items() if name not in OF_TEXT},
        grid=Grid(main.rows, main.columns, main.patch, (whole.shape[1], whole.shape[0])),
        picture=whole,
    )


def arguments(encoded: Encoded, module: Any) -> dict[str, Any]:
    """Return the arguments of the forward pass for the image, none without one. Tokens that were generated since are of the type of a text, 0."""
    found = {}
    for name, value in (encoded.pictured or {}).items():
        if name.endswith("token_type_ids"):
            value = torch.nn.functional.pad(value, (0, len(encoded.tokens) - value.shape[1]))
        if isinstance(value, torch.Tensor):
            value = value.to(module.device, module.dtype if value.is_floating_point() else None)
        found[name] = value
    return found


def image_token(processor: Any, config: Any) -> int:
    """Return the id of the tokens whose embeddings are those of the image."""
    for owner in (config, processor):
        found = getattr(owner, "image_token_id", None)
        if isinstance(found, int):
            return found
    raise Unsupported("The model's configuration names no image token, so it takes texts only.", pointer="/image")


def _place(token: Token, cell: Cell | None, layout: Layout) -> Token:
    """Return an image token with its patch. The patches of an overview are named by `0:` before row and column."""
    if cell is None:
        return replace(token, text="\\n")
    name = f"{cell.row},{cell.column}" if cell.view == 0 else f"0:{cell.row},{cell.column}"
    return replace(token, text=name, kind="image", box=layout.box(cell))


def _prompt(processor: Any, config: Any, tokenizer: Tokenizer, text: str) -> str:
    """Return the text with one image token: its own, or one before it."""
    image = getattr(processor, "image_token", None)
    if not isinstance(image, str):
        raise Unsupported("The model's processor names no image token, so it takes texts only.", pointer="/image")
    if text.count(image) > 1:
        raise InvalidRequest(f"There is one image, so the text may have {image} once.", pointer="/text")
    if image in text:
        return text
    for names in AROUND:
        around = [
            tokenizer.id_to_token(id_)
            for id_ in (getattr(config, name, None) for name in names)
            if isinstance(id_, int)
        ]
        if len(around) == len(names) and all(around):
            return f"{around[0]}{image}{around[1]}{text}"
    return image + text


def _process(processor: Any, picture: Any, prompt: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of the forward pass, and everything that the image processor returned."""
    reading = processors.for_one_call(processor)
    try:
        found = reading(images=[picture], text=[prompt], return_tensors="pt")
    except Exception as error:  # processors may raise anything
        raise InvalidImage(
            "The model's processor fails on this image and text. Send an image closer to square, or load the model with another processor.",
            pointer="/image",
        ) from error
    outputs = {name: _tensor(value) for name, value in found.items()}
    return outputs, {**outputs, **{name: _tensor(value) for name, value in reading.image_outputs.items()}}


def _tensor(value: Any) -> Any:
    """Return pixels in 32 bits, whatever a processor makes of them."""
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
