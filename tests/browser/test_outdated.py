"""Pictures show what the controls say, or are dimmed and say so; only what is being computed shows progress."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.visit import Visit, address

# What the page shows while it computes: whether the figures are dimmed, whether the line below the text has a bar, and what stands where something will be.
WATCH = """() => {
  window.seen = { dimmed: 0, bars: 0, words: [] }
  const look = () => {
    const [main, bars] = [document.querySelector('main'), document.querySelectorAll('[role=progressbar]')]
    if (Number(getComputedStyle(main).opacity) < 1 || main.classList.contains('outdated')) window.seen.dimmed += 1
    window.seen.bars += bars.length
    for (const { textContent } of document.querySelectorAll('.plots .empty, .progress, #find-answer .note')) window.seen.words.push(textContent)
  }
  new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true })
}"""


def dimmed(visit: Visit, words: str) -> None:
    expect(visit.page.get_by_text(words)).to_be_visible()
    expect(visit.page.get_by_role("main").locator("canvas").first).to_have_css("opacity", "0.45")
    expect(visit.page.locator("#head-title")).to_have_css("color", "rgb(93, 95, 99)")


def current(visit: Visit, tokens: int) -> None:
    expect(visit.page.get_by_text(re.compile(rf"^{tokens} tokens · 72 heads"))).to_be_visible()
    expect(visit.page.get_by_role("main").locator("canvas").first).to_have_css("opacity", "1")
    expect(visit.page.locator("#head-title")).to_have_css("color", "rgb(27, 29, 33)")


def test_what_changed_and_waits(visit: Visit) -> None:
    """A long text while typing is followed, no text, typed ids, a model that needs an image, a cancelled run: each is dimmed until it is analysed or taken back."""
    text = "The red cat sat."
    visit.open(address(text=text))
    current(visit, 7)
    plain = visit.analyse.evaluate("(button) => getComputedStyle(button).backgroundColor")
    visit.text.fill("word " * 120)
    dimmed(visit, "Text changed, too long for live. Press Enter to analyse")
    expect(visit.analyse).not_to_have_css("background-color", plain)
    visit.shows("The", "red", "cat", "sat", ".")
    visit.text.fill(text)
    current(visit, 7)
    expect(visit.analyse).to_have_css("background-color", plain)
    visit.text.fill("")
    dimmed(visit, "Type a sentence first.")
    visit.text.fill(text)
    current(visit, 7)
    visit.page.get_by_role("button", name="as token ids").click()
    box = visit.page.get_by_role("textbox", name="Token ids", exact=True)
    ids = box.input_value()
    current(visit, 7)
    box.fill(f"{ids} 102")
    dimmed(visit, "Token ids changed. Press Enter to analyse")
    box.fill(ids)
    visit.page.get_by_role("button", name="as text").click()
    current(visit, 7)
    visit.page.get_by_role("combobox", name="Model").select_option("vit")
    dimmed(visit, "No image yet.")
    visit.page.get_by_role("combobox", name="Model").select_option("minilm")
    current(visit, 7)
    visit.page.get_by_role("checkbox", name="live").uncheck()
    visit.text.press("End")
    visit.page.keyboard.insert_text(" Then")
    dimmed(visit, "Text changed. Press Enter to analyse")


def test_a_refused_text_leaves_the_previous_pictures_dimmed(visit: Visit) -> None:
    visit.network_errors_expected = True
    visit.open(address(text="The red cat sat."))
    visit.text.fill("word " * 600)
    visit.text.press("Enter")
    expect(visit.alert).to_contain_text("The text has 602 tokens")
    dimmed(visit, "Showing the previous analysis")
    # Focus mode shows both, too.
    visit.page.get_by_role("button", name="focus").press("Enter")
    expect(visit.page.get_by_role("banner")).to_be_hidden()
    expect(visit.alert).to_contain_text("The text has 602 tokens")
    expect(visit.page.get_by_role("status").filter(has_text="Showing the previous analysis")).to_be_visible()
    for _ in ("the message", "the figure"):
        visit.page.keyboard.press("Escape")
    expect(visit.page.get_by_role("banner")).to_be_visible()
    visit.submit("The red cat")
    current(visit, 5)


def test_only_what_is_computed_shows_progress(visit: Visit) -> None:
    """A figure, a colour, a sort and a search need measures that the analysis lacks; the pictures stay as they are, also once it has them."""
    visit.open(address(text="The red cat sat on the mat."))
    current(visit, 10)
    submits = "performance.getEntriesByName('headscope:submit').length"
    before = visit.page.evaluate(submits)
    visit.page.evaluate(WATCH)
    section = visit.page.get_by_role("region", name="Statistics")
    section.get_by_role("button", name="Rank", exact=True).click()
    expect(section.get_by_role("img", name=re.compile("^Rank")).locator(".draglayer").first).to_be_attached()
    visit.page.get_by_role("combobox", name="colour by").select_option("participation_ratio")
    expect(visit.page.get_by_text("participation ratio in tokens")).to_be_visible()
    find = visit.page.get_by_role("searchbox", name="Find heads")
    find.fill("qk_distance.mean > 0")
    find.press("Enter")
    expect(visit.page.get_by_role("list", name="Heads found").get_by_role("button").first).to_be_visible()
    visit.idle()
    assert visit.page.evaluate(submits) == before + 3
    seen = visit.page.evaluate("window.seen")
    assert (seen["dimmed"], seen["bars"]) == (0, 0)
    assert any(words.startswith(("Computing", "Waiting", "Running", "Storing")) for words in seen["words"])
