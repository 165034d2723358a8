"""What else can be put into a model: images, token ids, files, texts that the model writes on, two sides of an encoder-decoder."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import expect

from tests.browser.axe import check
from tests.browser.visit import Visit, address, picture
from tests.support.extent import extent
from tests.support.server import eventually

# A drop as the hand of a person makes it: a file over the page.
DROP = """([name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0))
  const transfer = new DataTransfer()
  transfer.items.add(new File([bytes], name, { type }))
  document.body.dispatchEvent(new DragEvent('drop', { bubbles: true, cancelable: true, dataTransfer: transfer }))
}"""


def drawn() -> bytes:
    """A circle on a ground of another colour, as a PNG."""
    image = Image.new("RGB", (64, 48), (30, 120, 210))
    ImageDraw.Draw(image).ellipse((12, 4, 52, 44), fill=(250, 140, 20))
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def drop(visit: Visit, name: str, kind: str, data: bytes) -> float:
    """Drop a file on the page; when that was."""
    before = visit.now()
    visit.page.evaluate(DROP, [name, kind, base64.b64encode(data).decode()])
    return before


def choose_model(visit: Visit, name: str) -> None:
    before = visit.now()
    visit.page.get_by_role("combobox", name="Model").select_option(name)
    visit.settled(before)


def test_an_image(visit: Visit) -> None:
    """Dropped on the page it goes to the first model that sees, a twin that is shipped; its name stands in the address, so reload and other lenses need no image."""
    visit.open()
    visit.settled(drop(visit, "circle.png", "image/png", drawn()))
    expect(visit.page.get_by_role("combobox", name="Model")).to_have_value("twin-vit-softmax")
    thumbnail = visit.page.get_by_role("img", name="The image as the model sees it, 32 by 32 pixels")
    expect(thumbnail).to_be_visible()
    assert thumbnail.evaluate("(image) => image.decode().then(() => [image.naturalWidth, image.naturalHeight])") == [
        32,
        32,
    ]
    expect(visit.page).to_have_url(re.compile("image=sha256"))
    check(visit, entry="image-50")
    tops = visit.tokens.evaluate_all("(tokens) => tokens.map((token) => token.offsetTop)")
    rows = [tops[start : start + 8] for start in range(1, 65, 8)]
    assert all(len(set(row)) == 1 for row in rows), "the patches of a row of the image stand in one line"
    assert [row[0] for row in rows] == sorted({top for row in rows for top in row})
    expect(visit.page.get_by_text("65 tokens ·")).to_be_visible()
    visit.lens("norm")
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        visit.painted("head")
    expect(thumbnail).to_be_visible()
    expect(visit.page.get_by_role("combobox", name="Lens")).to_have_value("norm")


def test_a_conversation(visit: Visit) -> None:
    """Messages in one box, each with its role; tokens stand behind the role, reload and history keep it, and another model reads the text instead."""
    visit.open(address(model="chat", text="The cat sat."))
    visit.page.get_by_role("textbox", name="Text").click()
    visit.page.get_by_role("button", name="as a conversation").click()
    box = visit.page.get_by_role("textbox", name="Conversation")
    expect(box).to_have_value("user: The cat sat.")
    check(visit)
    box.fill("user: The cat<|im_end|>\nassistant: ")
    expect(visit.page.get_by_text("none may be empty")).to_be_visible()
    said = "user: The cat<|im_end|>\nassistant: sat."
    box.fill(said)
    before = visit.now()
    box.press("Enter")
    visit.settled(before)
    text = visit.page.get_by_role("toolbar", name="Tokens")
    expect(text.locator(".role")).to_have_text(["user", "assistant"])
    expect(text.get_by_text("<|im_end|>", exact=True)).to_have_count(2)
    expect(visit.page).to_have_url(re.compile("chat=user"))
    if extent(True, False):  # test_address.py loads a page again
        visit.page.reload()
        visit.painted("head")
        expect(box).to_have_value(said)
    visit.page.get_by_role("button", name="History", exact=True).click()
    expect(visit.page.get_by_text("user: The cat<|im_end|> assistant: sat.").first).to_be_visible()
    visit.page.keyboard.press("Escape")
    choose_model(visit, "minilm")
    expect(visit.page.get_by_role("textbox", name="Text")).to_have_value("The cat sat.")
    expect(text.locator(".role")).to_have_count(0)


# test_outdated.py waits for one, and above one is dropped.
@pytest.mark.long
def test_a_model_that_sees_waits_for_an_image(visit: Visit) -> None:
    """No text is sent to it; what is there already stays."""
    visit.open()
    visit.page.get_by_role("combobox", name="Model").select_option("vit")
    expect(visit.page.get_by_text("No image yet.")).to_be_visible()
    expect(visit.page.get_by_role("button", name="Choose an image")).to_be_visible()
    expect(visit.alert).to_have_count(0)
    with visit.page.expect_file_chooser() as chooser:
        visit.page.get_by_role("button", name="Choose an image").click()
    before = visit.now()
    chooser.value.set_files({"name": "circle.png", "mimeType": "image/png", "buffer": drawn()})
    visit.settled(before)
    expect(visit.page.get_by_text("17 tokens ·")).to_be_visible()


def test_files(visit: Visit, tmp_path: Path) -> None:
    """A text file is read as a whole; other files and huge ones are rejected in one sentence, and the text stays."""
    visit.open()
    visit.settled(drop(visit, "note.txt", "text/plain", "Zoë saw it.\n".encode()))
    expect(visit.text).to_have_value("Zoë saw it.")
    for name, kind, data, sentence in [
        ("a.bin", "application/octet-stream", b"\xff\x00\x01", "not plain UTF-8 text"),
        ("b.txt", "text/plain", b"a " * 600_000, "texts may have up to 1 MiB"),
        ("c.gif", "image/gif", b"GIF89a", "PNG, JPEG or WebP"),
    ]:
        drop(visit, name, kind, data)
        expect(visit.alert).to_contain_text(sentence)
    expect(visit.text).to_have_value("Zoë saw it.")


@pytest.mark.long
def test_nothing_is_cut(visit: Visit) -> None:
    """A text that is too long for the model is refused with both numbers, and kept whole; its beginning is analysed when that is asked for."""
    visit.network_errors_expected = True
    visit.open()
    text = "word " * 600
    drop(visit, "long.txt", "text/plain", text.encode())
    expect(visit.alert).to_contain_text("The text has 602 tokens; this model accepts 512.")
    expect(visit.text).to_have_value(text.strip())
    before = visit.now()
    visit.page.get_by_role("button", name="Analyse the first 512 tokens").click()
    visit.settled(before)
    expect(visit.tokens).to_have_count(512)
    expect(visit.text).to_have_value(text.strip())
    expect(visit.page.get_by_text("Truncated to the first 512 tokens, as requested").first).to_be_visible()
    # Another text is read as a whole again.
    visit.submit("word word")
    expect(visit.page).not_to_have_url(re.compile("most="))


def test_token_ids(visit: Visit) -> None:
    """What is on screen, number by number, to be changed; the numbers stand in the address."""
    visit.open(address(text="The cat sat.", head="2.9"))
    visit.text.focus()
    visit.page.get_by_role("button", name="as token ids").click()
    box = visit.page.get_by_role("textbox", name="Token ids", exact=True)
    expect(box).to_have_value(re.compile(r"^\d+( \d+){5}$"))
    ids = box.input_value().split()
    box.fill("three")
    expect(visit.page.get_by_text("Token ids are whole numbers")).to_be_visible()
    before = visit.now()
    box.fill(" ".join([ids[0], ids[2], ids[2], ids[-1]]))
    box.press("Enter")
    visit.settled(before)
    visit.shows("cat", "cat")
    expect(visit.page).to_have_url(re.compile("ids="))
    visit.page.go_back()
    expect(visit.text).to_have_value("The cat sat.")
    visit.shows("The", "cat", "sat", ".")

    visit.text.focus()
    visit.page.get_by_role("button", name="as token ids").click()
    expect(box).to_have_value(" ".join(ids))
    before = visit.now()
    visit.page.get_by_role("button", name="Examples", exact=True).click()
    visit.page.get_by_role("button", name=re.compile("^A pronoun")).first.click()
    visit.settled(before)
    expect(visit.text).to_have_value(re.compile("trophy"))


def test_the_model_writes_on(visit: Visit) -> None:
    """A decoder continues the text; what it wrote is marked, and drawn by the numbers that are given."""
    visit.open(address(text="The cat", model="writer"))
    before = visit.now()
    visit.page.get_by_role("spinbutton", name="Generate").fill("5")
    visit.page.get_by_role("spinbutton", name="Generate").press("Enter")
    visit.settled(before)
    written = visit.page.locator("button.written")
    expect(written).not_to_have_count(0)
    assert written.count() <= 5
    expect(visit.page.get_by_text("generated tokens dotted")).to_be_visible()
    greedy = visit.tokens.all_inner_texts()
    before = visit.now()
    visit.page.get_by_role("checkbox", name="sample").check()
    visit.settled(before)
    if extent(True, False):
        before = visit.now()
        visit.page.get_by_role("spinbutton", name="seed").fill("3")
        visit.page.get_by_role("spinbutton", name="seed").press("Enter")
        visit.settled(before)
    eventually(lambda: visit.tokens.all_inner_texts() != greedy, "another continuation")


@pytest.mark.long
def test_what_the_model_wrote_is_marked_in_the_history(visit: Visit) -> None:
    """Opened again, and read through another lens, it is the same text of the model's own."""
    visit.open(address(text="The dog", model="writer", generate='{"max_new_tokens":4}'))
    written = visit.page.locator("button.written")
    expect(written).not_to_have_count(0)
    words = written.all_inner_texts()
    visit.page.get_by_role("spinbutton", name="Generate").fill("0")
    before = visit.now()
    visit.page.get_by_role("spinbutton", name="Generate").press("Enter")
    visit.settled(before)
    expect(written).to_have_count(0)
    visit.page.get_by_title("Your past analyses").click()
    before = visit.now()
    visit.page.get_by_role("dialog", name="History").get_by_role("button", name="The dog").nth(1).click()
    visit.painted("head", before)
    expect(written).to_have_text(words)
    visit.lens("norm")
    expect(written).to_have_text(words)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_an_encoder_decoder(visit: Visit, kind: str) -> None:
    """Three kinds of attention, of two texts."""
    visit.open(address(text="The cat.", pair="Die Katze.", model="t5"))
    if kind != "encoder":
        before = visit.now()
        visit.page.get_by_role("combobox", name="Attention").select_option(kind)
        visit.settled(before)
    images = visit.page.get_by_role("img", name=re.compile("^Heat map"))
    expect(images).to_be_visible()
    assert picture(images)[0] > 4
    names = {"encoder": ["Tokens"], "decoder": ["Tokens"], "cross": ["Query tokens", "Key tokens"]}[kind]
    for name in names:
        expect(visit.page.get_by_role("toolbar", name=name, exact=True)).to_be_visible()
