"""The parts of a sentence that have a fixed form: heads, layers, tokens, thresholds, counts. They are taken before anything is compared by meaning."""

from __future__ import annotations

import re
from typing import Literal

from ..grammar import SIGNS
from .sentence import NUMBERS, ORDINALS, Alternative, AmbiguousSentence, Sentence

Side = Literal["query", "key"]
NUMBER = rf"(?:\d+|{'|'.join(NUMBERS)})"
ORDINAL = rf"(?:\d+(?:st|nd|rd|th)|{'|'.join(ORDINALS)}|last)"
WORD = r"(?:token (?P<number>\d+)|(?P<several>every |each |all )?(?:the )?(?:word |token )?(?:\"(?P<double>[^\"]+)\"|'(?P<single>[^']+)'|(?P<bare>[\w\[\]]+)))"
LOOK = r"(?:attend to|attend|look at|look to|look|point at|point to|see|focus on)"
# As read_heads() leaves the name of a head: at the end of the room that it had.
HEAD = r"\s*(?P<{0}>\d+\.\d+)"
NOTATIONS = (
    r"(?:heads? )?(?P<l>\d+)\.(?P<h>\d+)",
    r"(?:heads? )?l(?P<l>\d+) ?[.-]? ?h(?P<h>\d+)",
    r"(?:heads? )?\(?(?P<l>\d+), ?(?P<h>\d+)\)",
    r"head (?P<l>\d+) ?- ?(?P<h>\d+)",
    rf"layer (?P<l>{NUMBER}),? (?:and )?head (?P<h>{NUMBER})",
    rf"head (?P<h>{NUMBER}),? (?:of|in) layer (?P<l>{NUMBER})",
)
OPEN = r"(?:open|go to|take me to|jump to|bring up)"
LIKE = (
    r"(?:look(?:s|ing)? |behav(?:e|es|ing) |act(?:s|ing)? )?"
    r"(?:similar to|resembl(?:e|es|ing)|like|alike to|closest to|close to|the same as|same as|as)"
)
EDGE = (
    r"(?:the )?(?:strongest|largest|biggest|heaviest|highest|maximum|top) (?:single )?"
    r"(?:edge|connection|link|weight|arrow|entry|cell|attention)s?"
)
MORE = {
    **dict.fromkeys(
        ("above", "over", "more than", "greater than", "larger than", "higher than", "exceeding", "exceeds", "exceed"),
        ">",
    ),
    **dict.fromkeys(("at least", "no less than", "not less than", "minimum"), ">="),
}
LESS = {
    **dict.fromkeys(("below", "under", "less than", "fewer than", "smaller than", "lower than"), "<"),
    **dict.fromkeys(("at most", "no more than", "not more than", "up to", "maximum"), "<="),
}
SIGN = {**MORE, **LESS, "equal to": "=", "equals": "=", "exactly": "=", "==": "=", **{sign: sign for sign in SIGNS}}
SIGNED = "|".join(re.escape(sign).replace(r"\ ", " ") for sign in sorted(SIGN, key=len, reverse=True))
FRACTIONS = {"half": "50%", "a half": "50%", "a third": "33.3%", "a quarter": "25%", "two thirds": "66.7%"}
AMOUNT = rf"(?:(?P<n>-?(?:\d+(?:\.\d+)?|\.\d+)) ?(?P<p>%|percent|per cent)?|(?P<f>{'|'.join(FRACTIONS)})|(?P<w>{'|'.join(NUMBERS)}))(?: ?(?:nats?|bits?|tokens?|(?:of )?the time))?"
EARLY = r"(?P<end>first|early|earliest|lower|bottom|last|late|latest|upper|top|final)"
FROM_START = frozenset({"first", "early", "earliest", "lower", "bottom"})


