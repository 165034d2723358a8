"""Text and image to tokens, by the processor of a vision-language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from tokenizers import Tokenizer

from ..core.attention import ResultWarning
from ..core.text import check_text
from ..core.tokens import Token
from ..errors import InvalidImage, InvalidRequest, Unsupported
from . import conversation, image_layout, images, processors, tokens
from .conversation import Role
from .image_layout import FRAME, Cell, Layout
from .tokens import Encoded, Grid

PROBE = "What is this?"
NO_PROCESSOR = (
    "This model came without an image processor, so it takes texts only. Load it with its processor, or omit the image."
)
NOT_LOCATED = ResultWarning(
    "image-not-located",
    "It is unknown which part of the image each image token of this model is, so they are numbered in order and nothing is drawn over the image.",
)
NO_PLACE = (
    "The model's chat template has no place for one image before the user's first message. Give an image and a text."
)
CHANGED = "The model's processor changes the conversation around the image, so it is unknown which tokens are whose. Give an image and a text."
# Outputs of a processor that follow from the text; `labels` are for training.
OF_TEXT = ("input_ids", "attention_mask", "labels")
# Ids in the configuration, or in the processor, of the tokens around an image, which processors leave to the prompt.
AROUND = (("vision_start_token_id", "vision_end_token_id"), ("image_start_token_id", "image_end_token_id"))


def encode(model: Any, given: Any) -> Encoded:
    """Encode an image and a text for a vision-language model (a Model), by its processor and the configuration that names its image token.

    The image comes before the text, or where the text has the processor's image token. Its tokens are of kind "image", with the box of their patch where
    they are rows and columns of patches.

    Raises InvalidImage, InvalidText, InvalidRequest or Unsupported.
    """
    processor, tokenizer, config = model.processor, model.tokenizer, model.module.config
    if processor is None or tokenizer is None:
        raise Unsupported(model.no_processor if tokenizer else model.no_tokenizer, pointer="/image")
    if given.messages is None:
        check_text(given.text)
    picture = images.read(given.image)
    images.check_target(processor.image_processor, *picture.size)
    roles: list[Role | None] = []
    if given.messages is None:
        outputs, details = _process(processor, picture, given.text, _around((config, processor), tokenizer))
        ids = outputs["input_ids"][0].tolist()
    else:
        prompt, formatted, roles = conversation.format_pictured(model.template, given.messages)
        place = _place_of_image(formatted, processor)
        outputs, details = _call(processor, picture, prompt, add_special_tokens=False)
        ids = outputs["input_ids"][0].tolist()
        roles = _stretched(roles, formatted, place, ids)
    patch = image_token(processor, config)
    if given.max_tokens is not None and given.max_tokens < len(ids):
        raise InvalidRequest("An image and its text cannot be truncated. Omit max_tokens.", pointer="/max_tokens")
    added = tokenizer.get_added_tokens_decoder().items()
    special = {id_ for id_, token in added if token.special and token.content != model.unknown}
    encoded = tokens.extend(
        tokenizer, Encoded([], [], text=""), ids, model.special_ids | special | {patch}, model.unknown
    )
    listed = [replace(token, kind="image") if token.id == patch else token for token in encoded.tokens]
    if roles:
        listed = [replace(token, role=role) for token, role in zip(listed, roles, strict=True)]
    encoded = replace(
        encoded,
        tokens=listed,
        author="assistant" if roles else None,
        generated=0,
        pictured={name: value for name, value in outputs.items() if name not in OF_TEXT},
        picture=images.thumbnail(picture),
    )
    layout = image_layout.find(details, processor, config, picture, ids.count(patch))
    return unlocated(encoded) if layout is None or len(layout.cells) != ids.count(patch) else _located(encoded, layout)


def unlocated(encoded: Encoded) -> Encoded:
    """Return an image and a text with its image tokens numbered in order, without patches, and a warning."""
    numbers = count(1)
    listed = [
        replace(token, text=str(next(numbers)), box=None) if token.kind == "image" else token
        for token in encoded.tokens
    ]
    return replace(encoded, tokens=listed, grid=None, warnings=(*encoded.warnings, NOT_LOCATED))


def _located(encoded: Encoded, layout: Layout) -> Encoded:
    whole, main, cells = layout.picture(), layout.views[0], iter(layout.cells)
    listed = [_place(token, next(cells), layout) if token.kind == "image" else token for token in encoded.tokens]
    grid = Grid(main.rows, main.columns, main.patch, (whole.shape[1], whole.shape[0]))
    return replace(encoded, tokens=listed, grid=grid, picture=whole)


def arguments(encoded: Encoded, device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Return the arguments of the forward pass for the image, none without one. Tokens that were generated since are of the type of a text, 0."""
    found = {}
    for name, value in (encoded.pictured or {}).items():
        if name.endswith("token_type_ids"):
            value = torch.nn.functional.pad(value, (0, len(encoded.tokens) - value.shape[1]))
        if isinstance(value, torch.Tensor):
            value = value.to(device, dtype if value.is_floating_point() else None)
        found[name] = value
    return found


