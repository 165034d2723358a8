"""What can be named: measures, classes of heads and lenses, by the phrases of their declarations, and the page's own commands.

A phrase means what it says exactly, or what the phrase with the nearest embedding means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from ...core.arrays import Array
from ...lenses import LENSES
from ...measures import MEASURES
from ...measures.base import Measure
from ..terms import columns_of, is_per_head, kinds, numbers
from .sentence import Slot

# An embedding this close is understood if no other meaning comes within the margin; anything else is asked about.
CLOSE, MARGIN = 0.58, 0.1
COMMAND = 0.75
NEAREST = 3
WORD = re.compile(r"\[\w+\]|</?s>|[^\W_]+(?:'[^\W_]+)?")
_STOP_WORDS = """
a about accordingly act acting acts all also always am an any are as at attend attended attending attends attention be been being by can care chart could did display do
does doing dominated done draw each ever every everything find focuses focusing for from gave get gets getting give given gives giving go goes going graph had has have having head
headed heads how i if in into is it its just large largely list look looked looking looks mainly map maps me mean means mine mostly much my nat nats need of often on
one's only onto or other our over paid pay paying pays per place places placing please plot point pointed pointing points primarily put puts putting really rest resting
rests see seeing seen send sending sends show showing shown shows so some spend spending spends strongly such switch tell than that the their them then there these they this
those through to toward towards under upon us use used using very view want was watch watches watching we weight were what when where which while who whom whose will with
would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
SAME = {"word": "token", "words": "token", "tokens": "token"}

Kind = Literal["number", "condition", "lens", "several", "command"]


@dataclass(frozen=True)
class Meaning:
    """A number of a query or its smallest values, a condition, a lens, a measure with several numbers, or a command of the page (`special hide`)."""

    kind: Kind
    value: str
    smallest: bool = False
    slot: Slot = "where"  # of a command


class Encoder(Protocol):
    """Embeds texts, [N, D] of length 1; `encode_fixed` those that stay the same. Both raise ModelUnavailable."""

    def encode(self, texts: Sequence[str]) -> Array: ...

    def encode_fixed(self, texts: Sequence[str]) -> Array: ...


COMMANDS: dict[tuple[Slot, str], tuple[str, ...]] = {
    ("special", "hide"): ("hide special tokens", "hide [cls] and [sep]", "remove special tokens", "without special tokens"),
    ("special", "show"): ("show special tokens", "show [cls] and [sep] again", "bring back special tokens"),
    ("special", "mark"): ("grey out special tokens", "mark special tokens"),
    ("page", "reset"): ("reset", "reset everything", "start over", "clear everything", "back to the beginning"),
    ("page", "help"): ("help", "what can i ask", "what can i type here", "show the help", "how does this work", "keyboard shortcuts"),
    ("page", "dark"): ("dark mode", "switch to dark mode", "dark theme", "use a dark background"),
    ("page", "light"): ("light mode", "switch to light mode", "light theme", "use a light background"),
    ("page", "measures"): ("list measures", "what measures are there", "show all measures", "which measures can i use"),
}  # fmt: skip


@dataclass(frozen=True)
class Vocabulary:
    """Content words -> what they mean exactly, and all phrases with their meanings, for comparison by embedding."""

    exact: dict[tuple[str, ...], list[Meaning]]
    phrases: list[tuple[str, Meaning]]

    def cover(self, words: Sequence[str]) -> list[tuple[int, int, list[Meaning]]] | None:
        """Return how known phrases cover all words, as few as possible: first word, last word + 1, meanings; None if they do not."""
        best: list[list[tuple[int, int, list[Meaning]]] | None] = [[], *[None] * len(words)]
        for end in range(1, len(words) + 1):
            for start in range(end):
                before, found = best[start], self.exact.get(tuple(words[start:end]))
                if before is not None and found:
                    shorter = best[end] is None or len(before) + 1 < len(best[end] or ())
                    best[end] = [*before, (start, end, found)] if shorter else best[end]
        return best[-1]

    def nearest(self, text: str, encoder: Encoder, *, commands: bool = False) -> list[tuple[float, str, Meaning]]:
        """Return the phrases nearest to a text, commands or others, the best of each meaning: similarity, phrase, meaning. Raises ModelUnavailable."""
        near = encoder.encode_fixed([phrase for phrase, _ in self.phrases]) @ encoder.encode([text])[0]
        found: dict[Meaning, tuple[float, str, Meaning]] = {}
        for place in np.argsort(-near, kind="stable").tolist():
            phrase, meaning = self.phrases[place]
            if (meaning.kind == "command") != commands:
                continue
            found.setdefault(meaning, (float(near[place]), phrase, meaning))
            if len(found) > NEAREST:
                break
        return list(found.values())


