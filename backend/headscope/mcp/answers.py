"""Answers of tools: JSON of bounded size, which says what was left out."""

from __future__ import annotations

import json
from typing import Any

# Characters of an answer, some 6,000 tokens of a language model.
MOST_CHARACTERS = 20_000
# Characters of one text in an answer.
MOST_TEXT = 2_000


def write_answer(document: dict[str, Any], limit: int) -> str:
    """Return a document as compact JSON of at most MOST_CHARACTERS.

    Lists, whose first entries matter most, keep `limit` entries, and fewer if the answer would be too long. `left_out` has a sentence for every list that was
    cut, after those that the document has already. Numbers have 5 significant digits. Raises ValueError for a document that is too long with one entry per list.
    """
    for most in (limit >> step for step in range(limit.bit_length())):
        left_out = [*document.get("left_out", ())]
        cut = _cut({name: value for name, value in document.items() if name != "left_out"}, most, "", left_out)
        text = json.dumps({**cut, "left_out": left_out} if left_out else cut, ensure_ascii=False, separators=(",", ":"))
        if len(text) <= MOST_CHARACTERS:
            return text
    raise ValueError("This answer is too long, even with one entry per list.")


def _cut(value: Any, most: int, path: str, left_out: list[str]) -> Any:
    if isinstance(value, dict):
        return {name: _cut(one, most, f"{path}.{name}" if path else name, left_out) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        if len(value) > most:
            left_out.append(f"{path}: the first {most} of {len(value)} are shown.")
        return [_cut(one, most, path, left_out) for one in value[:most]]
    if isinstance(value, str) and len(value) > MOST_TEXT:
        left_out.append(f"{path}: the first {MOST_TEXT} of {len(value)} characters are shown.")
        return value[:MOST_TEXT]
    if isinstance(value, float):
        return float(f"{value:.5g}") if abs(value) < float("inf") else None
    return value
