"""A whole analysis as one page, opened as a file without any network; and pictures of it for print."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import Browser, Download, Locator, Request, Route, expect

import headscope
from tests.browser.axe import check, complaints
from tests.browser.visit import Visit, address, box, comes_to, picture
from tests.support.extent import extent
from tests.support.server import Server, eventually

TEXT = "The cat sat </script><script>alert(1)</script> <!-- on the mat. <img src=x onerror=alert(2)>"
NODES = "document.querySelectorAll('script:not([data-answer]), img, iframe, object, embed, link, style, base').length"
# Addresses of the maps that were read.
MAPS = "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/maps/')).map(({ name }) => name)"
SVG = "{http://www.w3.org/2000/svg}"


def analysed(server: Server, **body: object) -> str:
    """The id of a finished analysis."""
    with httpx.Client(base_url=f"http://{server.url}/api/v1", timeout=60) as api:
        done = api.post("/analyses", json={"model": "minilm", **body}, headers={"Prefer": "wait=30"}).json()
        assert done["status"] == "done"
        return str(done["id"])


def export(server: Server, id_: str, format_: str) -> bytes:
    with httpx.Client(base_url=f"http://{server.url}/api/v1", timeout=60) as api:
        return api.get(f"/analyses/{id_}/export", params={"format": format_}).raise_for_status().content


class Alone(Visit):
    """A visit to a file, which notes whatever the page asks a network for."""

    def __init__(self, browser: Browser, file: Path, **context: Any) -> None:
        super().__init__(browser, file.as_uri(), **context)
        self.asked: list[str] = []
        self.page.on("request", self._note)

    def _note(self, request: Request) -> None:
        if not request.url.startswith((self.root, "data:", "blob:")):
            self.asked.append(request.url)

    def open(self, fragment: str = "", path: str = "") -> Visit:
        return super().open(fragment, path)

    def close(self) -> None:
        super().close()
        assert self.asked == []


@pytest.fixture(scope="module")
def analysis(server: Server) -> str:
    """The id of the analysis that is exported in every test."""
    measures = ["entropy", "null_share", "leverage"]
    return analysed(server, text=TEXT, lenses=["weights", "effective"], measures=measures)


@pytest.fixture(scope="module")
def file(server: Server, analysis: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported page."""
    path = tmp_path_factory.mktemp("export") / "a page.html"
    path.write_bytes(export(server, analysis, "html"))
    return path


@pytest.fixture
def alone(browser: Browser, file: Path) -> Iterator[Alone]:
    """The page, opened from a disk at head 4.5."""
    visit = Alone(browser, file)
    visit.open("#head=4.5")
    yield visit
    visit.close()


def test_same_viewer(alone: Alone) -> None:
    """Heads, map, graph, words, lenses, colours: what the page of the server has."""
    alone.painted("graph")
    expect(alone.text).to_have_value(TEXT)
    assert picture(alone.image("Heat map of head 4.5"))[0] > 4
    before = alone.now()
    alone.head(3, 7).click()
    alone.painted("head", before)
    expect(alone.image("Connections of head 3.7")).to_be_visible()
    alone.lens("effective")
    expect(alone.page.get_by_text(re.compile("^Looks most at"))).to_be_visible()
    alone.page.get_by_role("combobox", name="colour by").select_option(label="Entropy")
    expect(alone.page.get_by_text(re.compile(r"^3\.7 .*nats"))).to_be_visible()
    expect(alone.alert).to_have_count(0)  # a measure that the file lacks is not asked for


def test_hostile_text_is_text(alone: Alone) -> None:
    """One script, one style, and the letters of the text on screen."""
    letters = "".join(TEXT.split()).lower()
    eventually(lambda: letters in "".join(alone.tokens.all_text_contents()).lower(), "the letters of the text")
    comes_to(lambda: alone.page.evaluate(NODES), 2)


def test_says_what_it_cannot_do(alone: Alone) -> None:
    """Another text needs a model, and a search a server; the picture stays."""
    expect(alone.page.get_by_text("find heads or see statistics")).to_be_visible()
    alone.text.fill("Another text.")
    alone.text.press("Enter")
    expect(alone.alert).to_contain_text("Open Headscope to analyse another text")
    check(alone, entry="both-34")
    expect(alone.image("Heat map of head 4.5")).to_be_visible()


