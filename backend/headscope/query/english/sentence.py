"""Sentences, and their possible interpretations: a view, or a question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...core.tokens import Token
from ..grammar import measures_of, parse, write
from .words import canonical

Slot = Literal[
    "where", "order", "limit", "lens", "compare", "difference", "measure", "head", "pair", "edge",
    "query", "key", "chart", "special", "explain", "count", "page",
]  # fmt: skip
Place = Literal["layer", "head"]
# A piece of the canonical text: start, end.
Span = tuple[int, int]


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
    """One part of a view, and the words that it was read from; AskedPart of the API says what the slots hold."""

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
    """A sentence being interpreted. `rest` is its canonical text, in which what rules have read is blanked out."""

    said: str
    context: SentenceContext
    matched: list[tuple[int, ViewPart]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text, self._starts, self._ends = canonical(self.said)
        self.rest = self.text

    def take(self, pattern: str) -> re.Match[str] | None:
        """Find the first match of a pattern as whole words, and blank it out."""
        found = next((found for found in self.find_all(pattern) if found[0].strip()), None)
        if found is not None:
            self.blank(*found.span())
        return found

    def find_all(self, pattern: str) -> list[re.Match[str]]:
        """Return all matches of a pattern as whole words."""
        return list(re.finditer(rf"(?<![\w.]){pattern}(?![\w%]|\.\w)", self.rest))

    def blank(self, start: int, end: int) -> None:
        self.rest = f"{self.rest[:start]}{'|' * (end - start)}{self.rest[end:]}"

    def words(self, span: Span) -> str:
        """Return a piece of the canonical text as it was said."""
        start, end = span
        return self.said[self._starts[start] : self._ends[end - 1]].strip(" ,") if start < end else ""

    def add(self, slot: Slot, value: str, span: Span | None = None) -> None:
        """Add a part of the view, read from a piece of the canonical text; one that nothing says comes last."""
        start, end = span or (len(self.text), 0)
        self.matched.append((start, ViewPart(slot, value, self.words((start, end)))))

    @property
    def parts(self) -> list[ViewPart]:
        """The parts found so far, in the order of the sentence."""
        return [part for _, part in sorted(self.matched, key=lambda pair: pair[0])]

    def ask(self, question: str, span: Span, choices: Mapping[str, str]) -> AmbiguousSentence:
        """Return a question about a piece of the canonical text; a choice is a label, and the text that then replaces the piece."""
        start, end = self._starts[span[0]], self._ends[span[1] - 1]
        replaced = [
            Alternative(label, (self.said[:start] + text + self.said[end:]).strip()) for label, text in choices.items()
        ]
        return AmbiguousSentence(question, replaced)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def to_view(self) -> RequestedView:
        """Return the parts as a view."""
        conditions = [part.value for part in self.parts if part.slot == "where"]
        bracketed = [f"({clause})" if " or " in clause else clause for clause in conditions]
        last = {part.slot: part.value for part in self.parts}
        limit = f"limit {last['limit']}" if "limit" in last else ""
        query = parse(" ".join([" and ".join(bracketed), last.get("order", ""), limit]))
        drawn = [re.split(r"[. ]", part.value)[0] for part in self.parts if part.slot in ("measure", "chart")]
        return RequestedView(write(query), list(dict.fromkeys([*measures_of(query), *drawn])), self.parts, self.notes)
