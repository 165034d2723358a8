"""Which patch of an image each image token of a vision-language model is: rows, columns and tiles, from what its processor returned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.image_processing_utils import select_best_resolution
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

from ..core.lazy import Image
from .images import to_picture

GAP = 8  # pixels between the tiles of an image and the overview of the whole

Picture = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class View:
    """An image that the model sees, uint8 [H, W, 3], and how many rows and columns of tokens it is cut into: the whole image, or its tiles put together."""

    picture: Picture
    rows: int
    columns: int

    @property
    def patch(self) -> tuple[int, int]:
        """Width and height of a token's patch in pixels."""
        return self.picture.shape[1] // self.columns, self.picture.shape[0] // self.rows

    def box(self, row: int, column: int) -> Box:
        """Return the patch of a token: [left, top, right, bottom) in pixels of the view."""
        height, width = self.picture.shape[:2]
        (left, right), (top, bottom) = (
            (round(place * side / count), round((place + 1) * side / count))
            for place, side, count in ((column, width, self.columns), (row, height, self.rows))
        )
        return left, top, right, bottom


@dataclass(frozen=True, slots=True)
class Cell:
    """The place of an image token: its view, row and column."""

    view: int
    row: int
    column: int


FRAME = Cell(-1, 0, 0)  # no place: a token that stands for the start or the end of an image


@dataclass(frozen=True, slots=True)
class Layout:
    """The views of an image, the main one first, and the place of each image token in order; None for a token that is no patch, such as the end of a row."""

    views: tuple[View, ...]
    cells: tuple[Cell | None, ...]

    def picture(self) -> Picture:
        """Return the views beside each other as one picture, uint8 [H, W, 3]."""
        height = max(view.picture.shape[0] for view in self.views)
        width = self._left(len(self.views)) - GAP
        whole = np.full((height, width, 3), 255, np.uint8)
        for place, view in enumerate(self.views):
            left = self._left(place)
            whole[: view.picture.shape[0], left : left + view.picture.shape[1]] = view.picture
        return whole

    def box(self, cell: Cell) -> Box:
        """Return the patch of a token: [left, top, right, bottom) in pixels of the picture."""
        left, top, right, bottom = self.views[cell.view].box(cell.row, cell.column)
        shift = self._left(cell.view)
        return left + shift, top, right + shift, bottom

    def _left(self, view: int) -> int:
        return sum(one.picture.shape[1] + GAP for one in self.views[:view])


