"""Parameters of methods for effects, and why a head looks at a cell, on the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from playwright.sync_api import expect

from headscope.analysis.head_scores_request import NOT_CAUSAL
from headscope.effects import EFFECTS
from tests.browser import axe
from tests.browser.effects import (
    SHORT,
    adjust,
    colour_by,
    effect,
    inline,
    map_of,
    short,
    shows_effect,
    strongest,
    without,
)
from tests.browser.visit import Visit, address
from tests.support.extent import extent
from tests.support.server import Server

Begin = Callable[..., Visit]


def test_parameters_of_every_method(visits: Begin, server: Server) -> None:
    """Every parameter that a method declares has a control, and what is chosen is computed: reference texts, steps and signs of maps, and tokens to name."""
    visit = visits()
    page = visit.page
    visit.open(address(model="writer", text=SHORT, head="1.2", predict="show"))
    elsewhere = {"heads", "sources"}  # the heads that are off, and the lens
    offered = [one for one in EFFECTS.values() if one.of == "prediction" and one.name != "alti-logit"]
    for method in offered[:: extent(1, 3)]:
        colour_by(visit, inline(method.title))
        declared = [name for name in method.params.model_fields if name not in elsewhere]
        controls = (
            page.locator(".effects fieldset").filter(has=page.get_by_text(method.title, exact=True)).locator("label")
        )
        expect(controls).to_have_count(len(declared))
    colour_by(visit, "ablation")
    adjust(visit, "Ablation", "how", "reference")
    texts = page.get_by_role("textbox", name="Reference texts")
    expect(page.get_by_text("Type at least one reference text.")).to_be_visible()
    texts.fill("The mat is red.\n\nA cat ran.")
    texts.blur()
    reference = {"method": {"name": "ablation", "how": "reference"}, "reference": ["The mat is red.", "A cat ran."]}
    shows_effect(visit, 1, 2, effect(server, SHORT, "writer", **reference)["effects"][1][2])
    page.get_by_role("button", name="switch 1.2 off").click()
    expect(without(visit)).to_have_count(5)
    page.get_by_role("button", name="all on").click()
    axe.check(visit, entry="effects-12")
    colour_by(visit, "direct contribution")
    page.get_by_role("spinbutton", name="writes").fill("1")
    page.get_by_role("spinbutton", name="writes").press("Enter")
    writes = effect(server, SHORT, "writer", method={"name": "contribution", "writes": 1})["writes"][1][2]
    said = f"Raises most “{writes[0]['text']}” (+{short(writes[0]['logit'])}); lowers most “{writes[1]['text']}”"
    expect(page.get_by_text(said)).to_be_visible()
    page.get_by_role("combobox", name="Lens").select_option(label="gradient × attention")
    adjust(visit, "Gradient × attention", "sign", "clamp")
    clamped = {"name": "gradient-attention", "sign": "clamp"}
    visit.image("Heat map of head 1.2").wait_for()
    strongest(visit, map_of(server, SHORT, "writer", method=clamped)[1, 2])


def test_why_a_head_looks_there(visits: Begin, server: Server) -> None:
    """Of the pinned cell: the terms of every key, and what the parts below bring through the query or the key, by hand, by a link, and without predictions."""
    visit = visits()
    page = visit.page
    visit.open(address(model="writer", text=SHORT, head="1.2", view="map"))
    cells = page.get_by_role("application", name=re.compile("^Cells of the heat map of")).first
    cells.focus()
    for step in ("Home", *("ArrowUp",) * 7, *("ArrowDown",) * 5, *("ArrowRight",) * 2, "Enter"):
        cells.press(step)
    page.get_by_role("button", name="why 1.2 looks there").click()
    cell: dict[str, Any] = {"name": "score", "head": "1.2", "query": 5, "key": 2}
    found = effect(server, SHORT, "writer", method=cell)
    terms = found["score"]["terms"]
    rows = page.get_by_role("region", name="Scores of the keys").get_by_role("row")
    heads = ["key", "weight", "score", *(name for name in terms if name not in ("score", "weight"))]
    expect(rows.first.locator("th")).to_have_text(heads)
    order = np.argsort([-weight for weight in terms["weight"][:6]])
    expect(rows).to_have_count(1 + len(order))
    for place, key in enumerate(order.tolist()):
        cells_of = [short(terms[name][key]) for name in ("score", *heads[3:])]
        expect(rows.nth(1 + place).locator("td:not(:first-of-type)")).to_have_text(cells_of)
    for side in extent(("query", "key"), ("key",)):
        page.get_by_role("group", name="What brings it, by").get_by_text(side, exact=True).click()
        parts = effect(server, SHORT, "writer", method={**cell, "side": side})
        listed = page.get_by_role("list", name="Parts of the score").get_by_role("listitem")
        largest = max(
            (abs(value) for row in parts["effects"] for value in row),
            default=0.0,
        )
        sums = [abs(value) for name in ("mlp", "embedding", "bias") for value in parts["parts"][name]]
        expect(listed.first).to_contain_text(short(max(largest, *sums)))
    page.get_by_role("group", name="What brings it, by").get_by_text("pairs", exact=True).click()
    pairs = effect(server, SHORT, "writer", method={**cell, "pairs": 8})["score"]["pairs"]
    listed = page.get_by_role("list", name="Parts of the score").get_by_role("listitem")
    expect(listed).to_have_count(9)
    for item, pair in zip(listed.all()[:8], pairs, strict=True):
        expect(item).to_contain_text(short(abs(pair["value"])))
    whole = sum(terms[name][2] for name in ("content", "rotation") if name in terms)
    expect(page.get_by_text(re.compile("^all pairs: ")).locator("..")).to_contain_text(short(abs(whole)))
    axe.check(visit)
    rows.nth(1).get_by_role("button").click()
    expect(rows.nth(1)).to_have_class(re.compile("here"))

    if extent(True, False):  # test_address.py opens a link in another window
        linked = visits().open(address(text=SHORT, head="3.1", why="query", pins="q3 k2"))
        expect(linked.page.get_by_role("heading", name="Why it looks there")).to_be_visible()
        expect(linked.page.get_by_role("list", name="Parts of the score").get_by_role("listitem")).to_have_count(9)
        page = linked.page
    page.get_by_role("button", name="Close the score").click()
    expect(page.get_by_role("button", name=re.compile(r"^why \d\.\d looks there"))).to_be_visible()


def test_what_a_head_is_for(visits: Begin, server: Server) -> None:
    """By keyboard: all batteries test the model; the open head's scores are beside those by chance, the best heads can be opened, and a model without batteries says so."""
    visit = visits()
    page, keys = visit.page, visit.page.keyboard
    visit.open(address(model="writer", text=SHORT, head="1.2"))
    page.get_by_role("button", name="test what 1.2 is for").press("Enter")
    panel = page.get_by_role("region", name="What 1.2 is for")
    expect(panel.get_by_role("button", name="Close the tests")).to_be_focused()
    result = server.post({}, "/models/writer/head-scores", headers={"Prefer": "wait=60"}).json()["result"]
    batteries = server.get("/batteries").json()["items"]
    expect(panel.get_by_role("row")).to_have_count(1 + len(batteries))
    for battery in batteries:
        scores, controls = (np.array(result[name][battery["name"]]) for name in ("scores", "controls"))
        best = np.argsort(-scores, axis=None, kind="stable")[:3]
        leaders = [f"{at // scores.shape[1]}.{at % scores.shape[1]}" for at in best]
        row = panel.get_by_role("row", name=re.compile(f"^{battery['title']}"))
        expect(row.get_by_role("cell")).to_have_text([f"{scores[1, 2]:.2f}", f"{controls[1, 2]:.2f}", "".join(leaders)])
    keys.press("Tab")
    keys.press("Enter")
    expect(panel.get_by_text(batteries[0]["not"])).to_be_visible()
    axe.check(visit, entry="head-tests-12")
    panel.get_by_role("button", name=f"Open head {leaders[0]}").press("Enter")
    expect(page.get_by_role("heading", name=f"What {leaders[0]} is for")).to_be_visible()
    page.get_by_role("button", name="Close the tests").press("Enter")
    expect(page.get_by_role("button", name=f"test what {leaders[0]} is for")).to_be_focused()

    if extent(True, False):  # tests/api has what is refused
        visit.network_errors_expected = True
        visit.open(address(model="minilm", text=SHORT, head="1.2"))
        expect(visit.head(5, 11)).to_be_visible()  # of this model, no longer of the other one
        page.get_by_role("button", name="test what 1.2 is for").click()
        expect(page.get_by_role("region", name="What 1.2 is for").get_by_text(NOT_CAUSAL)).to_be_visible()