def _place_of_image(formatted: list[int], processor: Any) -> int:
    """Return which token of a formatted conversation stands for the image. Raises Unsupported if none does, or several."""
    name = getattr(processor, "image_placeholder_token", None) or getattr(processor, "image_token", None)
    image = processor.tokenizer.convert_tokens_to_ids(name)
    if formatted.count(image) != 1:
        raise Unsupported(NO_PLACE, pointer="/image")
    return formatted.index(image)


def _stretched(roles: list[Role | None], formatted: list[int], place: int, ids: list[int]) -> list[Role | None]:
    """Return the roles of the processor's tokens, given those of a conversation in which the token at `place` stands for the image. Raises Unsupported."""
    after = len(formatted) - place - 1
    if ids[:place] != formatted[:place] or ids[len(ids) - after :] != formatted[place + 1 :]:
        raise Unsupported(CHANGED, pointer="/messages")
    return [*roles[:place], *[None] * (len(ids) - place - after), *roles[place + 1 :]]


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
        return replace(token, text="\\n", kind="special")
    if cell is FRAME:
        return replace(token, kind="special")
    name = f"{cell.row},{cell.column}" if cell.view == 0 else f"0:{cell.row},{cell.column}"
    return replace(token, text=name, box=layout.box(cell))


def _around(owners: Sequence[Any], tokenizer: Tokenizer) -> tuple[str, str] | None:
    """Return the tokens that the configuration, or else the processor, names for the start and the end of an image."""
    for owner in owners:
        for names in AROUND:
            start, end = (getattr(owner, name, None) for name in names)
            if isinstance(start, int) and isinstance(end, int):
                before, after = tokenizer.id_to_token(start), tokenizer.id_to_token(end)
                return (before, after) if before and after else None
    return None


def _process(
    processor: Any, picture: Any, text: str, around: tuple[str, str] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the processor's output, and everything that its image processor returned.

    If the text has no image token, one comes before it, between the tokens `around` an image unless the processor adds them itself.
    """
    image = getattr(processor, "image_placeholder_token", None) or getattr(processor, "image_token", None)
    if not isinstance(image, str):
        raise Unsupported("The model's processor names no image token, so it takes texts only.", pointer="/image")
    if text.count(image) > 1:
        raise InvalidRequest(f"There is one image, so the text may have {image} once.", pointer="/text")
    if image in text:
        try:
            return _call(processor, picture, text)
        except InvalidImage:  # HunYuan-VL insists on the tokens around an image
            if around is None or around[0] in text:
                raise
            return _call(processor, picture, text.replace(image, f"{around[0]}{image}{around[1]}"))
    if around is None:
        return _call(processor, picture, image + text)
    start = processor.tokenizer.convert_tokens_to_ids(around[0])
    found = _call(processor, picture, f"{around[0]}{image}{around[1]}{text}")
    twice = found[0]["input_ids"][0].tolist().count(start) > 1
    return _call(processor, picture, image + text) if twice else found


def _call(processor: Any, picture: Any, prompt: str, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    reading = processors.for_one_call(processor)
    try:
        found = reading(images=[picture], text=[prompt], return_tensors="pt", **_options(reading), **options)
    except Exception as error:  # processors may raise anything
        raise InvalidImage(
            "The model's processor fails on this image and text. Send an image closer to square, or load the model with another processor.",
            pointer="/image",
        ) from error
    outputs = {name: _tensor(value) for name, value in found.items()}
    return outputs, {**outputs, **{name: _tensor(value) for name, value in reading.image_outputs.items()}}


def _options(processor: Any) -> dict[str, Any]:
    """Return options of a call. Some models need to know which tokens are the image's, which processors leave out unless it is asked for."""
    return {"return_mm_token_type_ids": True} if "mm_token_type_ids" in processor.model_input_names else {}


def _tensor(value: Any) -> Any:
    """Return pixels in 32 bits, whatever a processor makes of them."""
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
