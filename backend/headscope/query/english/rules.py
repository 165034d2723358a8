"""The grammar of sentences: rules in the order in which they are tried."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from ..grammar import SIGNS
from . import phrases
from .phrases import KIND, LENS, LENS_NAMES, MEASURE, MEASURE_NAMES, MOSTLY, NUMBER, ORDINAL, meaning_of
from .sentence import Alternative, AmbiguousSentence, RequestedView, Sentence

Side = Literal["query", "key"]
LENS_A, LENS_B, MEASURED = LENS.format("a"), LENS.format("b"), MEASURE.format("m")
LOOK = r"(?:looks?|looking|attends?|attending|goes|go|points?|pointing|focus(?:es|ing)?|rests?|resting)(?: (?:back|mostly|mainly|strongly|most|only))* (?:at|to|on|upon)"
WORD = r"(?:token (?P<number>\d+)|(?P<several>every |each |all )?(?:the )?(?:word |token )?(?:\"(?P<double>[^\"]+)\"|'(?P<single>[^']+)'|(?P<bare>[\w\[\]]+)))"
MORE = {
    "above": ">",
    "over": ">",
    "more than": ">",
    "greater than": ">",
    "larger than": ">",
    "higher than": ">",
    "at least": ">=",
}
LESS = {"below": "<", "under": "<", "less than": "<", "smaller than": "<", "lower than": "<", "at most": "<="}
SIGN = {**MORE, **LESS, "equal to": "=", "equals": "=", "==": "=", **{sign: sign for sign in SIGNS}}
SIGNED = "|".join(re.escape(sign) for sign in sorted(SIGN, key=len, reverse=True))
HIGH = r"(?:highest|largest|greatest|biggest|most|maximal|maximum|top)"
LOW = r"(?:lowest|smallest|least|minimal|minimum)"
EARLY = r"(?P<end>first|early|earliest|lower|bottom|last|late|latest|upper|top|final)"
EXAMPLES = ("vertical heads", "previous token heads", "the 5 heads with the lowest entropy", "entropy by layer")
FROM_START = frozenset({"first", "early", "earliest", "lower", "bottom"})


def interpret(sentence: Sentence) -> RequestedView:
    """Return the view that a sentence requests. Raises AmbiguousSentence with the question to ask."""
    for rule in RULES:
        rule(sentence)
    sentence.reject_leftover()
    if not sentence.parts:
        raise AmbiguousSentence(
            "Which heads? Describe what they attend to, what they are like, or which layers they are in.",
            [Alternative(text, text) for text in EXAMPLES],
        )
    return sentence.to_view()


def read_lens_comparison(s: Sentence) -> None:
    """`compare raw and effective`, `weights vs norm`."""
    joined = (
        rf"compare {LENS_A}(?: and| with| to| against| vs\.?|,) {LENS_B}",
        rf"(?:the )?difference (?:between|of) {LENS_A} and {LENS_B}",
        rf"{LENS_A} (?:vs\.?|versus|against|minus) {LENS_B}",
    )
    for pattern in joined:
        if found := s.take(pattern):
            s.add("lens", meaning_of(LENS_NAMES, found["a"]), found)
            s.add("compare", meaning_of(LENS_NAMES, found["b"]), found)
    if found := s.take(r"compare(?: it| this)? with " + LENS_B):
        s.add("compare", meaning_of(LENS_NAMES, found["b"]), found)
    if (found := s.take(r"compare")) is not None:
        raise AmbiguousSentence(
            "Compare what? Two lenses can be compared here; choose a second text or model at the top.",
            s.options(found, ("compare weights and effective of", "compare weights and norm of")),
        )


def read_lens_phrase(s: Sentence) -> None:
    """`under effective`, `the norm lens`: comes before rules that could take the name for a measure."""
    if found := s.take(rf"(?:(?:under|through|using|read (?:as|by|through)) {LENS_A}|{LENS_B} lens)(?! rank)"):
        s.add("lens", meaning_of(LENS_NAMES, found["a"] or found["b"]), found)


def _measure(s: Sentence, found: re.Match[str]) -> str:
    """Return the number that a match names. Asks if names differ only in case and none matches exactly."""
    names, said = meaning_of(MEASURE_NAMES, found["m"]), s.said[slice(*found.span("m"))]
    if len(names) > 1 and said not in names:
        raise AmbiguousSentence(
            "These differ only in case. Which one?", [Alternative(name, s.replace(found, name, "m")) for name in names]
        )
    return said if said in names else names[0]


def read_charts(s: Sentence) -> None:
    """`entropy by layer`, `colour by entropy`."""
    if found := s.take(
        rf"(?:(?:show|plot|draw|chart|graph) )?{MEASURED} (?:by|per|across|over|for each) (?P<by>layer|head)s?"
    ):
        s.add("chart", f"{_measure(s, found)} {found['by']}", found)
    if found := s.take(rf"colou?r(?:ed)?(?: heads| them| the grid| the heads)? by {MEASURED}"):
        s.add("measure", _measure(s, found), found)
    if found := s.take(rf"(?:plot|draw|chart|graph) {MEASURED}"):
        name = _measure(s, found)
        raise AmbiguousSentence("By layer, or by head?", s.options(found, (f"{name} by layer", f"{name} by head")))


def read_tokens(s: Sentence) -> None:
    """`what does 'bank' attend to`, `what looks at 'bank'`."""
    said = rf"(?:what|where) (?:does|do) {WORD} (?:attend to|look at|look to|look|attend|point at|see)"
    if found := s.take(said):
        _pin(s, found, "query")
    if found := s.take(rf"(?:what|who|which (?:tokens?|words?)) (?:attends?|looks?|points?) (?:to|at) {WORD}"):
        _pin(s, found, "key")


def _pin(s: Sentence, found: re.Match[str], side: Side) -> None:
    side_tokens = s.context.tokens if side == "query" else s.context.key_tokens
    if found["number"]:
        if int(found["number"]) >= len(side_tokens):
            raise AmbiguousSentence(f"Tokens are counted from 0 to {len(side_tokens) - 1}. Which one do you mean?")
        s.add(side, found["number"], found)
        return
    group = next(name for name in ("double", "single", "bare") if found[name])
    word = s.said[slice(*found.span(group))]
    places = _occurrences(s, word, side)
    if len(places) > 1 and not found["several"]:
        choices = [
            Alternative(f"{word}, token {' and '.join(map(str, place))}", _ask_token(side, place[0]))
            for place in places[:6]
        ]
        raise AmbiguousSentence(
            f"The text has this word {len(places)} times. Which occurrence?",
            [*choices, Alternative("all of them", _ask_all(side, word))],
        )
    s.add(side, " ".join(str(number) for place in places for number in place), found)


def _ask_token(side: Side, number: int) -> str:
    return f"what does token {number} attend to" if side == "query" else f"what attends to token {number}"


def _ask_all(side: Side, word: str) -> str:
    return f'what does every "{word}" attend to' if side == "query" else f'what attends to every "{word}"'


def _occurrences(s: Sentence, word: str, side: Side) -> list[list[int]]:
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
    spelled = [
        places
        for places in words.values()
        if "".join(side_tokens[place].text for place in places).strip().lower() == wanted
    ]
    if spelled:
        return spelled
    texts = list(dict.fromkeys(token.text.strip() for token in side_tokens if token.kind != "punct"))[:6]
    raise AmbiguousSentence(
        "The text has no such word. Which one do you mean?", [Alternative(text, _ask_all(side, text)) for text in texts]
    )


def read_targets(s: Sentence) -> None:
    """`heads that look at [SEP]`, `that do not attend to the first token`."""
    negated = r"(?P<no>(?:do not|don't|does not|doesn't|never|not) )?"
    for pattern, measure in phrases.TARGETS.items():
        while found := s.take(rf"{negated}{LOOK} (?:{pattern})"):
            s.add("where", f"{'not ' if found['no'] else ''}{measure} {MOSTLY}", found)
    found = re.search(rf"(?<!\w){LOOK} {WORD}", s.rest)
    if found is not None:
        group = next((name for name in ("double", "single", "bare", "number") if found[name]), "bare")
        word = s.said[slice(*found.span(group))]
        targets = ("[SEP]", "special tokens", "the previous token")
        asks = [Alternative(f"what looks at {word}, in the open head", f'what attends to "{word}"')]
        asks += s.options(found, {f"heads that look at {target}": f"look at {target}" for target in targets})
        raise AmbiguousSentence(
            "No measure tells how much a head attends to this word, so it cannot be used to find heads. What would you like to see?",
            asks,
        )


def read_comparisons(s: Sentence) -> None:
    """`entropy above 2`, `a null share of more than 50 %`, `entropy between 1 and 2`."""
    amount = r"(?P<n>-?\d+(?:\.\d+)?) ?(?P<p>%|percent|per cent)?"
    while found := s.take(
        rf"{MEASURED} (?:is |are )?(?:between|from) (?P<low>-?\d+(?:\.\d+)?)(?P<pl>%)? (?:and|to) (?P<high>-?\d+(?:\.\d+)?)(?P<ph>%)?"
    ):
        low, high = found["low"] + (found["pl"] or found["ph"] or ""), found["high"] + (found["ph"] or "")
        s.add("where", f"{low} <= {_measure(s, found)} <= {high}", found)
    while found := s.take(rf"{MEASURED} ?(?:(?:of|is|are) )?(?P<sign>{SIGNED}) ?{amount}"):
        s.add(
            "where",
            f"{_measure(s, found)} {SIGN[found['sign']]} {found['n']}{'%' if found['p'] else ''}",
            found,
        )
    while found := s.take(rf"(?P<sign>{SIGNED}) ?{amount} (?:of )?{MEASURED}"):
        s.add(
            "where",
            f"{_measure(s, found)} {SIGN[found['sign']]} {found['n']}{'%' if found['p'] else ''}",
            found,
        )
    if found := s.take(rf"(?P<size>high|large|low|small) {MEASURED}"):
        name = _measure(s, found)
        is_high = found["size"] in ("high", "large")
        end, direction = ("highest", "descending") if is_high else ("lowest", "ascending")
        raise AmbiguousSentence(
            "Compared with what? Order the heads, or give a threshold.",
            s.options(found, {f"the {end} first": f"sorted by {name} {direction}"}),
        )


def read_orders(s: Sentence) -> None:
    """`the 5 heads with the lowest entropy`, `sorted by null share`."""
    counted = rf"(?:(?:the )?(?:(?:top|best) )?(?P<n>{NUMBER}) )?(?:heads? (?:with|of|by|that have) )?(?:the )?"
    for ends, direction in ((HIGH, "desc"), (LOW, "asc")):
        if found := s.take(rf"{counted}{ends} {MEASURED}"):
            _order(s, found, direction)
    if found := s.take(rf"(?:the )?(?:top|first|best) (?P<n>{NUMBER}) heads? by {MEASURED}"):
        _order(s, found, "desc")
    said = rf"(?:sort(?:ed)?|order(?:ed)?|rank(?:ed)?)(?: heads| them)? by {MEASURED}(?P<d> asc(?:ending)?| desc(?:ending)?)?"
    if found := s.take(said):
        _order(s, found, "asc" if (found["d"] or "").startswith(" asc") else "desc")
    for pattern, order in phrases.MANNERS.items():
        if found := s.take(rf"(?:the )?(?:(?P<n>{NUMBER}) )?(?:most |very )?{pattern}(?: heads?)?"):
            s.add("order", order, found)
            _limit(s, found)


def _order(s: Sentence, found: re.Match[str], direction: str) -> None:
    s.add("order", f"order by {_measure(s, found)} {direction}", found)
    _limit(s, found)


def _limit(s: Sentence, found: re.Match[str]) -> None:
    text = found.groupdict().get("n")
    if text:
        s.add("limit", str(phrases.NUMBERS.index(text) if text in phrases.NUMBERS else int(text)), found)


def read_classes(s: Sentence) -> None:
    """`vertical heads`, `not diagonal`, `vertical or diagonal`, `previous token heads`."""
    if found := s.take(r"vertical and diagonal(?: heads)?"):
        labels = {
            "both at once: the class vertical+diagonal": "vertical+diagonal heads",
            "either of them": "vertical or diagonal heads",
        }
        raise AmbiguousSentence("The class that is both at once, or heads of either class?", s.options(found, labels))
    while found := s.take(rf"(?P<no>not |non[- ]?|no |without |except )?(?P<k>{KIND}(?: or {KIND})*)(?: patterns?)?"):
        s.add(
            "where",
            f"not ({found['k']})"
            if found["no"] and " or " in found["k"]
            else f"{'not ' if found['no'] else ''}{found['k']}",
            found,
        )
    for pattern, condition in phrases.ROLES.items():
        while found := s.take(
            rf"(?P<no>not |non[- ]?|no |without |except )?(?:the )?{pattern}(?= heads?\b|$|[ ,.?!])(?: heads?)?"
        ):
            s.add("where", f"{'not ' if found['no'] else ''}{condition}", found)


def read_single_heads(s: Sentence) -> None:
    """`head 8.10`, `head 8-10`, `layer 8 head 10`, `heads 3.1 and 4.5`."""
    if found := s.take(r"heads (?P<a>\d+) ?- ?(?P<b>\d+)"):
        a, b = found["a"], found["b"]
        labels = {
            f"head {a}.{b}: layer {a}, head {b}": f"head {a}.{b}",
            f"heads {a} to {b} of every layer": f"heads {a} to {b}",
        }
        raise AmbiguousSentence("One head, or several?", s.options(found, labels))
    several = []
    while found := (
        s.take(r"(?:heads? )?(?:and |, ?)?(?P<l>\d+)\.(?P<h>\d+)")
        or s.take(r"head (?P<l>\d+) ?- ?(?P<h>\d+)")
        or s.take(rf"layer (?P<l>{NUMBER}),? (?:and )?head (?P<h>{NUMBER})")
        or s.take(rf"head (?P<h>{NUMBER}) (?:of|in) layer (?P<l>{NUMBER})")
    ):
        several.append((s.index_of("layer", found, "l"), s.index_of("head", found, "h"), found))
    for layer, head, found in several[:1] if len(several) == 1 else []:
        s.note(f"Head {layer}.{head}: layer {layer}, head {head}, both counted from 0.")
        s.add("head", f"{layer}.{head}", found)
    if len(several) > 1:
        joined = " or ".join(f"layer = {layer} and head = {head}" for layer, head, _ in several)
        s.add("where", joined, several[0][2])


def read_ranges(s: Sentence) -> None:
    """`layers 2 to 4`, `the first three layers`, `the second layer`, `layer 8`, `layers 2, 3 and 5`; the same of heads."""
    for what in ("layer", "head"):
        known = s.context.layers if what == "layer" else s.context.heads
        while found := s.take(rf"{what}s? (?P<a>{NUMBER}) ?(?:to|-|through|until|\.\.) ?(?P<b>{NUMBER})"):
            s.add("where", f"{s.index_of(what, found, 'a')} <= {what} <= {s.index_of(what, found, 'b')}", found)
        while found := s.take(rf"(?:the )?{EARLY} (?P<n>{NUMBER}) {what}s"):
            _end(s, found, what)
        while found := s.take(
            rf"(?:the )?(?P<end>lower|first|bottom|upper|second|last|top) half(?: of (?:the )?{what}s)?"
        ):
            middle = known[len(known) // 2]
            s.add("where", f"{what} {'<' if found['end'] in FROM_START else '>='} {middle}", found)
        while found := s.take(rf"(?:the )?(?P<o>{ORDINAL}) {what}"):
            s.add("where", f"{what} = {s.ordinal(what, found['o'])}", found)
        bound = rf"(?P<sign>{SIGNED}|after|before|from)"
        while found := s.take(rf"{what}s? {bound} ?(?P<n>{NUMBER})") or s.take(rf"{bound} {what}s? (?P<n>{NUMBER})"):
            sign = {"after": ">", "before": "<", "from": ">="}.get(found["sign"]) or SIGN[found["sign"]]
            s.add("where", f"{what} {sign} {s.index_of(what, found, 'n')}", found)
        while found := s.take(rf"(?:the )?{EARLY} {what}s"):
            third = max(1, len(known) // 3)
            end = "first" if found["end"] in FROM_START else "last"
            counts = sorted({1, third, max(1, len(known) // 2)})
            labels = {f"the {end} {count}": f"{end} {count} {what}s" for count in counts}
            raise AmbiguousSentence(f"How many {what}s?", s.options(found, labels))
        _numbers(s, what)


def _end(s: Sentence, found: re.Match[str], what: str) -> None:
    known = s.context.layers if what == "layer" else s.context.heads
    count = phrases.NUMBERS.index(found["n"]) if found["n"] in phrases.NUMBERS else int(found["n"])
    if not 0 < count <= len(known):
        raise AmbiguousSentence(f"There are {len(known)} {what}s. How many do you mean?")
    if found["end"] in FROM_START:
        s.add("where", f"{what} <= {known[count - 1]}", found)
    else:
        s.add("where", f"{what} >= {known[-count]}", found)


def _numbers(s: Sentence, what: str) -> None:
    """`layer 8`, `layers 2, 3 and 5`. `layer 1` alone may be meant as the first."""
    while found := s.take(rf"{what}s (?P<all>{NUMBER}(?:(?:,? and |,? or |, ?| ){NUMBER})+)"):
        each = re.compile(rf"(?P<n>{NUMBER})").finditer(s.lower, *found.span("all"))
        numbers = [s.index_of(what, number, "n") for number in each]
        s.add("where", " or ".join(f"{what} = {number}" for number in numbers), found)
    while found := s.take(rf"{what} (?P<n>{NUMBER})"):
        number = s.index_of(what, found, "n")
        if what == "head" and not any(part.slot == "where" and part.value.startswith("layer") for part in s.parts):
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
        s.add("where", f"{what} = {number}", found)


def read_lens(s: Sentence) -> None:
    """`under effective`, `effective attention`; two of them are a question."""
    found = s.take(rf"(?:(?:under|in|through|with|using|by|for|as|read) )?{LENS_A}")
    if found is None or s.has("lens"):
        return
    first = meaning_of(LENS_NAMES, found["a"])
    s.add("lens", first, found)
    if more := s.take(LENS_B):
        second = meaning_of(LENS_NAMES, more["b"])
        both = [Alternative(f"compare {first} and {second}", f"compare {first} and {second}")]
        raise AmbiguousSentence(
            "These are two lenses. Compare them?",
            [*both, *(Alternative(f"only {name}", f"{name} lens") for name in (first, second))],
        )


def read_measures(s: Sentence) -> None:
    """`entropy` alone colours the grid by it."""
    while found := s.take(MEASURED):
        if s.has("measure"):
            raise AmbiguousSentence("Heads can be coloured by only one measure at a time. Which one?")
        s.add("measure", _measure(s, found), found)
    several = "|".join(sorted(map(re.escape, phrases.SEVERAL), key=len, reverse=True))
    if found := s.take(rf"(?:{several})"):
        name = phrases.SEVERAL[found[0]]
        choices = s.options(found, phrases.numbers_of(name)[:6])
        raise AmbiguousSentence("This measure has several numbers. Which one?", choices)


RULES: tuple[Callable[[Sentence], None], ...] = (
    read_lens_comparison,
    read_lens_phrase,
    read_charts,
    read_tokens,
    read_targets,
    read_comparisons,
    read_orders,
    read_classes,
    read_single_heads,
    read_ranges,
    read_measures,
    read_lens,
)
