"""The parts of a sentence that have a fixed form: heads, layers, tokens, thresholds, counts. They are taken before anything is compared by meaning."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ...core.tokens import Token
from .sentence import Alternative, AmbiguousSentence, Place, Sentence, Span
from .vocabulary import MODIFIERS, content, stem
from .words import NUMBER, NUMBERS, ORDINALS, digits

Side = Literal["query", "key"]
ORDINAL = rf"(?:\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)}|last)"
WORD = (
    rf"(?:token (?P<{{0}}number>\d+)|the (?P<{{0}}ordinal>{ORDINAL}) (?P<{{0}}unit>token|word)"
    r"|(?P<{0}several>every |each |all )?(?:the )?(?:word |token )?(?!only\b)(?P<{0}word>\"[^\"]+\"|'[^']+'|[\w\[\]]+))"
)
HEAD = r"(?:the )?(?:heads? )?(?P<{0}>\d+\.\d+)"
EDGE = r"(?:(?:where is |show |find )?(?:the )?(?:most|max) (?:single )?(?:edge|connection|link|weight|arrow|entry|cell|attention)s?|(?:where is )?(?:the )?max)"
FROM_START = ("first", "early", "earliest", "low", "least")
EARLY = rf"(?:the )?(?P<end>{'|'.join(FROM_START)}|last|late|latest|upper|most|second(?= half))"
FRACTIONS = {"half": "50%", "a half": "50%", "a third": "33.3%", "a quarter": "25%", "two thirds": "66.7%"}
SHARES = ("%", "percent", "per cent")
DECIMAL = r"-?(?:\d+(?:\.\d+)?|\.\d+)"
UNIT = r"(?P<unit>%|percent|per cent|nats?|bits?|tokens?|dimensions?|edges?)"
AMOUNT = rf"(?P<n>{DECIMAL}|{'|'.join(FRACTIONS)}|{'|'.join(NUMBERS)})(?: ?{UNIT})?(?: (?:of )?the time)?"
# `in the first sentence`, `at the end`. The same sentence is a pattern, and half of the layers is not of the text.
TEXT = r"(?:text|input|sequence|sentence|paragraph)s?"
PART = (
    rf"(?:in|within|inside|during|of|from|for) (?:the |each |every |an? )?"
    rf"(?:(?:(?:{ORDINAL}|next|previous|other|another|following|each|every) )+(?:sentence|clause|line|paragraph|section)s?"
    rf"|(?:(?:{ORDINAL}|upper|lower) )?(?:half|third|quarter|part) (?:of|in) (?:the |this |each |every )*{TEXT})"
    rf"|(?:in|at|near|towards?) (?:the )?(?:very )?(?:beginning|start|middle|end)(?: of (?:the |this |each |every )*{TEXT})?"
)
QUOTES = "\"'“”‘’"


@dataclass(frozen=True)
class Threshold:
    """What a measure is compared with, as `{} > 0.5`, the unit that was said, and its place."""

    pattern: str
    unit: str
    span: Span


def read_heads(s: Sentence) -> list[tuple[str, bool, Span]]:
    """`4.5`, `compare 3.1 and 4.5`, `most edge in 4.5`, `open the sharpest`. Return heads that others are to be like, and whether as little as possible."""
    for named in s.find_all(r"(?:heads? )?(?P<layer>\d+)\.(?P<head>\d+)"):
        _index(s, "layer", named, "layer", f"head {{}}.{named['head']}")
        _index(s, "head", named, "head", f"head {named['layer']}.{{}}")
    alike = []
    like = r"(?P<not>not )?(?:most )?(?:look )?(?:(?P<unlike>unlike)|like|similar|as|closest)(?: heads?)?(?: to)? "
    while found := s.take(like + HEAD.format("h")):
        alike.append((found["h"], bool(found["unlike"]) != bool(found["not"]), found.span()))
    heads = [found["h"] for found in s.find_all(HEAD.format("h"))]
    if found := s.take(rf"{EDGE}(?: (?:in|of|from|within|for))?(?= {HEAD.format('h')})") or s.take(
        rf"{EDGE} (?:in|of|from) (?:it|here|this|this head|the head|the open head)"
    ):
        s.add("edge", "strongest", found.span())
    if len(heads) == 1 and (found := s.take(rf"(?:(?:open|show)(?: me)? )?{HEAD.format('h')}")):
        s.note(f"Head {heads[0]}: layer {heads[0].replace('.', ', head ')}, both counted from 0.")
        s.add("head", heads[0], found.span())
    elif heads:
        beside = re.search(r"\b(?:compare|difference|vs)\b", s.rest) is not None and len(heads) == 2
        joined = r"(?:,? ?(?:and|or|with|to|from|vs|,)? ?)?".join(HEAD.format(f"h{n}") for n in range(len(heads)))
        found = s.take(rf"(?:(?:compare|difference between) (?:the )?)?{joined}")
        if found is None:
            raise AmbiguousSentence("Name one head, or two heads to compare.", ["compare head 3.1 and 4.5"])
        if beside:
            s.add("head", heads[0], found.span())
            s.add("pair", heads[1], found.span())
        else:
            s.add("where", " or ".join(f"layer = {head.replace('.', ' and head = ')}" for head in heads), found.span())
    elif found := s.take(r"open(?: me)?(?: the)?"):
        s.add("head", "best", found.span())
    return alike


def read_words(s: Sentence) -> None:
    """`what does 'bank' look`, `where does 'bank' look 'river'`, `what look 'bank'`."""
    other = r"(?!(?:in|at|to|on|upon|under|of|for|from)\b|most\b)" + WORD.format("to_")
    asked = (
        rf"(?:what|where|how (?:much|strongly)|which (?:tokens?|words?))? ?(?:does|do|is|are) {WORD.format('')} look"
    )
    if found := s.take(rf"{asked} {other}"):
        _pin(s, found, "query")
        _pin(s, found, "key", "to_")
    if found := s.take(rf"{asked}(?: most)?"):
        _pin(s, found, "query")
    if found := s.take(
        rf"(?:what|who|which (?:tokens?|words?)|^ ?(?:the )?(?:tokens|words)(?: that)?) look {WORD.format('')}"
    ):
        _pin(s, found, "key")


def _pin(s: Sentence, found: re.Match[str], side: Side, prefix: str = "") -> None:
    tokens = s.context.tokens if side == "query" else s.context.key_tokens
    number, word = found[f"{prefix}number"], s.words(found.span(f"{prefix}word")).strip(QUOTES)
    if number and int(number) >= len(tokens):
        raise AmbiguousSentence(f"Tokens are counted from 0 to {len(tokens) - 1}. Which one do you mean?")
    if ordinal := found[f"{prefix}ordinal"]:
        unit = found[f"{prefix}unit"]
        every = _words(tokens) if unit == "word" else [[place] for place in range(len(tokens))]
        if not (places := every[_ordinal_index(ordinal) :][:1]):
            raise AmbiguousSentence(f"The text has {len(every)} {unit}s. Which one do you mean?")
    else:
        places = [[int(number)]] if number else occurrences(s, word, side)
    it = word.lower() in ("it", "this", "that")
    if not places and it and s.context.pinned:
        places = [[*s.context.pinned]]
    if not places:
        what = f"What do you mean by “{word}”?" if it else "The text has no such word."
        texts = [token.text.strip() for token in tokens if token.kind == "word" and len(token.text.strip()) > 3]
        choices = [Alternative(text, ask_all(side, text)) for text in list(dict.fromkeys(texts))[:6]]
        raise AmbiguousSentence(f"{what} Choose a word, or click one first.", choices)
    if len(places) > 1 and not found[f"{prefix}several"]:
        ask = "what does token {} attend to" if side == "query" else "what attends to token {}"
        pairs = [(" and ".join(map(str, place)), ask.format(place[0])) for place in places[:6]]
        choices = [Alternative(f"{word}, token {name}", asked) for name, asked in pairs]
        choices.append(Alternative("all of them", ask_all(side, word)))
        raise AmbiguousSentence(f"The text has this word {len(places)} times. Which occurrence?", choices)
    s.add(side, " ".join(str(number) for place in places for number in place), found.span())


def ask_all(side: Side, word: str) -> str:
    """Return the sentence that pins every occurrence of a word."""
    return f'what does every "{word}" attend to' if side == "query" else f'what attends to every "{word}"'


def occurrences(s: Sentence, word: str, side: Side) -> list[list[int]]:
    """Return the tokens of every occurrence of a word: single tokens, else words made of several tokens."""
    tokens = s.context.tokens if side == "query" else s.context.key_tokens
    wanted = word.strip(" []").lower()
    alone = [[place] for place, token in enumerate(tokens) if token.text.strip(" []").lower() == wanted]
    return alone or [
        places for places in _words(tokens) if "".join(tokens[place].text for place in places).strip().lower() == wanted
    ]


def _words(tokens: Sequence[Token]) -> list[list[int]]:
    """Return the tokens of every word."""
    words: dict[int, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.word is not None:
            words.setdefault(token.word, []).append(place)
    return list(words.values())


def _ordinal_index(said: str) -> int:
    """Return the index that an ordinal stands for; -1 for the last, and for the 0th one that no list has."""
    if said in ORDINALS or said == "last":
        return ORDINALS.index(said) if said in ORDINALS else -1
    number = int(said[:-2])
    return number - 1 if number else sys.maxsize


def read_thresholds(s: Sentence) -> list[Threshold]:
    """`> 2`, `>= 50 %`, `> half`, `20 % or more`, `between 1 and 2`; which measure they belong to is decided later."""
    thresholds = []
    low, high = (rf"(?P<{end}>{DECIMAL})" for end in ("low", "high"))
    between = rf"(?:between|from) {low} ?(?P<percent>%|percent)? (?:and|to) {high}(?: ?{UNIT})?"
    while found := s.take(between):
        unit = found["unit"] or found["percent"] or ""
        sign = "%" if unit in SHARES else ""
        thresholds.append(Threshold(f"{found['low']}{sign} <= {{}} <= {found['high']}{sign}", unit, found.span()))
    more = rf"{AMOUNT} (?:or|and) (?:(?P<more>high|above|more)|(?P<less>low|below|less))"
    while found := s.take(rf"(?P<sign>[<>]=?|!?=) ?{AMOUNT}") or s.take(more):
        sign = found.groupdict().get("sign") or (">=" if found["more"] else "<=")
        unit = "%" if found["n"] in FRACTIONS else found["unit"] or ""
        amount = FRACTIONS.get(found["n"]) or f"{digits(found['n'])}{'%' if unit in SHARES else ''}"
        thresholds.append(Threshold(f"{{}} {sign} {amount}", unit, found.span()))
    return thresholds


def refuse_parts(s: Sentence) -> None:
    """`punctuation in the first sentence`: raise AmbiguousSentence, as measures are of the whole text; a place alone is one to look at."""
    for found in s.find_all(f"(?:{PART})"):
        before = [stem(word[0]) for word in content(s.rest[: found.start()])]
        named = [word for word in before if word not in MODIFIERS | {"token"}]
        if named and named[-1] != "look":
            what = f"Measures are of the whole text, so “{s.words(found.span())}” cannot be used."
            raise s.ask(f"{what} Leave it out, or analyse that part alone.", found.span(), {"leave it out": ""})


def read_limit(s: Sentence) -> bool:
    """`most 5`, `the 3 ...`, `five heads`, `limit 5`. Return whether the lowest are wanted."""
    before = (
        r"(?:^ ?|(?:the )?(?:(?P<low>least)|most) |(?:limit|the|any|find|show|show me|give me|list|which) |(?<=est ))"
    )
    found = s.take(rf"{before}(?P<n>{NUMBER})(?: most)?(?= (?!layers?\b|tokens?\b|words?\b)[a-z]| ?$)")
    if found and digits(found["n"]) == "0":
        raise AmbiguousSentence("How many heads?")
    if found:
        s.add("limit", digits(found["n"]), found.span())
    return bool(found and found["low"])


def read_places(s: Sentence) -> None:
    """`layer < 4`, `layers 2 to 4`, `the first three layers`, `the second layer`, `layer 8`, `layers 2, 3 and 5`; the same of heads."""
    if found := s.take(r"heads (?P<a>\d+) ?- ?(?P<b>\d+)"):
        a, b = found["a"], found["b"]
        one, several = f"head {a}.{b}: layer {a}, head {b}", f"heads {a} to {b} of every layer"
        choices = {one: f"head {a}.{b}", several: f"heads {a} to {b}"}
        raise s.ask("One head, or several?", found.span(), choices)
    _read_ends(s)
    n, a, b = (rf"(?P<{name}>{NUMBER})" for name in "nab")
    for what in ("layer", "head"):
        # `heads > 6 tokens` is about a distance.
        sign = rf"(?P<sign>!?=|{'' if what == 'layer' else '(?<=head )'}[<>]=?)"
        rules = {
            rf"{what}s? ?{sign} ?{n}": f"{what} {{sign}} {{n}}",
            rf"{sign} {what}s? {n}(?: (?:up|on|onwards?))?": f"{what} {{sign}} {{n}}",
            rf"{what}s? {a} ?(?:to|-|through|until|\.\.) ?{b}": f"{{a}} <= {what} <= {{b}}",
            rf"{what}s? between {a} and {b}": f"{{a}} <= {what} <= {{b}}",
            rf"(?:the )?(?P<n>{ORDINAL}) {what}(?! with)": f"{what} = {{n}}",
        }
        for pattern, condition in rules.items():
            while found := s.take(pattern):
                said = found.groupdict().items()
                groups = {name: text if name == "sign" else _index(s, what, found, name) for name, text in said}
                _where(s, condition.format(**groups), found)
        while found := s.take(rf"{what}s? (?P<all>{NUMBER}(?:(?:,? and |,? or |, ?| )(?:{what} )?{NUMBER})+)"):
            each = re.compile(n).finditer(s.text, *found.span("all"))
            _where(s, " or ".join(f"{what} = {_index(s, what, one, 'n')}" for one in each), found)
        while found := s.take(rf"{what} {n}"):
            _read_one(s, what, found)


def _read_ends(s: Sentence) -> None:
    """`the first three layers`, `upper half`, `early layers`."""
    known = s.context.layers
    half = r"(?P<half>half)(?: of (?:the )?(?:layers|model))?"
    while found := s.take(rf"{EARLY} (?:{half}|(?:(?P<n>{NUMBER}) )?layers)"):
        start, count = found["end"] in FROM_START, len(known) // 2
        if not found["half"] and not found["n"]:
            counts = sorted({1, max(1, len(known) // 3), max(1, count)})
            end = "first" if start else "last"
            labels = {f"the {end} {count}": f"{end} {count} layers" for count in counts}
            raise s.ask("How many layers?", found.span(), labels)
        count = int(digits(found["n"])) if found["n"] else count
        if not 0 < count <= len(known):
            raise AmbiguousSentence(f"There are {len(known)} layers. How many do you mean?")
        _where(s, f"layer <= {known[count - 1]}" if start else f"layer >= {known[-count]}", found)


def _read_one(s: Sentence, what: Place, found: re.Match[str]) -> None:
    """`layer 8`. `layer 1` may be meant as the first, and `head 3` needs a layer."""
    number, labels = _index(s, what, found, "n"), {}
    if what == "head" and not any(part.slot == "where" and "layer" in part.value for part in s.parts):
        question = "Heads are named by layer and head, as in 4.5."
        labels[f"head {number} of every layer"] = f"heads = {number}"
        labels[f"every head of layer {number}"] = f"layers = {number}"
    elif number == 1:
        question = f"{what.capitalize()}s are counted from 0 here, so {what} 1 is the second."
        labels = {f"the first, {what} 0": f"first {what}", f"the second, {what} 1": f"second {what}"}
    if labels:
        raise s.ask(f"{question} Which one do you mean?", found.span(), labels)
    s.note(f"{what.capitalize()}s are counted from 0.")
    _where(s, f"{what} = {number}", found)


def _index(s: Sentence, what: Place, found: re.Match[str], group: str, text: str = "") -> int:
    """Return the index of a layer or head, by a number or an ordinal. Asks if it is out of range, offering the last, in place of the whole match as `text`."""
    known = s.context.layers if what == "layer" else s.context.heads
    said = found[group]
    if re.fullmatch(ORDINAL, said):
        place = _ordinal_index(said)
        if place >= len(known):
            raise AmbiguousSentence(f"There are {len(known)} {what}s. Which one do you mean?")
        s.note(f"{what.capitalize()}s are counted from 0: the {said} is {what} {known[place]}.")
        return known[place]
    number = int(digits(said))
    if number not in known:
        last = (text or "{}").format(known[-1])
        choices = {f"{what} {known[-1]}, the last": last} if number == known[-1] + 1 else {}
        span = found.span() if text else found.span(group)
        sentence = f"There is no {what} {number}: {what}s are counted from 0, and go from {known[0]} to {known[-1]}."
        raise s.ask(f"{sentence} Which one do you mean?", span, choices)
    return number


def _where(s: Sentence, condition: str, found: re.Match[str]) -> None:
    """Add a condition about layers or heads, which a `not` before it negates."""
    start, end = found.span()
    if before := re.search(r"not(?: in| for| of)?(?: the)? ?$", s.rest[:start]):
        start = before.start()
        s.blank(start, end)
        condition = f"not ({condition})" if " or " in condition else f"not {condition}"
    s.add("where", condition, (start, end))
