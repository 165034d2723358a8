"""Models that read images: pictures to begin with, the overlay and the image beside it, and what of that a link, undo and files keep."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.axe import check
from tests.browser.visit import Visit, address, another_picture, box, comes_to, picture
from tests.support.server import eventually

LAYERS = "element => [...element.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL())"
# Parts of a caption that come over one another, or over what is beside the caption.
OVERLAPS = """(caption) => {
  const parts = [...caption.querySelectorAll('b, canvas, select, .words, .survival, button')].map((part) => [part, part.getBoundingClientRect()])
  const over = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
  const end = caption.getBoundingClientRect().right
  return parts.flatMap(([part, place], i) => [
    ...parts.slice(i + 1).filter(([, other]) => over(place, other)).map(([other]) => `${part.tagName} ${other.tagName}`),
    ...(place.right > end ? [part.tagName] : []),
  ])
}"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.long
def test_an_example_with_an_image(visit: Visit, tmp_path: Path) -> None:
    """It brings its model, its head and its image; the overlay can be thinned and the image beside it left out, in the link, by undo and on paper."""
    visit.page.set_viewport_size({"width": 1366, "height": 768})
    visit.open(address(text="Cats sleep.", lens="effective", compare="side"))
    before = visit.now()
    visit.page.get_by_role("button", name="Examples", exact=True).click()
    visit.page.get_by_role("button", name=re.compile("^An image")).click()
    visit.settled(before, "graph")
    expect(visit.page.get_by_role("combobox", name="Model")).to_have_value("twin-vit-softmax")
    expect(visit.head(3, 0)).to_have_attribute("aria-selected", "true")
    expect(visit.page.get_by_role("complementary")).to_contain_text("An image: which part of the cat gets most weight?")
    expect(visit.page).to_have_url(re.compile("image=sha256"))

    over, alone = visit.image("Image under head 3.0"), visit.image("The image itself")
    assert box(alone)["width"] == box(over)["width"] > 300
    assert box(alone)["x"] > box(over)["x"] + box(over)["width"]
    # Beside both the map is narrow: of its caption, the words give way.
    visit.page.get_by_role("radio", name="both", exact=True).check()
    for width in (1024, 1366):
        visit.page.set_viewport_size({"width": width, "height": 768})
        for choice in ("row", "visible", "head"):
            visit.page.get_by_role("combobox", name="Colour range").select_option(choice)
            assert visit.page.locator("figcaption:has(.legend)").first.evaluate(OVERLAPS) == [], (width, choice)
    visit.page.get_by_role("radio", name="graph", exact=True).check()
    coloured, grey = picture(alone), picture(over)
    assert coloured != grey
    slider = visit.page.get_by_role("slider", name="Opacity of the overlay")
    expect(slider).to_have_attribute("aria-valuetext", "60\N{NO-BREAK SPACE}%")
    slider.focus()
    slider.press("Home")
    comes_to(lambda: picture(over), coloured)
    slider.press("ArrowRight")
    expect(visit.page).to_have_url(re.compile(r"overlay=0\.05"))
    expect(over).to_have_accessible_description(re.compile(r"\b5.% opaque"))

    with visit.page.expect_download() as saved:
        visit.page.get_by_role("button", name="download").click()
        visit.page.get_by_role("button", name="This head as SVG").click()
    saved.value.save_as(tmp_path / "head.svg")
    drawn = ET.parse(tmp_path / "head.svg").getroot()
    assert len(list(drawn.iter(f"{SVG}image"))) == 2 + 1, "image under the overlay, the image itself, and the scale"
    said = " ".join(text.text or "" for text in drawn.iter(f"{SVG}text"))
    assert "5\N{NO-BREAK SPACE}% opaque" in said
    assert "as the model sees it, 32 by 32 pixels" in said

    beside = visit.page.get_by_role("checkbox", name="image beside it")
    beside.uncheck()
    expect(alone).to_have_count(0)
    assert box(over)["width"] > 400
    visit.page.reload()
    visit.painted("graph")
    expect(alone).to_have_count(0)
    expect(slider).to_have_attribute("aria-valuetext", "5\N{NO-BREAK SPACE}%")
    expect(visit.page.get_by_role("complementary")).to_contain_text("An image:")
    visit.page.keyboard.press("Control+z")
    expect(alone).to_be_visible()
    visit.page.keyboard.press("Control+z")
    expect(slider).to_have_attribute("aria-valuetext", "60\N{NO-BREAK SPACE}%")
    check(visit)


