"""Views for the calls of other tools, as a browser shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser, expect

from headscope.compat.bertviz import head_view, model_view


def test_kinds_of_attention_unfold(browser: Browser, tmp_path: Path) -> None:
    """Encoder, decoder and cross-attention each have a viewer, in the theme that was asked for; the first is open."""
    encoder, cross = torch.rand(2, 1, 2, 4, 4).softmax(-1), torch.rand(2, 1, 2, 3, 4).softmax(-1)
    tokens = {"encoder_tokens": ["The", "cat", "sat", "."], "decoder_tokens": ["Die", "Katze", "saß"]}
    model_view(encoder_attention=list(encoder), cross_attention=list(cross), **tokens).save(tmp_path / "a.html")
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    page.goto((tmp_path / "a.html").as_uri())
    first, second = (page.frame_locator('iframe[title="Headscope"]').nth(number) for number in range(2))
    expect(first.get_by_role("img", name="Heat map of head 0.0")).to_be_visible()
    expect(first.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_text("Encoder", exact=True).click()
    page.get_by_text("Cross", exact=True).click()
    expect(second.get_by_role("img", name="Heat map of head 0.0")).to_be_visible()
    expect(second.get_by_text("Katze").first).to_be_visible()
    page.close()


@pytest.mark.long
def test_chosen_heads_are_open(browser: Browser, tmp_path: Path) -> None:
    """In place of a sentence pair in BertViz's menu, the tokens of both are there; layers and heads have their numbers."""
    attention = list(torch.rand(4, 1, 4, 5, 5).softmax(-1))
    tokens = ["[CLS]", "one", "[SEP]", "two", "[SEP]"]
    head_view(attention, tokens, 3, layer=3, heads=[1, 2], include_layers=[1, 3]).save(tmp_path / "a.html")
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    page.goto((tmp_path / "a.html").as_uri())
    frame = page.frame_locator('iframe[title="Headscope"]')
    expect(frame.get_by_text("Mean of 2 heads").first).to_be_visible()
    frame.get_by_role("grid", name="Heads").press("ArrowUp")
    expect(frame.get_by_role("img", name="Heat map of head 1.1")).to_be_visible()
    page.close()
