"""A visit to the page: what a person does there, and what must never be heard while doing it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from playwright.sync_api import Browser, ConsoleMessage, Dialog, FloatRect, Locator, Page, Route, ViewportSize, expect

from headscope.lenses import LENSES
from tests.support.server import DEADLINE, eventually

T = TypeVar("T")
# As long as a test waits for anything, in ms. What is there sooner is not waited for, so a slow machine costs nothing on a fast one.
PATIENCE = 1000 * DEADLINE
expect.set_options(timeout=PATIENCE)

# Chromium's own words for answers of 400 and above and for a server that is gone; the tests of errors ask for those on purpose.
NETWORK = "Failed to load resource"

SIZE: ViewportSize = {"width": 1500, "height": 900}

# Playwright's own waiting for functions would need `eval`, which the page's Content-Security-Policy forbids; so do these by the frame.
PAINTED = """([name, after, patience]) => new Promise((resolve, reject) => {
  const end = performance.now() + patience
  const look = () => {
    const mark = performance.getEntriesByName(`headscope:${name}`).find(({ startTime }) => startTime > after)
    if (mark) resolve(mark.startTime)
    else if (performance.now() > end) reject(new Error(`${name} was never painted`))
    else requestAnimationFrame(look)
  }
  look()
})"""
LISTEN = "document.addEventListener('securitypolicyviolation', (e) => console.error(`CSP ${e.violatedDirective} ${e.sample}`))"
# Changes with the picture; zero distinct colours would be a blank one. The thumbnail is shown only until the map has loaded.
PICTURE = """async (element, patience) => {
  const end = performance.now() + patience
  const frames = (count) => new Promise((resolve) => requestAnimationFrame(() => (count > 1 ? resolve(frames(count - 1)) : resolve())))
  const isThumbnail = () => document.getElementById(element.getAttribute('aria-describedby'))?.textContent.includes('a thumbnail:')
  const read = () => {
    const canvas = element.querySelector('canvas')
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true })
    copy.drawImage(canvas, 0, 0)
    const pixels = new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer)
    const colours = new Set()
    let [sum, last] = [0, 0]
    for (const pixel of pixels) {
      if (pixel !== last && pixel >>> 24) colours.add(pixel)
      last = pixel
      sum = (Math.imul(sum, 31) + pixel) >>> 0
    }
    return [colours.size, sum]
  }
  for (let last = -1; ; ) {
    await frames(2)
    if (performance.now() > end) throw new Error('the picture never stood still')
    if (isThumbnail()) continue
    const [colours, sum] = read()
    if (sum === last) return [colours, sum]
    last = sum
  }
}"""
# Where an element is, once it has stood still for some frames.
STILL = """(element) => new Promise((resolve) => {
  let [last, same] = ['', 0]
  const look = () => {
    const { x, y, width, height } = element.getBoundingClientRect()
    const now = [x, y, width, height].join()
    same = now === last ? same + 1 : 0
    last = now
    same > 2 ? resolve({ x, y, width, height }) : requestAnimationFrame(look)
  }
  look()
})"""


def address(**fields: str) -> str:
    """The part of the address after `#`."""
    return "#" + "&".join(f"{name}={quote(value)}" for name, value in fields.items())


class Visit:
    """One page of one context. `problems` collects everything a clean page never says."""

    def __init__(self, browser: Browser, root: str, **context: Any) -> None:
        self.root = root
        self.context = browser.new_context(**{"viewport": SIZE, **context})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE)
        self.problems: list[str] = []
        self.network_errors_expected = False
        self.page.add_init_script(LISTEN)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("dialog", self._dialog)

    def _heard(self, message: ConsoleMessage) -> None:
        expected = self.network_errors_expected and message.text.startswith(NETWORK)
        if message.type in ("error", "warning") and not expected:
            self.problems.append(f"{message.type}: {message.text} {message.location.get('url', '')}".rstrip())

    def _dialog(self, dialog: Dialog) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def close(self) -> None:
        self.context.close()
        assert self.problems == [], self.problems

    def begin(
        self,
        root: str,
        *,
        viewport: ViewportSize = SIZE,
        color_scheme: Literal["light", "dark"] = "light",
        reduced_motion: Literal["no-preference", "reduce"] = "no-preference",
        permissions: Sequence[str] = (),
    ) -> Visit:
        """Begin another visit on an empty page, with the options of a context that it can change."""
        self.root = root
        self.page.set_viewport_size(viewport)
        self.page.emulate_media(color_scheme=color_scheme, reduced_motion=reduced_motion)
        if permissions:
            self.context.grant_permissions(permissions)
        return self

    def empty(self) -> None:
        """Leave the page as a new one would be: nothing stored, no route, no permission, online, the pointer in its corner; then fail if it complained.

        It shows a document of the server that has no script: from an empty one the next visit would begin in another process.
        """
        self.context.set_offline(False)
        self.page.goto(f"{self.root}/healthz")
        problems, self.problems = self.problems, []
        self.network_errors_expected = False
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.mouse.move(0, 0)
        self.context.clear_permissions()
        self.context.clear_cookies()
        line = self.context.new_cdp_session(self.page)
        line.send("Storage.clearDataForOrigin", {"origin": self.root, "storageTypes": "local_storage,indexeddb"})
        line.detach()
        assert problems == [], problems

    def open(self, fragment: str = "", path: str = "/") -> Visit:
        """Load the page and wait for its first picture."""
        self.page.goto(f"{self.root}{path}{fragment}")
        self.painted("head")
        return self

    def now(self) -> float:
        """The page's clock, for `painted`."""
        return float(self.page.evaluate("performance.now()"))

    def painted(self, name: str, after: float = -1) -> float:
        """Wait for the first mark later than `after`; when it was made, in ms of the page's clock."""
        return float(self.page.evaluate(PAINTED, [name, after, PATIENCE]))

    @property
    def text(self) -> Locator:
        return self.page.get_by_role("textbox", name="Text", exact=True)

    @property
    def analyse(self) -> Locator:
        return self.page.get_by_role("button", name="Analyse")

    @property
    def tokens(self) -> Locator:
        return self.page.get_by_role("toolbar", name="Tokens").get_by_role("button")

    @property
    def alert(self) -> Locator:
        return self.page.get_by_role("alert")

    def head(self, layer: int, head: int) -> Locator:
        return self.page.get_by_role("gridcell", name=f"Layer {layer}, head {head}", exact=True)

    def image(self, name: str) -> Locator:
        return self.page.get_by_role("img", name=name, exact=True)

    def submit(self, text: str) -> float:
        """Type a text and press Enter; when that was, once the picture of it is there."""
        self.text.fill(text)
        before = self.now()
        self.text.press("Enter")
        self.settled(before)
        return before

    def settled(self, before: float, name: str = "head") -> None:
        """Wait until what was submitted after `before` is on screen."""
        submitted = self.painted("submit", before)
        self.idle()
        self.painted(name, submitted)

    def idle(self) -> None:
        """Wait until no analysis runs."""
        expect(self.page.get_by_role("main")).to_have_attribute("aria-busy", "false")

    def lens(self, name: str) -> None:
        """Choose a lens as a hand does, and wait until its map is there, and no thumbnail of it."""
        self.page.get_by_role("combobox", name="Lens").select_option(label=name)
        title = re.escape(LENSES[name.replace(" ", "-")].title)
        image = self.page.get_by_role("img", name=re.compile("^Heat map of"))
        expect(image).to_have_accessible_description(re.compile(f"^{title},.*(exact|rounded)"))

    def holds(self, condition: str) -> None:
        """Wait until this is true of the page, in JavaScript."""
        eventually(lambda: self.page.evaluate(condition), condition)

    def shows(self, *words: str) -> None:
        """These words stand among the tokens on screen, in this order."""
        expect(self.tokens.filter(has_not_text="[")).to_have_text(list(words))


def picture(image: Locator) -> tuple[int, int]:
    """How many colours an image has, and a number that differs when it does."""
    colours, number = image.evaluate(PICTURE, PATIENCE)
    return colours, number


def another_picture(image: Locator, *seen: tuple[int, int]) -> tuple[int, int]:
    """Wait until the image is none of those that were seen."""

    def look() -> tuple[int, int] | None:
        now = picture(image)
        return None if now in seen else now

    found = eventually(look, "another picture")
    assert found
    return found


def box(element: Locator) -> FloatRect:
    """Where an element is, in pixels of the window."""
    place: FloatRect = element.evaluate(STILL)
    return place


def count_held(page: Page, held: Sequence[Route]) -> int:
    """How many requests a route holds so far. Its handler is called only while the browser is asked for something."""
    page.evaluate("1")
    return len(held)


def comes_to(probe: Callable[[], T], wanted: T) -> None:
    """Wait until a question to the page is answered like this; what was answered instead is what fails."""
    end = time.monotonic() + DEADLINE
    while (found := probe()) != wanted and time.monotonic() < end:
        time.sleep(0.02)
    assert found == wanted, f"{found!r} instead of {wanted!r}"
