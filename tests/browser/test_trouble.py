"""Errors, long runs, cancelling, and a worker that dies: one plain sentence, and the old picture is kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Route, expect

from tests.browser.visit import Visit, address
from tests.support.server import Server, eventually

# Some seconds of the model `deep`.
LASTING = "The cat sat on the mat because it was tired. " * 36


def kept(visit: Visit) -> None:
    """The picture of the first example is still there and answers."""
    expect(visit.tokens.filter(has_text="boats")).to_have_count(2)
    expect(visit.image("Heat map of head 2.9")).to_be_visible()
    before = visit.now()
    visit.head(1, 1).click()
    visit.painted("head", before)


@pytest.mark.long
def test_empty_text(visit: Visit) -> None:
    visit.open()
    visit.text.fill("  ")
    visit.text.press("Enter")
    expect(visit.page.get_by_text("Type a sentence first.")).to_be_visible()
    expect(visit.analyse).to_have_attribute("aria-disabled", "true")
    kept(visit)


@pytest.mark.long
def test_too_long_text(visit: Visit) -> None:
    """The sentence has the numbers, says what to do here, and the text is still in its box."""
    visit.open()
    visit.network_errors_expected = True
    text = "word " * 600
    visit.text.fill(text)
    visit.text.press("Enter")
    expect(visit.alert).to_contain_text(
        "The text has 602 tokens; this model accepts 512. Your text is kept. Shorten it"
    )
    expect(visit.alert).not_to_contain_text("max_tokens")
    expect(visit.text).to_have_value(text)
    kept(visit)
    visit.page.get_by_role("button", name="Close").click()
    expect(visit.alert).to_have_count(0)


@pytest.mark.long
def test_a_text_of_a_megabyte(visit: Visit) -> None:
    """It is refused with its size, is not in the address, and its beginning is analysed when that is asked for."""
    visit.open()
    visit.network_errors_expected = True
    visit.page.evaluate("(text) => { document.getElementById('text').value = text }", "word " * 210_000)
    visit.text.press("End")
    visit.page.keyboard.insert_text("end")
    visit.text.press("Enter")
    expect(visit.alert).to_contain_text("The text has 1,026 KiB; this server accepts 256 KiB. Your text is kept.")
    assert visit.page.evaluate("location.href.length") < 1000
    kept(visit)
    assert visit.page.evaluate("location.href.length") < 1000
    before = visit.now()
    visit.page.get_by_role("button", name="Analyse the first 512 tokens").click()
    visit.settled(before)
    expect(visit.tokens).to_have_count(512)


@pytest.mark.long
def test_no_network(visit: Visit) -> None:
    """The message offers to try again, and goes when the network is back; what was asked for is then analysed."""
    visit.network_errors_expected = True
    visit.open(address(text="The red cat."))
    visit.context.set_offline(True)
    visit.text.fill("The red dog.")
    visit.text.press("Enter")
    expect(visit.alert).to_contain_text("The server cannot be reached.")
    visit.alert.get_by_role("button", name="Try again").click()
    expect(visit.alert.get_by_role("button", name="Try again")).to_be_visible()
    before = visit.now()
    visit.context.set_offline(False)
    visit.settled(before)
    visit.shows("The", "red", "dog", ".")
    expect(visit.alert).to_have_count(0)


@pytest.mark.long
def test_unknown_model_in_the_address(visit: Visit) -> None:
    visit.network_errors_expected = True
    visit.page.goto(f"{visit.root}/{address(text='Hello there.', model='nonesuch', focus='on')}")
    # Without a figure there is nothing to look at alone.
    expect(visit.alert).to_contain_text("This server has no model named “nonesuch”.")
    visit.page.get_by_text("Nothing has been analysed yet.").hover()  # the message is above it, not on it
    expect(visit.text).to_have_value("Hello there.")
    expect(visit.page.get_by_role("combobox", name="Model").locator("option:checked")).to_have_text("nonesuch: unknown")
    # The way out is on the page.
    visit.page.get_by_role("combobox", name="Model").select_option("minilm")
    visit.painted("head")
    expect(visit.page.get_by_role("banner")).to_be_hidden()
    visit.page.keyboard.press("Escape")
    visit.shows("Hello", "there", ".")


# Everything that lines of status say from now on.
RECORD = """globalThis.said = []
new MutationObserver(() => {
  for (const line of document.querySelectorAll('[role=status]')) globalThis.said.push(line.textContent)
}).observe(document.body, { subtree: true, childList: true, characterData: true })"""


def paused(visit: Visit, server: Server) -> str:
    """Start a long run by hand and stop its worker midway, however slowly the page follows; its id, once the page says that the model runs."""
    visit.open()
    with visit.page.expect_response(lambda answer: answer.request.method == "POST") as answer:
        visit.page.goto(f"{visit.root}/{address(model='deep', text=LASTING, head='2.9')}")
    identity = str(answer.value.json()["id"])
    server.forward(identity)
    server.child().suspend()
    line = visit.page.get_by_role("status").filter(has_text="Escape cancels.")
    expect(line).to_contain_text(
        re.compile("Waiting for the worker|Loading the model|Running the model|Reading the maps")
    )
    return identity


def test_progress_and_cancel(visits: Callable[..., Visit], server: Server) -> None:
    """A line and a thin bar while it runs, the old picture dimmed; Cancel ends it here and on the server, as Escape does."""
    visit = visits(reduced_motion="reduce")
    identity = paused(visit, server)
    expect(visit.page.get_by_role("main")).to_have_attribute("aria-busy", "true")
    bar = visit.page.get_by_role("progressbar")
    expect(bar).to_have_css("height", "2px")
    # Who asks for less motion gets none.
    expect(bar).to_have_css("transition-duration", "0s")
    moving = "document.getAnimations().filter(({ effect }) => effect.getTiming().duration > 0).length"
    assert visit.page.evaluate(moving) == 0
    server.child().resume()
    visit.text.press("Enter")  # which closes the boxes: a click beside them leaves them closed
    visit.page.get_by_role("button", name="Cancel").click()
    expect(visit.page.get_by_role("button", name="as token ids")).to_be_hidden()
    expect(bar).to_have_count(0)
    expect(visit.page.get_by_role("main")).to_have_attribute("aria-busy", "false")
    expect(visit.tokens.filter(has_text="boats")).to_have_count(2)
    eventually(lambda: server.get(f"/analyses/{identity}").json().get("status") == "cancelled", "cancelled")


@pytest.mark.long
def test_cancel_before_the_answer(visit: Visit, server: Server) -> None:
    """Escape pressed before the server has said the run's id cancels it all the same."""
    visit.open()
    told: list[str] = []

    def late(route: Route) -> None:
        answer = route.fetch()
        told.append(answer.json()["id"])
        visit.page.keyboard.press("Escape")
        route.fulfill(response=answer)

    visit.page.route("**/api/v1/analyses", late)
    visit.page.goto(f"{visit.root}/{address(model='deep', text=LASTING + 'Again.', head='2.9')}")
    eventually(lambda: visit.page.evaluate("1") and told, "an answer")
    expect(visit.page.get_by_role("progressbar")).to_have_count(0)
    eventually(lambda: server.get(f"/analyses/{told[0]}").json().get("status") == "cancelled", "cancelled")
    expect(visit.tokens.filter(has_text="boats")).to_have_count(2)


@pytest.mark.long
def test_worker_killed(visit: Visit, server: Server) -> None:
    """The page says that the worker was restarted, and then shows the result."""
    identity = paused(visit, server)
    visit.page.evaluate(RECORD)
    server.kill_child()
    visit.holds("said.some((text) => text.includes('was restarted'))")
    expect(visit.page.get_by_text("120 heads")).to_be_visible()
    document: dict[str, Any] = server.get(f"/analyses/{identity}").json()
    assert (document["status"], document["attempts"]) == ("done", 2)
    expect(visit.page.get_by_role("grid", name="Heads")).to_have_attribute("aria-rowcount", "60")