# test_a_cell_is_part_of_link_undo_and_file reads the same value on the page and in the file.
@pytest.mark.long
def test_values_are_exact(server: Server, file: Path, analysis: str, browser: Browser) -> None:
    """A short text is exported in float32: the readout equals the server's numbers."""
    query = "layer=4&head=5&query=3&key=2&format=json"
    value = server.get(f"/analyses/{analysis}/maps/weights?{query}").json()["map"][0][0][0][0]
    tokens = len(server.get(f"/analyses/{analysis}").json()["tokens"])
    visit = Alone(browser, file)
    visit.open("#head=4.5&view=map")
    place = box(visit.image("Heat map of head 4.5"))
    side = place["width"] - 74
    visit.page.mouse.move(place["x"] + 74 + side * 2.5 / tokens, place["y"] + 74 + side * 3.5 / tokens)
    expect(visit.page.get_by_text(f"{value:.4f}").first).to_be_visible()
    visit.close()


def test_several_as_a_site(server: Server, analysis: str, browser: Browser, tmp_path: Path) -> None:
    """From a list to an analysis and back, as files; every page is accessible, light, dark and narrow, and fits into the window."""
    (tmp_path / "cat.safetensors").write_bytes(export(server, analysis, "safetensors"))
    folder = tmp_path / "a site"
    headscope.export_site(folder, {"A cat": tmp_path / "cat.safetensors", "Again": tmp_path / "cat.safetensors"})
    visit = Alone(browser, folder)
    page = visit.page
    page.goto(f"{visit.root}/index.html")
    expect(page.get_by_role("heading", level=2)).to_have_text(["A cat", "Again"])
    expect(page.get_by_text(TEXT)).to_have_count(2)
    for scheme, width in extent((("light", 1366), ("dark", 390)), (("dark", 390),)):
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 768})
        comes_to(lambda: complaints(page), [])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1366, "height": 768})
    page.get_by_role("link", name="Again").click()
    visit.painted("head")
    expect(visit.text).to_have_value(TEXT)
    assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    check(visit, entry="both-34")
    page.get_by_role("link", name="Attention heads").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Attention heads")
    visit.close()


def test_policy_names_everything(file: Path) -> None:
    """Nothing is loaded, and nothing may be: no address of a network in the file but the name of SVG."""
    text = file.read_text("utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy
    assert policy[1].startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe" not in policy[1]
    assert "connect-src" not in policy[1]
    assert not re.search(r"<(?:link|img|iframe|script)[^>]+(?:src|href)=", text)
    assert text.count("</script>") == text.count("<script ")


def taken(visit: Visit, name: str) -> Download:
    """A picture from the menu of the open head."""
    visit.page.get_by_role("button", name="download").click()
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name=name).click()
    return download.value


def texts(root: ElementTree.Element) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]


def test_head_as_svg(visits: Callable[..., Visit]) -> None:
    """Tokens, scale and caption are text, whatever the tokens are; the map is an image without loss; nothing else is in it."""
    visit = visits().open(address(text=TEXT, head="4.5"))
    visit.painted("graph")
    root = ElementTree.fromstring(Path(taken(visit, "This head as SVG").path()).read_text("utf-8"))
    said = texts(root)
    assert {"a", "b", "Heat map of head 4.5", "Connections of head 4.5", "script", "alert"} <= set(said)
    caption = " ".join(said)
    assert "Head 4.5 of MiniLM" in caption
    assert "lens: weights" in caption
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "g", "rect", "text", "path", "image", "clipPath",
    }  # fmt: skip
    images = [element.get("href", "") for element in root.iter(f"{SVG}image")]
    assert images
    assert all(href.startswith("data:image/png;base64,") for href in images)
    # Until the map of another head has been read, the graph is still of this one: it is faint, and not in the picture.
    held: list[Route] = []
    visit.page.route("**/maps/weights?layer=0&head=7*", lambda route: held.append(route))
    visit.head(0, 7).click()
    graph = visit.image("Connections of head 0.7")
    expect(graph.locator("xpath=..")).to_have_attribute("aria-busy", "true")
    expect(graph.locator("canvas").first).to_have_css("opacity", "0.45")
    expect(graph).to_have_accessible_description(re.compile("^Connections from"))
    assert titles(visit) == {"Heat map of head 0.7"}
    for route in held:
        route.continue_()
    expect(graph).to_have_accessible_description(re.compile(r"^\d+ connections? from"))
    assert titles(visit) == {"Heat map of head 0.7", "Connections of head 0.7"}


