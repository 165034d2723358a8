"""Image files: valid ones of every format, damaged ones, decompression bombs, and other files."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, PngImagePlugin


def plain(width: int = 24, height: int = 16) -> Image.Image:
    """A picture that is different in every corner."""
    rows, columns = np.mgrid[0:height, 0:width]
    red, green = rows * 255 // max(1, height - 1), columns * 255 // max(1, width - 1)
    return Image.fromarray(np.stack([red, green, 255 - red], axis=-1).astype(np.uint8))


def saved(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:  # noqa: A002 - Pillow's word
    written = io.BytesIO()
    image.save(written, format, **options)
    return written.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 2) -> bytes:
    """A PNG put together by hand, which may claim any size."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + chunk(b"IEND", b"")


def sixteen_bits() -> bytes:
    """Grey PNG of 16 bits per pixel: 0, 257, 514, ... so that the high byte is the value."""
    values = (np.arange(16, dtype=np.uint16) * 17 * 257).reshape(4, 4)
    return saved(Image.fromarray(values))


def sixteen_bit_colours() -> bytes:
    rows = b"".join(b"\0" + struct.pack(">6H", 0, 65535, 32896, 65535, 0, 257) for _ in range(2))
    return png(2, 2, chunk(b"IDAT", zlib.compress(rows)), depth=16)


def turned() -> bytes:
    """A JPEG that says in its EXIF data that it lies on its side."""
    image = plain(32, 16)
    exif = image.getexif()
    exif[0x0112] = 6
    return saved(image, "JPEG", exif=exif, quality=95)


def broken_exif() -> bytes:
    return saved(plain(), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 40)


def several(format: str) -> bytes:  # noqa: A002
    return saved(plain(), format, save_all=True, append_images=[plain(), plain(16, 16).resize((24, 16))], duration=50)


def text_bomb() -> bytes:
    """A PNG whose compressed comment is 200 times as long as the file may be."""
    comment = b"Comment\0\0" + zlib.compress(b"a" * 80_000_000)
    return png(1, 1, chunk(b"zTXt", comment), chunk(b"IDAT", zlib.compress(b"\0abc")))


def bomb() -> bytes:
    """A PNG of a few kB that claims, and has, 25 million pixels."""
    return png(5000, 5000, chunk(b"IDAT", zlib.compress(bytes(5000 * 15001), 9)))


def webp_claiming(width: int, height: int) -> bytes:
    """The head of a lossless WebP of any size, with nothing behind it."""
    bits = (width - 1) | (height - 1) << 14
    data = b"\x2f" + struct.pack("<I", bits) + b"\0" * 32
    return b"RIFF" + struct.pack("<I", len(data) + 12) + b"WEBPVP8L" + struct.pack("<I", len(data)) + data


def jpeg_claiming(width: int, height: int) -> bytes:
    """A JPEG whose frame header lies about its size."""
    data = bytearray(saved(plain(), "JPEG"))
    place = data.index(b"\xff\xc0")
    data[place + 5 : place + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def with_text() -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", "zq7mark" * 1000, zip=True)
    return saved(plain(), pnginfo=info)


# Name -> the file, and the size of the picture that comes out.
GOOD: dict[str, tuple[Callable[[], bytes], tuple[int, int]]] = {
    "png": (lambda: saved(plain()), (24, 16)),
    "jpeg": (lambda: saved(plain(), "JPEG"), (24, 16)),
    "jpeg-progressive": (lambda: saved(plain(), "JPEG", progressive=True), (24, 16)),
    "webp": (lambda: saved(plain(), "WEBP"), (24, 16)),
    "webp-lossless": (lambda: saved(plain(), "WEBP", lossless=True), (24, 16)),
    "grey": (lambda: saved(plain().convert("L")), (24, 16)),
    "grey-alpha": (lambda: saved(plain().convert("LA")), (24, 16)),
    "alpha": (lambda: saved(plain().convert("RGBA")), (24, 16)),
    "palette": (lambda: saved(plain().convert("P")), (24, 16)),
    "palette-transparent": (lambda: saved(plain().convert("P"), transparency=b"\0\x80\xff"), (24, 16)),
    "one-bit": (lambda: saved(plain().convert("1")), (24, 16)),
    "cmyk": (lambda: saved(plain().convert("CMYK"), "JPEG"), (24, 16)),
    "sixteen-bits": (sixteen_bits, (4, 4)),
    "sixteen-bit-colours": (sixteen_bit_colours, (2, 2)),
    "one-pixel": (lambda: saved(plain(1, 1)), (1, 1)),
    "one-row": (lambda: saved(plain(50, 1)), (50, 1)),
    "three-rows": (lambda: saved(plain(3, 3)), (3, 3)),
    "turned": (turned, (16, 32)),
    "broken-exif": (broken_exif, (24, 16)),
    "comment": (with_text, (24, 16)),
    "bytes-behind": (lambda: saved(plain()) + b"PK\x03\x04" + b"x" * 1000, (24, 16)),
}
BAD: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "one-byte": lambda: b"\x89",
    "signature-only": lambda: b"\x89PNG\r\n\x1a\n",
    "text": lambda: b"not an image",
    "html": lambda: b"<svg xmlns='http://www.w3.org/2000/svg'><image href='http://localhost/'/></svg>",
    "gif": lambda: saved(plain(), "GIF"),
    "tiff": lambda: saved(plain(), "TIFF"),
    "bmp": lambda: saved(plain(), "BMP"),
    "eps": lambda: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n",
    "png-cut": lambda: saved(plain(200, 200))[:200],
    "jpeg-cut": lambda: saved(plain(200, 200), "JPEG", quality=95)[:900],
    "webp-cut": lambda: saved(plain(200, 200), "WEBP")[:200],
    "png-changed": lambda: saved(plain(200, 200)).replace(b"IDAT", b"IDAX", 1),
    "png-without-data": lambda: png(8, 8),
    "png-no-pixels": lambda: png(0, 8, chunk(b"IDAT", zlib.compress(b""))),
    "header-60k": lambda: png(60_000, 60_000, chunk(b"IDAT", zlib.compress(b"\0" * 100))),
    "header-of-2-billion": lambda: png(2**31 - 1, 2**31 - 1),
    "bomb": bomb,
    "bomb-of-text": text_bomb,
    "webp-16k": lambda: webp_claiming(16_383, 16_383),
    "jpeg-65k": lambda: jpeg_claiming(65_500, 65_500),
    "long-strip": lambda: saved(plain(10_000, 1)),
    "animated-webp": lambda: several("WEBP"),
    "animated-png": lambda: several("PNG"),
    "too-many-bytes": lambda: saved(plain()) + bytes(10_000_001),
}
