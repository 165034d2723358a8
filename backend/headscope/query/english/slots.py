"""The parts of a sentence that have a fixed form: heads, layers, tokens, thresholds, counts. They are taken before anything is compared by meaning."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from .sentence import Alternative, AmbiguousSentence, Place, Sentence
from .words import NUMBER, NUMBERS, ORDINALS, number_of

Side = Literal["query", "key"]
WORD = (
    r"(?:token (?P<{0}number>\d+)|(?P<{0}several>every |each |all )?(?:the )?(?:word |token )?"
    r"(?P<{0}word>\"[^\"]+\"|'[^']+'|[\w\[\]]+))"
)
HEAD = r"(?:the )?(?:heads? )?(?P<{0}>\d+\.\d+)"
EDGE = r"(?:where is |show |find )?(?:the )?(?:most|max) (?:single )?(?:edge|connection|link|weight|arrow|entry|cell|attention)s?"
ORDINAL = rf"(?:\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)}|last)"
FROM_START = ("first", "early", "earliest", "low", "least")
EARLY = rf"(?:the )?(?P<end>{'|'.join(FROM_START)}|last|late|latest|upper|most)"
FRACTIONS = {"half": "50%", "a half": "50%", "a third": "33.3%", "a quarter": "25%", "two thirds": "66.7%"}
AMOUNT = (
    rf"(?P<n>-?(?:\d+(?:\.\d+)?|\.\d+)|{'|'.join(FRACTIONS)}|{'|'.join(NUMBERS)})"
    r"(?: ?(?P<unit>%|percent|per cent|nats?|bits?|tokens?|dimensions?|edges?))?(?: (?:of )?the time)?"
)


@dataclass(frozen=True)
class Threshold:
    """What a measure is compared with, as `{} > 0.5`, the unit that was said, and its place."""

    pattern: str
    unit: str
    span: tuple[int, int]


def read_heads(s: Sentence) -> list[tuple[str, bool, tuple[int, int]]]:
    """`4.5`, `compare 3.1 and 4.5`, `most edge in 4.5`, `open the sharpest`. Return heads that others are to be like, and whether as little as possible."""
    for named in s.find_all(HEAD.format("h")):
        layer, head = map(int, named["h"].split("."))
        s.check("layer", layer, named.span(), f"head {{}}.{head}")
        s.check("head", head, named.span(), f"head {layer}.{{}}")
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
        rf"(?:what|where|how much|how strongly|which (?:tokens?|words?))? ?(?:does|do|is|are) {WORD.format('')} look"
    )
    if found := s.take(rf"{asked} {other}"):
        _pin(s, found, "query")
        _pin(s, found, "key", "to_")
    if found := s.take(rf"{asked}(?: most)?"):
        _pin(s, found, "query")
    if found := s.take(rf"(?:what|who|which (?:tokens?|words?)) look {WORD.format('')}"):
        _pin(s, found, "key")


def _pin(s: Sentence, found: re.Match[str], side: Side, prefix: str = "") -> None:
    tokens = s.context.tokens if side == "query" else s.context.key_tokens
    if number := found[f"{prefix}number"]:
        if int(number) >= len(tokens):
            raise AmbiguousSentence(f"Tokens are counted from 0 to {len(tokens) - 1}. Which one do you mean?")
        s.add(side, number, found.span())
        return
    word = s.words(*found.span(f"{prefix}word")).strip("\"'“”‘’")
    places = occurrences(s, word, side)
    it = word.lower() in ("it", "this", "that")
    if not places and it and s.context.pinned:
        s.add(side, " ".join(map(str, s.context.pinned)), found.span())
        return
    if not places:
        texts = [token.text.strip() for token in tokens if token.kind == "word" and len(token.text.strip()) > 3]
        raise AmbiguousSentence(
            f"{f'What do you mean by “{word}”?' if it else 'The text has no such word.'} Choose a word, or click one first.",
            [Alternative(text, ask_all(side, text)) for text in list(dict.fromkeys(texts))[:6]],
        )
    if len(places) > 1 and not found[f"{prefix}several"]:
        asks = "what does token {} attend to" if side == "query" else "what attends to token {}"
        choices = [
            Alternative(f"{word}, token {' and '.join(map(str, place))}", asks.format(place[0])) for place in places[:6]
        ]
        raise AmbiguousSentence(
            f"The text has this word {len(places)} times. Which occurrence?",
            [*choices, Alternative("all of them", ask_all(side, word))],
        )
    s.add(side, " ".join(str(number) for place in places for number in place), found.span())


def ask_all(side: Side, word: str) -> str:
    """Return the sentence that pins every occurrence of a word."""
    return f'what does every "{word}" attend to' if side == "query" else f'what attends to every "{word}"'


def occurrences(s: Sentence, word: str, side: Side) -> list[list[int]]:
    """Return the tokens of every occurrence of a word: single tokens, else words made of several tokens."""
    tokens = s.context.tokens if side == "query" else s.context.key_tokens
    wanted = word.strip().lower()
    alone = [[place] for place, token in enumerate(tokens) if token.text.strip().lower() == wanted]
    words: dict[int, list[int]] = {}
    for place, token in enumerate(tokens):
        if token.word is not None:
            words.setdefault(token.word, []).append(place)
    joined = {word: "".join(tokens[place].text for place in places) for word, places in words.items()}
    return alone or [places for word, places in words.items() if joined[word].strip().lower() == wanted]


def read_thresholds(s: Sentence) -> list[Threshold]:
    """`> 2`, `>= 50 %`, `> half`, `20 % or more`, `between 1 and 2`; which measure they belong to is decided later."""
    number, percent = r"-?(?:\d+(?:\.\d+)?|\.\d+)", "%|percent|per cent"
    found_all = []
    between = rf"(?:between|from) (?P<low>{number}) ?(?P<some>{percent})? (?:and|to) (?P<high>{number})(?: ?(?P<unit>{percent}|nats?|bits?|tokens?))?"
    while found := s.take(between):
        unit = found["unit"] or found["some"] or ""
        sign = "%" if unit in percent.split("|") else ""
        found_all.append(Threshold(f"{found['low']}{sign} <= {{}} <= {found['high']}{sign}", unit, found.span()))
    while found := s.take(rf"(?P<sign>[<>]=?|!?=) ?{AMOUNT}") or s.take(
        rf"{AMOUNT} (?:or|and) (?P<sign>high|higher|above|low|lower|below|less|more)"
    ):
        words = {"high": ">=", "above": ">=", "low": "<=", "below": "<="}
        amount, unit = found["n"], found["unit"] or ("%" if found["n"] in FRACTIONS else "")
        value = FRACTIONS.get(amount) or (str(number_of(amount)) if amount in NUMBERS else amount)
        sign = "%" if unit in percent.split("|") and value[-1] != "%" else ""
        found_all.append(Threshold(f"{{}} {words.get(found['sign'], found['sign'])} {value}{sign}", unit, found.span()))
    return found_all


def read_limit(s: Sentence) -> tuple[int, bool]:
    """`most 5`, `the 3 ...`, `five heads`, `5 most ...`. Return the number of heads, 0 for any, and whether the lowest are wanted."""
    count = rf"(?P<n>{NUMBER})"
    found = (
        s.take(rf"(?:the )?(?:(?P<low>least)|most) {count}(?= )")
        or s.take(rf"{count} most(?= heads)")
        or s.take(rf"(?:the )?{count}(?= (?:heads|most|least|\w+est)\b)")
        or s.take(rf"(?:the|any|find|show|list|give me|show me) {count}(?= (?!layers?\b)[a-z])")
        or s.take(rf"^{count}(?= (?:[a-z-]+ )*heads\b)")
        or s.take(r"limit (?P<n>\d+)")
    )
    if not found:
        return 0, False
    limit = number_of(found["n"])
    if limit < 1:
        raise AmbiguousSentence("How many heads?")
    s.add("limit", str(limit), found.span())
    return limit, bool(found.groupdict().get("low"))


def read_places(s: Sentence) -> None:
    """`layer < 4`, `layers 2 to 4`, `the first three layers`, `the second layer`, `layer 8`, `layers 2, 3 and 5`; the same of heads."""
    if found := s.take(r"heads (?P<a>\d+) ?- ?(?P<b>\d+)"):
        a, b = found["a"], found["b"]
        one, several = f"head {a}.{b}: layer {a}, head {b}", f"heads {a} to {b} of every layer"
        choices = {one: f"head {a}.{b}", several: f"heads {a} to {b}"}
        raise AmbiguousSentence("One head, or several?", s.options(found.span(), choices))
    number = rf"(?P<n>{NUMBER})"
    for what in ("layer", "head"):
        # `heads > 6 tokens` is about a distance.
        sign = rf"(?P<sign>!?=|{'' if what == 'layer' else '(?<=head )'}[<>]=?|after|before|from)"
        while found := s.take(rf"{what}s? ?{sign} ?{number}") or s.take(
            rf"{sign} {what}s? {number}(?: (?:up|on|onwards?))?"
        ):
            words = {"after": ">", "before": "<", "from": ">="}
            index = s.check(what, number_of(found["n"]), found.span("n"))
            _where(s, f"{what} {words.get(found['sign'], found['sign'])} {index}", found)
        while found := s.take(rf"{what}s? (?P<a>{NUMBER}) ?(?:to|-|through|until|\.\.) ?(?P<b>{NUMBER})") or s.take(
            rf"{what}s? between (?P<a>{NUMBER}) and (?P<b>{NUMBER})"
        ):
            low, high = (s.check(what, number_of(found[side]), found.span(side)) for side in "ab")
            _where(s, f"{low} <= {what} <= {high}", found)
        if what == "layer":
            _read_ends(s)
        while found := s.take(rf"(?:the )?(?P<o>{ORDINAL}) {what}(?! with)"):
            _where(s, f"{what} = {s.ordinal(what, found['o'])}", found)
        while found := s.take(rf"{what}s (?P<all>{NUMBER}(?:(?:,? and |,? or |, ?| ){NUMBER})+)"):
            each = re.compile(number).finditer(s.text, *found.span("all"))
            numbers = [s.check(what, number_of(one["n"]), one.span("n")) for one in each]
            _where(s, " or ".join(f"{what} = {one}" for one in numbers), found)
        while found := s.take(rf"{what} {number}"):
            _read_one(s, what, found)


def _read_ends(s: Sentence) -> None:
    """`the first three layers`, `upper half`, `early layers`."""
    known = s.context.layers
    while found := s.take(
        rf"{EARLY} (?P<n>{NUMBER}) layers|{EARLY.replace('end', 'side')} half(?: of (?:the )?(?:layers|model))?"
    ):
        count = number_of(found["n"]) if found["n"] else len(known) // 2
        if not 0 < count <= len(known):
            raise AmbiguousSentence(f"There are {len(known)} layers. How many do you mean?")
        start = (found["end"] or found["side"]) in FROM_START
        _where(s, f"layer <= {known[count - 1]}" if start else f"layer >= {known[-count]}", found)
    if found := s.take(rf"{EARLY} layers"):
        end = "first" if found["end"] in FROM_START else "last"
        counts = sorted({1, max(1, len(known) // 3), max(1, len(known) // 2)})
        labels = {f"the {end} {count}": f"{end} {count} layers" for count in counts}
        raise AmbiguousSentence("How many layers?", s.options(found.span(), labels))


def _read_one(s: Sentence, what: Place, found: re.Match[str]) -> None:
    """`layer 8`. `layer 1` may be meant as the first, and `head 3` needs a layer."""
    number = s.check(what, number_of(found["n"]), found.span("n"))
    if what == "head" and not any(part.slot == "where" and "layer" in part.value for part in s.parts):
        labels = {
            f"head {number} of every layer": f"heads = {number}",
            f"every head of layer {number}": f"layers = {number}",
        }
        raise AmbiguousSentence(
            "Heads are named by layer and head, as in 4.5. Which one do you mean?", s.options(found.span(), labels)
        )
    if number == 1:
        labels = {f"the first, {what} 0": f"first {what}", f"the second, {what} 1": f"second {what}"}
        raise AmbiguousSentence(
            f"{what.capitalize()}s are counted from 0 here, so {what} 1 is the second. Which one do you mean?",
            s.options(found.span(), labels),
        )
    s.note(f"{what.capitalize()}s are counted from 0.")
    _where(s, f"{what} = {number}", found)


def _where(s: Sentence, condition: str, found: re.Match[str]) -> None:
    """Add a condition about layers or heads, which a `not` before it negates."""
    start, end = found.span()
    if before := re.search(r"not(?: in| for| of)?(?: the)? ?$", s.rest[:start]):
        start = before.start()
        s.blank(start, end)
        condition = f"not ({condition})" if " or " in condition else f"not {condition}"
    s.add("where", condition, (start, end))
