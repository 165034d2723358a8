"""Images: what may come in, what comes out of it, and what is refused before it is decoded."""

from __future__ import annotations

import base64
import io
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from headscope.errors import HeadscopeError, InvalidImage
from headscope.models import images
from headscope.models.facts import Patches
from tests.support.variants import variants

from . import pictures

PATCHES = Patches((32, 32), (8, 8), ("[CLS]",))


@variants("name", pictures.GOOD)
def test_whole_images_are_read(name: str) -> None:
    """As upright 8-bit RGB of the right size, whatever the file's own pixels are."""
    make, size = pictures.GOOD[name]
    found = images.read(make())
    assert (found.mode, found.size) == ("RGB", size)
    pixels = images.prepare(make(), None, PATCHES, 3)
    assert pixels.shape == (1, 3, 32, 32)
    assert bool(((pixels >= -1) & (pixels <= 1)).all())


@variants("name", pictures.BAD)
def test_anything_else_is_refused(name: str) -> None:
    """With one sentence, and without room for the pixels it claims."""
    data = pictures.BAD[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidImage) as refused:
        images.read(data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024  # kB
    assert refused.value.pointer == "/image"
    assert refused.value.detail.endswith(".")


def test_sixteen_bits_keep_their_high_byte() -> None:
    """Not cut off at 255, which makes nearly everything white."""
    found = np.asarray(images.read(pictures.sixteen_bits()))
    assert found[..., 0].tolist() == (np.arange(16) * 17).reshape(4, 4).tolist()
    assert np.asarray(images.read(pictures.sixteen_bit_colours()))[0].tolist() == [[0, 255, 128], [255, 0, 1]]


def test_whole_numbers_of_eight_bits_stay(tmp_path: Path) -> None:
    """Pillow converts to 32-bit whole numbers without scaling."""
    grey = pictures.plain().convert("L")
    expected = np.asarray(images.read(grey))
    assert expected.max() > 0
    np.testing.assert_array_equal(np.asarray(images.read(grey.convert("I"))), expected)


def test_an_opened_image_that_cannot_be_read(tmp_path: Path) -> None:
    """Pillow reads files when their pixels are needed."""
    pictures.plain().save(tmp_path / "a.png")
    data = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(data[: len(data) // 2])
    with Image.open(tmp_path / "a.png") as opened, pytest.raises(InvalidImage, match="cannot be read"):
        images.read(opened)


def test_turned_images_stand_upright() -> None:
    """EXIF orientation 6: what is stored at the left edge, top to bottom, is shown at the top, right to left."""
    stored, shown = np.asarray(pictures.plain(32, 16)), np.asarray(images.read(pictures.turned()))
    assert np.abs(shown.astype(int) - np.rot90(stored, -1)).mean() < 6


def test_every_form_gives_the_same_picture(tmp_path: Path) -> None:
    """A file's bytes, its path, base64, a data URL, a PIL image and an array."""
    data = pictures.saved(pictures.plain())
    path = tmp_path / "a picture.png"
    path.write_bytes(data)
    text = base64.b64encode(data).decode()
    array = np.asarray(pictures.plain())
    for form in (data, bytearray(data), path, text, f"data:image/png;base64,{text}", pictures.plain(), array):
        assert np.array_equal(np.asarray(images.read(form)), array)
        assert np.array_equal(np.asarray(images.read(images.pack(form))), array)
    assert images.pack(str(path)) == text
    grey = np.asarray(pictures.plain().convert("L"))
    for form in (grey, grey[:, :, None]):
        assert np.array_equal(np.asarray(images.read(form))[:, :, 1], grey)


@variants(
    "wrong",
    [
        "http://127.0.0.1:9/cat.png",
        "https://example.org/cat.png",
        "file:///etc/hostname",
        "ftp://example.org/cat.png",
        "data:image/png,notbase64",
        "data:text/plain;base64,AAAA",
        "/etc/hostname",
        "!!!!",
        "AAAA",
        "",
        Path("/nowhere/cat.png"),
        Path("/"),
        None,
        7,
        [1, 2],
        np.zeros((4, 4, 3)),
        np.zeros((4, 4, 4), np.uint8),
        np.zeros((0, 4, 3), np.uint8),
        np.zeros((2, 4, 4, 3), np.uint8),
    ],
    ids=str,
)
def test_what_is_no_image_is_refused(wrong: Any) -> None:
    """Addresses above all: nothing is ever fetched, and text is never a path."""
    with pytest.raises(InvalidImage):
        images.read(wrong)


def test_a_path_is_read_for_callers_on_this_machine_only(tmp_path: Path) -> None:
    """pack() may read files; what a request carries goes through read() and unpack(), which do not."""
    path = tmp_path / "x.png"
    path.write_bytes(pictures.saved(pictures.plain()))
    assert images.pack(str(path))
    for look in (images.read, images.unpack):
        with pytest.raises(InvalidImage):
            look(str(path))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(["png", "jpeg", "webp", "palette", "turned", "comment"]),
    st.integers(0, 2000),
    st.integers(0, 255),
    st.booleans(),
)
def test_damaged_files_never_surprise(name: str, place: int, byte: int, cut: bool) -> None:
    """Any changed byte and any cut: an image of reasonable size, or InvalidImage."""
    data = bytearray(FILES[name])
    place %= len(data)
    data[place] = byte
    try:
        assert images.read(bytes(data[:place] if cut else data)).mode == "RGB"
    except HeadscopeError as error:
        assert error.code == "invalid-image"  # noqa: PT017 - a valid image is as right


FILES = {name: pictures.GOOD[name][0]() for name in ("png", "jpeg", "webp", "palette", "turned", "comment")}


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60))
def test_pixels_without_a_processor(width: int, height: int) -> None:
    """Scaled to the model's size, then x / 127.5 - 1, channel by channel."""
    picture = pictures.plain(width, height)
    expected = np.asarray(picture.resize((32, 32), Image.Resampling.BILINEAR)).astype(np.float64)
    pixels = images.prepare(picture, None, PATCHES, 3)[0].numpy()
    for channel in range(3):
        np.testing.assert_allclose(pixels[channel], expected[..., channel] / 127.5 - 1, atol=1e-6)


def test_patches_of_an_image_that_is_not_square() -> None:
    """Row by row, with boxes that tile the picture; what is left over at the right and below belongs to no patch."""
    patches = Patches((20, 13), (8, 4), ("[CLS]", "[REG1]"))
    encoded = images.encode(images.prepare(pictures.plain(), None, patches, 3), patches)
    assert [token.text for token in encoded.tokens] == ["[CLS]", "[REG1]", "0,0", "0,1", "1,0", "1,1", "2,0", "2,1"]
    assert [token.box for token in encoded.tokens][2:5] == [(0, 0, 8, 4), (8, 0, 16, 4), (0, 4, 8, 8)]
    assert [token.word for token in encoded.tokens] == [None, None, 0, 1, 2, 3, 4, 5]
    assert [token.kind for token in encoded.tokens[:3]] == ["special", "special", "word"]
    assert encoded.grid is not None
    assert (encoded.grid.rows, encoded.grid.columns, encoded.grid.size) == (3, 2, (20, 13))
    assert patches.tokens == len(encoded.tokens)


def test_a_whole_jpeg_of_two_pictures_is_one_image() -> None:
    """Phones store a second picture behind the first (MPO)."""
    written = io.BytesIO()
    pictures.plain().save(written, "MPO", save_all=True, append_images=[pictures.plain(8, 8)])
    assert images.read(written.getvalue()).size == (24, 16)
