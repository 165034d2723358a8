"""Every lens and mechanism that there is: chosen, adjusted, kept in the address, and refused with the reason."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from headscope.effects import EFFECTS
from headscope.lenses import LENSES
from headscope.mechanisms import MECHANISMS
from tests.browser.visit import Visit, address, comes_to, picture
from tests.support.extent import extent
from tests.support.server import Server

TEXT = (
    "The bank by the river lent money to the boats of the bank in town, and the boats were late all winter long again."
)


def offered(menu: Locator) -> list[str]:
    """The values that a menu has."""
    values: list[str] = menu.locator("option").evaluate_all("(all) => all.map(({ value }) => value)")
    return values


def test_menus_offer_everything_with_reasons(visit: Visit) -> None:
    """All lenses, by whether they read heads or layers, maps of effects, and all mechanisms; what the model can't carry is disabled and says why."""
    visit.open(address(text=TEXT))
    lens = visit.page.get_by_role("combobox", name="Lens")
    effects = [f"effect.{name}" for name, method in EFFECTS.items() if method.maps]
    comes_to(lambda: sorted(offered(lens)), sorted([*LENSES, *effects]))
    expect(lens.locator("optgroup")).to_have_count(3)
    refused = lens.locator("option:disabled")
    expect(refused).to_have_count(len(effects))
    for option in refused.all():
        assert option.get_attribute("value") in effects
        assert "no head" in (option.get_attribute("title") or "")
    comes_to(lambda: offered(visit.page.get_by_role("combobox", name="Mechanism")), list(MECHANISMS))
    visit.page.goto(f"{visit.root}/{address(text='The cat sat.', model='writer')}")
    visit.page.reload()
    visit.painted("head")
    refused = lens.locator("option[value='effective-published']")
    expect(refused).to_be_disabled()
    expect(refused).to_have_attribute("title", re.compile("published code pads"))
    jump = visit.page.get_by_role("combobox", name="Mechanism").locator("option[value='jump']")
    expect(jump).to_have_attribute("title", re.compile("masks later ones"))


@pytest.mark.long
def test_a_lens_of_whole_layers(visit: Visit) -> None:
    """One column with the layers' names, walked by the keys; back to heads, the open head is the one of before."""
    visit.open(address(text=TEXT, head="3.7"))
    visit.lens("rollout")
    expect(visit.page.get_by_role("gridcell")).to_have_count(6)
    cell = visit.page.get_by_role("gridcell", name="Layer 3", exact=True)
    expect(cell).to_have_attribute("aria-selected", "true")
    cell.focus()
    visit.page.keyboard.press("ArrowDown")
    expect(visit.page.get_by_role("gridcell", name="Layer 4", exact=True)).to_be_focused()
    expect(visit.page.get_by_role("heading", name="Layer 4")).to_be_visible()
    assert picture(visit.image("Heat map of layer 4"))[0] > 10
    visit.lens("weights")
    expect(visit.head(4, 7)).to_have_attribute("aria-selected", "true")


def test_parameters(visit: Visit, server: Server) -> None:
    """Controls for the parameters of mechanism and lens; they go into the request and the address, and a reload keeps them."""
    visit.open(address(text=TEXT, mechanism="hopfield", lens="rollout"))
    alpha = visit.page.get_by_role("spinbutton", name="alpha")
    expect(alpha).to_have_value("0.5")
    for name, value in (("alpha", "0.25"), ("residual", "0.75")):
        before = visit.now()
        box = visit.page.get_by_role("spinbutton", name=name)
        box.fill(value)
        box.press("Enter")
        visit.settled(before)
    before = visit.now()
    visit.page.get_by_role("combobox", name="initial").select_option("first")
    visit.settled(before)
    latest = server.get("/analyses").json()["items"][0]["id"]
    document = server.get(f"/analyses/{latest}").json()
    assert document["mechanism"] == {"name": "hopfield", "alpha": 0.25, "initial": "first"}
    assert document["maps"]["rollout"]["params"] == {"residual": 0.75}
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        visit.painted("head")
    expect(alpha).to_have_value("0.25")
    expect(visit.page.get_by_role("spinbutton", name="residual")).to_have_value("0.75")


# session.test.ts, and test_outdated.py for a text that is refused.
@pytest.mark.long
def test_a_wrong_parameter_is_said(visit: Visit) -> None:
    """The server's sentence, with what was on screen kept."""
    visit.network_errors_expected = True
    visit.open(address(text=TEXT, mechanism="hopfield"))
    box = visit.page.get_by_role("spinbutton", name="alpha")
    box.fill("7")
    box.press("Enter")
    expect(visit.alert).to_contain_text("less than 1")
    assert picture(visit.image("Heat map of head 2.9"))[0] > 10


# gaps.test.ts.
@pytest.mark.long
def test_heads_without_a_reading(visit: Visit) -> None:
    """They are hatched, and say so."""
    long = " ".join([TEXT, TEXT])
    visit.open(address(text=long, lens="max-entropy", lensparams='{"max-entropy":{"iterations":1}}'))
    cell = visit.head(0, 0)
    cell.hover()
    expect(visit.page.get_by_text(re.compile("no reading|without a reading")).first).to_be_visible()
    expect(visit.page.get_by_text(re.compile("rows have no reading")).first).to_be_visible()


def test_cross_attention(visit: Visit) -> None:
    """Queries and keys are different tokens, each named on its own axis."""
    visit.open(address(model="t5", text="The cat sat.", pair="A dog.", kind="cross", head="0.0"))
    expect(visit.page.get_by_role("combobox", name="Attention")).to_have_value("cross")
    queries = visit.page.get_by_role("toolbar", name="Query tokens").get_by_role("button")
    keys = visit.page.get_by_role("toolbar", name="Key tokens").get_by_role("button")
    expect(keys.first).to_be_visible()
    assert queries.count() != keys.count()
    expect(visit.page.get_by_text(f"{queries.count()} × {keys.count()} tokens")).to_be_visible()
    keys.first.hover()
    expect(visit.page.get_by_text(re.compile("→")).first).to_be_visible()
    assert picture(visit.image("Heat map of head 0.0"))[0] > 4
    before = visit.now()
    visit.page.get_by_role("combobox", name="Attention").select_option("encoder")
    visit.settled(before)
    expect(visit.page.get_by_role("toolbar", name="Tokens", exact=True)).to_be_visible()


@pytest.mark.long
def test_colour_by_a_measure_that_is_not_there_yet(visit: Visit) -> None:
    """It is computed, then heads are coloured by it."""
    visit.open(address(text=TEXT))
    before = visit.now()
    visit.page.get_by_role("combobox", name="colour by").select_option("participation_ratio")
    visit.settled(before)
    visit.head(1, 1).hover()
    expect(visit.page.get_by_text(re.compile("1.1 · .*tokens"))).to_be_visible()
