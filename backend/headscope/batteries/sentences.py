"""Batteries on sentences that are put together at random: names that come twice, facts that are asked for, and punctuation."""

from __future__ import annotations

import numpy as np

from .base import AttentionPrompt, Battery, Span, TokenSource, earlier, from_the_last, within

NAMES = [
    "Mary", "John", "Tom", "James", "Anna", "Sarah", "Peter", "Paul", "Kate", "Emma", "David", "Mark", "Alice", "Jack", "Laura", "Simon", "Lucy", "Henry",
]  # fmt: skip
PLACES = ["store", "park", "school", "office", "garden", "station", "hospital", "library", "restaurant", "museum"]
THINGS = ["drink", "book", "ring", "letter", "ball", "computer", "basket", "kiss", "bone", "key"]
CITIES = [
    "London", "Paris", "Rome", "Berlin", "Tokyo", "Madrid", "Vienna", "Boston", "Chicago", "Moscow", "Dublin", "Oslo",
]  # fmt: skip
# {a}, {b}: the two names. The second {b} is the subject, so the sentence goes on with {a}.
STORIES = (
    "When {a} and {b} went to the {place}, {b} gave a {thing} to",
    "After {a} and {b} had met at the {place}, {b} decided to give the {thing} to",
    "While {a} and {b} were working at the {place}, {b} handed a {thing} to",
    "Then, {a} and {b} had a long walk to the {place}. {b} showed a {thing} to",
)
FACTS = 6
SENTENCES = 4


def _pick(random: np.random.Generator, words: list[str], count: int) -> list[str]:
    return [str(word) for word in random.choice(words, count, replace=False)]


def _spans(text: str, word: str) -> list[Span]:
    """Return where a word is in a text."""
    starts = [place for place in range(len(text)) if text.startswith(word, place)]
    return [(start, start + len(word)) for start in starts]


def make_retrieval(random: np.random.Generator, vocabulary: TokenSource) -> AttentionPrompt:
    """Return a prompt of six facts: right is the city of the thing that the last sentence asks for, and the others are those of other things."""
    things, cities, asked = _pick(random, THINGS, FACTS), _pick(random, CITIES, FACTS), int(random.integers(FACTS))
    facts = "".join(f"The {thing} is in {city}. " for thing, city in zip(things, cities, strict=True))
    tokens = vocabulary.read(text := f"{facts}The {things[asked]} is in")
    each = [within(tokens, _spans(text, city)) for city in cities]
    return from_the_last(tokens, each[asked], np.any([*each[:asked], *each[asked + 1 :]], 0))


def make_s_inhibition(random: np.random.Generator, vocabulary: TokenSource) -> AttentionPrompt:
    """Return a prompt that the indirect object follows: right is the second occurrence of the subject's name, and the others are the first occurrences of both."""
    a, b = _pick(random, NAMES, 2)
    place, thing = _pick(random, PLACES, 1)[0], _pick(random, THINGS, 1)[0]
    text = str(random.choice(STORIES)).format(a=a, b=b, place=place, thing=thing)
    tokens, (first, second) = vocabulary.read(text), _spans(text, b)
    return from_the_last(tokens, within(tokens, [second]), within(tokens, [first, *_spans(text, a)]))


def make_delimiter(random: np.random.Generator, vocabulary: TokenSource) -> AttentionPrompt:
    """Return a prompt of random words in sentences: right are commas and full stops before each word, and the others are the words before it."""
    parts = [_pick(random, [*THINGS, *PLACES], int(random.integers(2, 6))) for _ in range(2 * SENTENCES)]
    text = " ".join(" ".join(part) + ",."[number % 2] for number, part in enumerate(parts))
    tokens = vocabulary.read(text)
    marks = within(tokens, [*_spans(text, ","), *_spans(text, ".")])
    right = np.tri(len(tokens), k=-1, dtype=bool) & marks & ~marks[:, None]
    return AttentionPrompt([token.id for token in tokens], right, earlier(right) & ~marks)


S_INHIBITION = Battery(
    name="s-inhibition",
    title="S-inhibition",
    doc="Attends from the place of the indirect object to the second occurrence of the subject (“When Mary and John …, John gave a drink to”): the share of attention "
    "on it.",
    not_="Not a proof of inhibition: what the head passes on must lower the attention of later heads to that name, which patching tells.",
    citation="Wang et al. 2023, Interpretability in the Wild, sec. 3.2",
    make=make_s_inhibition,
)
RETRIEVAL = Battery(
    name="retrieval",
    title="Retrieval",
    doc="Attends to the one of six facts that a sentence begins to repeat (“The key is in Rome. … The key is in”): the share of attention on its city.",
    not_="Not memory over long texts: the facts are a few dozen tokens away. Scores at thousands of tokens need a text of that length.",
    citation="Wu et al. 2025, Retrieval Head Mechanistically Explains Long-Context Factuality; prompts are ours",
    make=make_retrieval,
)
DELIMITER = Battery(
    name="delimiter",
    title="Delimiter",
    doc="Attends to commas and full stops: the share of the attention of words on them, in sentences of random words.",
    not_="Not a use of the sentence that ends there: delimiters are also where heads rest.",
    citation="Clark et al. 2019, What Does BERT Look At?, sec. 3.2",
    make=make_delimiter,
)
