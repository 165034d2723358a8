"""What heads do to a prediction: the target, the grid by effect, heads switched off, and another text, by hand and by keyboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from headscope.effects import EFFECTS
from tests.browser import axe
from tests.browser.effects import (
    SHORT,
    adjust,
    colour_by,
    copied,
    correlation,
    effect,
    map_of,
    outcomes,
    short,
    shows_effect,
    strongest,
    without,
)
from tests.browser.test_inputs import choose_model
from tests.browser.visit import Visit, address, comes_to
from tests.support.commands import run
from tests.support.extent import extent
from tests.support.server import Server

TEXT = "When Mary and John went to the store, John gave a drink to"
FLIP = ((0, 0), (23, 3), (29, 1))
FILM = "A wonderful film."
OTHER = "The mat sat on the cat."
Begin = Callable[..., Visit]


@pytest.fixture(scope="module")
def smollm2(server: Server) -> Iterator[str]:
    """The real model, installed beside the small ones for this file."""
    ended = run(server.home, "models", "install", "smollm2")
    assert ended.returncode == 0, ended.stderr
    yield "smollm2"
    shutil.rmtree(server.home / "models" / "smollm2")


@pytest.mark.long
def test_three_heads_flip_a_prediction(visits: Begin, server: Server, smollm2: str) -> None:
    """The mouse chooses " Mary" over " John" and switches heads off until the model predicts " John"; the keyboard, too."""
    tall = {"width": 1500, "height": 1400}
    visit = visits(viewport=tall).open(address(model=smollm2, text=TEXT, head="29.1"))
    page = visit.page
    page.get_by_role("button", name="Predictions", exact=True).click()
    expect(outcomes(visit).first).to_contain_text(" Mary")
    outcomes(visit).first.click()
    outcomes(visit).filter(has_text=" John").click()
    expect(page.get_by_text("+6.1 logits")).to_be_visible()
    colour_by(visit, "direct contribution")
    target = {"target": [" Mary", " John"]}
    contributions = np.array(effect(server, TEXT, smollm2, **target)["effects"])
    writes = effect(server, TEXT, smollm2, method={"name": "contribution", "writes": 3})["writes"]
    raising = np.argsort(-contributions, axis=None)[:2]
    for layer, head in np.column_stack(np.unravel_index(raising, contributions.shape)).tolist():
        visit.head(layer, head).click()
        shows_effect(visit, layer, head, contributions[layer, head])
        expect(page.get_by_text(re.compile(rf"^Writes \+{short(contributions[layer, head])} logits"))).to_be_visible()
        raised, *_, lowered = writes[layer][head]
        for words, one, sign in (("Raises most", raised, "+"), ("lowers most", lowered, "")):
            said = f"{words} “{one['text']}” ({sign}{short(one['logit'])})"
            expect(page.get_by_text(said)).to_be_visible()

    for layer, head in FLIP:
        visit.head(layer, head).click()
        page.get_by_role("button", name=f"switch {layer}.{head} off").click()
    expect(page.get_by_role("button", name="switch off only 29.1")).to_be_visible()
    said = page.get_by_text("\N{LEFT DOUBLE QUOTATION MARK} John\N{RIGHT DOUBLE QUOTATION MARK} instead of")
    expect(said).to_be_visible()
    expect(without(visit).first).to_contain_text(" John")
    after = effect(server, TEXT, smollm2, method="ablation", heads=["0.0", "23.3", "29.1"], **target)["together"]
    assert after["after"][0]["text"] == " John"
    expect(without(visit).first).to_contain_text(f"{100 * after['after'][0]['probability']:.0f}")
    page.get_by_role("button", name="all on").click()
    expect(without(visit)).to_have_count(0)

    visit = visits(viewport=tall).open(address(model=smollm2, text=TEXT, head="0.0", target='[" Mary", " John"]'))
    keys = visit.page.keyboard
    keys.press("p")
    expect(visit.page.get_by_role("textbox", name="Target", exact=True)).to_have_value('" Mary"')
    visit.head(0, 0).focus()
    for steps in ("x", *("ArrowDown",) * 23, *("ArrowRight",) * 3, "x", *("ArrowDown",) * 6, *("ArrowLeft",) * 2, "x"):
        keys.press(steps)
    expect(visit.page.get_by_role("textbox", name="heads off")).to_have_value("0.0 23.3 29.1")
    expect(without(visit).first).to_contain_text(" John")
    expect(visit.head(23, 3)).to_have_attribute("title", "switched off")


def estimates(visit: Visit, server: Server, target: dict[str, Any], zeroed: list[list[float]]) -> None:
    """Methods that estimate what ablation finds, or answer otherwise."""
    colour_by(visit, "attribution patching")
    adjust(visit, "Attribution patching", "of", "zero")
    estimate = {"name": "attribution-patching", "of": "zero"}
    estimated = effect(server, SHORT, "writer", method=estimate, **target)["effects"]
    shows_effect(visit, 1, 2, estimated[1][2])
    alike = short(correlation(estimated, zeroed))
    expect(visit.page.get_by_text(f"rank correlation with ablation {alike}", exact=True)).to_be_visible()
    colour_by(visit, "ablation")
    expect(visit.page.get_by_text(f"rank correlation with attribution patching {alike}", exact=True)).to_be_visible()

    for name in ("gradient-attention", "integrated-gradients", "dual-path"):
        colour_by(visit, EFFECTS[name].title.lower())
        found = np.array(effect(server, SHORT, "writer", method=name, **target)["effects"])
        layer, head = np.unravel_index(abs(found).argmax(), found.shape)
        visit.head(int(layer), int(head)).click()
        shows_effect(visit, int(layer), int(head), found[layer, head])
    visit.head(1, 2).click()
    colour_by(visit, "ablation")


def other_directions(visit: Visit, server: Server, patched: dict[str, Any]) -> None:
    """What patching destroys, its estimate, and what one head receives."""
    adjust(visit, "Patching", "direction", "noise")
    patched["method"] = {"name": "patching", "direction": "noise"}
    shows_effect(visit, 1, 2, effect(server, SHORT, "writer", **patched)["effects"][1][2])
    expect(visit.page.get_by_text(re.compile(r"^Patching destroys .* logits between the two texts"))).to_be_visible()
    colour_by(visit, "attribution patching")
    adjust(visit, "Attribution patching", "of", "noise")
    patched["method"] = {"name": "attribution-patching", "of": "noise"}
    shows_effect(visit, 1, 2, effect(server, SHORT, "writer", **patched)["effects"][1][2])
    expect(visit.page.get_by_text(re.compile("^rank correlation with patching "))).to_be_visible()

    colour_by(visit, "direct path patching")
    expect(visit.page.get_by_text("Choose the receiver: a head, such as 4.5.")).to_be_visible()
    visit.page.get_by_role("button", name="1.2", exact=True).click()
    adjust(visit, "Direct path patching", "reads", "value")
    sent = {"name": "path-patching", "receiver": "1.2", "reads": "value"}
    found = np.array(effect(server, SHORT, "writer", **{**patched, "method": sent})["effects"])
    sender = int(abs(found[0]).argmax())
    visit.head(0, sender).click()
    shows_effect(visit, 0, sender, found[0, sender])
    expect(visit.page.get_by_text(re.compile(r"^Patching the value of 1\.2 restores "))).to_be_visible()


def test_grids_are_those_of_the_interface(visits: Begin, server: Server, models: Path) -> None:
    """By ablation and by patching, for what was clicked or typed, at the pinned token; what changed is never shown as if it had not. In `make long` by other methods, too."""
    visit = visits(new=True, permissions=["clipboard-read", "clipboard-write"])
    page = visit.page
    asked: list[str] = []
    asks = re.compile("analyses/.*/effects|Effects")
    page.on("request", lambda request: asked.append(request.url) if asks.search(request.url) else None)
    visit.open(address(model="writer", text=SHORT, head="1.2"))
    assert asked == []
    offered = page.get_by_role("combobox", name="colour by").locator("option[value^='effect.']")
    declared = [
        [f"effect.{name}", method.title.lower(), method.doc]
        for name, method in EFFECTS.items()
        if name != "alti-logit" and method.of == "prediction"
    ]
    assert offered.evaluate_all("(all) => all.map(({ value, text, title }) => [value, text, title])") == declared
    page.keyboard.press("p")
    first, second = effect(server, SHORT, "writer")["predictions"][:2]
    expect(outcomes(visit).first).to_contain_text(f"{100 * first['probability']:.1f}")
    outcomes(visit).nth(1).focus()
    page.keyboard.press("Enter")
    expect(outcomes(visit).nth(1)).to_have_attribute("aria-pressed", "true")
    over = page.get_by_role("textbox", name="Over")
    over.fill("t")
    over.press("Enter")
    target = {"target": [second["id"], "t"]}
    colour_by(visit, "ablation")
    shows_effect(visit, 1, 2, effect(server, SHORT, "writer", method="ablation", **target)["effects"][1][2])
    adjust(visit, "Ablation", "how", "zero")
    zero = {"name": "ablation", "how": "zero"}
    zeroed = effect(server, SHORT, "writer", method=zero, **target)["effects"]
    shows_effect(visit, 1, 2, zeroed[1][2])
    axe.check(visit, entry="effects-12")
    page.get_by_role("combobox", name="sort by").select_option("effect")
    order = np.argsort(-np.array(zeroed), axis=None)
    names_of = "(all) => all.map(({ ariaLabel }) => ariaLabel)"
    labels = [f"Layer {at // 4}, head {at % 4}" for at in order]
    cells = page.get_by_role("gridcell")
    comes_to(lambda: cells.evaluate_all(names_of), labels)
    page.get_by_role("button", name="Sort smallest first").click()
    comes_to(lambda: cells.evaluate_all(names_of), labels[::-1])
    page.get_by_role("combobox", name="sort by").select_option("layer")
    script, command = copied(visit, "effect in Python"), copied(visit, "effect by curl")
    names: dict[str, Any] = {}
    exec(script.replace('"writer"', repr(str(models / "writer"))), names)
    np.testing.assert_allclose(names["effect"].effects, zeroed, atol=1e-5)
    path = f"{sys.executable.rsplit('/', 1)[0]}:/usr/bin:/bin"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env={"PATH": path})
    assert json.loads(answer.stdout)["result"]["effects"] == zeroed

    if extent(True, False):
        estimates(visit, server, target, zeroed)

    visit.tokens.nth(2).click()
    compute = page.get_by_role("button", name="Compute")
    expect(compute).to_be_visible()
    expect(page.locator(".holder.waiting")).to_have_attribute("aria-busy", "false")
    compute.click()
    at = effect(server, SHORT, "writer", method=zero, position=2, **target)
    shows_effect(visit, 1, 2, at["effects"][1][2])
    if extent(True, False):  # test_address.py loads a page again
        page.reload()
        shows_effect(visit, 1, 2, at["effects"][1][2])
    page.keyboard.press("Escape")
    visit.submit("Another cat.")
    expect(compute).to_be_visible()
    expect(page.locator(".holder.waiting")).to_have_attribute("aria-busy", "false")

    visit.submit(SHORT)
    colour_by(visit, "patching")
    # The numbers of another method would be shown under its name.
    expect(page.locator(".holder.waiting")).to_have_attribute("aria-busy", "false")
    expect(page.locator(".said").first).not_to_contain_text("logits")
    page.get_by_role("button", name="choose another text").click()
    page.get_by_label("Compare with another text").fill(OTHER)
    page.keyboard.press("Enter")
    visit.idle()
    compute.click()
    patched = {"method": "patching", "against": OTHER, **target}
    shows_effect(visit, 1, 2, effect(server, SHORT, "writer", **patched)["effects"][1][2])
    expect(page.get_by_role("list", name="Both texts").get_by_role("listitem")).to_have_text(
        ["TheThe", "catmat", "satsat", "onon", "thethe", "matcat", ".."]
    )
    if extent(True, False):
        other_directions(visit, server, patched)


@pytest.mark.long
def test_maps_are_seen_like_those_of_a_lens(visits: Begin, server: Server, models: Path) -> None:
    """Chosen as the lens or by a link: every cell of the interface, also as code, beside weights, and for another token and target."""
    visit = visits(permissions=["clipboard-read", "clipboard-write"])
    page = visit.page
    visit.open(address(model="writer", text=SHORT, head="1.2", view="map"))
    page.get_by_role("combobox", name="Lens").select_option(label="gradient × attention")
    image = visit.image("Heat map of head 1.2")
    described = re.compile(r"^Gradient × attention, .* exact \(float32\)\.$")
    expect(image).to_have_accessible_description(described)
    own = map_of(server, SHORT, "writer", method="gradient-attention")
    strongest(visit, own[1, 2])
    expect(page.get_by_role("main")).to_contain_text("logits, all heads")
    script, command = copied(visit, "Python"), copied(visit, "curl")
    names: dict[str, Any] = {}
    exec(script.replace('"writer"', repr(str(models / "writer"))), names)
    np.testing.assert_allclose(names["attention"], own[1, 2], atol=1e-6)
    path = f"{sys.executable.rsplit('/', 1)[0]}:/usr/bin:/bin"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env={"PATH": path})
    np.testing.assert_allclose(np.squeeze(json.loads(answer.stdout)["map"]), own[1, 2], atol=1e-6)
    axe.check(visit)

    visit.tokens.nth(3).click()  # the prediction stays where it is
    expect(page.get_by_role("heading", name="Next token after “.”")).to_be_visible()
    page.get_by_role("button", name="after “on” instead").click()
    expect(page.get_by_role("heading", name="Next token after “on”")).to_be_visible()
    expect(page.locator(".outcomes.faint")).to_have_count(0)
    outcomes(visit).nth(1).click()
    second = effect(server, SHORT, "writer", position=3)["predictions"][1]
    moved = map_of(server, SHORT, "writer", method="gradient-attention", position=3, target=second["id"])
    expect(page.get_by_text(f"on “{second['text']}”")).to_be_visible()
    strongest(visit, moved[1, 2])
    page.get_by_role("combobox", name="Lens").select_option(label="integrated gradients")
    integrated = map_of(server, SHORT, "writer", method="integrated-gradients", position=3, target=second["id"])
    expect(image).to_have_accessible_description(re.compile("^Integrated gradients, .* exact"))
    strongest(visit, integrated[1, 2])
    page.get_by_role("combobox", name="Lens").select_option(label="ALTI-Logit")
    traced = map_of(server, SHORT, "writer", method="alti-logit", position=3, target=second["id"])
    expect(image).to_have_accessible_description(re.compile("^ALTI-Logit, .* exact"))
    strongest(visit, traced[1, 2])
    expect(page.get_by_text("each head: the row of the prediction")).to_be_visible()
    view = page.get_by_role("group", name="View", exact=True)
    view.get_by_text("graph", exact=True).click()
    expect(page.get_by_role("figure").get_by_text("linear, logits")).to_be_visible()
    view.get_by_text("heat map", exact=True).click()
    page.get_by_role("combobox", name="Lens").select_option(label="integrated gradients")
    page.get_by_role("group", name="Compare", exact=True).get_by_text("side by side").click()
    expect(visit.image("Weights map of head 1.2")).to_be_visible()

    linked = visits().open("#" + page.url.partition("#")[2])
    strongest(linked, integrated[1, 2])
    linked.page.get_by_role("button", name="Close predictions").click()
    expect(linked.page.get_by_role("combobox", name="Lens")).to_have_value("weights")
    expect(linked.page).not_to_have_url(re.compile("effect"))


def test_masked_tokens_and_classes(visit: Visit, server: Server) -> None:
    """A masked model predicts in the place of the pinned or the masked token, a classifier for the whole text; heads are judged by either."""
    page = visit.page
    visit.open(address(model="twin-reviews", text=SHORT, head="1.2", predict="show"))
    expect(page.locator(".effects p")).to_have_text(re.compile("^Pin a token .*, or mask one.$"))
    visit.tokens.nth(2).click()
    pinned = effect(server, SHORT, "twin-reviews", position=2)
    expect(page.get_by_role("heading", name="Masked token in place of “cat”")).to_be_visible()
    expect(outcomes(visit).first).to_contain_text(pinned["predictions"][0]["text"])
    visit.tokens.nth(2).press("x")
    masked = effect(server, SHORT, "twin-reviews", (2,))
    expect(page.get_by_role("heading", name="Masked token in place of “[MASK]”")).to_be_visible()
    expect(outcomes(visit).first).to_contain_text(masked["predictions"][0]["text"])
    colour_by(visit, "direct contribution")
    shows_effect(visit, 1, 2, masked["effects"][1][2])

    choose_model(visit, "twin-sst2-softmax")
    visit.submit(FILM)
    expect(page.get_by_role("heading", name="Class of the whole input")).to_be_visible()
    expect(outcomes(visit)).to_have_text([re.compile("positive"), re.compile("negative")])
    if extent(True, False):  # above, heads are judged for a token
        outcomes(visit).nth(1).click()
        colour_by(visit, "ablation")
        target = {"target": ["negative"], "method": "ablation"}
        shows_effect(visit, 1, 2, effect(server, FILM, "twin-sst2-softmax", **target)["effects"][1][2])
        expect(page.get_by_text(re.compile("^On average reads "))).to_be_visible()


def test_what_is_refused_is_said(visits: Begin) -> None:
    """Without a head, under another mechanism, and for a target that is no token: one sentence each, and nothing is asked for in vain."""
    visit = visits(new=True)
    page = visit.page
    asked: list[str] = []
    asks = re.compile("analyses/.*/effects")
    page.on("request", lambda request: asked.append(request.url) if asks.search(request.url) else None)
    visit.open(address(text=SHORT, predict="show", colour="effect.contribution"))
    reason = "This model has no head that predicts tokens, or classes of whole inputs."
    expect(page.locator(".effects p")).to_have_text(reason)
    axe.check(visit, entry="effects-12")
    assert asked == []
    choose_model(visit, "writer")
    expect(outcomes(visit)).to_have_count(8)
    target = page.get_by_role("textbox", name="Target", exact=True)
    target.fill(" no such token")
    target.press("Enter")
    refused = page.get_by_text(re.compile(r"The target has \d+ tokens in this model"))
    expect(refused).to_be_visible()
    # A link to it can be corrected; there is no use in trying again, unless the network was away.
    if extent(True, False):
        page.reload()
        expect(refused).to_be_visible()
    again = page.locator(".effects").get_by_role("button", name="Try again")  # maps on their way may offer it, too
    expect(again).to_have_count(0)
    expect(target).to_have_value('" no such token"')
    visit.network_errors_expected = True
    visit.context.set_offline(True)
    target.fill(" cat")
    target.press("Enter")
    expect(page.locator(".effects p")).to_have_text(
        "The server cannot be reached. Your text is kept. Try again in a moment. Try again"
    )
    again.click()
    expect(again).to_have_count(1)
    visit.context.set_offline(False)
    expect(outcomes(visit)).to_have_count(8)
    expect(again).to_have_count(0)
    page.get_by_role("button", name="own choice").click()
    expect(outcomes(visit)).to_have_count(8)
    page.get_by_role("button", name="Close predictions").click()
    expect(page.get_by_role("group", name="Predictions", exact=True)).to_have_count(0)
    expect(page).not_to_have_url(re.compile("effect|predict"))
