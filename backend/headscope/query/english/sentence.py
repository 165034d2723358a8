"""Sentences, and their possible interpretations: a view, or a question."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...core.tokens import Token
from ..grammar import measures_of, parse, write

Slot = Literal[
    "where", "order", "limit", "lens", "compare", "difference", "measure", "head", "pair", "edge",
    "query", "key", "chart", "special", "explain", "count", "page",
]  # fmt: skip
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)
LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} | {ord("‘"): "'", ord("’"): "'"}
# Keeps the length of a text, unlike lower().
LOWER |= {ord("“"): '"', ord("”"): '"', ord("–"): "-", ord("−"): "-"}


@dataclass(frozen=True)
class SentenceContext:
    """The analysis that a sentence is about: layers and heads by the model's indices, the tokens along both axes, and which queries the reader has pinned ("it")."""

    layers: Sequence[int]
    heads: Sequence[int]
    tokens: Sequence[Token]
    key_tokens: Sequence[Token]
    pinned: Sequence[int] = ()


@dataclass(frozen=True)
class ViewPart:
    """One part of a view, and the words that it was read from.

    where: a condition. order: `order by entropy desc`. limit: maximum number of heads. lens: its name. compare: the lens to compare with. measure: colours heads.
    difference: the lens to subtract. head: `8.10`, or `best` for the first that is found. pair: the head beside it. edge: `strongest` of the open head.
    query, key: indices of attending or attended tokens. chart: a measure, and `layer` or `head`. special: `hide`, `show` or `mark` special tokens.
    explain: a measure, class or lens. count: the number of heads is asked for. page: `reset`, `help`, `dark`, `light` or `measures`.
    """

    slot: Slot
    value: str
    said: str


@dataclass(frozen=True)
class RequestedView:
    """The view that a sentence requests: the `query` that finds the heads, the `measures` that it needs, its `parts`, and `notes` for the reader."""

    query: str
    measures: list[str]
    parts: list[ViewPart]
    notes: list[str]


@dataclass(frozen=True)
class Alternative:
    """One answer to a question: its label, and an unambiguous sentence."""

    label: str
    ask: str


@dataclass(frozen=True)
class Question:
    """A question about an ambiguous or unknown phrase."""

    text: str
    choices: list[Alternative]


@dataclass(frozen=True)
class Interpretation:
    """Either a view or a question."""

    view: RequestedView | None = None
    question: Question | None = None


class AmbiguousSentence(Exception):
    """Raised with the question to ask about a sentence; a choice that is its own label is a string."""

    def __init__(self, text: str, choices: Sequence[Alternative | str] = ()) -> None:
        super().__init__(text)
        self.question = Question(text, [Alternative(one, one) if isinstance(one, str) else one for one in choices])


@dataclass
class Sentence:
    """A sentence being interpreted. Phrases that rules have consumed are blanked out in `rest`, which keeps its length and so its offsets."""

    said: str
    context: SentenceContext
    matched: list[tuple[int, ViewPart]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    # What a measure is compared with, as `{} > 0.5`.
    thresholds: list[tuple[re.Match[str], str]] = field(default_factory=list)
    limit: int = 0
    lowest: bool = False  # `the bottom 3`

    def __post_init__(self) -> None:
        self.lower = self.said.translate(LOWER)
        self.rest = self.lower

    def take(self, pattern: str) -> re.Match[str] | None:
        """Find the first match of a pattern as whole words, and blank it out."""
        found = next((found for found in self.find_all(pattern) if found[0]), None)
        if found is not None:
            self.blank(*found.span())
        return found

    def find_all(self, pattern: str) -> list[re.Match[str]]:
        """Return all matches of a pattern as whole words. A space in it stands for any number of them."""
        spaced = pattern.replace(" ?", "\\s*").replace(" ", "\\s+")
        return list(re.finditer(rf"(?<![\w.]){spaced}(?![\w%]|\.\w)", self.rest))

    def blank(self, start: int, end: int) -> None:
        self.rest = f"{self.rest[:start]}{'|' * (end - start)}{self.rest[end:]}"

    def shorten(self, found: re.Match[str], text: str) -> None:
        """Replace a match by a shorter text, at its end."""
        start, end = found.span()
        self.rest = f"{self.rest[:start]}{text.rjust(end - start)}{self.rest[end:]}"

    def add(self, slot: Slot, value: str, found: re.Match[str]) -> None:
        """Add a part of the view that a match means."""
        self.matched.append((found.start(), ViewPart(slot, value, self.said[slice(*found.span())].strip(" ,"))))

    @property
    def parts(self) -> list[ViewPart]:
        """The parts found so far, in the order of the sentence."""
        return [part for _, part in sorted(self.matched, key=lambda pair: pair[0])]

    def has(self, slot: Slot) -> bool:
        return any(part.slot == slot for part in self.parts)

    def replace(self, found: re.Match[str], text: str, group: int | str = 0) -> str:
        """Return the sentence with a match replaced."""
        start, end = found.span(group)
        return f"{self.said[:start]}{text}{self.said[end:]}"

    def options(
        self, found: re.Match[str], choices: Mapping[str, str] | Iterable[str], group: int | str = 0
    ) -> list[Alternative]:
        """Return alternatives to a match: label -> replacement, or replacements that are their own labels."""
        pairs = choices if isinstance(choices, Mapping) else {text: text for text in choices}
        return [Alternative(label, self.replace(found, text, group)) for label, text in pairs.items()]

    def index_of(self, what: str, found: re.Match[str], group: str | int) -> int:
        """Return the index of a layer or head. Asks if it is out of range."""
        text = found[group]
        number = NUMBERS.index(text) if text in NUMBERS else int(text)
        known = self.context.layers if what == "layer" else self.context.heads
        if number not in known:
            sentence = (
                f"There is no {what} {number}: {what}s are counted from 0, and go from {known[0]} to {known[-1]}."
            )
            last = self.options(found, {f"{what} {known[-1]}, the last": str(known[-1])}, group)
            raise AmbiguousSentence(f"{sentence} Which one do you mean?", last if number == known[-1] + 1 else [])
        return number

    def ordinal(self, what: str, text: str) -> int:
        """Return the index of a layer or head given by an ordinal; the first is the first that was analysed."""
        known = self.context.layers if what == "layer" else self.context.heads
        if text == "last":
            return known[-1]
        place = ORDINALS.index(text) if text in ORDINALS else int(text[:-2]) - 1
        if not 0 <= place < len(known):
            raise AmbiguousSentence(f"There are {len(known)} {what}s. Which one do you mean?")
        self.note(f"{what.capitalize()}s are counted from 0: the {text} is {what} {known[place]}.")
        return known[place]

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def to_view(self) -> RequestedView:
        """Return the parts as a view."""
        conditions = [part.value for part in self.parts if part.slot == "where"]
        more = [f"limit {part.value}" if part.slot == "limit" else part.value for part in self._last("order", "limit")]
        bracketed = [f"({clause})" if " or " in clause else clause for clause in conditions]
        query = parse(" ".join([" and ".join(bracketed), *more]))
        coloured = [part.value.split()[0] for part in self.parts if part.slot in ("measure", "chart")]
        needed = [*measures_of(query), *(name.partition(".")[0] for name in coloured)]
        return RequestedView(write(query), list(dict.fromkeys(needed)), self.parts, self.notes)

    def _last(self, *slots: Slot) -> list[ViewPart]:
        """Return the last part of each slot."""
        by_slot = [[part for part in self.parts if part.slot == slot] for slot in slots]
        return [several[-1] for several in by_slot if several]