def read_heads(s: Sentence) -> list[tuple[str, re.Match[str]]]:
    """`4.5`, `L4H5`, `compare 3.1 and 4.5`, `strongest edge in 4.5`, `open the sharpest`. Return the heads that others are to be like."""
    if found := s.take(r"heads (?P<a>\d+) ?- ?(?P<b>\d+)"):
        a, b = found["a"], found["b"]
        labels = {
            f"head {a}.{b}: layer {a}, head {b}": f"head {a}.{b}",
            f"heads {a} to {b} of every layer": f"heads {a} to {b}",
        }
        raise AmbiguousSentence("One head, or several?", s.options(found, labels))
    for pattern in NOTATIONS:
        for found in s.find_all(pattern):
            layer, head = s.index_of("layer", found, "l"), s.index_of("head", found, "h")
            s.shorten(found, f"{layer}.{head}")
    name = HEAD.format
    alike = []
    while found := s.take(rf"similar heads? to(?: head)?{name('h')}") or s.take(rf"{LIKE}(?: head)?{name('h')}"):
        alike.append((found["h"], found))
    pair = rf"(?:compare|difference between|contrast)(?: the)?(?: heads?)?{name('a')}(?: and| with| to| against| vs\.?| versus|,| or)(?: head)?{name('b')}"
    if found := s.take(pair) or s.take(
        rf"{name('a')} ?(?:vs\.?|versus|against|compared (?:to|with))(?: head)?{name('b')}"
    ):
        s.add("head", found["a"], found)
        s.add("pair", found["b"], found)
    edge = rf"(?:where is |show |find )?{EDGE}"
    if found := s.take(rf"{edge}(?: (?:in|of|from|within|for))?(?=(?: the)?(?: head)?\s*\d+\.\d+)") or s.take(
        rf"{edge} (?:in|of|from) (?:it|here|this|this head|the head|the open head)"
    ):
        s.add("edge", "strongest", found)
    _open_heads(s)
    return alike


def _open_heads(s: Sentence) -> None:
    """Open the head that is named, or the best; several heads are found instead."""
    several = s.find_all(HEAD.format("h"))
    heads = [found["h"].split(".") for found in several]
    if len(several) == 1 and (
        found := s.take(rf"(?:{OPEN}|show me|show|display|select)?(?: the)?(?: head)?{HEAD.format('h')}")
    ):
        (layer, number), *_ = heads
        s.note(f"Head {layer}.{number}: layer {layer}, head {number}, both counted from 0.")
        s.add("head", found["h"], found)
    elif len(several) > 1:
        s.add("where", " or ".join(f"layer = {layer} and head = {number}" for layer, number in heads), several[0])
        joined = r"(?:,? ?(?:and |or )?)?".join(HEAD.format(f"h{place}") for place in range(len(several)))
        s.take(rf"(?:heads )?{joined}")
    elif not s.has("head") and (found := s.take(rf"{OPEN}(?: the)?")):
        s.add("head", "best", found)


def read_words(s: Sentence) -> None:
    """`what does 'bank' attend to`, `where does 'bank' look at 'river'`, `what looks at 'bank'`."""
    other = r"(?!(?:in|at|to|on|upon)\b|most\b|under\b|of\b|for\b|from\b)" + WORD.replace("P<", "P<to_")
    if found := s.take(rf"(?:what|where|how much|how strongly|does) ?(?:does |do )?{WORD} {LOOK} {other}"):
        _pin(s, found, "query")
        _pin(s, found, "key", "to_")
    if found := s.take(rf"(?:what|where|which (?:tokens?|words?)) (?:does|do) {WORD} {LOOK}(?: most)?"):
        _pin(s, found, "query")
    if found := s.take(
        rf"(?:what|who|which (?:tokens?|words?)) (?:attends?|looks?|points?|focus(?:es)?) (?:to|at|on) {WORD}"
    ):
        _pin(s, found, "key")


def _pin(s: Sentence, found: re.Match[str], side: Side, prefix: str = "") -> None:
    side_tokens = s.context.tokens if side == "query" else s.context.key_tokens
    if number := found[f"{prefix}number"]:
        if int(number) >= len(side_tokens):
            raise AmbiguousSentence(f"Tokens are counted from 0 to {len(side_tokens) - 1}. Which one do you mean?")
        s.add(side, number, found)
        return
    group = next(name for name in ("double", "single", "bare") if found[f"{prefix}{name}"])
    word = s.said[slice(*found.span(f"{prefix}{group}"))]
    places = occurrences(s, word, side)
    if not places and word.lower() in ("it", "this", "that") and s.context.pinned:
        s.add(side, " ".join(map(str, s.context.pinned)), found)
        return
    if not places:
        texts = [token.text.strip() for token in side_tokens if token.kind == "word" and len(token.text.strip()) > 3]
        it = word.lower() in ("it", "this", "that")
        raise AmbiguousSentence(
            f"{f'What do you mean by “{word}”?' if it else 'The text has no such word.'} Choose a word, or click one first.",
            [Alternative(text, ask_all(side, text)) for text in list(dict.fromkeys(texts))[:6]],
        )
    if len(places) > 1 and not found[f"{prefix}several"]:
        choices = [
            Alternative(f"{word}, token {' and '.join(map(str, place))}", _ask_token(side, place[0]))
            for place in places[:6]
        ]
        raise AmbiguousSentence(
            f"The text has this word {len(places)} times. Which occurrence?",
            [*choices, Alternative("all of them", ask_all(side, word))],
        )
    s.add(side, " ".join(str(number) for place in places for number in place), found)