@pytest.mark.long
def test_images_to_try(visit: Visit) -> None:
    """A model that reads images offers some; each replaces the one before, and undo shows that again. Patches light up in both pictures."""
    visit.open()
    visit.page.get_by_role("combobox", name="Model").select_option("twin-vit-softmax")
    choices = visit.page.get_by_role("group", name="Images to try")
    for name in ("A cup", "A rocket"):
        visit.page.get_by_role("button", name="try one").click()
        before = visit.now()
        choices.get_by_role("button", name=name).click()
        visit.settled(before)
    expect(choices).to_have_count(0)
    expect(visit.page.get_by_role("complementary")).to_have_count(0)
    alone = visit.page.get_by_role("img", name="The image itself")
    rocket = picture(alone)
    visit.page.keyboard.press("Control+z")
    another_picture(alone, rocket)

    place = box(alone)
    visit.page.mouse.move(place["x"] + 0.3 * place["width"], place["y"] + 0.1 * place["height"])
    expect(visit.page.get_by_text("attention from patch 0,2", exact=True)).to_be_visible()
    visit.page.mouse.down()
    visit.page.mouse.up()
    expect(visit.page).to_have_url(re.compile("pins="))


@pytest.mark.long
def test_no_room_for_two_images(visit: Visit) -> None:
    """Where both would be stamps there is one, and nothing to choose; on a phone they are stacked."""
    visit.open()
    visit.page.get_by_role("combobox", name="Model").select_option("twin-vit-softmax")
    visit.page.get_by_role("button", name="try one").click()
    before = visit.now()
    visit.page.get_by_role("button", name="A cat").click()
    visit.settled(before)
    over, alone = visit.page.get_by_role("img", name="Image under"), visit.image("The image itself")
    expect(alone).to_be_visible()
    visit.page.set_viewport_size({"width": 390, "height": 844})
    eventually(lambda: box(alone)["y"] > box(over)["y"] + box(over)["height"], "the image below the overlay")
    assert box(over)["width"] == box(alone)["width"] > 250
    more, go = visit.page.get_by_role("button", name="try one"), visit.page.get_by_role("button", name="Analyse")
    for size in (390, 844), (1024, 768), (1366, 768):
        visit.page.set_viewport_size({"width": size[0], "height": size[1]})
        field = more.locator("xpath=ancestor::form/*[1]")
        assert box(more)["x"] + box(more)["width"] <= box(field)["x"] + box(field)["width"] < box(go)["x"], size


def test_an_image_beside_a_text(visit: Visit) -> None:
    """An image is added to the text; a word shows where it looks, a patch that is a sink is framed, arrow keys walk the patches, and the image is removed again."""
    visit.open(address(model="reader", text="Is it a cat or a dog?", head="0.1"))
    before = visit.now()
    visit.page.get_by_role("button", name="Add an image").click()
    check(visit, entry="image-50")
    visit.page.get_by_role("group", name="Image").get_by_role("button", name="A cat").click()
    visit.settled(before, "graph")
    expect(visit.page).to_have_url(re.compile("image=sha256"))
    over = visit.image("Image under head 0.1")
    expect(over).to_have_accessible_description(re.compile("4 rows and 4 columns of patches.*framed patch: a sink"))
    expect(visit.page.get_by_text("framed patch: a sink", exact=True)).to_be_visible()
    mean = over.evaluate(LAYERS)
    words = visit.page.get_by_role("toolbar", name="Tokens outside the image")
    words.get_by_role("button", name="c", exact=True).click()
    expect(visit.page.get_by_text("attention from \u201cc\u201d", exact=True).first).to_be_visible()
    eventually(lambda: over.evaluate(LAYERS) != mean, "the overlay of the word")
    reason = visit.page.get_by_role("button", name=re.compile("^mask"))
    expect(reason).to_have_attribute("title", "Tokens cannot be masked beside an image.")
    check(visit)
    visit.page.keyboard.press("Escape")

    visit.page.get_by_role("application", name="Patches of the image").focus()
    for key, patch in (("ArrowRight", "0,1"), ("ArrowDown", "1,1"), ("ArrowLeft", "1,0")):
        visit.page.keyboard.press(key)
        expect(visit.page.get_by_text(f"attention from patch {patch}", exact=True)).to_be_visible()

    before = visit.now()
    visit.page.get_by_role("button", name="Change or remove the image").click()
    visit.page.get_by_role("button", name="Remove the image", exact=True).click()
    visit.settled(before)
    expect(over).to_have_count(0)
    expect(visit.page).not_to_have_url(re.compile("image="))
    visit.page.keyboard.press("Control+z")
    expect(over).to_be_visible()
