"""What a hand on the keyboard does: Tab to something, press keys, leave a field; and the focus can be seen all the way."""

from __future__ import annotations

from playwright.sync_api import Locator, expect

from tests.browser.visit import Visit

MOST_STEPS = 120
# The element with focus: its name, whether a ring is around it, whether it is the page, and whether it is the one that is looked for; null once that is gone.
FOCUS = """(wanted) => {
  const lined = (element) => element && (({ outlineStyle, outlineWidth }) => outlineStyle !== 'none' && parseFloat(outlineWidth) > 0)(getComputedStyle(element))
  const at = document.activeElement
  const there = wanted?.isConnected === false ? null : at === wanted
  return [at.getAttribute('aria-label') ?? at.id ?? at.tagName, at !== document.body && (lined(at) || lined(at.parentElement)), at === document.body, there]
}"""


def focused(visit: Visit) -> str:
    """The name of the element with focus, which must have a ring."""
    name, seen, _, _ = visit.page.evaluate(FOCUS, None)
    assert seen, f"the focus on {name!r} can't be seen"
    return str(name)


def reach(visit: Visit, target: Locator, key: str = "Tab") -> None:
    """Tab until the target has the focus, and see it all the way."""
    wanted = target.element_handle()  # to look for it by its role takes longer than the step
    for _ in range(MOST_STEPS):
        visit.page.keyboard.press(key)
        name, seen, outside, there = visit.page.evaluate(FOCUS, wanted)
        if there is None:
            wanted = target.element_handle()
            there = visit.page.evaluate(FOCUS, wanted)[-1]
        if outside:
            continue  # round the end of the page
        assert seen, f"the focus on {name!r} can't be seen"
        if there:
            return
    raise AssertionError(f"{key} never comes to {target}")


def press(visit: Visit, *keys: str) -> None:
    for key in keys:
        visit.page.keyboard.press(key)


def leave(visit: Visit) -> None:
    """Out of any field."""
    visit.idle()  # while an analysis runs, Escape cancels it
    press(visit, "Escape")
    expect(visit.page.locator("body")).to_be_focused()
