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
from .sentence import Alternative, AmbiguousSentence, Sentence, Span
from .vocabulary import MODIFIERS, Encoder, Meaning, Vocabulary, content, embedded, stem
from .words import NUMBERS, ORDINALS

# A new clause: negations and superlatives before it do not apply to what follows.
CLAUSE = re.compile(r"\b(?:and|but|or|nor|that|which|who|whose|with|where|having|heads?)\b|[,;:]")
NO_MEASURE = "No measure tells how much a head attends to this word, so it cannot be used to find heads."
COUNTS = "Write above or below before a threshold, head 3.1 for a head, layer 3 for a layer."
TARGETS = ("head_roles.", "special_tokens.", "token_types.", "token_norms.attention")  # where attention goes
TRY = "Try attention to [SEP] below 5 %, or vertical and entropy < 1."
FORMAL = re.compile(r"(?<![\w.])[A-Za-z]\w*(?:_\w+|\.[A-Za-z]\w*|\w*@[\w-]+)(?:\.\w+)?(?:@[\w-]+)?", re.ASCII)


@dataclass
class Topic:
    """Something named, with its place in the sentence, whether it is negated, and the `or` or `nor` before it."""

    meaning: Meaning
    span: Span
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


def spell(meaning: Meaning) -> str:
    """Return a meaning in words that are read back as itself."""
    if meaning.kind == "lens":
        return f"{meaning.value} lens"
    return f"low {meaning.value}" if meaning.smallest else meaning.value


def clause_of(s: Sentence, place: int) -> int:
    """Return the number of the clause at a place of the sentence."""
    return sum(found.start() < place for found in CLAUSE.finditer(s.text))


