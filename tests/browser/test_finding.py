"""Heads are found by a query or a sentence, sorted, marked by their pattern, and read several at a time."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Locator, Route, expect

from tests.browser.visit import Visit, address, another_picture, comes_to, count_held, picture
from tests.support.extent import extent
from tests.support.server import eventually

TEXT = "The boats lay by the river bank while the bank in town kept the money."


def box(visit: Visit) -> Locator:
    return visit.page.get_by_role("searchbox", name="Find heads")


def find(visit: Visit, said: str) -> None:
    """Type and press Enter; what was found, or asked back, is there then."""
    visit.page.keyboard.press("f")
    expect(box(visit)).to_be_focused()
    box(visit).fill(said)
    box(visit).press("Enter")


def parts(visit: Visit) -> Locator:
    return visit.page.get_by_role("list", name="Understood as").get_by_role("button", name="Change")


def found(visit: Visit) -> Locator:
    return visit.page.get_by_role("list", name="Heads found").get_by_role("button")


def names(visit: Visit) -> list[str]:
    return [text.split()[0] for text in found(visit).all_inner_texts()]


def heading(visit: Visit) -> Locator:
    return visit.page.locator("#head-title")


def served(visit: Visit, where: str) -> list[dict[str, Any]]:
    """What the interface itself answers about the analysis on screen."""
    recent = visit.page.request.get(f"{visit.root}/api/v1/analyses").json()["items"][0]["id"]
    answer = visit.page.request.get(f"{visit.root}/api/v1/analyses/{recent}/heads", params={"where": where})
    assert answer.ok, answer.text()
    return answer.json()["heads"]


def test_a_query_lights_heads_and_enter_opens_the_best(visit: Visit) -> None:
    visit.open(address(text=TEXT, head="5.11"))
    find(visit, "vertical and layer < 4 and null_share >= 0")
    expect(parts(visit)).to_have_text(["vertical", "layer < 4", "null_share >= 0"])
    expect(found(visit).first).to_be_visible()
    heads = served(visit, "vertical and layer < 4 and null_share >= 0")
    expect(visit.page.get_by_text(f"{len(heads)} of 72 heads, largest null share first:")).to_be_visible()
    wanted = [f"{head['layer']}.{head['head']}" for head in heads][:24]
    comes_to(lambda: names(visit), wanted)
    best = wanted[0]
    expect(heading(visit)).to_have_text("Head 5.11")
    visit.idle()
    box(visit).press("Enter")
    expect(heading(visit)).to_have_text(f"Head {best}")
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        expect(parts(visit)).to_have_text(["vertical", "layer < 4", "null_share >= 0"])
        expect(heading(visit)).to_have_text(f"Head {best}")


def test_parts_are_changed_and_removed(visit: Visit) -> None:
    visit.open(address(text=TEXT))
    find(visit, "more than 50 % on the previous token in the first three layers")
    expect(parts(visit)).to_have_text(["head_roles.previous > 50%", "layer <= 2"])
    expect(parts(visit).first).to_have_attribute("title", re.compile("on the previous token"))
    parts(visit).first.click()
    visit.page.get_by_role("textbox", name="Change head_roles.previous > 50%").fill("head_roles.previous > 0")
    visit.page.keyboard.press("Enter")
    expect(box(visit)).to_have_value("head_roles.previous > 0 and layer <= 2")
    expect(parts(visit)).to_have_text(["head_roles.previous > 0", "layer <= 2"])
    expect(visit.page.get_by_text(re.compile(r"^\d+ of 72 heads"))).to_be_visible()
    visit.page.get_by_role("button", name="Remove layer <= 2").click()
    expect(parts(visit)).to_have_text(["head_roles.previous > 0"])
    expect(visit.page.get_by_text(re.compile("^all 72 heads"))).to_be_visible()
    # Who goes on elsewhere, instead of pressing Enter or Escape, is left there.
    parts(visit).first.click()
    box(visit).click()
    expect(parts(visit)).to_have_count(1)
    expect(box(visit)).to_be_focused()
    box(visit).fill("")
    expect(parts(visit)).to_have_count(0)
    expect(visit.page).not_to_have_url(re.compile("find="))


@pytest.mark.long
def test_a_change_is_kept_by_the_next_though_neither_is_answered_yet(visit: Visit) -> None:
    visit.open(address(text=TEXT))
    find(visit, "more than 50 % on the previous token in the first three layers")
    expect(parts(visit)).to_have_text(["head_roles.previous > 50%", "layer <= 2"])
    held = list[Route]()
    visit.page.route("**/ask*", lambda route: held.append(route))
    parts(visit).first.click()
    visit.page.get_by_role("textbox", name="Change head_roles.previous > 50%").fill("head_roles.previous > 0")
    visit.page.keyboard.press("Enter")
    expect(parts(visit)).to_have_text(["head_roles.previous > 0", "layer <= 2"])
    visit.page.get_by_role("button", name="Remove layer <= 2").click()
    expect(parts(visit)).to_have_text(["head_roles.previous > 0"])
    eventually(lambda: count_held(visit.page, held), "the questions of the page")
    visit.page.unroute("**/ask*")  # which lets those go on that were held
    expect(box(visit)).to_have_value("head_roles.previous > 0")
    expect(parts(visit)).to_have_text(["head_roles.previous > 0"])
    expect(visit.page.get_by_text(re.compile("^all 72 heads"))).to_be_visible()


@pytest.mark.long
def test_where_none_is_found_the_nearest_are_offered(visit: Visit) -> None:
    visit.open(address(text=TEXT, find="null_share > 0.999 and layer < 2"))
    expect(visit.page.get_by_text("No head matches. Relax or remove a condition")).to_be_visible()
    visit.page.get_by_role("button", name="show the closest heads").click()
    expect(found(visit)).to_have_count(24)
    best = served(visit, "layer < 2 order by null_share desc")[0]
    comes_to(lambda: names(visit)[0], f"{best['layer']}.{best['head']}")


def test_what_is_not_certain_is_asked(visit: Visit) -> None:
    visit.open(address(text=TEXT))
    find(visit, "vertical heads in layer 1")
    expect(visit.page.get_by_text("Layers are counted from 0 here")).to_be_visible()
    visit.page.get_by_role("button", name="the second, layer 1").click()
    expect(parts(visit)).to_have_text(["vertical", "layer = 1"])
    find(visit, "enntropy by layer")
    visit.page.get_by_role("button", name="entropy", exact=True).click()
    expect(visit.page.get_by_role("combobox", name="colour by")).to_have_value("entropy")


@pytest.mark.long
def test_names_that_differ_in_case_only_are_told_apart(visit: Visit) -> None:
    """`punct` is the punctuation, `PUNCT` a part of speech, of which this text has none: heads without a reading are not ranked."""
    visit.open(address(text=TEXT))
    find(visit, "token_types.punct > 0.02")
    expect(parts(visit)).to_have_text(["token_types.punct > 0.02"])
    expect(visit.page.get_by_text(re.compile(r"^\d+ of 72 heads"))).to_be_visible()
    count = len(served(visit, "token_types.punct > 0.02"))
    expect(visit.page.get_by_text(f"{count} of 72 heads")).to_be_visible()
    find(visit, "order by token_types.PUNCT desc limit 3")
    expect(parts(visit)).to_have_text(["by token_types.PUNCT, largest first", "3"])
    expect(visit.page.get_by_text("No head has a reading of token types.PUNCT here.")).to_be_visible()
    expect(found(visit)).to_have_count(0)


# Entry `find-error-34` of the gallery, and test_hostile.py; tests/unit has the sentences.
@pytest.mark.long
def test_what_cannot_be_read_is_said(visit: Visit) -> None:
    visit.network_errors_expected = True
    visit.open(address(text=TEXT))
    for said, sentence in (
        ("entropy <", "a number is missing here. (At character 10.)"),
        ("<img src=x onerror=alert(1)>", "a number is missing here. (At character 1.)"),
        ("heads that understand syntax", "I don't understand “understand syntax”. Did you mean one of these?"),
        ("which heads watch flowers", "I don't know the word “flowers”."),
    ):
        find(visit, said)
        expect(visit.page.locator("#find-answer")).to_contain_text(sentence)
        expect(box(visit)).to_have_value(said)


def test_a_sentence_chooses_what_else_it_asks_for(visit: Visit) -> None:
    visit.open(address(text=TEXT))
    find(visit, "compare raw and effective for head 3.10")
    expect(heading(visit)).to_have_text("Head 3.10")
    compare = visit.page.get_by_role("group", name="Compare")
    expect(compare.get_by_role("radio", name="side by side", exact=True)).to_be_checked()
    expect(parts(visit)).to_have_text(["weights", "effective", "3.10"])
    visit.page.get_by_role("button", name="Remove effective").click()
    expect(compare.get_by_role("radio", name="off", exact=True)).to_be_checked()
    find(visit, "what does 'river' attend to")
    expect(visit.tokens.filter(has_text="river")).to_contain_class("lit")


@pytest.mark.long
def test_heads_in_the_order_of_a_measure(visit: Visit) -> None:
    """The grid is walked as it stands."""
    visit.open(address(text=TEXT))
    visit.page.get_by_role("combobox", name="sort by").select_option("entropy")
    heads = served(visit, "order by entropy desc")
    labels = [f"Layer {head['layer']}, head {head['head']}" for head in heads]
    cells = visit.page.get_by_role("gridcell")
    expect(cells.first).to_have_accessible_name(labels[0])
    comes_to(lambda: cells.evaluate_all("(all) => all.map(({ ariaLabel }) => ariaLabel)"), labels)
    cells.first.click()
    visit.page.keyboard.press("ArrowRight")
    expect(visit.page.get_by_role("gridcell", name=labels[1], exact=True)).to_be_focused()
    visit.page.get_by_role("button", name="Sort smallest first").click()
    expect(cells.first).to_have_accessible_name(labels[-1])
    visit.page.get_by_role("combobox", name="sort by").select_option("layer")
    expect(cells.first).to_have_accessible_name("Layer 0, head 0")


# Entry `find-ranked-34` of the gallery.
@pytest.mark.long
def test_only_what_was_found_by_rank(visit: Visit) -> None:
    visit.open(address(text=TEXT, find="order by null_share desc limit 5", sort="rank"))
    expect(visit.page.get_by_role("gridcell")).to_have_count(5)


# test_measures.py marks them, too.
@pytest.mark.long
def test_patterns_are_marked(visit: Visit) -> None:
    visit.open(address(text=TEXT))
    grid = visit.page.get_by_role("grid", name="Heads").locator("..")
    plain = picture(grid)
    visit.page.get_by_role("checkbox", name="patterns").check()
    key = visit.page.get_by_role("list", name="Patterns of heads")
    expect(key).to_be_visible()
    comes_to(lambda: sum(int(text.split()[-1]) for text in key.get_by_role("listitem").all_inner_texts()), 72)
    another_picture(grid, plain)


# test_several_heads.py begins with the mean of two; search.test.ts has maxima.
@pytest.mark.long
def test_several_heads_as_one(visit: Visit) -> None:
    visit.open(address(text=TEXT, head="2.3"))
    visit.head(4, 5).click(modifiers=["Shift"])
    expect(heading(visit)).to_have_text("Mean of 2 heads")
    for head in (visit.head(2, 3), visit.head(4, 5)):
        expect(head).to_have_attribute("aria-selected", "true")
    mean = picture(visit.image("Heat map of mean of 2 heads"))
    visit.page.get_by_role("radio", name="maximum").check()
    expect(heading(visit)).to_have_text("Maximum of 2 heads")
    another_picture(visit.image("Heat map of maximum of 2 heads"), mean)
    visit.page.keyboard.press("Shift+Tab")
    visit.head(4, 5).focus()
    visit.page.keyboard.press("Shift+ArrowRight")
    expect(heading(visit)).to_have_text("Maximum of 3 heads")
    expect(visit.head(4, 6)).to_be_focused()
    visit.page.keyboard.press("ArrowRight")
    expect(heading(visit)).to_have_text("Head 4.7")
    expect(visit.head(2, 3)).to_have_attribute("aria-selected", "false")


def answered(visit: Visit, where: str, measure: str) -> list[dict[str, Any]]:
    """What the interface answers about an analysis of its own that has this measure."""
    request = {"model": "minilm", "text": TEXT, "measures": [measure]}
    api = f"{visit.root}/api/v1/analyses"
    made = visit.page.request.post(api, data=request, headers={"Prefer": "wait=30"}).json()["id"]
    return visit.page.request.get(f"{api}/{made}/heads", params={"where": where}).json()["heads"]


@pytest.mark.long
def test_sentences_are_done(visit: Visit) -> None:
    """One visit: what is asked by meaning, counted, opened, compared, pinned, drawn, explained, hidden and reset."""
    visit.open(address(text=TEXT))
    # The menu of sentences, by keyboard.
    visit.page.keyboard.press("f")
    visit.page.keyboard.press("Tab")
    visit.page.keyboard.press("Enter")
    menu = visit.page.get_by_role("list", name="Sentences to try")
    expect(menu.get_by_role("button")).to_have_count(13)
    visit.page.keyboard.press("ArrowDown")
    expect(menu.get_by_role("button", name="heads that ignore [SEP]")).to_be_focused()
    visit.page.keyboard.press("Enter")
    expect(menu).to_be_hidden()
    expect(parts(visit)).to_have_text(["by special_tokens.separator, smallest first", "5"])
    expect(found(visit)).to_have_count(5)
    lowest = answered(visit, "order by special_tokens.separator asc limit 5", "special_tokens")
    comes_to(lambda: names(visit), [f"{head['layer']}.{head['head']}" for head in lowest])

    find(visit, "what does it look at")  # with nothing pinned
    answer = visit.page.locator("#find-answer")
    expect(answer).to_contain_text("What do you mean by “it”? Choose a word, or click one first.")
    expect(answer.get_by_role("button")).to_have_text(["boats", "river", "bank", "while", "town", "kept"])
    find(visit, "heads attending to punctuation")
    expect(parts(visit)).to_have_text(["by token_norms.attention_punct, largest first", "5"])
    expect(found(visit)).to_have_count(5)
    find(visit, "attention to punctuation over 30 %")
    expect(parts(visit)).to_have_text(["token_norms.attention_punct > 30%"])
    find(visit, "how many heads are vertical?")
    expect(visit.page.get_by_text(re.compile(r"^\d+ of 72 heads are vertical:"))).to_be_visible()
    count = len(answered(visit, "vertical", "patterns"))
    expect(visit.page.get_by_text(f"{count} of 72 heads are vertical:")).to_be_visible()
    find(visit, "sink heads")
    expect(visit.page.get_by_text(re.compile(r"^\d+ of 72 heads are sinks:"))).to_be_visible()
    count = len(answered(visit, "sink.is_sink = 1", "sink"))
    expect(visit.page.get_by_text(f"{count} of 72 heads are sinks:")).to_be_visible()
    find(visit, "induction heads")
    expect(visit.page.get_by_text("No head has a reading of head roles.induction here.")).to_be_visible()

    find(visit, "open the sharpest head")
    expect(found(visit)).to_have_count(1)
    (best,) = answered(visit, "order by entropy asc limit 1", "entropy")
    expect(heading(visit)).to_have_text(f"Head {best['layer']}.{best['head']}")
    find(visit, "go to head 3.1")
    expect(heading(visit)).to_have_text("Head 3.1")
    find(visit, "go to L4H5")
    expect(heading(visit)).to_have_text("Head 4.5")
    find(visit, "strongest edge in head 4.5")
    expect(visit.page).to_have_url(re.compile("pins="))
    recent = visit.page.request.get(f"{visit.root}/api/v1/analyses").json()["items"][0]["id"]
    query = {"layer": 4, "head": 5, "rule": "top-k", "k": 1}
    answer = visit.page.request.get(f"{visit.root}/api/v1/analyses/{recent}/edges/weights", params=query)
    strongest = max(answer.json()["edges"], key=lambda edge: edge["weight"])
    expect(visit.page).to_have_url(re.compile(f"pins=q{strongest['query']}[+]k{strongest['key']}"))

    find(visit, "compare head 3.1 and 4.5")
    expect(visit.page).to_have_url(re.compile("than=4.5"))
    find(visit, "show the difference between weights and effective attention")
    compare = visit.page.get_by_role("group", name="Compare")
    expect(compare.get_by_role("radio", name="difference", exact=True)).to_be_checked()
    find(visit, "hide special tokens")
    expect(visit.page).to_have_url(re.compile("special=hide"))
    find(visit, "what does entropy mean?")
    expect(visit.page.locator("#find-answer")).to_contain_text("Entropy: How widely a query spreads its attention")
    find(visit, "what does it look at")
    expect(parts(visit)).to_have_text([f"kept (#{strongest['query']})"])
    find(visit, "switch to dark mode")
    expect(visit.page.locator("html")).to_have_attribute("data-theme", "dark")
    find(visit, "start over")
    expect(visit.page).not_to_have_url(re.compile("special=|compare=|find="))
    find(visit, "help")
    expect(visit.page.get_by_role("dialog")).to_be_visible()


@pytest.mark.long
def test_the_previous_answer_is_never_under_a_new_question(visit: Visit) -> None:
    visit.open(address(text=TEXT))
    find(visit, "heads 3.1 and 4.5")
    expect(found(visit)).to_have_count(2)
    held = list[Route]()
    visit.page.route("**/ask*", lambda route: held.append(route))
    find(visit, "compare")
    answer = visit.page.locator("#find-answer")
    expect(answer).to_have_text("Searching …")
    expect(answer).to_have_attribute("aria-busy", "true")
    expect(found(visit)).to_have_count(0)
    visit.page.unroute("**/ask*")
    expect(answer).to_contain_text("Compare what?")


def test_places_of_a_word_are_those_of_the_text_on_screen(visit: Visit) -> None:
    """A place is chosen among them; in another text none is at first."""
    sentence = "The cat sat on the mat. "
    visit.open(address(text=sentence * 40))
    field = visit.page.get_by_role("searchbox", name="Find a word in the text")
    said = visit.page.get_by_role("search").filter(has=field).get_by_role("status")
    field.fill("mat")
    for key in ("Enter", "Shift+Enter", "Shift+Enter", "Shift+Enter"):
        field.press(key)
    expect(said).to_have_text("38 of 40")
    visit.submit(sentence * 36)
    expect(said).to_have_text("36")
    visit.page.get_by_label("What is shown of the word").select_option("is looked at")
    field.press("Enter")
    expect(said).to_have_text("1 of 36")