def _ask_token(side: Side, number: int) -> str:
    return f"what does token {number} attend to" if side == "query" else f"what attends to token {number}"


def ask_all(side: Side, word: str) -> str:
    """Return the sentence that pins every occurrence of a word."""
    return f'what does every "{word}" attend to' if side == "query" else f'what attends to every "{word}"'


def occurrences(s: Sentence, word: str, side: Side) -> list[list[int]]:
    """Return the tokens of every occurrence of a word: single tokens, else words made of several tokens."""
    side_tokens = s.context.tokens if side == "query" else s.context.key_tokens
    wanted = word.strip().lower()
    alone = [[place] for place, token in enumerate(side_tokens) if token.text.strip().lower() == wanted]
    if alone:
        return alone
    words: dict[int, list[int]] = {}
    for place, token in enumerate(side_tokens):
        if token.word is not None:
            words.setdefault(token.word, []).append(place)
    return [
        places
        for places in words.values()
        if "".join(side_tokens[place].text for place in places).strip().lower() == wanted
    ]


def read_thresholds(s: Sentence) -> None:
    """`above 2`, `at least 50 %`, `over half`, `20 % or more`, `between 1 and 2`; which measure they belong to is decided later."""
    between = r"(?:between|from) (?P<low>-?\d+(?:\.\d+)?) ?(?P<pl>%)? (?:and|to) (?P<high>-?\d+(?:\.\d+)?) ?(?P<ph>%)?"
    while found := s.take(between):
        low, high = found["low"] + (found["pl"] or found["ph"] or ""), found["high"] + (found["ph"] or "")
        s.thresholds.append((found, f"{low} <= {{}} <= {high}"))
    while found := s.take(rf"(?P<sign>{SIGNED}) ?{AMOUNT}"):
        s.thresholds.append((found, f"{{}} {SIGN[found['sign']]} {_amount(found)}"))
    while found := s.take(rf"{AMOUNT} (?:or|and) (?P<sign>more|higher|above|less|lower|fewer|below)"):
        sign = ">=" if found["sign"] in ("more", "higher", "above") else "<="
        s.thresholds.append((found, f"{{}} {sign} {_amount(found)}"))


def _amount(found: re.Match[str]) -> str:
    if found["w"]:
        return str(NUMBERS.index(found["w"]))
    return FRACTIONS[found["f"]] if found["f"] else f"{found['n']}{'%' if found['p'] else ''}"


def read_limit(s: Sentence) -> None:
    """`top 5`, `the 3 ...`, `five heads`, `5 best heads`."""
    if found := (
        s.take(rf"(?:the )?(?:top|best) (?P<n>{NUMBER})(?= )")
        or s.take(rf"(?P<n>{NUMBER}) (?:best|top)")
        or s.take(rf"(?:the )?(?P<low>bottom|lowest|smallest|least) (?P<n>{NUMBER})(?= )")
        or s.take(rf"(?:the )?(?P<n>{NUMBER})(?= (?:heads|most|least|highest|lowest|\w+est)\b)")
        or s.take(rf"(?:the|any|find|show|list|give me|show me) (?P<n>{NUMBER})(?= (?!layers?\b)[a-z])")
        or s.take(rf"^(?P<n>{NUMBER})(?= (?:[a-z-]+ )*heads\b)")
        or s.take(r"limit (?P<n>\d+)")
    ):
        s.limit = NUMBERS.index(found["n"]) if found["n"] in NUMBERS else int(found["n"])
        if s.limit < 1:
            raise AmbiguousSentence("How many heads?")
        s.lowest |= bool(found.groupdict().get("low"))
        s.add("limit", str(s.limit), found)


def read_bounds(s: Sentence) -> None:
    """`layer < 4`, `above layer 2`: before thresholds, which would take their numbers."""
    for what in ("layer", "head"):
        # `heads over 6 tokens` is about a distance.
        bound = r"(?P<sign>[<>]=?|!?==?)" if what == "head" else rf"(?P<sign>{SIGNED}|after|before|from)"
        while found := s.take(rf"{what}s? {bound} ?(?P<n>{NUMBER})") or s.take(rf"{bound} {what}s? (?P<n>{NUMBER})"):
            sign = {"after": ">", "before": "<", "from": ">="}.get(found["sign"]) or SIGN[found["sign"]]
            _where(s, f"{what} {sign} {s.index_of(what, found, 'n')}", found)
        while found := s.take(rf"{what}s? between (?P<a>{NUMBER}) and (?P<b>{NUMBER})"):
            _where(s, f"{s.index_of(what, found, 'a')} <= {what} <= {s.index_of(what, found, 'b')}", found)


