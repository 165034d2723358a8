"""Canonical text of a sentence: words that say the same to the grammar become one word, and every notation of a head `head 3.1`."""

from __future__ import annotations

import re
from unicodedata import decimal

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)
NUMBER = rf"(?:\d+|{'|'.join(NUMBERS)})"
# Keeps the length of a text, unlike lower().
_LOWER = {ord(upper): upper.lower() for upper in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"} | {ord("‘"): "'", ord("’"): "'"}
_LOWER |= {ord("“"): '"', ord("”"): '"', ord("–"): "-", ord("−"): "-"}
_AMOUNT = rf"(?= ?(?:an? |about )?(?:-?\.?\d|half|third|quarter|two thirds|{NUMBER}\b|layers? {NUMBER}\b))"
_LOW, _HIGH = "(?:low|small|least|lowest|smallest)", "(?:high|large|most|highest|largest)"
# A word -> what is read as it; what comes first wins.
ROLES = {
    "": r"(?:hey|hi|hello|ok|please|pls|plz|thanks|thank you"
    r"|(?:can|could|would) you(?= (?:please |show|find|open|give|tell|list|display|plot|draw|colou?r|sort|rank|hide|compare))|(?:i'd|i would) like to|let me)\b[ ,]*",
    "<=": rf"(?:at most|(?:no|not) (?:more|higher|larger|greater) than|up to|a maximum of|maximum){_AMOUNT}",
    ">=": rf"(?:at least|(?:no|not) (?:less|fewer|lower|smaller) than|a minimum of|minimum|from(?= layer)){_AMOUNT}",
    ">": rf"(?:above|over|(?:more|greater|larger|bigger|higher) than|exceed(?:s|ing)?|beyond|after(?= layer)){_AMOUNT}",
    "<": rf"(?:below|under|(?:less|fewer|smaller|lower) than|before(?= layer)){_AMOUNT}",
    "=": rf"(?:equal to|equals|exactly){_AMOUNT}|==",
    "hide": r"hide|remove|(?:don't|do not|never) (?:show|display|draw)",
    "unlike": r"unlike|(?:least|less|not) (?:similar|close|like)(?: to)?|(?:most )?(?:different|dissimilar|differ(?:s|ing)?)(?: most)? (?:from|to)",
    "like": r"(?:most )?(?:similar|alike|close|closest|nearest) to|resembl(?:e|es|ing)|like|(?:the )?same as",
    "asc": rf"(?:in )?(?:ascending|increasing)(?: order)?|(?:from )?{_LOW} to {_HIGH}|(?:least|smallest|lowest) (?:one |value |values |ones )?first",
    "desc": rf"(?:in )?(?:descending|decreasing)(?: order)?|(?:from )?{_HIGH} to {_LOW}|(?:most|largest|highest|biggest) (?:one |value |values |ones )?first",
    "only": r"exclusively|solely|purely|entirely|alone|just|nothing (?:else )?(?:but|than)",
    "not": r"(?:do|does|is|are)(?:n't| not)|not|never|no|non|without|neither|except(?: for)?|(?:anything|everything|all|any) but|other than|outside|hardly|barely|rarely"
    r"|seldom|(?:ignor|avoid|skipp?|exclud|omitt?|disregard|neglect|shunn?)(?:e?s?|ing)",
    "least": r"least|lowest|smallest|minimal|minimum|fewest|weakest|bottom",
    "most": r"most|highest|largest|greatest|biggest|strongest|heaviest|clearest|top|best",
    "max": r"maximal|maximum|max",
    "low": r"low|lower|small|smaller|weak|weaker|less|few|fewer|little",
    "high": r"high|higher|large|larger|great|greater|strong|stronger|big|more|clearly|(?:a )?lots?(?: of)?",
    "look": r"(?:(?:attend|look|point|peek|glanc|star|gaz|see|watch|track)(?:s|es|ed|ing|e)?(?: back(?= (?:at|to|on)\b))?|focus(?:s?e[ds]|s?ing)?(?= (?:on|at)\b)"
    r"|(?:concentrat|fixat|latch|lock)(?:es?|ed|ing)?(?= (?:on|onto|at)\b))(?: (?:at|to|on|onto|upon)\b)?",
    "open": r"open|go to|take me to|jump to|bring up",
    "compare": r"compar(?:e|es|ed|ing|ison)|contrast",
    "difference": r"difference|different|minus",
    "vs": r"vs\.?|compared (?:to|with)|versus|against|side by side(?: with)?",
    "colour": r"(?:colou?r|paint|shad|tint)(?:e|ed|ing|s)?",
    "plot": r"plot|draw|chart|graph",
    "last": r"final",
}
_HEADS = (
    r"(?:heads? )?l ?(?P<l0>\d+) ?[.,_-]? ?h ?(?P<h0>\d+)",
    r"(?:heads? )?\((?P<l1>\d+), ?(?P<h1>\d+)\)",
    r"head (?P<l2>\d+) ?- ?(?P<h2>\d+)",
    rf"layer (?P<l3>{NUMBER}),? (?:and )?head (?P<h3>{NUMBER})",
    rf"head (?P<h4>{NUMBER}),? (?:of|in) layer (?P<l4>{NUMBER})",
    r"h(?P<l5>\d+)\.(?P<h5>\d+)",
)
_KINDS = {"quoted": r"\"[^\"]*\"|(?<!\w)'[^']+'(?!\w)", "heads": "|".join(_HEADS)}
_KINDS |= {f"role{number}": words for number, words in enumerate(ROLES.values())}
_SPACED = {name: words.replace(" ", r"\s+").replace(r"\s+?", r"\s*") for name, words in _KINDS.items()}
_PATTERN = re.compile(
    r"(?P<space>\s+)|" + "|".join(rf"(?<![\w.])(?P<{name}>{words})(?![\w%]|\.\w)" for name, words in _SPACED.items())
)


def digits(text: str) -> str:
    """Return a number that may be a word in digits."""
    return str(NUMBERS.index(text)) if text in NUMBERS else text


def canonical(said: str) -> tuple[str, list[int], list[int]]:
    """Return the canonical text, and for each of its characters the start and the end of what it stands for in the sentence."""
    lower = "".join(str(decimal(one, one)) for one in said.translate(_LOWER))  # digits of any script, as 0 to 9
    text, starts, ends, at = "", [0][:0], [0][:0], 0
    for found in [*_PATTERN.finditer(lower), None]:
        upto = found.start() if found else len(lower)
        text += lower[at:upto]
        starts += range(at, upto)
        ends += range(at + 1, upto + 1)
        if found is None:
            break
        at, kind = found.end(), str(found.lastgroup)
        word = found[0]
        if kind == "space":
            word = " "
        elif kind == "heads":
            layer, head = (next(filter(None, (found[f"{side}{n}"] for n in range(len(_HEADS))))) for side in "lh")
            word = f"head {int(digits(layer))}.{int(digits(head))}"
        elif kind != "quoted":
            word = list(ROLES)[int(kind[4:])]
        text += word
        starts += [upto] * len(word)
        ends += [at] * len(word)
    return text, starts, ends
