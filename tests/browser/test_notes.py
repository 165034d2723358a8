"""Stars and notes on heads, in the link; named sessions, in the browser and as a file."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.axe import check
from tests.browser.test_comparison import SENTENCE
from tests.browser.visit import Visit, address
from tests.support.extent import extent


def test_stars_and_notes(visit: Visit) -> None:
    """Kept in the link, over a reload and for their model only; undone like any choice; a note that is too long stays, and says so."""
    visit.open(address(text=SENTENCE, head="3.1"))
    visit.page.keyboard.press("s")
    starred = visit.page.get_by_role("button", name="Star head 3.1")
    expect(starred).to_have_attribute("aria-pressed", "true")
    visit.page.keyboard.press("n")
    note = visit.page.get_by_role("textbox", name="Note on head 3.1")
    expect(note).to_be_focused()
    visit.page.keyboard.type("Reads “it”: the trophy & more")
    visit.head(4, 5).click()
    visit.page.get_by_role("button", name="Star head 4.5").click()
    listed = visit.page.get_by_role("list", name="Starred heads").get_by_role("button")
    expect(listed).to_have_text(["3.1", "4.5"])
    check(visit, entry="notes-34")
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
    expect(listed).to_have_text(["3.1", "4.5"])
    expect(visit.head(3, 1)).to_have_accessible_description("starred")
    listed.first.press("Enter")
    expect(note).to_have_value("Reads “it”: the trophy & more")

    note.fill("x" * 501)
    warning = visit.page.get_by_role("alert").filter(has_text="A note may have 500 characters, and this one has 501.")
    expect(warning).to_be_visible()
    expect(note).to_have_value("x" * 501)
    assert "xxx" not in visit.page.url
    note.fill("x" * 500)
    expect(warning).to_be_hidden()
    starred.click()
    expect(listed).to_have_text(["4.5"])
    visit.page.keyboard.press("Control+z")
    expect(note).to_have_value("x" * 500)
    visit.page.get_by_role("combobox", name="Model").select_option(label="t5")
    expect(visit.page.get_by_role("heading", name="Head 1.1", exact=True)).to_be_visible()
    expect(listed).to_have_count(0)


def test_sessions(visit: Visit, tmp_path: Path) -> None:
    """Saved with stars and notes, renamed, deleted and brought back, exported and imported, opened; all of it by keyboard."""
    notes = json.dumps({"minilm/self": {"3.1": "first"}})
    visit.open(address(text=SENTENCE, head="3.1", notes=notes))
    visit.page.keyboard.press("o")
    name = visit.page.get_by_role("textbox", name="Name of the session")
    sessions = visit.page.get_by_role("list", name="Sessions").get_by_role("listitem")
    name.press("Enter")
    expect(visit.page.get_by_role("alert")).to_have_text("Enter a name for the session.")
    name.fill("Trophy")
    name.press("Enter")
    expect(visit.page.get_by_role("status").filter(has_text="“Trophy” is saved in this browser.")).to_be_visible()
    name.fill("Trophy")
    expect(visit.page.get_by_role("button", name="Replace")).to_be_visible()
    check(visit, entry="sheet-of-sessions")
    visit.page.get_by_role("button", name="Rename Trophy").press("Enter")
    check(visit, narrow=False, entry="sheet-of-sessions")
    visit.page.get_by_role("textbox", name="New name").fill("Suitcase")
    visit.page.keyboard.press("Enter")
    expect(visit.page.get_by_role("button", name="Suitcase", exact=True)).to_be_visible()
    with visit.page.expect_download() as download:
        visit.page.get_by_role("button", name="Export all").press("Enter")
    file = tmp_path / "sessions.json"
    download.value.save_as(file)
    visit.page.get_by_role("button", name="Delete Suitcase").press("Enter")
    expect(visit.page.get_by_text("No sessions yet.")).to_be_visible()
    visit.page.get_by_role("button", name="Undo", exact=True).press("Enter")
    expect(sessions).to_have_count(1)
    visit.page.get_by_role("button", name="Delete Suitcase").press("Enter")
    chooser = visit.page.get_by_label("File of sessions")
    chooser.set_input_files(file)
    expect(visit.page.get_by_text("1 session imported.")).to_be_visible()
    chooser.set_input_files(file)
    expect(visit.page.get_by_text("0 sessions imported; 1 already here.")).to_be_visible()
    file.write_text("[1, 2")
    chooser.set_input_files(file)
    expect(visit.page.get_by_role("alert")).to_have_text(re.compile("This file contains no sessions"))
    visit.page.keyboard.press("Escape")

    visit.submit("The cat sat.")
    visit.head(0, 0).click()
    visit.page.reload()
    visit.page.keyboard.press("o")
    visit.page.get_by_role("button", name="Suitcase", exact=True).press("Enter")
    visit.shows(*"The trophy did not fit into the suitcase because it was too big .".split())
    expect(visit.page.get_by_role("heading", name="Head 3.1", exact=True)).to_be_visible()
    expect(visit.page.get_by_role("textbox", name="Note on head 3.1")).to_have_value("first")
    visit.page.go_back()
    visit.shows("The", "cat", "sat", ".")
