"""Models with a mechanism of their own on the page: it is chosen with them, what departs from it is a what-if, and twins are a click apart."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.visit import Visit, address
from tests.support.extent import extent
from tests.support.models import HOPFIELD
from tests.support.server import Server

SENTENCE = "The cat sat on the mat because it was tired."
TWIN, PLAIN = "twin-bert-hopfield", "twin-bert-softmax"
WHAT_IF = re.compile("^This is a what-if: the model was trained with ")


def menu(visit: Visit, name: str) -> Locator:
    return visit.page.get_by_role("combobox", name=name, exact=True)


def cosine(server: Server) -> float:
    """Of head 1.2 in the two twins, each as it was trained, as the interface says it."""
    asked = {"text": SENTENCE, "lenses": ["weights", "effective"]}
    plain = server.analyse(**asked, model=PLAIN, mechanism="softmax")["id"]
    other = server.analyse(**asked, model=TWIN, mechanism=HOPFIELD)["id"]
    found = server.get(f"/analyses/{plain}/compare/{other}", params={"lens": "weights"}).json()
    return float(np.array(found["cosine"])[1, 2])


def test_a_model_comes_with_its_mechanism(visit: Visit) -> None:
    """Chosen with the model, named as what it was trained with, and not in the address; left again with the model."""
    visit.open(address(text=SENTENCE, mechanism="hopfield", params='{"alpha":0.2}', head="1.2"))
    menu(visit, "Model").select_option(value=TWIN)
    expect(menu(visit, "Mechanism")).to_have_value("hopfield")
    legend = visit.page.get_by_role("group", name="Hopfield, as trained")
    expect(legend.get_by_label("alpha")).to_have_value("0.5")
    visit.idle()
    assert "mechanism=" not in visit.page.url
    expect(visit.page.get_by_text(WHAT_IF)).to_have_count(0)
    labels = menu(visit, "Mechanism").locator("optgroup").evaluate_all("(all) => all.map(({ label }) => label)")
    assert labels == ["As trained", "Alternatives"]
    menu(visit, "Model").select_option(value="minilm")
    expect(menu(visit, "Mechanism")).to_have_value("softmax")
    expect(menu(visit, "Mechanism").locator("optgroup")).to_have_count(0)


def test_what_departs_from_it(visit: Visit) -> None:
    """Other parameters or another mechanism are a what-if and stand in the address; its own does not."""
    visit.open(address(text=SENTENCE, model=TWIN, head="1.2"))
    visit.page.get_by_label("alpha").fill("0.25")
    visit.page.get_by_label("alpha").press("Enter")
    expect(visit.page.get_by_text(WHAT_IF).first).to_contain_text("other parameters of the mechanism Hopfield")
    expect(visit.page.get_by_role("group", name="Hopfield", exact=True)).to_be_visible()
    menu(visit, "Mechanism").select_option(label="Softmax")
    expect(visit.page.get_by_text(WHAT_IF).first).to_have_text(re.compile("trained with the mechanism Hopfield"))
    assert "mechanism=softmax" in visit.page.url
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
    expect(menu(visit, "Mechanism")).to_have_value("softmax")
    menu(visit, "Mechanism").select_option(label="Hopfield")
    expect(visit.page.get_by_text(WHAT_IF)).to_have_count(0)
    assert "mechanism=" not in visit.page.url


def test_its_twin_is_the_first_to_compare_with(visit: Visit, server: Server) -> None:
    """Both as they were trained: the numbers are those of the interface. A lens to compare with leaves the twin."""
    visit.open(address(text=SENTENCE, model=PLAIN, head="1.2"))
    first = menu(visit, "Compare with").locator("optgroup").first
    expect(first).to_have_attribute("label", "Twin")
    menu(visit, "Compare with").select_option(label="its twin: Hopfield")
    expect(visit.image("Hopfield map of head 1.2")).to_be_visible()
    expect(visit.page.get_by_text(f"Cosine of the two maps: {cosine(server):.4g}")).to_be_visible()
    expect(visit.page.get_by_text(WHAT_IF)).to_have_count(0)
    menu(visit, "Compare with").select_option(label="effective")
    expect(visit.image("Hopfield map of head 1.2")).to_have_count(0)


@pytest.mark.long
def test_an_example_of_two_twins(visit: Visit) -> None:
    """At a click both are side by side; a lesson about one model leaves them."""
    visit.open(address(text=SENTENCE, mechanism="jump"))
    visit.page.get_by_role("button", name="Examples", exact=True).click()
    visit.page.get_by_role("button", name=re.compile("^Two mechanisms")).click()
    expect(visit.page.get_by_role("img", name=re.compile("^Hopfield map of head "))).to_be_visible()
    expect(menu(visit, "Model")).to_have_value(PLAIN)
    expect(menu(visit, "Mechanism")).to_have_value("softmax")
    expect(visit.alert).to_have_count(0)
    visit.page.get_by_role("button", name="Examples", exact=True).click()
    visit.page.get_by_role("button", name="Tour of the lenses").click()
    visit.page.get_by_role("button", name=re.compile("A column without effect")).click()
    expect(menu(visit, "Model")).to_have_value("minilm")
    expect(visit.page.get_by_role("img", name=re.compile("^Hopfield map "))).to_have_count(0)


@pytest.mark.long
def test_the_model_that_it_is_compared_with_is_chosen(visit: Visit) -> None:
    """The two change places, and pointing at a cell says a number for each."""
    visit.open(address(text=SENTENCE, model=PLAIN, head="1.2"))
    menu(visit, "Compare with").select_option(label="its twin: Hopfield")
    expect(visit.image("Hopfield map of head 1.2")).to_be_visible()
    menu(visit, "Model").select_option(value=TWIN)
    expect(menu(visit, "Compare with").locator("option:checked")).to_have_text("its twin: softmax")
    visit.idle()
    cells = visit.page.get_by_role("application", name=re.compile("^Cells of the .*map of head 1.2"))
    cells.first.hover(position={"x": 120, "y": 120})
    expect(visit.page.get_by_role("status").filter(has_text="difference")).to_be_visible()


def test_a_study_begins_with_it(visit: Visit) -> None:
    """The form for studies chooses a model's own mechanism, too, and goes back to it."""
    visit.page.goto(f"{visit.root}/?studies")
    visit.page.get_by_role("button", name="New study").click()
    menu(visit, "model").select_option(value=TWIN)
    expect(menu(visit, "mechanism")).to_have_value("hopfield")
    menu(visit, "mechanism").select_option(label="Softmax")
    menu(visit, "model").select_option(value="minilm")
    expect(menu(visit, "mechanism")).to_have_value("softmax")
    menu(visit, "model").select_option(value=TWIN)
    expect(menu(visit, "mechanism")).to_have_value("hopfield")
