"""Verification that an image token of a vision-language model is the patch that its box says, once per loaded model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.tokens import Token
from ..errors import ModelNotExact
from ..models.images import noise
from ..models.loading import Model
from .forward import forward_options
from .interface import attending_with
from .sites import AttentionSites

ATTENDS = re.compile("attention|attn", re.IGNORECASE)
PROBES = 5

Picture = np.ndarray[Any, Any]


def boxes_hold(model: Model, sites: AttentionSites) -> bool:
    """Return whether image tokens are the patches that their boxes say: inverting the pixels of some patches must reach the language model as their tokens.

    The layers of the image tower pass their input on while this is checked, because their attention would carry a change to every token.
    """
    block = sites.all[0].block
    picture = noise(64, 128)  # wide, so that rows and columns of tiles cannot be confused
    encoded = model.encode("?", image=picture)
    if block is None or encoded.grid is None:
        return False
    width, height = _extent(encoded.tokens)
    picture = noise(height, width)  # as large as the model sees it, so that no pixels are mixed
    with torch.inference_mode(), attending_with("eager", model.module), _without_layers(model.module, block):
        plain, before = _embed(model, block, picture)
        main = [place for place, token in enumerate(plain) if token.kind == "image" and not _is_overview(token)]
        rest = [place for place, token in enumerate(plain) if token.kind == "image" and _is_overview(token)]
        extent = _extent(plain)
        for place in sorted(
            {main[len(main) * number // PROBES + (number == 0)] for number in range(PROBES)}
            if len(main) > PROBES
            else main
        ):
            region = [
                round(edge * side / most)
                for edge, side, most in zip(plain[place].box or (), (width, height) * 2, extent * 2, strict=True)
            ]
            listed, after = _embed(model, block, _inverted(picture, region))
            changed = (after - before).norm(dim=-1) if len(listed) == len(plain) else torch.zeros(len(plain))
            if main[int(changed[main].argmax())] != place or not changed[place] > 0:
                return False
            if rest and not _covers(plain, rest, rest[int(changed[rest].argmax())], region, (width, height)):
                return False
    return True


def _is_overview(token: Token) -> bool:
    return token.text.startswith("0:")


def _extent(tokens: list[Token]) -> tuple[int, int]:
    """Return width and height of the main view of an image."""
    boxes = [token.box for token in tokens if token.box and not _is_overview(token)]
    return max(box[2] for box in boxes), max(box[3] for box in boxes)


def _inverted(picture: Picture, region: list[int]) -> Picture:
    """Return the picture with a region [left, top, right, bottom) inverted."""
    left, top, right, bottom = region
    changed = picture.copy()
    changed[top:bottom, left:right] = 255 - changed[top:bottom, left:right]
    return changed


def _covers(tokens: list[Token], overview: list[int], place: int, region: list[int], size: tuple[int, int]) -> bool:
    """Return whether a patch of the overview is at a region of the image, or a neighbour of the patch there: their edges differ."""
    boxes = [box for other in overview if (box := tokens[other].box)]
    box = tokens[place].box or boxes[0]
    for low, high, side in ((0, 2, size[0]), (1, 3, size[1])):
        start, end = min(one[low] for one in boxes), max(one[high] for one in boxes)
        there = start + (region[low] + region[high]) / 2 / side * (end - start)
        reach = box[high] - box[low]
        if not box[low] - reach <= there <= box[high] + reach:
            return False
    return True


class _LanguageModelReached(Exception):
    """The language model has been reached, with its input [1, Q, d]."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


def _embed(model: Model, block: str, picture: Picture) -> tuple[list[Token], Tensor]:
    """Return the tokens of an image and a short text, and their embeddings [Q, d] as the first layer of the language model reads them."""

    def stop(module: Any, args: Any, kwargs: Any) -> None:
        raise _LanguageModelReached(args[0] if args else kwargs["hidden_states"])

    encoded = model.encode("?", image=picture)
    handle = model.module.get_submodule(block).register_forward_pre_hook(stop, with_kwargs=True)
    try:
        model.module(**model.inputs(encoded), **forward_options(model))
    except _LanguageModelReached as reached:
        return encoded.tokens, reached.hidden[0].flatten(1).float()  # some models have several streams: [Q, s, d]
    finally:
        handle.remove()
    raise ModelNotExact("The image of a probe did not reach the language model, so its attention cannot be captured.")


@contextmanager
def _without_layers(module: Any, block: str) -> Iterator[None]:
    """Make every layer outside of the language model pass its input on."""
    ours = block.rpartition(".")[0]
    lists = [part for name, part in module.named_modules() if isinstance(part, torch.nn.ModuleList) and name != ours]
    layers = [
        layer for part in lists for layer in part if any(ATTENDS.search(type(one).__name__) for one in layer.modules())
    ]
    before = [vars(layer).get("forward") for layer in layers]
    for layer in layers:
        # Not a hook: transformers has hooks of its own, which may read the output first.
        layer.forward = partial(_pass_on, layer.forward)
    try:
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            del layer.forward
            if own is not None:
                layer.forward = own


def _pass_on(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the hidden states that a layer was given, in the form of its output."""
    output, hidden = forward(*args, **kwargs), args[0] if args else kwargs["hidden_states"]
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden
