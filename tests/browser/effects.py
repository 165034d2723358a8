"""What tests of effects on the page share: what the interface computes, and what the page shows of it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from playwright.sync_api import Locator, expect
from safetensors.numpy import load

from tests.browser.visit import Visit, comes_to
from tests.support.server import Server

SHORT = "The cat sat on the mat."


def effect(server: Server, text: str, model: str, mask: tuple[int, ...] = (), **request: Any) -> dict[str, Any]:
    """Return what the interface computes."""
    masked = {"mask": mask} if mask else {}
    id_ = server.analyse(model=model, text=text, lenses=["weights"], measures=[], maps=False, **masked)["id"]
    answer = server.post(request, f"/analyses/{id_}/effects", headers={"Prefer": "wait=60"}).json()
    assert answer["status"] == "done", answer
    result: dict[str, Any] = answer["result"]
    return result


def outcomes(visit: Visit, name: str = "Predictions") -> Locator:
    """The predictions, most likely first."""
    return visit.page.get_by_role("group", name=name, exact=True).get_by_role("button")


def without(visit: Visit) -> Locator:
    return outcomes(visit, "Predictions without these heads")


def colour_by(visit: Visit, name: str) -> None:
    visit.page.get_by_role("group", name="colour by").get_by_text(name, exact=True).click()


def adjust(visit: Visit, method: str, parameter: str, value: str) -> None:
    controls = visit.page.get_by_role("group", name=method, exact=True)
    controls.get_by_role("combobox", name=parameter, exact=True).select_option(value)


def inline(title: str) -> str:
    """A title within a phrase."""
    return title if title[:2].isupper() else title[0].lower() + title[1:]


def short(value: float) -> str:
    """A number as the page writes it with two digits, or one if it is small."""
    if 0 < abs(value) < 1e-3:
        digit, _, power = f"{value:.0e}".partition("e")
        raised = power.replace("-0", "-").translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{digit}·10{raised}".replace("1·", "").replace("-", "\N{MINUS SIGN}")
    return np.format_float_positional(float(f"{value:.2g}"), trim="-").replace("-", "\N{MINUS SIGN}")


def map_of(server: Server, text: str, model: str, **request: Any) -> Any:
    """Return the maps [L, H, Q, K] that the interface has of an effect."""
    id_ = server.analyse(model=model, text=text, lenses=["weights"], measures=[], maps=False)["id"]
    document = server.post(request, f"/analyses/{id_}/effects", headers={"Prefer": "wait=60"}).json()
    return load(server.get(document["links"]["maps"].removeprefix("/api/v1")).content)["map"]


def strongest(visit: Visit, expected: Any) -> None:
    """The largest cell of the open head is this one, to the last bit."""
    query, key = np.unravel_index(abs(expected).argmax(), expected.shape)
    cells = visit.page.get_by_role("application", name=re.compile("^Cells of the heat map of")).first

    def read() -> float | None:
        cells.focus()  # again, since a map that arrives takes the place of the one that is walked
        for step in ("Home", *("ArrowUp",) * len(expected), *("ArrowDown",) * int(query), *("ArrowRight",) * int(key)):
            cells.press(step)
        said = re.search(r"exactly ([\d.\N{MINUS SIGN}]+)", visit.page.locator("p.readout").inner_text())
        return float(np.float32(said[1].replace("\N{MINUS SIGN}", "-"))) if said else None

    comes_to(read, float(expected[query, key]))


def correlation(one: list[list[float]], other: list[list[float]]) -> float:
    """Spearman's rank correlation of numbers without ties."""
    ranks = [np.argsort(np.argsort(values, axis=None)) for values in (one, other)]
    return float(np.corrcoef(*ranks)[0, 1])


def copied(visit: Visit, what: str) -> str:
    """Copy this from the menu of the open head, and close the menu."""
    visit.page.get_by_role("button", name="copy", exact=True).click()
    menu = visit.page.get_by_role("group", name="Copy")
    menu.get_by_role("button", name=f"Copy {what}").press("Enter")
    expect(menu.get_by_role("status")).to_have_text(re.compile("copied"))
    visit.page.keyboard.press("Escape")
    found: str = visit.page.evaluate("navigator.clipboard.readText()")
    return found


def shows_effect(visit: Visit, layer: int, head: int, value: float) -> None:
    """The open head's number is this one, of the controls' text and target."""
    expect(visit.page.locator(".holder:not(.waiting)")).to_have_attribute("aria-busy", "false")
    expect(visit.page.locator(".said").first).to_have_text(
        re.compile(rf"{layer}\.{head} . {re.escape(short(value))} logits")
    )
