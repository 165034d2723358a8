"""A battery on words with an order, such as days and numbers: heads that raise the next one."""

from __future__ import annotations

import numpy as np

from ..errors import Unsupported
from .base import Battery, ChoicePrompt, TokenSource

LISTS = (
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"],
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"],
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
    ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"],
    [*"ABCDEFGHIJKLMNOPQRSTUVWXYZ"],
)  # fmt: skip
SHOWN = 3
LEAST = 6  # words of a list that are one token each
NO_LISTS = "Days, months, numbers and letters are several tokens each in this model, so successors cannot be tested."


def make_successor(random: np.random.Generator, vocabulary: TokenSource) -> ChoicePrompt:
    """Return a prompt of three words in a row, whose answers are all words of the list. Raises Unsupported if no list has enough words of one token."""
    known = [runs for words in LISTS if (runs := _runs(words, vocabulary.find(words)))]
    if not known:
        raise Unsupported(NO_LISTS)
    runs = known[int(random.integers(len(known)))]
    shown, answers, right = runs[int(random.integers(len(runs)))]
    return ChoicePrompt([token.id for token in vocabulary.read(shown)], answers, right)


def _runs(words: list[str], found: dict[str, int]) -> list[tuple[str, list[int], int]]:
    """Return every three words in a row whose successor is one token, with the token ids of all such words of the list and the place of the successor among them."""
    places, answers = {word: place for place, word in enumerate(found)}, [*found.values()]
    starts = [start for start in range(len(words) - SHOWN) if words[start + SHOWN] in found]
    rows = [(" ".join(words[start : start + SHOWN]), answers, places[words[start + SHOWN]]) for start in starts]
    return rows if len(found) >= LEAST else []


SUCCESSOR = Battery(
    name="successor",
    title="Successor",
    doc="Raises the next word of a list such as days, months or numbers (“Monday Tuesday Wednesday”): the share of prompts in which its direct contribution to that word "
    "is the largest among all words of the list.",
    not_="Not attention, and not the prediction: a head may raise the right word most and hardly at all.",
    citation="Gould et al. 2024, Successor Heads: Recurring, Interpretable Attention Heads In The Wild; here in context instead of by weights alone",
    make=make_successor,
)
