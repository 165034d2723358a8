"""Whether a token of an image model is the patch of the image that its name says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def patches_apart(model: Any, sites: Any, pixels: Tensor) -> str | None:
    """The first patch whose pixels, when they change, do not change its own token most where the first layer reads it; None if there is none."""
    patches, block = model.facts.patches, model.module.get_submodule(sites.all[0].block)
    (width, height), (_, columns) = patches.patch, patches.grid
    before = _entering(model, block, pixels)
    for place in {0, 1, columns, patches.grid[0] * columns - 1}:
        top, left = place // columns * height, place % columns * width
        changed = pixels.clone()
        changed[..., top : top + height, left : left + width] *= -1
        far = (_entering(model, block, changed) - before).norm(dim=-1)  # [tokens]
        if int(far.argmax()) != len(patches.prefix) + place or not far.max() > 0:
            return f"patch {place // columns},{place % columns} is not the token of that name"
    return None


class _Reached(Exception):
    """The first layer is about to run."""


def _entering(model: Any, block: Any, pixels: Tensor) -> Tensor:
    """What the first layer is given for these pixels, [tokens, d]."""
    seen: list[Tensor] = []

    def stop(_: Any, args: Any, kwargs: Any) -> None:
        seen.append((args[0] if args else kwargs["hidden_states"])[0])
        raise _Reached

    handle = block.register_forward_pre_hook(stop, with_kwargs=True)
    try:
        with torch.no_grad():
            model.module(pixel_values=pixels)
    except _Reached:
        return seen[0]
    finally:
        handle.remove()
    raise RuntimeError("the first layer did not run")
