"""The phrases of a sentence that name something: by their words, else by meaning, else by a question."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ...errors import InvalidQuery, ModelUnavailable
from ..terms import PatternClass, resolve
from . import slots
from .sentence import ORDINALS, Alternative, AmbiguousSentence, Sentence
from .vocabulary import NEAREST, Encoder, Meaning, Vocabulary, certain, content, stem, stems

# A new clause: negations and superlatives before it do not apply to what follows.
CLAUSE = re.compile(r"\b(?:and|but|or|nor|that|which|who|whose|with|where|having|heads?)\b|[,;:]")
NEGATION = re.compile(
    r"\b(?:(?:do|does|is|are)(?:n't| not)|not|never|no|non|without|neither|except|ignor(?:e|es|ing)|avoid(?:s|ing)?"
    r"|skip(?:s|ping)?|exclud(?:e|es|ing)|omit(?:s|ting)?|hardly|barely|rarely|seldom|little)\b"
)
SMALL = re.compile(
    r"\b(?:least|lowest|bottom|smallest|minimal|minimum|fewest|weakest|low|small|smaller|lower|weak|less|ascending|asc)\b"
)
LARGE = re.compile(
    r"\b(?:most|highest|largest|greatest|biggest|strongest|maximal|maximum|top|best|high|large|larger|higher|strong"
    r"|clearly|more|descending|desc)\b"
)
SUPERLATIVE = re.compile(
    r"\b(?:(?:low|small|few|weak|high|larg|great|bigg|strong)est|least|most|minim\w+|maxim\w+|top|best)\b"
)
FORMAL = re.compile(r"(?<![\w.])[A-Za-z]\w*(?:_\w+|\.[A-Za-z]\w*|\w*@[\w-]+)(?:\.\w+)?(?:@[\w-]+)?", re.ASCII)
LOOKS_AT = re.compile(r"\W*\w+(?: \w+)? (?:at|on|onto|upon|into) (.+)")  # `peek at`, `zoom in on`


@dataclass
class Topic:
    """Something named, with its place in the sentence, its clause, whether it is negated, and the `or` or `nor` before it."""

    meaning: Meaning
    start: int
    end: int
    clause: int = -1
    negated: bool = False
    joined: str = ""
    threshold: str = ""

    @property
    def condition(self) -> str:
        """The condition that the topic is, or has with its threshold."""
        return self.threshold.format(self.meaning.value) if self.threshold else self.meaning.value

    @property
    def ascending(self) -> bool:
        """Whether the smallest values are wanted."""
        return self.meaning.smallest != self.negated


def unknown(said: str) -> str:
    """Return the beginning of a question about a phrase."""
    return f"I don't know the word “{said}”." if re.fullmatch(r"\S+", said) else f"I don't understand “{said}”."


def label(meaning: Meaning, phrase: str = "") -> str:
    """Return how a choice is offered: by its phrase, and the name that it stands for."""
    name = f"low {meaning.value}" if meaning.smallest and meaning.kind == "number" else meaning.value
    return name if phrase in ("", meaning.value) else f"{phrase} ({name})"


def spell(meaning: Meaning) -> str:
    """Return a meaning in words that are read back as itself."""
    if meaning.kind == "lens":
        return f"{meaning.value} lens"
    return f"low {meaning.value}" if meaning.smallest else meaning.value


def clause_of(s: Sentence, place: int) -> int:
    """Return the number of the clause at a place of the sentence."""
    return sum(found.start() < place for found in CLAUSE.finditer(s.lower))


class TopicReader:
    """Names every phrase that is left of a sentence. `superlative`: whether it asks for the most or least of something."""

    def __init__(self, s: Sentence, vocabulary: Vocabulary, encoder: Encoder | None) -> None:
        self.s, self.superlative = s, False
        self._vocabulary, self._encoder = vocabulary, encoder

    def read(self) -> list[Topic]:
        """Return the topics in the order of the sentence. Raises AmbiguousSentence for a phrase that is not understood."""
        topics = list(self._formal())
        if sign := re.search(r"[<>=()@#]+", self.s.rest):
            raise AmbiguousSentence(f"{unknown(sign[0])} Write a query such as vertical and entropy < 1.")
        self.superlative = SUPERLATIVE.search(self.s.rest) is not None
        places = [0, *(place for found in CLAUSE.finditer(self.s.rest) for place in found.span()), len(self.s.rest)]
        negated = small = False
        joined = ""
        for start, end in pairwise(places):
            text = self.s.rest[start:end]
            if text in ("head", "heads"):
                continue
            if CLAUSE.fullmatch(text):
                joined = text if text in ("or", "nor") else "" if text == "and" else joined
                negated, small = negated and joined in ("or", "nor"), False
                continue
            whole = self._vocabulary.exact.get(stems(text.replace("|", " ")), [])
            plain = text
            # `no effect` and `largest weight` are names.
            if len(whole) != 1:
                negated = joined == "nor" or negated ^ (len(NEGATION.findall(text)) % 2 == 1)
                small ^= SMALL.search(text) is not None
                for pattern in (NEGATION, SMALL, LARGE):
                    plain = pattern.sub(lambda found: " " * len(found[0]), plain)
            for piece in re.finditer(r"[^|]+", plain):
                for topic in self._name(start + piece.start(), piece[0]):
                    meaning = replace(topic.meaning, smallest=topic.meaning.smallest ^ small)
                    topics.append(replace(topic, meaning=meaning, negated=negated, joined=joined))
                    joined = ""
        return sorted(topics, key=lambda topic: topic.start)

    def _formal(self) -> Iterator[Topic]:
        """Yield names as in queries, whose case matters."""
        for found in FORMAL.finditer(self.s.said):
            start, end = found.span()
            if self.s.rest[start:end] == self.s.lower[start:end]:
                try:
                    term = resolve(found[0], start)
                except InvalidQuery:
                    continue
                self.s.blank(start, end)
                kind = Meaning("condition" if isinstance(term, PatternClass) else "number", term.name)
                yield Topic(kind, start, end, clause_of(self.s, start))

    def _name(self, start: int, text: str) -> Iterator[Topic]:
        """Yield the topics of a phrase that begins at a place of the sentence."""
        words = content(text)
        number = next((found[0] for found in words if found[0][0].isdigit() or found[0] in ORDINALS[1:]), None)
        if number is not None:
            raise AmbiguousSentence(
                f"What does “{number}” count? Write above or below before a threshold, head 3.1 for a head, layer 3 for a layer."
            )
        covered = self._cover(words)
        if covered is None:  # `the [CLS] token`
            fewer = [found for found in words if stem(found[0]) != "token"]
            covered = self._cover(fewer) if fewer else None
            words = words if covered is None else fewer
        if covered is None:
            begin, end = start + words[0].start(), start + words[-1].end()
            yield Topic(
                self._nearest(begin, end, " ".join(found[0] for found in words)), begin, end, clause_of(self.s, begin)
            )
        for first, last, meanings in covered or ():
            begin, end = start + words[first].start(), start + words[last - 1].end()
            if len(meanings) > 1:
                cases = len({meaning.value.lower() for meaning in meanings}) == 1
                several = "These differ only in case." if cases else f"“{self.s.said[begin:end]}” has several meanings."
                raise self.ask(f"{several} Which one?", begin, end, meanings)
            yield Topic(meanings[0], begin, end, clause_of(self.s, begin))

    def _cover(self, words: Sequence[re.Match[str]]) -> list[tuple[int, int, list[Meaning]]] | None:
        return self._vocabulary.cover([self._root(found[0]) for found in words])

    def _root(self, word: str) -> str:
        """Return the stem of a word; that of an adjective for its superlative."""
        for suffix, restored in (("est", ""), ("est", "e"), ("er", "")):
            root = word.removesuffix(suffix) + restored
            if word.endswith(suffix) and (root,) in self._vocabulary.exact:
                self.superlative = True
                return root
        return stem(word)

    def _nearest(self, start: int, end: int, text: str) -> Meaning:
        """Return what a phrase means by its embedding. Asks if that is not certain."""
        said = self.s.said[start:end]
        if slots.occurrences(self.s, said, "key"):
            targets = [f"heads that look at {target}" for target in ("[SEP]", "special tokens", "the previous token")]
            raise AmbiguousSentence(
                "No measure tells how much a head attends to this word, so it cannot be used to find heads. What would you like to see?",
                [Alternative(f"what looks at {said}, in the open head", slots.ask_all("key", said)), *targets],
            )
        if spelled := self._spelled(text):
            raise AmbiguousSentence(
                f"{unknown(said)} Did you mean this?", [Alternative(spelled, self._replaced(start, end, spelled))]
            )
        try:
            near = self._vocabulary.nearest(text, self._encoder) if self._encoder else []
        except ModelUnavailable as missing:
            raise AmbiguousSentence(f"{unknown(said)} {missing}") from None
        if certain(near):
            return near[0][2]
        seen = LOOKS_AT.match(self.s.lower[start:end])
        known = self._vocabulary.exact.get(stems(seen[1]), []) if seen else []
        if len(known) == 1:
            return known[0]
        advice = (
            "Did you mean one of these?" if near else "Try attention to [SEP] below 5 %, or vertical and entropy < 1."
        )
        raise AmbiguousSentence(
            f"{unknown(said)} {advice}",
            [
                Alternative(label(meaning, phrase), self._replaced(start, end, spell(meaning)))
                for _, phrase, meaning in near[:NEAREST]
            ],
        )

    def _spelled(self, text: str) -> str:
        """Return the known phrase that a text is if misspelt words are corrected."""
        words = sorted({word for phrase in self._vocabulary.exact for word in phrase if len(word) > 3})
        fixed = [
            [stem(word)] if stem(word) in words else difflib.get_close_matches(word, words, n=1, cutoff=0.82)
            for word in text.split()
        ]
        whole = [word for near in fixed for word in near]
        return " ".join(whole) if len(whole) == len(fixed) and self._vocabulary.cover(whole) else ""

    def _replaced(self, start: int, end: int, text: str) -> str:
        return self.s.said[:start] + text + self.s.said[end:]

    def ask(self, question: str, start: int, end: int, meanings: Sequence[Meaning]) -> AmbiguousSentence:
        """Return the question which of these meanings a phrase has."""
        return AmbiguousSentence(
            question, [Alternative(label(meaning), self._replaced(start, end, spell(meaning))) for meaning in meanings]
        )