def find(outputs: Mapping[str, Any], processor: Any, config: Any, image: Image.Image, count: int) -> Layout | None:
    """Return the layout of `count` image tokens, from the outputs of the processor for one image; None if they are no grid of patches."""
    settings, patch = processor.image_processor, _patch_size(config)
    if "image_grid_thw" in outputs:
        return _merged(outputs, settings, image, count)
    if "image_position_ids" in outputs:
        return _pooled(outputs, settings, image, count)
    pixels = outputs.get("pixel_values", outputs.get("pixel_values_images"))
    if not isinstance(pixels, torch.Tensor) or pixels.ndim not in (4, 5) or (pixels.ndim == 5 and len(pixels) != 1):
        return None
    tiles = pixels[0] if pixels.ndim == 5 else pixels  # [N, C, H, W]
    if getattr(settings, "image_grid_pinpoints", None) is not None and len(tiles) > 1:
        return _unpadded(tiles, settings, processor, patch, image)
    rows, columns, first = _tiling(outputs, settings, tiles, image)
    several = rows * columns > 1
    if len(tiles) != rows * columns + several or count % len(tiles):
        return None
    cut = _cut(tiles, settings, patch, count // len(tiles))
    return None if cut is None else _tiled(cut, rows, columns, first)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """Pictures of the tiles [N, H, W, 3], and how many rows and columns of tokens each is cut into."""

    pictures: Picture
    rows: int
    columns: int


def _cut(tiles: torch.Tensor, settings: Any, patch: int | None, count: int) -> _Tiles | None:
    """Cut tiles [N, C, H, W] into `count` tokens each: one per patch, or per square of merged patches. Pixels beyond the last whole patch are cut off."""
    height, width = tiles.shape[-2:]
    rows, columns = (height // patch, width // patch) if patch else (height, width)
    merge = math.isqrt(rows * columns // count) if count else 0
    if not merge or rows % merge or columns % merge or (rows // merge) * (columns // merge) != count:
        return None
    side = patch or 1
    pictures = [to_picture(one[None], settings)[: rows * side, : columns * side] for one in tiles]
    return _Tiles(np.stack(pictures), rows // merge, columns // merge)


def _tiled(tiles: _Tiles, rows: int, columns: int, overview_first: bool) -> Layout:
    """Return the layout of tiles in rows and columns, row by row, with an overview of the whole image before or after them if there are several."""
    if rows * columns == 1:
        view = View(tiles.pictures[0], tiles.rows, tiles.columns)
        return Layout((view,), tuple(_row_by_row(0, view)))
    overview = View(tiles.pictures[0 if overview_first else -1], tiles.rows, tiles.columns)
    chosen = tiles.pictures[1:] if overview_first else tiles.pictures[:-1]
    main = View(_mosaic(chosen, rows, columns), rows * tiles.rows, columns * tiles.columns)
    cells = [
        Cell(0, down * tiles.rows + row, across * tiles.columns + column)
        for down in range(rows)
        for across in range(columns)
        for row in range(tiles.rows)
        for column in range(tiles.columns)
    ]
    whole = [*_row_by_row(1, overview)]
    return Layout((main, overview), tuple([*whole, *cells] if overview_first else [*cells, *whole]))


def _row_by_row(place: int, view: View) -> Iterator[Cell]:
    for row in range(view.rows):
        for column in range(view.columns):
            yield Cell(place, row, column)


def _mosaic(pictures: Picture, rows: int, columns: int) -> Picture:
    """Put tiles [N, H, W, 3] together, row by row."""
    height, width = pictures.shape[1:3]
    grid = pictures.reshape(rows, columns, height, width, 3).transpose(0, 2, 1, 3, 4)
    return np.ascontiguousarray(grid.reshape(rows * height, columns * width, 3))


def _merged(outputs: Mapping[str, Any], settings: Any, image: Image.Image, count: int) -> Layout | None:
    """Return the layout of an image whose patches are merged in squares, by its grid in `image_grid_thw` [1, 3]; one token per square, row by row."""
    times, rows, columns = (int(number) for number in outputs["image_grid_thw"][0])
    merge = int(outputs["image_merge_sizes"][0]) if "image_merge_sizes" in outputs else settings.merge_size
    if times != 1 or rows % merge or columns % merge:
        return None
    layout = _resized(image, settings.patch_size, rows, columns, merge)
    if count == len(layout.cells):
        return layout
    framed = _framed(layout)
    return framed if count == len(framed.cells) else None


def _framed(layout: Layout) -> Layout:
    """Return the layout of one view with a token at the end of every row, and one before and one after all of them (HunYuan-VL)."""
    across = layout.views[0].columns
    rows = [layout.cells[start : start + across] for start in range(0, len(layout.cells), across)]
    return Layout(layout.views, (FRAME, *(cell for row in rows for cell in (*row, None)), FRAME))


def _pooled(outputs: Mapping[str, Any], settings: Any, image: Image.Image, count: int) -> Layout | None:
    """Return the layout of an image whose patches are averaged in squares, by their places [1, P, 2] (across, down), -1 for padding (Gemma 4)."""
    columns, rows = (int(last) + 1 for last in outputs["image_position_ids"][0].amax(0))
    merge = settings.pooling_kernel_size
    if rows % merge or columns % merge or (rows // merge) * (columns // merge) != count:
        return None
    return _resized(image, settings.patch_size, rows, columns, merge)


def _resized(image: Image.Image, side: int, rows: int, columns: int, merge: int) -> Layout:
    """Return the layout of an image that is scaled to whole patches of `side` pixels, with a token for each square of `merge` x `merge` patches."""
    scaled = image.convert("RGB").resize((columns * side, rows * side), resample=3)  # bicubic
    view = View(np.asarray(scaled, np.uint8), rows // merge, columns // merge)
    return Layout((view,), tuple(_row_by_row(0, view)))


def _tiling(
    outputs: Mapping[str, Any], settings: Any, tiles: torch.Tensor, image: Image.Image
) -> tuple[int, int, bool]:
    """Return rows and columns of tiles, and whether the overview comes before them."""
    if "rows" in outputs and "cols" in outputs:
        return max(1, int(outputs["rows"][0][0])), max(1, int(outputs["cols"][0][0])), False
    if "grids" in outputs:
        rows, columns = (int(number) for number in outputs["grids"][0])
        return rows, columns, True
    if "num_patches" in outputs and len(tiles) > 1:
        columns, rows = get_optimal_tiled_canvas(
            (image.height, image.width), tuple(tiles.shape[-2:]), settings.min_patches, settings.max_patches
        )
        return rows, columns, False
    return 1, 1, False


def _unpadded(
    tiles: torch.Tensor, settings: Any, processor: Any, patch: int | None, image: Image.Image
) -> Layout | None:
    """Return the layout of an overview, and then tiles without the padding around the image, with a token at the end of every row (LLaVA-NeXT)."""
    height, width = tiles.shape[-2:]
    cut = _cut(tiles, settings, patch, (height // patch) * (width // patch)) if patch else None
    if cut is None:
        return None
    best = select_best_resolution((image.height, image.width), settings.image_grid_pinpoints)
    down, across = best[0] // height, best[1] // width
    if len(tiles) != down * across + 1:
        return None
    whole = _mosaic(cut.pictures[1:], down, across)
    rows, columns = down * cut.rows, across * cut.columns
    if image.width / image.height > columns / rows:
        padding = (rows - int(round(image.height * (columns / image.width), 7))) // 2
        whole, rows = _trimmed(whole, padding, rows), rows - 2 * padding
    else:
        padding = (columns - int(round(image.width * (rows / image.height), 7))) // 2
        whole = _trimmed(whole.swapaxes(0, 1), padding, columns).swapaxes(0, 1)
        columns -= 2 * padding
    rows, columns = _shrunk(rows, columns, cut.rows, processor)
    main, overview = View(np.ascontiguousarray(whole), rows, columns), View(cut.pictures[0], cut.rows, cut.columns)
    cells: list[Cell | None] = [*_row_by_row(1, overview)]
    for row in range(rows):
        cells += [*(Cell(0, row, column) for column in range(columns)), None]
    return Layout((main, overview), tuple(cells))


def _trimmed(picture: Picture, padding: int, rows: int) -> Picture:
    """Remove `padding` of `rows` rows of patches at either end of a picture."""
    side = picture.shape[0] // rows
    return picture[padding * side : picture.shape[0] - padding * side]


def _shrunk(rows: int, columns: int, side: int, processor: Any) -> tuple[int, int]:
    """Return rows and columns after the interpolation of large grids (`anyres_max_9`: at most about nine tiles of `side` x `side` tokens)."""
    named = str(getattr(processor, "vision_aspect_ratio", "")).partition("anyres_max_")[2]
    ratio = math.sqrt(rows * columns / (int(named) * side**2)) if named.isdigit() else 0
    return (int(rows // ratio), int(columns // ratio)) if ratio > 1.1 else (rows, columns)


def _patch_size(config: Any) -> int | None:
    """Return the side of a patch in pixels, None if the configuration has none."""
    size = getattr(getattr(config, "vision_config", None), "patch_size", None)
    sides = set(size) if isinstance(size, (list, tuple)) else {size}
    only = sides.pop() if len(sides) == 1 else None
    return only if isinstance(only, int) else None
