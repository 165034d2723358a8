"""The vocabulary: phrases and the names that queries and the page have for them. Phrases are regular expressions over lower-case text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from ...lenses import LENSES
from ...measures import MEASURES
from ..terms import columns_of, kinds, numbers

Meaning = TypeVar("Meaning")
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)
# A head has a role if more than half of its attention does; the page shows the threshold, which can be changed.
MOSTLY = "> 0.5"

_LENS_WORDS = {
    "weights": ("raw weights", "raw attention", "attention weights", "raw", "plain attention"),
    "effective": ("effective",),
    "effective-simplex": ("simplex",),
    "null": ("null part",),
    "max-entropy": ("maximum entropy lens",),
    "norm": ("norms", "norm based attention"),
}
_MEASURE_WORDS = {
    "null_share": ("share that reaches nothing", "lost share", "redundancy"),
    "participation_ratio": ("effective number of tokens",),
    "special_tokens.separator": ("attention to [sep]", "attention to sep", "attention to the separator"),
    "special_tokens.first": ("attention to [cls]", "attention to cls"),
    "special_tokens.all": ("attention to special tokens",),
    "sink.value": ("sink strength", "sink score"),
    "rank.effective": ("effective rank",),
    "rank.stable": ("stable rank",),
    "head_roles.previous": ("previous token score", "previous-token score"),
    "head_roles.induction": ("induction score",),
}
# What heads attend to -> the measure of how much.
TARGETS = {
    r"(?:the )?(?:\[sep\]|sep|separators?|\[eos\]|eos|</s>)(?: tokens?)?": "special_tokens.separator",
    r"(?:the )?(?:\[cls\]|cls|\[bos\]|bos|<s>)(?: tokens?)?": "special_tokens.first",
    r"(?:the )?special tokens?": "special_tokens.all",
    r"(?:the |their )?(?:previous|preceding)(?: tokens?| words?)?|the (?:token|word) before|one back": "head_roles.previous",
    r"(?:the |their )?(?:next|following)(?: tokens?| words?)?|the (?:token|word) after": "head_roles.next",
    r"(?:the )?first tokens?": "head_roles.first",
    r"themselves|itself|their own tokens?|the (?:same|current) token": "head_roles.self",
    r"(?:the )?(?:duplicates?|duplicate tokens?|repeated (?:tokens?|words?)|earlier copies)": "head_roles.duplicate",
}
# Names of heads -> the condition.
ROLES = {
    r"previous[- ]?tokens?": f"head_roles.previous {MOSTLY}",
    r"next[- ]?tokens?": f"head_roles.next {MOSTLY}",
    r"duplicate[- ]?tokens?": f"head_roles.duplicate {MOSTLY}",
    r"induction": f"head_roles.induction {MOSTLY}",
    r"self[- ](?:attending|looking|attention)": f"head_roles.self {MOSTLY}",
    r"(?:attention[- ])?sinks?": "sink.is_sink = 1",
    r"redundant|wasted": f"null_share {MOSTLY}",
}
# Adjectives -> the order.
MANNERS = {
    r"(?:sharp|focused|focussed|peaked|narrow|concentrated)(?:est)?": "order by entropy asc",
    r"(?:broad|diffuse|wide|spread[- ]out|flat)(?:est)?": "order by entropy desc",
}
_FILLERS = """
a an all and any are as at attention be by can color colour do does every find for from give have having head heads how i in is it its layer layers list look
map maps me most mostly mainly of on only or please s see show strongly that the their them there these they this those to under using view want what where
which who whose with would you
"""
FILLERS = frozenset(_FILLERS.split())


def _alternatives(phrases: Iterable[str]) -> str:
    """Return a pattern for any of the phrases, longest first; spaces also match hyphens."""
    ordered = sorted(phrases, key=len, reverse=True)
    return "|".join(re.escape(phrase).replace(r"\ ", "[ -]") for phrase in ordered)


def _spoken(name: str) -> str:
    return re.sub(r"[-_.]", " ", name)


def _lens_phrases() -> dict[str, str]:
    found: dict[str, str] = {}
    for name, lens in LENSES.items():
        words = (name, _spoken(name), lens.title.lower(), *_LENS_WORDS.get(name, ()))
        found |= dict.fromkeys(words, name)
    # On its own this could also be the measure.
    return {phrase: name for phrase, name in found.items() if phrase != "null"}


def _measure_phrases() -> dict[str, tuple[str, ...]]:
    """Return phrase -> the numbers it may mean; several if names differ only in case."""
    found: dict[str, tuple[str, ...]] = {}
    for name in numbers()[2:]:
        measure, _, column = name.partition(".")
        words = [name, *_MEASURE_WORDS.get(name, ())]
        if column:
            words += [f"{_spoken(measure)} {_spoken(column)}", f"{_spoken(column)} {_spoken(measure)}"]
        else:
            words += [_spoken(name), MEASURES[name].title]
        found |= {word: (*found.get(word, ()), name) for word in dict.fromkeys(map(str.lower, words))}
    return found


LENS_NAMES = _lens_phrases()
MEASURE_NAMES = _measure_phrases()
# Measures with several numbers, named without a column.
SEVERAL = {
    word: name for name in MEASURES if columns_of(name) for word in (name, _spoken(name), MEASURES[name].title.lower())
}

NUMBER = rf"(?:\d+|{'|'.join(NUMBERS)})"
ORDINAL = rf"(?:\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)}|last)"
LENS = rf"(?:the )?(?P<{{0}}>{_alternatives(LENS_NAMES)})(?: lens| attention| maps?)?"
MEASURE = rf"(?:the |mean |average )*(?P<{{0}}>{_alternatives(MEASURE_NAMES)})"
KIND = rf"(?:{'|'.join(re.escape(kind) for kind in sorted(kinds(), key=len, reverse=True))})"


def meaning_of(phrases: Mapping[str, Meaning], said: str) -> Meaning:
    """Return the meaning of a matched phrase."""
    return phrases.get(said) or phrases[said.replace("-", " ")]


def known_words() -> list[str]:
    """Return all known words, to suggest for misspelt ones."""
    whole = [phrase for phrase, names in MEASURE_NAMES.items() if "." not in names[0]]
    known = [*LENS_NAMES, *whole, *SEVERAL, *kinds(), *NUMBERS, *ORDINALS]
    known += ["layer", "head", "compare", "highest", "lowest", "difference", "induction", "previous", "attend", "sink"]
    return sorted({word for phrase in known for word in phrase.split() if word.isalpha() and len(word) > 2})


def numbers_of(measure: str) -> list[str]:
    """Return the numbers of a measure with columns, as queries name them."""
    return [f"{measure}.{column}" for column in columns_of(measure)]