class TopicReader:
    """Names every phrase that is left of a sentence. `superlative`: whether it asks for the most or least of something."""

    def __init__(self, s: Sentence, vocabulary: Vocabulary, encoder: Encoder | None) -> None:
        self.s, self.superlative = s, False
        self._vocabulary, self._encoder = vocabulary, encoder

    def read(self) -> list[Topic]:
        """Return the topics in the order of the sentence. Raises AmbiguousSentence for a phrase that is not understood."""
        topics: list[Topic] = []
        formal = list(self._formal())
        if sign := re.search(r"[<>=()@#]+|\bthan\b", self.s.rest):
            raise AmbiguousSentence(f"{unknown(sign[0])} Write a query such as vertical and entropy < 1.")
        places = [0, *(place for found in CLAUSE.finditer(self.s.rest) for place in found.span()), len(self.s.rest)]
        negated, joined = False, ""
        unread: list[str] = []  # `the most` of `the most heads`
        for start, end in pairwise(places):
            text = self.s.rest[start:end]
            if CLAUSE.fullmatch(text):
                if text not in ("head", "heads"):
                    joined = text if text in ("or", "nor") else "" if text == "and" else joined
                    negated = negated and joined in ("or", "nor")
                continue
            named, modifiers = self._name(start, text)
            named += [topic for topic in formal if start <= topic.span[0] < end]
            modifiers = unread + modifiers
            unread = [] if named else modifiers
            negated = joined == "nor" or negated ^ (modifiers.count("not") % 2 == 1)
            if {"low", "high"} <= {*modifiers}:
                raise AmbiguousSentence(f"Low or high values? {TRY}")
            self.superlative |= not {"most", "least", "max"}.isdisjoint(modifiers)
            numbers = any(topic.meaning.kind != "condition" for topic in named)
            for topic in named:
                small = not {"least", "low"}.isdisjoint(modifiers) and (
                    topic.meaning.kind != "condition" or not numbers
                )
                meaning = replace(topic.meaning, smallest=topic.meaning.smallest ^ small)
                topics.append(replace(topic, meaning=meaning, negated=negated, joined=joined))
                joined = ""
        if unread:
            raise AmbiguousSentence(f"The {unread[0]} of what? {TRY}")
        return sorted(topics, key=lambda topic: topic.span)

    def _formal(self) -> Iterator[Topic]:
        """Yield names as in queries, whose case matters."""
        for found in FORMAL.finditer(self.s.rest):
            try:
                term = resolve(self.s.words(found.span()), found.start())
            except InvalidQuery:
                continue
            self.s.blank(*found.span())
            kind = Meaning("condition" if isinstance(term, PatternClass) else "number", term.name)
            yield Topic(kind, found.span())

    def _name(self, start: int, text: str) -> tuple[list[Topic], list[str]]:
        """Return the topics of a clause that begins at a place of the sentence, and its modifiers."""
        topics, modifiers = [], []
        for piece in re.finditer(r"[^|]+", text):
            words = content(piece[0])
            roots = [self._root(word[0]) for word in words]
            covered = self._vocabulary.cover(roots)
            named = {place for first, last, _ in covered or () for place in range(first, last)}
            modifiers += [root for place, root in enumerate(roots) if root in MODIFIERS and place not in named]
            if covered is None:
                covered = self._guess(start + piece.start(), words, roots)
            for first, last, meanings in covered:
                at = start + piece.start()
                span = at + words[first].start(), at + words[last - 1].end()
                origin = re.search(r"\bfrom ", self.s.text[max(0, span[0] - 9) : span[1]])
                if meanings[0].kind == "nothing" or (origin and meanings[0].value.startswith(TARGETS)):
                    raise AmbiguousSentence(f"No measure tells this: “{self.s.words(span)}”. {TRY}")
                if len(meanings) > 1:
                    cases = len({meaning.value.lower() for meaning in meanings}) == 1
                    why = "differ only in case" if cases else "are all possible"
                    raise self.s.ask(f"These {why}. Which one?", span, {spell(one): spell(one) for one in meanings})
                topics.append(Topic(meanings[0], span))
        return topics, modifiers

    def _root(self, word: str) -> str:
        """Return the stem of a word; that of an adjective for its superlative."""
        for suffix, restored in (("est", ""), ("est", "e"), ("er", "")):
            root = word.removesuffix(suffix) + restored
            if word.endswith(suffix) and (root,) in self._vocabulary.exact:
                self.superlative = True
                return root
        return stem(word)

    def _guess(
        self, start: int, words: Sequence[re.Match[str]], roots: Sequence[str]
    ) -> list[tuple[int, int, list[Meaning]]]:
        """Return what words mean by the embedding of their phrase. Asks if that is not certain."""
        places = [place for place, root in enumerate(roots) if root not in MODIFIERS]
        first, last = places[0], places[-1] + 1
        span = start + words[first].start(), start + words[last - 1].end()
        plain = [words[place][0] for place in places]
        if number := [word for word in plain if word[0].isdigit() or word in (*ORDINALS[1:], *NUMBERS[2:])]:
            raise AmbiguousSentence(f"What does “{number[0]}” count? {COUNTS}")
        said = self.s.words(span).strip("\"'“”‘’")
        if slots.occurrences(self.s, said, "key"):
            looks = Alternative(f"what looks at {said}, in the open head", slots.ask_all("key", said))
            targets = [f"heads that look at {target}" for target in ("[SEP]", "special tokens", "the previous token")]
            raise AmbiguousSentence(f"{NO_MEASURE} What would you like to see?", [looks, *targets])
        if spelled := self._spelled(plain):
            raise self.s.ask(f"{unknown(said)} Did you mean this?", span, {spelled: spelled})
        near: list[tuple[str, Meaning]] = []
        if self._encoder:
            try:
                near, sure = self._vocabulary.nearest(embedded([words[place] for place in places]), self._encoder)
            except ModelUnavailable as missing:
                raise AmbiguousSentence(f"{unknown(said)} {missing}") from None
            if sure:
                return [(first, last, [near[0][1]])]
        names = [(phrase, spell(meaning)) for phrase, meaning in near]
        choices = {name if name == phrase else f"{phrase} ({name})": name for phrase, name in names}
        advice = "Did you mean one of these?" if near else TRY
        raise self.s.ask(f"{unknown(said)} {advice}", span, choices)

    def _spelled(self, text: Sequence[str]) -> str:
        """Return the known phrase that words are if misspelt ones are corrected."""
        known = sorted({word for phrase in self._vocabulary.exact for word in phrase if len(word) > 3})
        fixed = [
            [stem(word)] if stem(word) in known else difflib.get_close_matches(word, known, n=1, cutoff=0.82)
            for word in text
        ]
        whole = [word for near in fixed for word in near]
        return " ".join(whole) if len(whole) == len(fixed) and self._vocabulary.cover(whole) else ""
