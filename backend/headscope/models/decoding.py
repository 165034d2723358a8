"""Ids that follow others to text, with the span of each."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

from ..core.text import Span

# Ids decoded together with a new one, so that spaces and characters of several tokens are as in the whole text.
CONTEXT = 8
# Bytes of the longest UTF-8 character: a longer run without a complete character never becomes one.
LONGEST_CHARACTER = 4


def decode_after(
    tokenizer: Tokenizer, before: list[int], added: Sequence[int], special: frozenset[int]
) -> tuple[str, list[Span | None]]:
    """Decode ids that follow others -> their text, and each one's span in it (None for special ones). Tokens of one character share its span."""
    text = ""
    spans: list[Span | None] = [None] * len(added)
    window = before[-CONTEXT:]
    known = tokenizer.decode(window, skip_special_tokens=False)
    ordinary = [index for index, id_ in enumerate(added) if id_ not in special]
    waiting: list[tuple[int, str]] = []  # tokens that end inside a character, and the window's text up to each
    for index in ordinary:
        window.append(added[index])
        whole = tokenizer.decode(window, skip_special_tokens=False)
        waiting.append((index, whole))
        if whole.endswith("\ufffd") and len(waiting) < LONGEST_CHARACTER and index != ordinary[-1]:
            continue
        if not whole.startswith(known):  # some decoders change the preceding text at punctuation
            known, whole = "", " " + tokenizer.decode([added[place] for place, _ in waiting], skip_special_tokens=False)
            waiting = [(place, whole) for place, _ in waiting]
        _place(spans, waiting, whole, len(known), len(text))
        text += whole[len(known) :]
        waiting, window = [], window[-CONTEXT:]
        known = tokenizer.decode(window, skip_special_tokens=False)
    return text, spans


def _place(spans: list[Span | None], waiting: list[tuple[int, str]], whole: str, known: int, start: int) -> None:
    """Set the span of each waiting token: up to the end of the text decoded so far, unless later tokens changed it."""
    group: list[int] = []
    low = known
    last = next((spans[place] for place in range(waiting[0][0] - 1, -1, -1) if spans[place]), None)
    for index, reached in waiting:
        group.append(index)
        if not whole.startswith(reached):
            continue
        if len(reached) > low or last is None:
            last = (start + low - known, start + len(reached) - known)
        for place in group:
            spans[place] = last
        group, low = [], len(reached)