def certain(near: Sequence[tuple[float, str, Meaning]]) -> bool:
    """Return whether the nearest meaning is meant."""
    if not near:
        return False
    (score, _, meaning), *others = near
    rival = next(
        (
            other
            for other, _, rival in others
            if rival.value.split(".")[0] != meaning.value or meaning.kind != "several"
        ),
        0.0,
    )
    return score >= CLOSE and score - rival >= MARGIN


def content(text: str) -> list[re.Match[str]]:
    """Return the words that carry meaning."""
    return [found for found in WORD.finditer(text) if found[0] not in STOP_WORDS]


def stem(word: str) -> str:
    """Return the word that stands for its plural and its synonyms."""
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return SAME.get(word, word[:-1] if plural else word)


def stems(text: str) -> tuple[str, ...]:
    """Return the stems of the words that carry meaning."""
    return tuple(stem(found[0]) for found in content(text))


def spoken(name: str) -> str:
    """Return a name as words."""
    return re.sub(r"[-_.]", " ", name)


# The measures of the last sentence, and their vocabulary.
_made: list[tuple[dict[str, Measure], Vocabulary]] = []


def make_vocabulary() -> Vocabulary:
    """Return the vocabulary of the declarations, which is made again if they have changed."""
    if not _made or _made[0][0] != MEASURES:
        _made[:] = [(dict(MEASURES), _make_vocabulary())]
    return _made[0][1]


def _make_vocabulary() -> Vocabulary:
    exact: dict[tuple[str, ...], list[Meaning]] = {}
    phrases: list[tuple[str, Meaning]] = []
    for meaning, names, words in _declared():
        for phrase in (*names, *words):
            whole = stems(phrase.lower())
            for key in {whole, tuple(word for word in whole if word != "token")}:
                if key and meaning not in exact.setdefault(key, []):
                    exact[key].append(meaning)
        phrases += [(" ".join(found[0] for found in content(phrase.lower())), meaning) for phrase in words]
    phrases += [
        (said, Meaning("command", value, slot=slot)) for (slot, value), words in COMMANDS.items() for said in words
    ]
    for key, meanings in exact.items():
        best = min(map(_precedence, meanings))
        exact[key] = [meaning for meaning in meanings if _precedence(meaning) == best]
    return Vocabulary(exact, [pair for pair in phrases if pair[0]])


def known_phrases() -> list[str]:
    """Return the phrases that sentences are compared with, to embed them ahead of time."""
    return [phrase for phrase, _ in make_vocabulary().phrases]


def _declared() -> Iterable[tuple[Meaning, list[str], list[str]]]:
    """Yield every meaning with its names, and phrases with a similar meaning."""
    for name, lens in LENSES.items():
        also = () if name == "null" else (name, spoken(name))  # on its own this could be the measure
        yield Meaning("lens", name), [*also, lens.title, f"{name} lens"], list(lens.phrases.get("", ()))
    for kind in kinds():
        yield Meaning("condition", kind), [f"{kind} pattern", f"{kind} class"], [kind]
    for name, declared in MEASURES.items():
        if not is_per_head(declared):
            continue
        several, sentence = columns_of(name), re.split(r"[.:;](?: |$)", declared.doc)[0]
        whole = Meaning("several" if several else "number", name)
        yield whole, [name, spoken(name)], [declared.title, *([] if several else [sentence])]
        for key, words in declared.phrases.items():
            yield _meaning(name, key), [], list(words)
    for name in numbers()[2:]:
        measure, _, column = name.partition(".")
        if column:
            yield (
                Meaning("number", name),
                [name, f"{spoken(measure)} {spoken(column)}", f"{spoken(column)} {spoken(measure)}"],
                [],
            )


def _precedence(meaning: Meaning) -> int:
    """Return which of two meanings of a phrase goes first: a lens or a class, then a number, then a measure with several."""
    return ("lens", "condition", "command", "number", "several").index(meaning.kind)


def _meaning(measure: str, key: str) -> Meaning:
    if key in kinds():
        return Meaning("condition", key)
    if "=" in key:
        return Meaning("condition", f"{measure}.{key}")
    column = key.removeprefix("-")
    return Meaning("number", f"{measure}.{column}" if column else measure, key.startswith("-"))