def read_ranges(s: Sentence) -> None:
    """`layers 2 to 4`, `the first three layers`, `the second layer`, `layer 8`, `layers 2, 3 and 5`; the same of heads."""
    for what in ("layer", "head"):
        early = EARLY if what == "layer" else r"(?P<end>(?!))"
        known = s.context.layers if what == "layer" else s.context.heads
        while found := s.take(rf"{what}s? (?P<a>{NUMBER}) ?(?:to|-|through|until|\.\.) ?(?P<b>{NUMBER})"):
            _where(s, f"{s.index_of(what, found, 'a')} <= {what} <= {s.index_of(what, found, 'b')}", found)
        while found := s.take(rf"(?:the )?{early} (?P<n>{NUMBER}) {what}s"):
            _end(s, found, what)
        while found := s.take(
            rf"(?:the )?(?P<end>lower|first|bottom|upper|second|last|top) half(?: of (?:the )?(?:{what}s|model))?"
        ):
            middle = known[len(known) // 2]
            _where(s, f"{what} {'<' if found['end'] in FROM_START else '>='} {middle}", found)
        while found := s.take(rf"(?:the )?(?P<o>{ORDINAL}) {what}(?! with)"):
            _where(s, f"{what} = {s.ordinal(what, found['o'])}", found)
        while found := s.take(rf"(?:the )?{early} {what}s"):
            third = max(1, len(known) // 3)
            end = "first" if found["end"] in FROM_START else "last"
            counts = sorted({1, third, max(1, len(known) // 2)})
            labels = {f"the {end} {count}": f"{end} {count} {what}s" for count in counts}
            raise AmbiguousSentence(f"How many {what}s?", s.options(found, labels))
        _numbers(s, what)


def _where(s: Sentence, condition: str, found: re.Match[str]) -> None:
    """Add a condition about layers or heads; `not in`, `except` and `outside` before it negate it."""
    before = re.search(
        r"(?:not|except|excluding|outside|without)(?: in| for| of)?(?: the)?\s*$", s.rest[: found.start()]
    )
    if before is not None:
        s.blank(*before.span())
        condition = f"not ({condition})" if " or " in condition else f"not {condition}"
    s.add("where", condition, found)


def _end(s: Sentence, found: re.Match[str], what: str) -> None:
    known = s.context.layers if what == "layer" else s.context.heads
    count = NUMBERS.index(found["n"]) if found["n"] in NUMBERS else int(found["n"])
    if not 0 < count <= len(known):
        raise AmbiguousSentence(f"There are {len(known)} {what}s. How many do you mean?")
    if found["end"] in FROM_START:
        _where(s, f"{what} <= {known[count - 1]}", found)
    else:
        _where(s, f"{what} >= {known[-count]}", found)


def _numbers(s: Sentence, what: str) -> None:
    """`layer 8`, `layers 2, 3 and 5`. `layer 1` alone may be meant as the first."""
    while found := s.take(rf"{what}s (?P<all>{NUMBER}(?:(?:,? and |,? or |, ?| ){NUMBER})+)"):
        each = re.compile(rf"(?P<n>{NUMBER})").finditer(s.lower, *found.span("all"))
        numbers = [s.index_of(what, number, "n") for number in each]
        _where(s, " or ".join(f"{what} = {number}" for number in numbers), found)
    while found := s.take(rf"{what} (?P<n>{NUMBER})"):
        number = s.index_of(what, found, "n")
        if what == "head" and not any(part.slot == "where" and "layer" in part.value for part in s.parts):
            labels = {
                f"head {number} of every layer": f"heads = {number}",
                f"every head of layer {number}": f"layers = {number}",
            }
            raise AmbiguousSentence(
                "Heads are named by layer and head, as in 4.5. Which one do you mean?", s.options(found, labels)
            )
        if number == 1 and found["n"] in ("1", "one"):
            labels = {f"the first, {what} 0": f"first {what}", f"the second, {what} 1": f"second {what}"}
            raise AmbiguousSentence(
                f"{what.capitalize()}s are counted from 0 here, so {what} 1 is the second. Which one do you mean?",
                s.options(found, labels),
            )
        s.note(f"{what.capitalize()}s are counted from 0.")
        _where(s, f"{what} = {number}", found)
