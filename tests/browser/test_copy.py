"""What the page copies works elsewhere: the link, the picture, the script and the command give the same numbers; the citation names them."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from playwright.sync_api import expect

import headscope
from tests.browser.axe import check
from tests.browser.test_comparison import SENTENCE, analysed, weights
from tests.browser.visit import Visit, address
from tests.support.extent import extent
from tests.support.server import Server

READ_PNG = """async () => {
  const [item] = await navigator.clipboard.read()
  const bytes = new Uint8Array(await (await item.getType('image/png')).arrayBuffer())
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''))
}"""
FENCE = "'`\\n"


def test_what_is_copied(visits: Callable[..., Visit], server: Server) -> None:
    """Two heads as a difference: each way to copy, used."""
    visit = visits(permissions=["clipboard-read", "clipboard-write"])
    text = f"{SENTENCE} {FENCE}"
    fields = {"text": text, "head": "3.1", "with": "head", "than": "4.5", "compare": "difference"}
    visit.open(address(**fields))
    visit.page.get_by_role("button", name="copy", exact=True).click()
    menu = visit.page.get_by_role("group", name="Copy")
    check(visit)

    def copied(what: str, done: str) -> str:
        menu.get_by_role("button", name=f"Copy {what}").press("Enter")
        expect(menu.get_by_role("status")).to_have_text(f"{done} copied.")
        found: str = visit.page.evaluate("navigator.clipboard.readText()")
        return found

    shared = copied("link", "Link")
    assert "compare=difference&with=head&than=4.5" in shared
    identity = analysed(server, text=text)
    one, other = weights(server, identity, 3, 1), weights(server, identity, 4, 5)

    names: dict[str, np.ndarray] = {}  # type: ignore[type-arg]
    exec(copied("Python", "Script"), names)
    assert np.allclose(names["attention"], one, atol=1e-6)
    assert np.allclose(names["difference"], other - one, atol=1e-6)

    command = copied("curl", "Command")
    path = f"{sys.executable.rsplit('/', 1)[0]}:/usr/bin:/bin"
    answer = subprocess.run(["bash", "-c", command], capture_output=True, check=True, env={"PATH": path})
    assert np.allclose(json.loads(answer.stdout)["map"], one, atol=1e-5)

    citation = copied("citation", "Citation")
    named = re.search(rf"Headscope {re.escape(headscope.__version__)}, analysis ([0-9a-f]{{32}})\.", citation)
    assert named
    assert server.get(f"/analyses/{named[1]}").json()["text"] == text
    assert "Head 3.1 and head 4.5 of MiniLM" in citation
    assert "title = {{Attention Is All You Need}}" in citation

    menu.get_by_role("button", name="Copy image").click()
    expect(menu.get_by_role("status")).to_have_text("Image copied.")
    assert base64.b64decode(visit.page.evaluate(READ_PNG)).startswith(b"\x89PNG")
    if extent(True, False):  # test_address.py opens a link
        visit.page.goto("about:blank")
        visit.page.goto(shared)
        expect(visit.image("Heat map of head 4.5 \N{MINUS SIGN} head 3.1")).to_be_visible()


@pytest.mark.long
def test_without_a_clipboard(visits: Callable[..., Visit]) -> None:
    """Texts are shown selected, and the picture is downloaded, with a sentence."""
    visit = visits(new=True)
    visit.page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    visit.open(address(text=SENTENCE, head="3.1"))
    visit.page.get_by_role("button", name="copy", exact=True).click()
    menu = visit.page.get_by_role("group", name="Copy")
    menu.get_by_role("button", name="Copy link").click()
    check(visit, narrow=False)
    expect(menu.get_by_role("textbox", name="Text to copy")).to_have_value(re.compile(r"^http://.*&head=3\.1$"))
    comes = "() => document.activeElement.selectionEnd === document.activeElement.value?.length"
    visit.holds(f"({comes})()")
    with visit.page.expect_download() as download:
        menu.get_by_role("button", name="Copy image").click()
    assert download.value.suggested_filename.startswith("headscope-head-3.1-")
    expect(menu.get_by_role("status")).to_contain_text("The image was downloaded instead.")
