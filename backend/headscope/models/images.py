"""Images to patches, the tokens of a vision model. Nothing is downloaded, and a file's header is checked before it is decoded."""

from __future__ import annotations

import base64
import binascii
import io
import struct
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ..core.lazy import Image, ImageOps, torch
from ..core.tokens import Token
from ..errors import InvalidImage, Unsupported
from .facts import Patches
from .tokens import Encoded, Grid

LARGEST_BYTES = 10_000_000
LARGEST_PIXELS = 20_000_000
THUMBNAIL = 512
# Processors that scale the shorter side keep this ratio, so a long strip would need much memory.
LARGEST_RATIO = 100
FORMATS = {"PNG": b"\x89PNG\r\n\x1a\n", "JPEG": b"\xff\xd8\xff", "WEBP": b"RIFF"}


def pack(image: Any) -> str:
    """Encode an image in base64: a path, bytes, a PIL image, a uint8 array [H, W, 3 | 1], a data URL, or base64 already.

    Reads local files, so never call it with a request's image. Raises InvalidImage.
    """
    if isinstance(image, str) and not image.startswith("data:") and len(image) < 4096 and _is_file(image):
        image = Path(image)
    if isinstance(image, str):
        unpack(image)
        return image
    if isinstance(image, (Path, bytes, bytearray, memoryview)):
        data = _of_path(image) if isinstance(image, Path) else bytes(image)
        _check_bytes(data)
    else:
        written = io.BytesIO()
        read(image).save(written, "PNG")
        data = written.getvalue()
    return base64.b64encode(data).decode()


