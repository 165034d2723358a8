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
from .words import ORDINALS, canonical

# An embedding this close is understood if no other meaning comes within the margin and no word keeps it further away than UNREAD. Fewer words are less evidence,
# and have to be closer. Anything else is asked about.
CLOSE, COMMAND, MARGIN = (0.65, 0.58, 0.58), 0.75, (0.13, 0.13, 0.1)
UNREAD = 0.15
NEAREST = 3
# These say which of several is meant, so what they do not bring nearer does not mean it: `the first comma`.
NARROWING = frozenset((*ORDINALS, "last", "middle"))
WORD = re.compile(r"\[\w+\]|</?s>|[^\W_]+(?:'[^\W_]+)?")
# Words without content here, and verbs by their stems.
_STOP_WORDS = """
a about almost also always am an any anything are as at average be been being both by did each ever every everything for from had has have having head headed heads how i if in
into is it its just largely look mainly me mean means mine mostly my nearly of often on one's ones only onto or other our over paid primarily rather really so some such
that the their them then there these they thing this those through to toward towards under upon us very was we were what whatever when where which whichever while who whom
whose will with you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
STOP_VERBS = re.compile(
    r"(?:act|behave|car|do|dominat|drop|dump|find|get|gett|giv|go|keep|list|pay|plac|put|putt|rest|send|show|spend|switch|tak|tell|throw|turn|us|want)(?:e|es|ed|en|s|ing)?|all|did|done|gave|spent|sent"
)
SAME = {"word": "token", "words": "token", "tokens": "token", "weights": "weights", "lens": "lens", "attn": "attention"}
# Words that a phrase may have and a sentence need not.
FILLERS = frozenset({"token", "weight", "attention", "map", "share", "score", "value", "lens"})
MODIFIERS = frozenset({"not", "least", "most", "max", "low", "high"})

Kind = Literal["number", "condition", "lens", "several", "command", "nothing"]
# What no measure tells, though it sounds like what one does: as the nearest phrase, or a close rival, it is a reason to ask.
NOTHING = (
    *("token after next", "token before last", "two tokens back", "two tokens ahead", "positive weights"),
    *("question marks", "exclamation marks", "quotation marks", "colons", "brackets", "capital letters", "rare words"),
)


@dataclass(frozen=True)
class Meaning:
    """A number of a query or its smallest values, a condition, a lens, a measure with several numbers, a command of the page (`special hide`), or nothing that is measured."""

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
Near = tuple[str, Meaning]


@dataclass(frozen=True)
class Vocabulary:
    """Content words -> what they mean exactly, and all phrases with their meanings, for comparison by embedding."""

    exact: dict[tuple[str, ...], list[Meaning]]
    phrases: list[tuple[str, Meaning]]

    def cover(self, words: Sequence[str], skip: float = 0.4) -> list[tuple[int, int, list[Meaning]]] | None:
        """Return how few known phrases cover all words: first word, last word + 1, meanings; None if they do not. Fillers and modifiers may be left over."""
        best: list[tuple[float, list[tuple[int, int, list[Meaning]]]]] = [(0.0, [])]
        for end in range(1, len(words) + 1):
            ways = [
                (best[start][0] + 1, [*best[start][1], (start, end, found)])
                for start in range(end)
                if (found := self.exact.get(tuple(words[start:end])))
            ]
            if words[end - 1] in FILLERS | MODIFIERS:
                ways.append((best[-1][0] + skip, best[-1][1]))
            best.append(min(ways, key=lambda way: way[0], default=(np.inf, [])))
        cost, covered = best[-1]
        if not covered and cost < np.inf and skip < 1:  # `largest weight` is a name
            return self.cover(words, 1) or covered
        return covered if cost < np.inf else None

    def nearest(self, text: str, encoder: Encoder, *, commands: bool = False) -> tuple[list[Near], bool]:
        """Return the phrases nearest to a text, commands or others, the best of each meaning, and whether the first is meant. Raises ModelUnavailable.

        A word without which the others would be much nearer is not part of what the phrase means, so it is not meant.
        """
        words, fixed = text.split(), encoder.encode_fixed([phrase for phrase, _ in self.phrases])
        near = fixed @ encoder.encode([text])[0]
        ranked: dict[Meaning, tuple[float, int]] = {}
        for place in np.argsort(-near, kind="stable").tolist():
            if (self.phrases[place][1].kind == "command") == commands:
                ranked.setdefault(self.phrases[place][1], (float(near[place]), place))
        (score, best), *others = ranked.values()
        meaning = self.phrases[best][1]
        family = meaning.value if meaning.kind == "several" else None  # its own columns are no rivals
        rival = next(score for score, place in others if self.phrases[place][1].value.split(".")[0] != family)
        evidence = min(len(words), len(CLOSE)) - 1
        close = (
            meaning.kind != "nothing"
            and score >= (COMMAND if commands else CLOSE[evidence])
            and score - rival >= MARGIN[evidence]
        )
        if close and len(words) > 1:
            without = [" ".join([*words[:place], *words[place + 1 :]]) for place in range(len(words))]
            unread = np.array([0 if word in NARROWING else UNREAD for word in words])
            close = bool((encoder.encode(without) @ fixed[best] - score <= unread).all())
        offered = [self.phrases[place] for found, (_, place) in ranked.items() if found.kind != "nothing"]
        return offered[:NEAREST], close


def content(text: str) -> list[re.Match[str]]:
    """Return the words that carry meaning."""
    return [word for word in WORD.finditer(text) if word[0] not in STOP_WORDS and not STOP_VERBS.fullmatch(word[0])]


def embedded(words: Sequence[re.Match[str]]) -> str:
    """Return the text of words that is embedded, without those that nearly every phrase could have."""
    return " ".join(word[0] for word in words if word[0] not in ("attention", "map", "weight"))


def stem(word: str) -> str:
    """Return the word that stands for its plural and its synonyms."""
    plural = len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return SAME.get(word, word[:-1] if plural else word)


def stems(text: str) -> tuple[str, ...]:
    """Return the stems of the words that carry meaning."""
    return tuple(stem(found[0]) for found in content(canonical(text)[0]))


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
            whole = stems(phrase)
            for key in {whole, tuple(word for word in whole if word not in ("attention", "map", "weight"))}:
                if set(key) - MODIFIERS and meaning not in exact.setdefault(key, []):
                    exact[key].append(meaning)
        phrases += [(embedded(content(canonical(phrase)[0])), meaning) for phrase in words]
    for (slot, value), said in COMMANDS.items():
        phrases += [(phrase, Meaning("command", value, slot=slot)) for phrase in said]
    # A lens or a class goes before a number, and that before a measure with several.
    order = ("nothing", "lens", "condition", "number", "several")
    for key, meanings in exact.items():
        first = min(order.index(meaning.kind) for meaning in meanings)
        exact[key] = [meaning for meaning in meanings if order.index(meaning.kind) == first]
    return Vocabulary(exact, [pair for pair in phrases if pair[0]])


def known_phrases() -> list[str]:
    """Return the phrases that sentences are compared with, to embed them ahead of time."""
    return [phrase for phrase, _ in make_vocabulary().phrases]


def _declared() -> Iterable[tuple[Meaning, list[str], list[str]]]:
    """Yield every meaning with its names, and phrases with a similar meaning."""
    yield Meaning("nothing", ""), [], list(NOTHING)
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
            column = key.removeprefix("-")
            value = key if key in kinds() else f"{name}.{column}" if column else name
            condition = key in kinds() or "=" in key
            yield Meaning("condition" if condition else "number", value, key.startswith("-")), [], list(words)
    for name in numbers()[2:]:
        measure, _, column = (spoken(part) for part in name.partition("."))
        if stems(column):  # not `other`
            yield Meaning("number", name), [name, f"{measure} {column}", f"{column} {measure}"], []
