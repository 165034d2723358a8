"""Studies on the page: a data set goes in, is looked at, run, watched and cancelled; figures lead to heads, heads to examples, and these to an analysis."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.browser.axe import check
from tests.browser.visit import Visit, address, box, comes_to, count_held
from tests.support.server import DEADLINE, Server, eventually

SUBJECTS = ("The boats", "A quiet river", "Few here", "The old clock", "Her brother", "The town")
VERBS = ("lay by the bank all winter", "asked where the water went", "kept what the others had earned")
TEXTS = [f"{subject} {verb}." for subject in SUBJECTS for verb in VERBS]
# The header, then one row each; row 4 lacks a cell and row 7 has no text.
TSV = "source\tsentence\tlabel\n" + "".join(
    "short\n" if row == 4 else f"s{row}\t{'' if row == 7 else text}\t{row % 2}\n" for row, text in enumerate(TEXTS, 2)
)
# The right token of each row, and a wrong one; a token of none is reported.
TARGETS = 'text,good,bad\nThe cat sat on the," mat"," cat"\nThe mat and the," cat"," mat"\nThe cat and the, nowhere at all, mat\n'
ASKED = {"model": "minilm", "figures": ["pattern-shares", "entropy", "special-maps"], "measures": ["entropy"]}


def place(visit: Visit, **fields: str) -> Visit:
    """Open the studies."""
    visit.page.goto(f"{visit.root}/?studies{address(**fields) if fields else ''}")
    return visit


def drop(visit: Visit, name: str, content: str | bytes) -> None:
    """Choose a file as the dialogue of the browser would."""
    body = content.encode() if isinstance(content, str) else content
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": body}
    visit.page.get_by_label("File", exact=True).set_input_files(files=[file])  # type: ignore[list-item]


def study(server: Server, name: str, data: str, **asked: Any) -> str:
    """A study that is done, asked for by the interface."""
    answer = server.post({"dataset": {"name": name, "data": data}, **ASKED, **asked}, "/studies")
    assert answer.status_code in (200, 202), answer.text
    found = str(answer.json()["id"])
    status = lambda: server.get(f"/studies/{found}").json()["status"]  # noqa: E731
    eventually(lambda: status() not in ("queued", "running"), "the end of the study", 2 * DEADLINE)
    assert status() == "done"
    return found


@pytest.fixture(scope="module")
def two(server: Server) -> tuple[str, str]:
    """The ids of two studies, of six and of five texts."""
    return study(server, "first.txt", "\n".join(TEXTS[:6])), study(server, "second.txt", "\n".join(TEXTS[6:11]))


def plot(visit: Visit, title: str) -> Locator:
    """The drawing of a figure, once it is there."""
    image = visit.page.get_by_role("img", name=re.compile(f"^{re.escape(title)}. "))
    expect(image.locator(".draglayer").first).to_be_attached()
    return image


def test_from_a_file_to_an_example(visit: Visit) -> None:
    """Drop a file, see how it is read, start, watch, see figures, find a head, open one of its texts as an analysis, and come back."""
    page = visit.page
    visit.open()
    page.get_by_role("link", name="Studies").click()
    page.get_by_role("button", name="New study").click()
    drop(visit, "reviews.tsv", TSV)
    expect(page.get_by_text("16 usable rows, 2 unusable")).to_be_visible()
    expect(page.get_by_role("combobox", name="text", exact=True)).to_have_value("sentence")
    expect(page.get_by_role("region", name="First rows").get_by_role("row")).to_have_count(6)
    check(visit, entry="studies-new")
    bad = page.get_by_text("Unusable rows: 2").locator("..").get_by_role("listitem")
    expect(bad.nth(0)).to_contain_text("4")
    expect(bad.nth(1)).to_contain_text("7")
    page.get_by_role("spinbutton", name="Maximum number of inputs").fill("8")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name=re.compile(r"^reviews\.tsv · MiniLM"))).to_be_visible()
    expect(page.get_by_text(re.compile("^8 inputs · "))).to_be_visible()

    plot(visit, "Shares of patterns by lens")
    page.get_by_text("heads", exact=True).click()
    examples = page.get_by_role("list", name="Examples").get_by_role("link")
    expect(examples.first).to_be_visible()
    here = page.url
    page.get_by_role("gridcell", name="Layer 2, head 9", exact=True).click()
    expect(page.get_by_role("heading", name="Head 2.9")).to_be_visible()
    expect(examples.first).to_have_attribute("title", "Open head 2.9 on this text")
    text = examples.first.locator(".text").inner_text()
    examples.first.click()
    visit.painted("head")
    expect(visit.text).to_have_value(text)
    expect(page.get_by_role("heading", name=re.compile("^Head 2.9"))).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Head 2.9")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(here)


@pytest.mark.long
def test_effects_of_heads(visit: Visit, server: Server) -> None:
    """Columns name the targets of a table, methods are chosen by hand; the figure and the heads show what the interface finds."""
    page = place(visit, study="new").page
    drop(visit, "targets.csv", TARGETS)
    for role, column in (("target", "good"), ("over", "bad")):
        page.get_by_role("combobox", name=role, exact=True).select_option(column)
        expect(page.get_by_role("columnheader", name=role, exact=True)).to_be_visible()
    expect(
        page.get_by_role("cell", name="\N{LEFT DOUBLE QUOTATION MARK} mat\N{RIGHT DOUBLE QUOTATION MARK}").first
    ).to_be_visible()
    effects = page.get_by_role("group", name="Effects", exact=True)
    expect(effects).to_have_count(0)  # the model predicts nothing
    page.get_by_role("combobox", name="model", exact=True).select_option("writer")
    for name in ("Shares of patterns by lens", "Entropy by layer and head", "Attention to [CLS] and [SEP]"):
        page.get_by_role("checkbox", name=name, exact=True).uncheck()
    effects.get_by_role("checkbox", name="Patching", exact=True).check()
    expect(page.get_by_text("Patching needs another text for every input.")).to_be_visible()
    effects.get_by_role("checkbox", name="Patching", exact=True).uncheck()
    page.get_by_role("checkbox", name="Effects of heads", exact=True).check()
    expect(effects.get_by_role("checkbox", name="Direct contribution", exact=True)).to_be_checked()
    effects.get_by_role("checkbox", name="Ablation", exact=True).check()
    page.get_by_role("group", name="Ablation", exact=True).get_by_role("combobox", name="how").select_option(
        "reference"
    )
    expect(page.get_by_text("Type at least one reference text.")).to_be_visible()
    texts = page.get_by_role("textbox", name="Reference texts")
    texts.fill("The mat.\n\nA cat sat.")
    texts.blur()
    expect(page.get_by_text("2 texts", exact=True)).to_be_visible()
    check(visit)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text(re.compile("^2 inputs · "))).to_be_visible()
    plot(visit, "Effects of heads")
    page.get_by_text("heads", exact=True).click()
    expect(page.get_by_role("heading", name=re.compile("^Head "))).to_be_visible()
    asked = server.get(f"/studies/{re.search('study=([0-9a-f]+)', page.url)[1]}").json()  # type: ignore[index]
    assert [(one["name"], one.get("how")) for one in asked["request"]["effects"]] == [
        ("contribution", None),
        ("ablation", "reference"),
    ]
    assert asked["request"]["reference"] == ["The mat.", "A cat sat."]
    found = server.get(f"/studies/{asked['id']}/heads", params={"where": "order by contribution.effect desc"}).json()[
        "heads"
    ]
    names = [f"{head['layer']}.{head['head']}" for head in found]
    listed = page.get_by_role("list", name="Heads found").get_by_role("listitem")
    comes_to(lambda: [text.split("\n")[0] for text in listed.all_inner_texts()], names)


@pytest.mark.long
def test_a_head_that_arrives_late(visit: Visit, two: tuple[str, str]) -> None:
    """Until its statistics are there, everything on screen is of the head before."""
    place(visit, study=two[0], show="heads", head="1.2")
    page = visit.page
    held: list[Route] = []
    examples = page.get_by_role("list", name="Examples").get_by_role("link")
    expect(examples.first).to_have_attribute("title", "Open head 1.2 on this text")
    page.route(re.compile(r"/heads/2/9"), lambda route: held.append(route))
    page.get_by_role("gridcell", name="Layer 2, head 9", exact=True).click()
    comes_to(lambda: count_held(page, held), 1)
    expect(page.get_by_role("heading", name="Head 1.2")).to_be_visible()
    expect(examples.first).to_have_attribute("title", "Open head 1.2 on this text")
    held[0].continue_()
    expect(page.get_by_role("heading", name="Head 2.9")).to_be_visible()
    expect(examples.first).to_have_attribute("title", "Open head 2.9 on this text")


def test_a_mark_leads_to_its_head(visit: Visit, two: tuple[str, str]) -> None:
    """A cell of a map is a head, and leads to it with the measure that the figure is drawn from."""
    place(visit, study=two[0], figures="special-maps")
    image = plot(visit, "Attention to [CLS] and [SEP]")
    cells = box(image.locator(".heatmaplayer image, .hm image").first)
    visit.page.mouse.click(cells["x"] + 3.5 / 12 * cells["width"], cells["y"] + 2.5 / 6 * cells["height"])
    expect(visit.page.get_by_role("heading", name="Head 2.3")).to_be_visible()
    expect(visit.page).to_have_url(re.compile("measure=special_tokens"))


def test_a_mark_of_the_second_variant_leads_there(visit: Visit, server: Server) -> None:
    """A mark of a layer or a head opens the variant that it is about."""
    asked = {"against": {"mechanism": {"name": "hopfield", "alpha": 0.9}}, "figures": ["residual-ratio"]}
    place(visit, study=study(server, "variants.txt", "\n".join(TEXTS[:2]), **asked), figures="residual-ratio")
    plot(visit, "Residual ratio by layer")
    point = "{ customdata: plot.data.at(-1).customdata[3], data: plot.data.at(-1) }"
    click = f"(plot) => void plot.emit('plotly_click', {{ points: [{point}] }})"
    visit.page.locator(".js-plotly-plot").evaluate(click)
    expect(visit.page).to_have_url(re.compile("variant=1.*find=layer"))
    expect(visit.page.get_by_role("combobox", name="variant")).to_have_value("1")


def test_heads_are_found_and_ranked(visit: Visit, two: tuple[str, str], server: Server) -> None:
    """The same heads in the same order as the interface has them; the grid is walked by arrows; a bad query is answered in a sentence."""
    place(visit, study=two[0], show="heads", measure="entropy")
    field = visit.page.get_by_role("searchbox", name="Find heads")
    field.fill("layer < 2")
    field.press("Enter")
    listed = visit.page.get_by_role("list", name="Heads found").get_by_role("listitem")
    expect(listed).to_have_count(24)
    found = server.get(f"/studies/{two[0]}/heads", params={"where": "layer < 2 order by entropy desc"}).json()["heads"]
    names = [f"{head['layer']}.{head['head']}" for head in found]
    comes_to(lambda: [text.split("\n")[0] for text in listed.all_inner_texts()], names)
    cell = visit.page.get_by_role("gridcell", name="Layer 0, head 1", exact=True)
    cell.click()
    expect(visit.page.get_by_role("heading", name="Head 0.1")).to_be_visible()
    cell.press("ArrowDown")
    expect(visit.page.get_by_role("heading", name="Head 1.1")).to_be_visible()
    visit.network_errors_expected = True
    field.fill("entropy <")
    field.press("Enter")
    expect(visit.page.get_by_role("region", name="Which heads").get_by_role("alert")).to_contain_text("character")


@pytest.mark.long
def test_a_median_is_as_precise_as_it_is_known(visit: Visit, two: tuple[str, str], server: Server) -> None:
    """Where all values are in one bin of the histogram, the page says so and draws none; otherwise it says what the median is between."""
    heads = [server.get(f"/studies/{two[0]}/heads/{layer}/{head}").json() for layer in range(6) for head in (0, 5, 9)]
    numbers = [(head, number) for head in heads for number in head["numbers"] if number["distribution"]]
    bins = lambda number: sum(count > 0 for count in number["distribution"]["counts"])  # noqa: E731
    apart = lambda number: len({f"{bound:.1g}" for bound in number["median_within"]}) == 2  # noqa: E731
    single = next((head, number) for head, number in numbers if bins(number) == 1)
    spread = next((head, number) for head, number in numbers if bins(number) > 4 and apart(number))
    histogram = visit.page.get_by_role("img", name=re.compile("^Distribution of"))
    for (head, number), said, drawn in (
        (single, "All {} values are in one bin, ", 0),
        (spread, "The median of all {} values is ", 1),
    ):
        name, column = f"{head['layer']}.{head['head']}", number["column"]
        measure = number["measure"] + (f".{column}" if column else "")
        place(visit, study=two[0], show="heads", head=name, measure=measure)
        expect(visit.page.get_by_role("heading", name=f"Head {name}")).to_be_visible()
        expect(visit.page.get_by_text(said.format(f"{number['count']:,}"))).to_be_visible()
        expect(histogram).to_have_count(drawn)


def test_tables_are_files(visit: Visit, two: tuple[str, str]) -> None:
    place(visit, study=two[0], show="tables", table="inputs")
    table = visit.page.get_by_role("region", name="Numbers of inputs")
    expect(table.get_by_role("row").nth(1)).to_be_visible()
    visit.page.get_by_role("button", name="Heads", exact=True).click()
    heads = visit.page.get_by_role("region", name="Numbers of heads")
    expect(heads).to_contain_text("·10⁻")
    expect(heads).not_to_contain_text(re.compile(r"\de[-+]?\d|[^\w]-\d"))
    files = visit.page.get_by_role("group", name="Files of heads")
    with visit.page.expect_download() as download:
        files.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert {(row["layer"], row["head"]) for row in rows} == {(str(i), str(j)) for i in range(6) for j in range(12)}
    with visit.page.expect_download() as download:
        files.get_by_role("button", name="LaTeX").click()
    assert r"\toprule" in Path(download.value.path()).read_text()


def test_two_are_compared(visit: Visit, two: tuple[str, str]) -> None:
    """The same figure of both side by side, closed and opened by keyboard; of heads the difference, the largest first, and both pages."""
    place(visit, study=two[0], figures="entropy")
    plot(visit, "Entropy by layer and head")
    visit.page.get_by_role("button", name="Close entropy by layer and head").press("Enter")
    expect(visit.page.get_by_role("button", name="Entropy by layer and head")).to_be_focused()
    visit.page.keyboard.press("Enter")
    visit.page.get_by_role("combobox", name="compare with").select_option(two[1])
    expect(visit.page.locator(".js-plotly-plot:has(.xtick)")).to_have_count(2)
    visit.page.get_by_text("heads", exact=True).click()
    expect(visit.page.get_by_text("Differences, largest first")).to_be_visible()
    expect(visit.page.get_by_role("list", name="Examples")).to_have_count(2)
    first = visit.page.get_by_role("list", name="Heads found").get_by_role("listitem").first
    expect(first).to_contain_text(re.compile("[+\N{MINUS SIGN}]"))
    listed = visit.page.get_by_role("list", name="Heads found").get_by_role("listitem")
    largest = listed.all_inner_texts()
    visit.page.get_by_role("button", name="smallest first").click()
    expect(visit.page.get_by_text("Differences, smallest first")).to_be_visible()
    assert not set(listed.all_inner_texts()) & set(largest)
    visit.page.get_by_role("searchbox").fill("layer = 5")
    visit.page.get_by_role("searchbox").press("Enter")
    expect(visit.page.get_by_role("heading", name=re.compile("Head 5"))).to_have_count(2)


def test_cancelled_and_gone_on_with(visit: Visit, server: Server) -> None:
    """What runs is stopped; sent again it ends; deleted it is gone, after a second question."""
    data = "\n".join(f"{text} {' '.join(TEXTS)}" for text in TEXTS)
    body = {
        **ASKED,
        "figures": [],
        "model": "deep",
        "lenses": ["weights"],
        "dataset": {"name": "slow.txt", "data": data},
    }
    started = server.post(body, "/studies").json()["id"]
    place(visit, study=started)
    expect(visit.page.get_by_text("You can close this page")).to_be_visible()
    visit.page.get_by_role("button", name="Cancel").click()
    expect(visit.page.get_by_text("Cancelled. Results so far are kept.")).to_be_visible()
    visit.page.get_by_role("button", name="Resume").click()
    expect(visit.page.get_by_role("progressbar")).to_be_visible()
    visit.page.get_by_role("button", name="Cancel").click()
    expect(visit.page.get_by_text("Cancelled. Results so far are kept.")).to_be_visible()
    visit.page.get_by_role("button", name="Delete").click()
    expect(visit.page.get_by_role("button", name="Keep")).to_be_focused()
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("button", name="Delete")).to_be_focused()
    visit.page.keyboard.press("Enter")
    check(visit, narrow=False)
    visit.page.get_by_role("button", name="Delete permanently").click()
    expect(visit.page.get_by_role("navigation", name="Studies").get_by_text("slow.txt")).to_have_count(0)


def test_what_another_window_does_is_seen(visit: Visit, server: Server) -> None:
    """A window that shows a cancelled study sees that it was resumed, or deleted, once it has the focus; until then it does not cancel it in place of deleting it."""
    data = "\n".join(f"{text} {' '.join(TEXTS)}" for text in TEXTS)
    body = {"model": "deep", "lenses": ["weights"], "figures": [], "dataset": {"name": "shared.txt", "data": data}}
    started = server.post(body, "/studies").json()["id"]
    status = lambda: server.get(f"/studies/{started}").json().get("status")  # noqa: E731
    server.client.delete(f"/api/v1/studies/{started}")
    eventually(lambda: status() == "cancelled", "the end of the study")
    visit.network_errors_expected = True
    page = place(visit, study=started).page
    expect(page.get_by_text("Cancelled. Results so far are kept.")).to_be_visible()
    server.post(body, "/studies")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete permanently").click()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_visible()
    assert status() in ("queued", "running")
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_text("Cancelled. Results so far are kept.")).to_be_visible()
    server.client.delete(f"/api/v1/studies/{started}")
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.get_by_text("The server no longer has this study")).to_be_visible()
    expect(page.get_by_role("navigation", name="Studies").get_by_text("shared.txt")).to_have_count(0)


def test_the_preview_is_of_the_data_set_that_is_chosen(visit: Visit) -> None:
    """Back brings an earlier data set with its preview; one that cannot be read leaves none; and a new form begins empty."""
    page = place(visit, study="new").page
    usable = page.get_by_text(re.compile(r"\d usable rows?\."))
    drop(visit, "one.txt", TEXTS[0])
    expect(page.get_by_text("1 usable row. Read as")).to_be_visible()
    page.get_by_role("button", name="New study").click()
    expect(page.get_by_text("Choose a data set first.")).to_be_visible()
    expect(usable).to_have_count(0)
    drop(visit, "two.txt", "\n".join(TEXTS[:2]))
    expect(page.get_by_text("2 usable rows. Read as")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("1 usable row. Read as")).to_be_visible()
    # A figure whose box is off by now is not sent.
    page.get_by_text("another mechanism", exact=True).click()
    page.get_by_role("checkbox", name="Before and after fine-tuning").check()
    page.get_by_text("nothing", exact=True).click()
    expect(page.get_by_role("checkbox", name="Before and after fine-tuning")).not_to_be_checked()
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text(re.compile("^1 input · "))).to_be_visible()
    page.go_back()
    visit.network_errors_expected = True
    page.get_by_role("textbox", name="Hub").fill("hub:none/none/x.tsv")
    page.get_by_role("textbox", name="Hub").press("Tab")
    expect(page.get_by_text("Choose a data set first.")).to_be_visible()
    expect(page.get_by_role("alert")).not_to_contain_text("Upload its file again")


@pytest.mark.long
def test_a_file_on_its_way_is_watched_and_called_back(visits: Callable[..., Visit]) -> None:
    """Over a slow line a bar says how much has been sent; cancelled, nothing of it is there, and another file can be chosen."""
    visit = place(visits(new=True), study="new")
    expect(visit.page.get_by_role("button", name="Start")).to_be_visible()
    line = visit.context.new_cdp_session(visit.page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 100_000}
    line.send("Network.emulateNetworkConditions", slow)
    drop(visit, "long.txt", "A line of the data set.\n" * 200_000)
    bar = visit.page.get_by_role("progressbar", name="Upload of long.txt")
    expect(bar).to_have_attribute("aria-valuenow", re.compile("^[1-9]"))
    expect(visit.page.get_by_text(re.compile(r"^long\.txt: \d\.\d\sMiB of 4\.6\sMiB uploaded\.$"))).to_be_visible()
    check(visit, narrow=False)
    visit.page.get_by_role("button", name="Cancel").click()
    expect(bar).to_have_count(0)
    expect(visit.page.get_by_text("Choose a data set first.")).to_be_visible()
    line.send("Network.emulateNetworkConditions", {**slow, "uploadThroughput": -1})
    drop(visit, "short.txt", "\n".join(TEXTS))
    expect(visit.page.get_by_text("18 usable rows")).to_be_visible()
    expect(visit.alert).to_have_count(0)


def test_keys(visit: Visit, two: tuple[str, str]) -> None:
    """`?` lists them, `f` finds heads, `[` and `]` walk the lenses, `n` begins a study."""
    place(visit, study=two[0])
    expect(visit.page.get_by_text(re.compile("^6 inputs · "))).to_be_visible()
    # The figures that were asked for are open.
    figures = visit.page.get_by_role("group", name="Figures")
    expect(figures.get_by_role("button", expanded=True)).to_have_count(len(ASKED["figures"]))
    expect(figures.get_by_role("button", expanded=True, name="Attention to [CLS] and [SEP]")).to_be_visible()
    press = visit.page.keyboard.press
    press("?")
    sheet = visit.page.get_by_role("dialog", name="Keys, gestures, terms")
    expect(sheet).to_contain_text("find heads of the study")
    press("Escape")
    expect(sheet).to_be_hidden()
    press("f")
    field = visit.page.get_by_role("searchbox", name="Find heads")
    expect(field).to_be_focused()
    press("Escape")
    expect(field).not_to_be_focused()
    lens = visit.page.get_by_role("combobox", name="lens")
    for key, value in (("]", "effective"), ("]", "weights"), ("[", "effective")):
        press(key)
        expect(lens).to_have_value(value)
    press("?")
    # The next key comes before the sheet has told that it is closed.
    visit.page.evaluate(
        "document.querySelector('dialog[open]').close(); dispatchEvent(new KeyboardEvent('keydown', {key: 'f'}))"
    )
    expect(field).to_be_focused()
    press("Escape")
    press("n")
    expect(visit.page.get_by_role("heading", name="New study")).to_be_visible()


# tests/api/test_datasets.py and entry `studies-failed` of the gallery; test_inputs.py on the main page.
@pytest.mark.long
def test_what_cannot_be_read_is_said(visit: Visit) -> None:
    """A file that is none, a study that is not there."""
    visit.network_errors_expected = True
    place(visit, study="new")
    drop(visit, "picture.tsv", bytes(range(256)) * 40)
    expect(visit.alert).to_have_text(re.compile(r"[a-z].*\."))
    expect(visit.page.get_by_role("button", name="Start")).to_have_attribute("aria-disabled", "true")
    place(visit, study="0" * 32)
    visit.page.reload()
    expect(visit.alert).to_be_visible()


@pytest.mark.long
def test_a_narrow_screen(visits: Callable[..., Visit], two: tuple[str, str]) -> None:
    """One thing at a time, and nothing is wider than the screen."""
    visit = visits(viewport={"width": 390, "height": 844})
    for show in ("figures", "heads", "tables", "data"):
        place(visit, study=two[0], show=show)
        expect(visit.page.get_by_text(re.compile("^6 inputs · "))).to_be_visible()
        visit.holds("document.documentElement.scrollWidth <= 390")
        visit.page.goto("about:blank")
    place(visit, study=two[0])
    visit.page.get_by_role("button", name="All studies").click()
    expect(visit.page.get_by_role("navigation", name="Studies").get_by_text("first.txt").first).to_be_visible()
