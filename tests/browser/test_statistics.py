"""Statistics below the frame: opened on demand, under the page's own strict policy (each visit fails on a breach), drawn anew with what they show, handed out as files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.visit import Visit, address, box, comes_to
from tests.support.extent import extent

TEXT = "The cat sat on the mat because it was tired."


def section(visit: Visit) -> Locator:
    return visit.page.get_by_role("region", name="Statistics")


def plot(visit: Visit, title: str) -> Locator:
    """The drawing of a figure, once it is there."""
    image = section(visit).get_by_role("img", name=re.compile(f"^{title}. "))
    expect(image.locator(".draglayer").first).to_be_attached()
    return image


def point(visit: Visit, mark: Locator) -> None:
    """Move the hand to the middle of a mark."""
    place = box(mark)
    visit.page.mouse.move(place["x"] + place["width"] / 2, place["y"] + place["height"] / 2)


def scripts(page: Page) -> list[str]:
    found: list[str] = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    return [name for name in found if "plotly" in name]


def test_nothing_is_loaded_until_one_is_opened(visit: Visit) -> None:
    """The line is there; plotly.js comes with the first figure, from here, and the frame stays as it was."""
    visit.open(address(text=TEXT))
    before = box(visit.page.get_by_role("main"))
    assert scripts(visit.page) == []
    section(visit).get_by_role("button", name="Entropy", exact=True).click()
    image = plot(visit, "Entropy")
    comes_to(lambda: scripts(visit.page), [f"{visit.root}/assets/plotly.js"])
    comes_to(lambda: box(visit.page.get_by_role("main")), before)
    expect(image).to_have_attribute("aria-label", re.compile(r"layer 0 to 5: (\d\.?\d*, ){5}\d"))
    expect(image.locator(".xtick > text")).to_have_count(6)
    expect(visit.page).to_have_url(re.compile("figures=entropy"))
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        plot(visit, "Entropy")
    section(visit).get_by_role("button", name="Close entropy").click()
    expect(section(visit).get_by_role("figure")).to_have_count(0)
    expect(section(visit).get_by_role("button", name="Entropy", exact=True)).to_be_focused()


def test_in_view_with_the_heads(visit: Visit) -> None:
    """A figure opens over the lower half of the window, from the line or from a sentence; Escape closes it."""
    visit.open(address(text=TEXT))
    visit.page.set_viewport_size({"width": 1440, "height": 900})
    find = visit.page.get_by_role("searchbox", name="Find heads")
    for way in extent(("line", "sentence"), ("sentence",)):
        if way == "line":
            section(visit).get_by_role("button", name="Entropy", exact=True).click()
        else:
            find.fill("plot entropy by layer")
            find.press("Enter")
        place = box(plot(visit, "Entropy"))
        assert 450 <= place["y"] < 900 - 200, way
        heads = box(visit.page.get_by_role("grid", name="Heads"))
        assert heads["y"] + heads["height"] <= 450, way
        assert visit.page.evaluate("scrollY") == 0
        visit.page.get_by_role("heading", name="Headscope").click()
        visit.page.keyboard.press("Escape")
        expect(section(visit).get_by_role("figure")).to_have_count(0)


@pytest.mark.long
def test_what_a_figure_needs_is_computed_when_it_is_opened(visits: Callable[..., Visit]) -> None:
    """Ranks are not among the measures of the page; with the figure closed they are not asked for."""
    visit = visits(new=True)
    asked: list[list[str]] = []
    visit.page.on(
        "request",
        lambda request: asked.append(request.post_data_json["measures"]) if request.method == "POST" else None,
    )
    visit.open(address(text=TEXT))
    section(visit).get_by_role("button", name="Rank", exact=True).click()
    image = plot(visit, "Rank")
    expect(image.locator(".point")).to_have_count(72)
    assert "rank" not in asked[0]
    assert "rank" in asked[-1]
    visit.submit("Another sentence, somewhat longer than the last one was.")
    expect(image).to_have_attribute("aria-label", re.compile("Median effective rank"))
    assert "rank" in asked[-1]


def light_each_other(visit: Visit, image: Locator, named: str, number: int, cells: list[str]) -> None:
    """A head under the pointer lights its mark, and the mark of that number lights these heads."""
    expect(image.locator(".point").first).to_be_attached()
    visit.head(2, 5).hover()
    expect(image.locator(".hoverlayer")).to_contain_text(named)
    visit.page.get_by_role("heading", name="Headscope").hover()
    expect(image.locator(".hoverlayer")).to_be_empty()
    image.scroll_into_view_if_needed()
    point(visit, image.locator(".point").nth(number))
    lit = visit.page.locator("[role=gridcell].spot")
    expect(lit).to_have_count(len(cells))
    comes_to(lambda: [cell.get_attribute("aria-label") for cell in lit.all()], cells)
    visit.page.mouse.move(2, 2)
    expect(lit).to_have_count(0)


def test_dots_of_heads(visit: Visit) -> None:
    """They light each other, and a dot opens its head. A red ring with its name is around the open head, also after another is opened; figures of layers have none."""
    visit.open(address(text=TEXT, figures="rank", head="0.3"))
    image = plot(visit, "Rank")
    light_each_other(visit, image, "Head 2.5", 29, ["Layer 2, head 5"])
    point(visit, image.locator(".point").nth(40))
    expect(image.locator(".hoverlayer")).to_contain_text("Head 3.4")
    visit.page.mouse.down()
    visit.page.mouse.up()
    expect(visit.page.get_by_role("heading", name=re.compile("^Head 3.4"))).to_be_visible()
    dots, ring, name = image.locator(".point"), image.locator(".shapelayer path"), image.locator(".annotation-text")
    for layer, head in ((0, 3), (4, 5)):
        visit.head(layer, head).click()
        expect(name).to_have_text(f"{layer}.{head}")
        expect(ring).to_have_count(1)
        expect(ring).to_have_css("stroke", "rgb(179, 24, 63)")
        dot, circle = box(dots.nth(12 * layer + head)), box(ring)
        for side, size in (("x", "width"), ("y", "height")):
            assert abs(dot[side] + dot[size] / 2 - circle[side] - circle[size] / 2) < 1  # type: ignore[literal-required]
    section(visit).get_by_role("button", name="Entropy", exact=True).click()
    entropy = plot(visit, "Entropy")
    expect(entropy.locator(".xtick > text")).to_have_count(6)
    expect(entropy.locator(".shapelayer path")).to_have_count(0)
    section(visit).get_by_text("heads of layer 4").click()
    expect(entropy.locator(".annotation-text")).to_have_text("4.5")


def test_violins_of_layers(visit: Visit) -> None:
    """A violin and the heads of its layer light each other. The numbers come as CSV, a picture as SVG; one that is not available names the reason.

    Violins by head are of the layer of the open head.
    """
    visit.open(address(text=TEXT, figures="entropy", head="2.7"))
    image = plot(visit, "Entropy")
    if extent(True, False):  # as dots and their heads do
        light_each_other(visit, image, "Layer 2", 2, [f"Layer 2, head {head}" for head in range(12)])
    files = section(visit).get_by_role("group", name="Numbers and files of entropy")
    with visit.page.expect_download() as download:
        files.get_by_role("button", name="CSV").click()
    assert download.value.suggested_filename == "headscope-entropy.csv"
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert [row["layer"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    files.get_by_role("button", name="numbers").click()
    table = section(visit).get_by_role("region", name="Numbers of entropy")
    expect(table.get_by_role("row")).to_have_count(7)
    expect(table.get_by_role("row").nth(3).get_by_role("cell").first).to_have_text("2")
    if extent(True, False):  # as that of the scatter in test_scatter.py
        with visit.page.expect_download() as download:
            files.get_by_role("button", name="SVG").click()
        assert b"entropy (nats)" in Path(download.value.path()).read_bytes()
    section(visit).get_by_text("heads of layer 2").click()
    expect(image).to_have_attribute("aria-label", re.compile("in layer 2, head 0 to 11"))
    expect(image.locator(".xtick > text")).to_have_count(12)
    expect(visit.page).to_have_url(re.compile("spread=head"))
    visit.network_errors_expected = True
    visit.page.route("**/figures/entropy?*format=pdf*", lambda route: route.abort())
    files.get_by_role("button", name="PDF").click()
    expect(section(visit).get_by_role("alert")).to_contain_text("cannot be reached")


def test_figures_are_light_or_dark_with_the_page(visits: Callable[..., Visit]) -> None:
    visit = visits(color_scheme="dark")
    visit.open(address(text=TEXT, figures="entropy"))
    image = plot(visit, "Entropy")
    background = image.locator(".main-svg").first
    for paper in (background, visit.page.locator("body")):
        expect(paper).to_have_css("background-color", "rgb(20, 22, 26)")
    visit.page.get_by_role("button", name="Light").click()
    expect(background).to_have_css("background-color", "rgb(251, 250, 246)")


# reflow.test.ts.
@pytest.mark.long
def test_a_narrow_screen(visits: Callable[..., Visit]) -> None:
    """A figure is as wide as its column, and follows it."""
    visit = visits(viewport={"width": 390, "height": 844})
    visit.open(address(text=TEXT, figures="patterns"))
    image = plot(visit, "Patterns")
    drawn = image.locator(".main-svg").first
    expect(drawn).to_have_attribute("width", "362")
    visit.page.set_viewport_size({"width": 500, "height": 844})
    expect(drawn).to_have_attribute("width", "472")
