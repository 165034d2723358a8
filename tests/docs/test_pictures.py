"""The pictures of the docs are up to date, legible and used. No test needs a network."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from drawing import PICTURES
from drawing.figure import COLOURS
from PIL import Image

from headscope.effects import EFFECTS
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from headscope.mechanisms import MECHANISMS
from tests.support.variants import variants

DOCS = Path(__file__).resolve().parents[2] / "docs"
TARGET = DOCS / "pictures"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def test_every_picture_has_its_function_and_every_function_its_picture():
    assert {path.stem for path in TARGET.glob("*.svg")} == set(PICTURES)


def test_every_lens_mechanism_measure_and_effect_has_a_picture():
    assert {*LENSES, *MECHANISMS, *MEASURES, *EFFECTS} <= set(PICTURES)


def test_picture_is_shown_on_a_page(subtests):
    for name in PICTURES:
        with subtests.test(name=name):
            assert any(f"/{name}.svg)" in page.read_text("utf-8") for page in DOCS.rglob("*.md"))


def _pixels(element: ET.Element) -> np.ndarray | None:
    href = element.attrib.get("href", "")
    if not href:
        return None
    data = base64.b64decode(href.partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data))).astype(int)


@variants("name", PICTURES, short=6)
def test_picture_is_what_the_code_draws(name):
    """Text and shapes are equal, and coordinates and pixels up to rounding, which differs between processors."""
    drawn = ET.fromstring(PICTURES[name]().svg())
    kept = ET.fromstring((TARGET / f"{name}.svg").read_text("utf-8"))
    assert [element.tag for element in drawn.iter()] == [element.tag for element in kept.iter()]
    for new, old in zip(drawn.iter(), kept.iter(), strict=True):
        assert new.text == old.text
        assert new.attrib.keys() == old.attrib.keys()
        for key in new.attrib.keys() - {"href"}:
            assert NUMBER.sub("", new.attrib[key]) == NUMBER.sub("", old.attrib[key])
            numbers = [np.array(NUMBER.findall(one.attrib[key]), float) for one in (new, old)]
            assert np.allclose(*numbers, rtol=0, atol=0.5), key
        pixels = _pixels(new), _pixels(old)
        if pixels[0] is not None:
            assert np.abs(pixels[0] - pixels[1]).max() <= 8


def _box(text: ET.Element) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a text, with letters 0.6 times as wide as high."""
    x, y, size = (float(text.attrib[key]) for key in ("x", "y", "font-size"))
    width = 0.6 * size * len(text.text or "")
    left = {"start": 0.0, "middle": -width / 2, "end": -width}[text.attrib["text-anchor"]]
    corners = np.array([(left, -0.8 * size), (left + width, 0.25 * size)])
    if "transform" in text.attrib:  # by -90 degrees, the only turn there is
        assert text.attrib["transform"].startswith("rotate(-90 ")
        corners = np.stack([corners[:, 1], -corners[:, 0]], 1)
    (left, right), (top, bottom) = (np.sort(corners[:, axis]) for axis in (0, 1))
    return x + left, y + top, x + right, y + bottom


def test_words_lie_within_the_picture(subtests):
    for name in PICTURES:
        with subtests.test(name=name):
            root = ET.fromstring((TARGET / f"{name}.svg").read_text("utf-8"))
            width, height = float(root.attrib["width"]), float(root.attrib["height"])
            for text in root.iter("{http://www.w3.org/2000/svg}text"):
                left, top, right, bottom = _box(text)
                assert left >= 0, text.text
                assert top >= 0, text.text
                assert right <= width, text.text
                assert bottom <= height, text.text


def _light(colour: str) -> float:
    channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ (0.2126, 0.7152, 0.0722))


@pytest.mark.parametrize("colour", ["ink", "muted", "accent"])
def test_words_stand_out_from_the_paper(colour):
    """4.5 : 1, as WCAG 2 asks for text of this size."""
    light, dark = sorted((_light(COLOURS["paper"]), _light(COLOURS[colour])), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5