def unpack(text: str) -> bytes:
    """Return the bytes of an image file from base64 or a data URL, with its type and size checked but not decoded. Raises InvalidImage."""
    head, comma, body = text[:100].partition(",")
    if text[:5].lower() == "data:":
        if not comma or not head.lower().endswith(";base64"):
            raise _wrong("The data URL of the image is not in base64.")
        body = text[len(head) + 1 :]
    elif "://" in text[:100]:
        raise _wrong("Images are not downloaded from URLs. Send the file itself in base64.")
    else:
        body = text
    if len(body) > LARGEST_BYTES * 4 // 3 + 4:
        raise _too_many_bytes(len(body) * 3 // 4)
    try:
        data = base64.b64decode("".join(body.split()), validate=True)
    except (binascii.Error, ValueError):
        raise _wrong("The image is not in base64.") from None
    _check_bytes(data)
    return data


def thumbnail(image: Image.Image) -> np.ndarray[Any, Any]:
    """Return an image as uint8 [H, W, 3], scaled down to at most THUMBNAIL pixels a side."""
    small = image.convert("RGB")
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    return np.asarray(small, np.uint8)


def read(image: Any) -> Image.Image:
    """Read an image as upright 8-bit RGB, from a PIL image, a uint8 array [H, W, 3 | 1] or [H, W], the bytes of a file, a Path, or base64.

    Raises InvalidImage for anything but a single complete PNG, JPEG or WebP image of reasonable size.
    """
    if isinstance(image, np.ndarray):
        return _of_array(image)
    if isinstance(image, Image.Image):
        _check_size(*image.size)
        try:
            return _upright(image)
        except (OSError, ValueError) as error:  # it is read now, from a file that may be closed or truncated
            raise _wrong("The image cannot be read, or has a mode that Pillow does not convert to RGB.") from error
    if isinstance(image, str):
        data = unpack(image)
    elif isinstance(image, Path):
        data = _of_path(image)
    elif isinstance(image, (bytes, bytearray, memoryview)):
        data = bytes(image)
    else:
        raise _wrong("An image is a PNG, JPEG or WebP file, a PIL image, or a uint8 array of shape [H, W, 3].")
    _check_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow warns about what is checked here
        try:
            opened = Image.open(io.BytesIO(data), formats=list(FORMATS))
            _check_size(*opened.size)
            # Phones store JPEGs with a second picture after the first (MPO), which is not an animation.
            if opened.format != "MPO" and getattr(opened, "n_frames", 1) > 1:
                raise _wrong("The image has several frames. Send one of them.")
            opened.load()
            return _upright(opened)
        except InvalidImage:
            raise
        except (Exception, Image.DecompressionBombError) as error:  # decoders may raise anything
            raise _wrong("The image is damaged or truncated. Save it again as PNG or JPEG.") from error


def prepare(image: Any, processor: Any, patches: Patches, channels: int) -> torch.Tensor:
    """Return pixels [1, C, H, W] for the model: from its image processor, or without one scaled to the model's size and to -1..1."""
    picture = read(image).convert("L" if channels == 1 else "RGB")
    if processor is not None:
        return _processed(processor, picture, _grey(processor) if channels == 1 else {})
    picture = picture.resize(patches.size, resample=2)  # bilinear
    array = np.asarray(picture, np.float32).reshape(patches.size[1], patches.size[0], channels)
    pixels = torch.from_numpy((array / 255 - 0.5) / 0.5)
    return pixels.permute(2, 0, 1).unsqueeze(0).contiguous()  # [H, W, C] -> [1, C, H, W]


def _grey(processor: Any) -> dict[str, Any]:
    """Return the options for an image of one channel. Raises Unsupported for a processor whose normalisation differs between colours."""
    options: dict[str, Any] = {"do_convert_rgb": False}
    for name in ("image_mean", "image_std"):
        values = getattr(processor, name, None)
        if isinstance(values, (list, tuple)):
            if len(set(values)) > 1:
                raise Unsupported(
                    "The image processor normalises three colours differently, but this model takes grey images. Load the model with its own processor.",
                    pointer="/model",
                )
            options[name] = [values[0]]
    return options


def _processed(processor: Any, picture: Image.Image, options: dict[str, Any]) -> torch.Tensor:
    check_target(processor, *picture.size)
    try:
        found = processor(images=[picture], return_tensors="pt", **options)
        pixels: torch.Tensor | None = found.get("pixel_values")
    except Exception as error:  # processors may raise anything
        raise _wrong(
            "The model's image processor fails on this image. Send an image closer to square, or load the model with another processor."
        ) from error
    if pixels is None or pixels.ndim != 4 or pixels.shape[0] != 1:
        raise Unsupported("The model's image processor splits an image into several, which Headscope does not support.")
    return pixels.float()


def check_target(processor: Any, width: int, height: int) -> None:
    """Raise InvalidImage before a processor allocates an image of absurd size, whether by its settings or to keep the ratio of a long strip.

    Where a processor chooses the size by the number of pixels (Qwen2-VL), its `longest_edge` is that number.
    """
    for name in ("size", "crop_size", "pad_size"):
        target = getattr(processor, name, None)
        sides = dict(target) if target is not None else {}
        long, short = (sides.get(f"{which}_edge") or 0 for which in ("longest", "shortest"))
        if hasattr(processor, "merge_size"):
            pixels = max(long, short)
        else:
            pixels = max((sides.get("height") or 0) * (sides.get("width") or 0), long * long)
        pixels = max([pixels, *(high * wide for high, wide in getattr(processor, "image_grid_pinpoints", None) or ())])
        if getattr(processor, "crop_to_patches", False):  # into tiles of that size
            pixels *= getattr(processor, "max_patches", None) or 1
        if short and not long:
            pixels = max(pixels, short * short * max(width, height) // min(width, height))
        if pixels > LARGEST_PIXELS:
            raise InvalidImage(
                "The model's image processor would make this image too large. Send an image closer to square.",
                pointer="/image",
                limit=LARGEST_PIXELS,
                actual=pixels,
            )


def to_picture(pixels: torch.Tensor, processor: Any) -> np.ndarray[Any, Any]:
    """Return pixels [1, C, H, W] as a picture, uint8 [H, W, 3], as the model sees it but with normalisation undone."""
    normalised = processor is None or getattr(processor, "do_normalize", False)
    mean, spread = (_per_channel(processor, name, normalised) for name in ("image_mean", "image_std"))
    # A processor that does not rescale leaves values 0..255.
    unit = 1 if getattr(processor, "do_rescale", True) else 255
    values = (pixels[0].float() * torch.tensor(spread).view(-1, 1, 1) + torch.tensor(mean).view(-1, 1, 1)) / unit
    picture = (values.clamp(0, 1) * 255).round().to(torch.uint8).permute(1, 2, 0)  # [C, H, W] -> [H, W, C]
    return np.ascontiguousarray(picture.expand(-1, -1, 3).numpy())


def _per_channel(processor: Any, name: str, normalised: bool) -> list[float]:
    """Return the mean or standard deviation that a processor normalises with: one number for all channels, or one for each."""
    if not normalised:
        return [1.0 if name == "image_std" else 0.0]
    found = getattr(processor, name, None)
    if found is None:
        return [0.5]
    return [float(value) for value in found] if isinstance(found, (list, tuple)) else [float(found)]


def encode(pixels: torch.Tensor, patches: Patches) -> Encoded:
    """Return the tokens of an image [1, C, H, W]: prefix tokens, then the patches row by row."""
    height, width = pixels.shape[-2:]
    across, down = patches.patch
    rows, columns = height // down, width // across
    if not rows or not columns:
        raise _wrong(f"The image is smaller than one patch of {across} x {down} pixels.")
    tokens = [Token(name, index, 0, 0, None, 0, "special") for index, name in enumerate(patches.prefix)]
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        box = (column * across, row * down, (column + 1) * across, (row + 1) * down)
        tokens.append(Token(f"{row},{column}", len(tokens), 0, 0, place, 0, "word", box=box))
    grid = Grid(rows, columns, patches.patch, (width, height))
    return Encoded(tokens, [0] * len(tokens), pixels=pixels, grid=grid)


def noise(height: int, width: int) -> np.ndarray[Any, Any]:
    """Return a picture of random pixels, always the same, uint8 [H, W, 3]."""
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), np.uint8)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def _of_path(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise _wrong("There is no image file at that path.")
        if path.stat().st_size > LARGEST_BYTES:
            raise _too_many_bytes(path.stat().st_size)
        return path.read_bytes()
    except OSError:
        raise _wrong("The image file cannot be read.") from None


def _of_array(array: np.ndarray[Any, Any]) -> Image.Image:
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3)):
        raise _wrong("An image array must be uint8 of shape [H, W, 3], [H, W, 1] or [H, W].")
    _check_size(array.shape[1], array.shape[0])
    plain = array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
    return Image.fromarray(np.ascontiguousarray(plain)).convert("RGB")