def titles(visit: Visit) -> set[str]:
    """Of the pictures in a file of the open head."""
    root = ElementTree.fromstring(Path(taken(visit, "This head as SVG").path()).read_text("utf-8"))
    return {text for text in texts(root) if re.match(r"(Heat map|Connections) of head [\d.]+$", text)}


# test_copy.py copies a PNG; figure.test.ts has its resolution.
@pytest.mark.long
def test_heads_as_png(visit: Visit) -> None:
    """300 dpi, as the file itself says, whatever the theme."""
    visit.open()
    visit.painted("grid")
    data = Path(taken(visit, "All heads as PNG").path()).read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data[37:41] == b"pHYs"
    assert struct.unpack(">IIB", data[41:50]) == (11811, 11811, 1)
    assert min(width, height) > 900


# words.test.ts writes only 0 as 0.
@pytest.mark.long
def test_no_number_of_a_head_is_rounded_to_zero(visit: Visit) -> None:
    """Heads that give punctuation little attention have a number that says so."""
    visit.open(address(text="The cat sat on the mat.", colour="token_types.punct"))
    expect(visit.page.locator(".said").first).to_have_text(re.compile("^2.9 . [0-9]"))
    visit.painted("grid")
    said = texts(ElementTree.fromstring(Path(taken(visit, "All heads as SVG").path()).read_text("utf-8")))
    assert "0.0" not in said
    assert len([text for text in said if text == "≈0" or text.startswith(".0")]) > 36


@pytest.mark.long
def test_table_round_trips(server: Server, analysis: str) -> None:
    """Every entry of every map, with its tokens, as a spreadsheet cannot run them."""
    document = server.get(f"/analyses/{analysis}").json()
    rows = list(csv.DictReader(io.StringIO(export(server, analysis, "csv").decode())))
    layers, heads, n, _ = document["maps"]["weights"]["shape"]
    assert len(rows) == 2 * layers * heads * n * n
    assert all(row["query_token"].startswith('"') for row in rows)
    assert [json.loads(row["key_token"]) for row in rows[:n]] == [token["text"] for token in document["tokens"]]
    values = np.array([row["value"] for row in rows if row["lens"] == "weights"], np.float32).reshape(
        layers, heads, n, n
    )
    exact = server.get(f"/analyses/{analysis}/maps/weights?layer=5&format=json").json()["map"]
    assert (values[5] == np.array(exact, np.float32)[0]).all()


