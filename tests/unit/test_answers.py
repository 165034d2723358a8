"""Answers of tools for language models: their size, and what they say about what was cut."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any

from headscope.mcp.answers import MOST_CHARACTERS, MOST_TEXT, write_answer


def grow(random: Random, depth: int = 3) -> Any:
    """A random value."""
    kind = random.choice("cell list dict".split()) if depth else "cell"
    if kind == "list":
        return [grow(random, depth - 1) for _ in range(random.choice((0, 1, 5, 30)))]
    if kind == "dict":
        return {name: grow(random, depth - 1) for name in random.sample("abcd", 2)}
    return random.choice((None, True, 7, 0.1, math.inf, math.nan, "text"))


def test_answers_are_json_and_say_what_is_missing() -> None:
    random = Random(0)
    for _ in range(300):
        document, limit = {name: grow(random) for name in "xyz"}, random.randint(1, 40)
        answer = json.loads(write_answer(document, limit))
        longest = max((len(one) for one in lists_in(document)), default=0)
        assert ("left_out" in answer) == (longest > limit)
        answer.pop("left_out", None)
        assert max((len(one) for one in lists_in(answer)), default=0) == min(longest, limit)


def lists_in(value: Any) -> list[list[Any]]:
    """Every list in a document."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, list) else []), *(found for one in inner for found in lists_in(one))]


def test_answers_are_bounded() -> None:
    """Long lists of long entries are cut further than was asked for; the first entries stay."""
    document = {"id": "1", "heads": [{"head": f"0.{place}", "about": "x" * 500} for place in range(400)]}
    text = write_answer(document, 400)
    answer = json.loads(text)
    kept = len(answer["heads"])
    assert len(text) <= MOST_CHARACTERS < 2 * len(text)
    assert answer["heads"] == document["heads"][:kept]
    assert answer["left_out"] == [f"heads: the first {kept} of 400 are shown."]


def test_long_texts_and_numbers_are_cut() -> None:
    answer = json.loads(write_answer({"text": "y" * 3 * MOST_TEXT, "share": 1 / 3, "none": math.nan}, 5))
    assert answer["text"] == "y" * MOST_TEXT
    assert answer["left_out"] == [f"text: the first {MOST_TEXT} of {3 * MOST_TEXT} characters are shown."]
    assert (answer["share"], answer["none"]) == (0.33333, None)