def _upright(image: Image.Image) -> Image.Image:
    """Rotate by the EXIF data and convert to 8-bit RGB. Transparent pixels keep their stored colour, as in training."""
    with suppress(Exception):  # ignore damaged EXIF data
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I") or image.mode == "F":  # 16 bits, which convert() would clip at 255
        values = np.asarray(image)
        if image.mode == "I" and 0 <= values.min() <= values.max() <= 255:
            return _of_array(values.astype(np.uint8))
        if image.mode == "F" or values.min() < 0 or values.max() > 65_535:
            raise _wrong("The image has an unusual pixel format. Save it as 8-bit PNG or JPEG.")
        return _of_array((values >> 8).astype(np.uint8))
    return image.convert("RGBA").convert("RGB") if image.mode == "P" else image.convert("RGB")


def _check_bytes(data: bytes) -> None:
    if not data:
        raise _wrong("The image is empty.")
    if len(data) > LARGEST_BYTES:
        raise _too_many_bytes(len(data))
    if not any(data.startswith(start) for start in FORMATS.values()):
        raise _wrong("The image is not a PNG, JPEG or WebP file. Save it as one of these.")
    size = _header_size(data)
    if size is not None:
        _check_size(*size)


def _header_size(data: bytes) -> tuple[int, int] | None:
    """Return width and height from the header, before a decoder allocates memory; None if it has none."""
    try:
        if data.startswith(FORMATS["PNG"]):
            return struct.unpack(">II", data[16:24])
        if data.startswith(FORMATS["JPEG"]):
            return _jpeg_size(data)
        if data[12:16] == b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        if data[12:16] == b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    except struct.error:
        return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return the size in the first frame header (SOF) of a JPEG."""
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None


def _check_size(width: int, height: int) -> None:
    if min(width, height) < 1:
        raise _wrong("The image has no pixels.")
    if width * height > LARGEST_PIXELS:
        raise InvalidImage(
            f"The image has {width} x {height} pixels; up to {LARGEST_PIXELS // 10**6} million are allowed. Scale it down.",
            pointer="/image",
            limit=LARGEST_PIXELS,
            actual=width * height,
        )
    if max(width, height) > LARGEST_RATIO * min(width, height):
        raise _wrong(f"The image is more than {LARGEST_RATIO} times as long as wide. Crop it.")


def _too_many_bytes(count: int) -> InvalidImage:
    return InvalidImage(
        f"The image is larger than {LARGEST_BYTES // 10**6} MB. Scale it down.",
        pointer="/image",
        limit=LARGEST_BYTES,
        actual=count,
    )


def _wrong(detail: str) -> InvalidImage:
    return InvalidImage(detail, pointer="/image")