def test_a_cell_is_part_of_link_undo_and_file(
    browser: Browser, server: Server, visits: Callable[..., Visit], tmp_path: Path
) -> None:
    """A pinned cell of a zoomed map: a link shows it to others, undo takes it back, and the exported page opens with it."""
    first = visits()
    first.open(address(text=TEXT, head="4.5", lens="effective", special="mark"))
    cells = first.page.get_by_role("application", name="Cells of the heat map of head 4.5")
    cells.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "Enter", "+"):
        cells.press(key)
    expect(first.page).to_have_url(re.compile("pins=q3\\+k2.*zoom=[0-9.+]+"))
    cells.blur()

    def shown(visit: Visit) -> tuple[str, bool]:
        return visit.page.locator(".readout").inner_text(), visit.page.get_by_role(
            "button", name="whole map"
        ).is_visible()

    seen = shown(first)
    assert "exactly" in seen[0]
    assert seen[1]
    if extent(True, False):  # test_address.py opens a link in another window
        second = visits()
        second.open(first.page.url.removeprefix(first.root + "/"))
        comes_to(lambda: shown(second), seen)
        assert picture(second.image("Heat map of head 4.5")) == picture(first.image("Heat map of head 4.5"))

    first.page.get_by_role("button", name="download").click()
    with first.page.expect_download() as download:
        first.page.get_by_role("button", name="web page").click()
    file = tmp_path / "view.html"
    download.value.save_as(file)
    alone = Alone(browser, file)
    alone.open()
    comes_to(lambda: shown(alone), seen)
    expect(alone.page.get_by_role("combobox", name="Lens")).to_have_value("effective")
    expect(alone.page.get_by_label("Special tokens and sinks")).to_have_value("mark")
    alone.close()

    first.page.bring_to_front()
    for gone in ("zoom", "pins"):
        first.page.keyboard.press("Control+z")
        expect(first.page).not_to_have_url(re.compile(f"{gone}="))
    expect(first.page.locator(".readout")).to_contain_text("Point at a cell")
    first.page.keyboard.press("Control+Shift+z")
    expect(first.page).to_have_url(re.compile("pins="))
    first.submit(TEXT + " And more.")
    expect(first.page).not_to_have_url(re.compile("pins="))


@pytest.mark.long
def test_a_chosen_head_of_a_long_text(
    browser: Browser, server: Server, visits: Callable[..., Visit], tmp_path: Path
) -> None:
    """At 2,048 tokens the file has the head's factors, from which it draws the server's map and reads its numbers within the error that it states."""
    letters = " ".join("abcdefgh"[i % 8] for i in range(2046))
    first = visits()
    first.open(address(model="sharp", text=letters, head="1.1", lens="weights", view="map", special="show"))
    cells = "Cells of the heat map of head 1.1"
    expect(first.page.get_by_role("application", name=cells)).to_be_visible()
    first.page.get_by_role("button", name="download").click()
    chosen = first.page.get_by_role("textbox", name="Heads of the web page")
    expect(chosen).to_have_value("")
    chosen.fill("1.1")
    with first.page.expect_download() as download:
        first.page.get_by_role("button", name="web page").click()
    file = tmp_path / "head.html"
    download.value.save_as(file)
    assert file.stat().st_size < 2_000_000
    assert set(re.findall('data-answer="(/(?:factors|maps)/[^"]+)"', file.read_text("utf-8"))) == {
        f"/factors/{lens}/0.0" for lens in ("weights", "effective")
    }
    alone = Alone(browser, file)
    alone.open()
    expect(alone.page.get_by_text("rounded to within", exact=False).first).to_be_visible()
    id_ = first.page.evaluate(MAPS)[0].split("/analyses/")[1].split("/")[0]
    for lens, query in (("weights", 3), ("weights", 1000), ("weights", 2040), ("effective", 1500)):
        row = {"layer": "1", "head": "1", "query": str(query), "format": "json"}
        entries = np.array(server.get(f"/analyses/{id_}/maps/{lens}", params=row).json()["map"][0][0][0])
        strongest = np.sort(np.abs(entries))[:-5:-1]
        alone.page.evaluate("(hash) => { location.hash = hash }", f"head=1.1&view=map&lens={lens}&pins=q{query}")
        readout = alone.page.locator(".readout").filter(has_text=re.compile(f"{number(query)}\\s*\u2192"))
        expect(readout.get_by_role("button")).to_have_count(4 + 1)  # and one that copies the link
        comes_to(partial(is_close, readout, strongest), True)
    alone.close()


def number(token: int) -> str:
    """A token's number as the page writes it behind its text."""
    return str(token).translate(
        str.maketrans("0123456789", "\u2080\u2081\u2082\u2083\u2084\u2085\u2086\u2087\u2088\u2089")
    )


def is_close(readout: Locator, expected: NDArray[np.float64]) -> bool:
    """Whether the strongest keys of a readout have these magnitudes, but for rounding to four decimals and that of the factors."""
    found = [abs(float(text.replace("\u2212", "-"))) for text in readout.locator("button b").all_inner_texts()]
    return len(found) == len(expected) and bool(np.abs(found - expected).max() <= 2e-3 * expected[0] + 5e-5)
