"""Texts: which of them tokenizers accept, and their words."""

from __future__ import annotations

import unicodedata
from functools import cache

from ..errors import InvalidText

Span = tuple[int, int]  # [start, end) of characters


def check_text(text: str, pointer: str = "/text", limit: int | None = None) -> None:
    """Raise InvalidText for a text that no tokenizer accepts. `limit` is in UTF-8 bytes."""
    if not text.strip():
        raise InvalidText("The text is empty. Type at least one character that is not a space.", pointer=pointer)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidText(
            "The text contains half of a surrogate pair, which is not a character. Remove it.", pointer=pointer
        ) from None
    if limit is not None and size > limit:
        raise InvalidText(
            f"The text is longer than {limit} bytes. Shorten it.", pointer=pointer, limit=limit, actual=size
        )
    if "\0" in text:
        raise InvalidText("The text contains a NUL character. Remove it.", pointer=pointer)


def find_words(text: str) -> list[Span]:
    """Return words as [start, end): runs without spaces; every punctuation mark, CJK ideograph and emoji is a word of its own."""
    words: list[list[int]] = []
    open_kind = ""  # what may extend the last word: letters, emoji, a flag's second half
    for index, char in enumerate(text):
        kind = _char_kind(char)
        if kind == open_kind == "letter":
            words[-1][1] = index + 1
            continue
        joins = kind == "join" or (kind == open_kind == "flag") or open_kind == "joiner"
        if kind == "space":
            open_kind = ""
        elif joins and words and words[-1][1] == index and open_kind:
            words[-1][1] = index + 1
            open_kind = {"flag": "emoji", "joiner": "emoji"}.get(open_kind, open_kind)
            if char == "\u200d" and open_kind == "emoji":
                open_kind = "joiner"
        else:
            words.append([index, index + 1])
            open_kind = "letter" if kind == "join" else kind
    return [(start, end) for start, end in words]


@cache
def _char_kind(char: str) -> str:
    category = unicodedata.category(char)
    if char.isspace() or category in ("Cc", "Zs", "Zl", "Zp"):
        return "space"
    if category in ("Mn", "Mc", "Me", "Cf") or 0x1F3FB <= ord(char) <= 0x1F3FF:
        return "join"
    if 0x1F1E6 <= ord(char) <= 0x1F1FF:
        return "flag"
    if category == "So":
        return "emoji"
    if category[0] in "PS":
        return "punct"
    code = ord(char)
    if 0x3400 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF:
        return "ideograph"
    return "letter"
