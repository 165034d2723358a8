"""A sentence that is being read, and what may come of it: a view, or a question."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...core.tokens import Token
from ..grammar import measures_of, parse, write
from . import phrases

Slot = Literal["where", "order", "limit", "lens", "compare", "measure", "head", "query", "key", "chart"]
LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} | {ord("‘"): "'", ord("’"): "'"}
LOWER |= {ord("“"): '"', ord("”"): '"', ord("–"): "-", ord("−"): "-"}


@dataclass(frozen=True)
class Scene:
    """What is asked about: the model's numbers of layers and heads that were analysed, the tokens along both axes."""

    layers: Sequence[int]
    heads: Sequence[int]
    tokens: Sequence[Token]
    key_tokens: Sequence[Token]


@dataclass(frozen=True)
class ViewPart:
    """One thing that was understood, and the words that said so.

    where: a condition. order: `order by entropy desc`. limit: how many. lens: its name. compare: the lens beside it. measure: what heads are coloured by.
    head: `8.10`. query, key: numbers of the tokens that look, or are looked at. chart: a measure, and `layer` or `head`.
    """

    slot: Slot
    value: str
    said: str


@dataclass(frozen=True)
class RequestedView:
    """What a sentence asks to see: `query` finds the heads, `measures` are needed for it, `parts` say it piece by piece, `notes` what to know."""

    query: str
    measures: list[str]
    parts: list[ViewPart]
    notes: list[str]


@dataclass(frozen=True)
class Alternative:
    """One answer to a question: its label, and the sentence to ask instead."""

    label: str
    ask: str


@dataclass(frozen=True)
class Question:
    """What has to be known first."""

    text: str
    choices: list[Alternative]


@dataclass(frozen=True)
class Interpretation:
    """Either a view or a question."""

    view: RequestedView | None = None
    question: Question | None = None


class Unsure(Exception):
    """A question has to be asked."""

    def __init__(self, text: str, choices: Sequence[Alternative] = ()) -> None:
        super().__init__(text)
        self.question = Question(text, list(choices))


@dataclass
class Sentence:
    """A sentence being read. What a rule has understood is struck out of `rest`, which keeps its length, so that places in both are the same."""

    said: str
    scene: Scene
    found: list[tuple[int, ViewPart]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lower = self.said.translate(LOWER)
        self.rest = self.lower

    def take(self, pattern: str) -> re.Match[str] | None:
        """The first place that fits, as whole words, struck out."""
        found = re.search(rf"(?<![\w.]){pattern}(?![\w%]|\.\w)", self.rest)
        if found is not None and found[0]:
            start, end = found.span()
            self.rest = f"{self.rest[:start]}{'|' * (end - start)}{self.rest[end:]}"
            return found
        return None

    def add(self, slot: Slot, value: str, found: re.Match[str]) -> None:
        """Note what the words of a match mean."""
        self.found.append((found.start(), ViewPart(slot, value, self.said[slice(*found.span())].strip(" ,"))))

    @property
    def parts(self) -> list[ViewPart]:
        """What has been understood, in the order in which it was said."""
        return [part for _, part in sorted(self.found, key=lambda pair: pair[0])]

    def has(self, slot: Slot) -> bool:
        return any(part.slot == slot for part in self.parts)

    def put(self, found: re.Match[str], text: str, group: int | str = 0) -> str:
        """The sentence with other words in the place of a match."""
        start, end = found.span(group)
        return f"{self.said[:start]}{text}{self.said[end:]}"

    def whole(self, what: str, found: re.Match[str], group: str | int) -> int:
        """A number of a layer or head. Asks where it is out of range, or may be counted from 1."""
        text = found[group]
        number = phrases.NUMBERS.index(text) if text in phrases.NUMBERS else int(text)
        known = self.scene.layers if what == "layer" else self.scene.heads
        if number not in known:
            sentence = f"{what.capitalize()}s are counted from 0 here: there are {known[0]} to {known[-1]}, and no {what} {number}."
            last = [Alternative(f"{what} {known[-1]}, the last", self.put(found, str(known[-1]), group))]
            raise Unsure(f"{sentence} Which one do you mean?", last if number == known[-1] + 1 else [])
        return number

    def ordinal(self, what: str, text: str) -> int:
        """A layer or head that was counted: the first is the first that was analysed."""
        known = self.scene.layers if what == "layer" else self.scene.heads
        if text == "last":
            return known[-1]
        place = phrases.ORDINALS.index(text) if text in phrases.ORDINALS else int(text[:-2]) - 1
        if not 0 <= place < len(known):
            raise Unsure(f"There are {len(known)} {what}s. Which one do you mean?")
        self.note(f"{what.capitalize()}s are counted from 0: the {text} is {what} {known[place]}.")
        return known[place]

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def leftover(self) -> None:
        """Ask about the first word that nothing has understood."""
        for found in re.finditer(r"[\w.+%'\[\]\"-]*\w[\w.+%'\[\]\"-]*|[<>=()@#]+", self.rest):
            word = found[0].strip("'\".-")
            if word in phrases.FILLERS or word == "":
                continue
            near = difflib.get_close_matches(word, phrases.words(), n=3, cutoff=0.7)
            choices = [Alternative(other, self.put(found, other)) for other in near if other != word]
            asked = (
                "Did you mean one of these?"
                if choices
                else "Say it in other words, or write a query such as vertical and entropy < 1."
            )
            raise Unsure(f"This is not clear: {self.said[slice(*found.span())]}. {asked}", choices)

    def view(self) -> RequestedView:
        """What has been understood, as a view."""
        conditions = [part.value for part in self.parts if part.slot == "where"]
        more = [f"limit {part.value}" if part.slot == "limit" else part.value for part in self._last("order", "limit")]
        bracketed = [f"({clause})" if " or " in clause else clause for clause in conditions]
        query = parse(" ".join([" and ".join(bracketed), *more]))
        coloured = [part.value.split()[0] for part in self.parts if part.slot in ("measure", "chart")]
        needed = [*measures_of(query), *(name.partition(".")[0] for name in coloured)]
        return RequestedView(write(query), list(dict.fromkeys(needed)), self.parts, self.notes)

    def _last(self, *slots: Slot) -> list[ViewPart]:
        """Of each slot the part that was said last."""
        found = [[part for part in self.parts if part.slot == slot] for slot in slots]
        return [several[-1] for several in found if several]
