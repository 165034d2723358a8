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
from .sentence import Alternative, AmbiguousSentence, Sentence
from .vocabulary import MODIFIERS, Encoder, Meaning, Vocabulary, content, embedded, stem
from .words import NUMBERS, ORDINALS

# A new clause: negations and superlatives before it do not apply to what follows.
CLAUSE = re.compile(r"\b(?:and|but|or|nor|that|which|who|whose|with|where|having|heads?)\b|[,;:]")
FORMAL = re.compile(r"(?<![\w.])[A-Za-z]\w*(?:_\w+|\.[A-Za-z]\w*|\w*@[\w-]+)(?:\.\w+)?(?:@[\w-]+)?", re.ASCII)


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

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.end


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
        topics = list(self._formal())
        if sign := re.search(r"[<>=()@#]+", self.s.rest):
            raise AmbiguousSentence(f"{unknown(sign[0])} Write a query such as vertical and entropy < 1.")
        places = [0, *(place for found in CLAUSE.finditer(self.s.rest) for place in found.span()), len(self.s.rest)]
        negated, joined = False, ""
        for start, end in pairwise(places):
            text = self.s.rest[start:end]
            if CLAUSE.fullmatch(text):
                if text not in ("head", "heads"):
                    joined = text if text in ("or", "nor") else "" if text == "and" else joined
                    negated = negated and joined in ("or", "nor")
                continue
            named, modifiers = self._name(start, text)
            negated = joined == "nor" or negated ^ (modifiers.count("not") % 2 == 1)
            self.superlative |= not {"most", "least", "max"}.isdisjoint(modifiers)
            small = "least" in modifiers or "low" in modifiers
            for topic in named:
                meaning = replace(topic.meaning, smallest=topic.meaning.smallest ^ small)
                topics.append(replace(topic, meaning=meaning, negated=negated, joined=joined))
                joined = ""
        return sorted(topics, key=lambda topic: topic.start)

    def _formal(self) -> Iterator[Topic]:
        """Yield names as in queries, whose case matters."""
        for found in FORMAL.finditer(self.s.rest):
            try:
                term = resolve(self.s.words(*found.span()), found.start())
            except InvalidQuery:
                continue
            self.s.blank(*found.span())
            kind = Meaning("condition" if isinstance(term, PatternClass) else "number", term.name)
            yield Topic(kind, *found.span(), clause_of(self.s, found.start()))

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
                begin = start + piece.start() + words[first].start()
                end = start + piece.start() + words[last - 1].end()
                if len(meanings) > 1:
                    cases = len({meaning.value.lower() for meaning in meanings}) == 1
                    several = (
                        "These differ only in case." if cases else f"“{self.s.words(begin, end)}” has several meanings."
                    )
                    raise self.ask(f"{several} Which one?", (begin, end), meanings)
                topics.append(Topic(meanings[0], begin, end, clause_of(self.s, begin)))
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
        begin, end = start + words[first].start(), start + words[last - 1].end()
        plain = [words[place][0] for place in places]
        number = next(
            (word for word in plain if word[0].isdigit() or word in ORDINALS[1:] or word in NUMBERS[2:]), None
        )
        if number is not None:
            raise AmbiguousSentence(
                f"What does “{number}” count? Write above or below before a threshold, head 3.1 for a head, layer 3 for a layer."
            )
        said = self.s.words(begin, end).strip("\"'“”‘’")
        if slots.occurrences(self.s, said, "key"):
            targets = [f"heads that look at {target}" for target in ("[SEP]", "special tokens", "the previous token")]
            raise AmbiguousSentence(
                "No measure tells how much a head attends to this word, so it cannot be used to find heads. What would you like to see?",
                [Alternative(f"what looks at {said}, in the open head", slots.ask_all("key", said)), *targets],
            )
        if spelled := self._spelled(plain):
            raise AmbiguousSentence(
                f"{unknown(said)} Did you mean this?", [Alternative(spelled, self.s.replace((begin, end), spelled))]
            )
        try:
            near, sure = (
                self._vocabulary.nearest(embedded([words[place] for place in places]), self._encoder)
                if self._encoder
                else ([], False)
            )
        except ModelUnavailable as missing:
            raise AmbiguousSentence(f"{unknown(said)} {missing}") from None
        if sure:
            return [(first, last, [near[0][1]])]
        advice = (
            "Did you mean one of these?" if near else "Try attention to [SEP] below 5 %, or vertical and entropy < 1."
        )
        choices = [
            Alternative(
                spell(meaning) if phrase == meaning.value else f"{phrase} ({spell(meaning)})",
                self.s.replace((begin, end), spell(meaning)),
            )
            for phrase, meaning in near
        ]
        raise AmbiguousSentence(f"{unknown(said)} {advice}", choices)

    def _spelled(self, text: Sequence[str]) -> str:
        """Return the known phrase that words are if misspelt ones are corrected."""
        known = [word for word in self._vocabulary.words if len(word) > 3]
        fixed = [
            [stem(word)] if stem(word) in known else difflib.get_close_matches(word, known, n=1, cutoff=0.82)
            for word in text
        ]
        whole = [word for near in fixed for word in near]
        return " ".join(whole) if len(whole) == len(fixed) and self._vocabulary.cover(whole) else ""

    def ask(self, question: str, span: tuple[int, int], meanings: Sequence[Meaning]) -> AmbiguousSentence:
        """Return the question which of these meanings a phrase has."""
        choices = {spell(meaning): spell(meaning) for meaning in meanings}
        return AmbiguousSentence(question, self.s.options(span, choices))
