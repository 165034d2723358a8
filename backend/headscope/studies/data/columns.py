"""Assign roles to the columns of a data set: by the caller's choice, else by name, else by content. Each choice has a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import InvalidDataset, InvalidRequest
from .dataset import ROLES, Role

# Names of text pairs in common data sets, the first text first.
PAIRS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("sentence_a", "sentence_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
    ("question", "passage"),
    ("query", "passage"),
    ("query", "document"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("anchor", "positive"),
    ("#1 string", "#2 string"),
)
NAMES: dict[Role, tuple[str, ...]] = {
    "text": (
        *("text", "sentence", "content", "review", "document", "article", "body", "tweet", "comment", "utterance"),
        *("sentence1", "premise", "question", "query", "passage", "context", "input", "prompt", "title"),
    ),
    "words": ("words", "tokens"),
    "pos": ("pos", "upos", "pos_tags", "upos_tags"),
    "labels": ("labels", "ner", "ner_tags", "tags", "entities"),
    "label": (
        *("label", "gold_label", "class", "category", "target", "sentiment", "score", "rating", "stars", "topic"),
        *("intent", "similarity_score", "quality", "is_duplicate"),
    ),
}
KNOWN = frozenset(name for names in (*PAIRS, *NAMES.values()) for name in names)
LISTS: frozenset[Role] = frozenset({"words", "pos", "labels"})
# A column of labels has at most KINDS distinct values of at most LABEL_CHARACTERS.
KINDS, LABEL_CHARACTERS = 20, 30

Values = Mapping[str, Any]


def choose(
    columns: Sequence[str], sample: Sequence[Values], wanted: Mapping[Role, str], fixed: Mapping[Role, str]
) -> tuple[dict[Role, str], dict[Role, str], bool]:
    """Return the column of each role, the reason for each, and whether any was guessed.

    The caller chose `wanted`, the format determines `fixed`, and `sample` holds the first records.
    If the caller names the text, no second text is guessed. Raises InvalidRequest for an unknown column, InvalidDataset if no column holds text.
    """
    found, reasons = _check_wanted(columns, wanted)
    for role, column in fixed.items():
        if role not in found and not (role == "words" and "text" in found):
            found[role], reasons[role] = column, "determined by the format"
    guesses = {} if fixed else _guesses(columns, sample, has_text=bool({"text", "words"} & set(found)))
    for role, (column, why) in guesses.items():
        if role not in found and column not in found.values():
            found[role], reasons[role] = column, why
    if not {"text", "words"} & set(found):
        raise InvalidDataset("No column holds text. Choose the column of the text with columns.", pointer="/columns")
    return {role: found[role] for role in ROLES if role in found}, reasons, bool(set(found) - set(wanted) - set(fixed))


def check_roles(wanted: Mapping[str, str]) -> dict[Role, str]:
    """Return the columns that the caller chose, by role. Raises InvalidRequest for an unknown role."""
    roles = {role: wanted[role] for role in ROLES if role in wanted}
    if len(roles) < len(wanted):
        raise InvalidRequest(f"Unknown role of a column. It must be one of {', '.join(ROLES)}.", pointer="/columns")
    return roles


def _check_wanted(columns: Sequence[str], wanted: Mapping[Role, str]) -> tuple[dict[Role, str], dict[Role, str]]:
    found = dict(wanted)
    for role, column in found.items():
        if column not in columns:
            raise InvalidRequest(
                f"The data set has no column with the name given for {role}. Columns without a heading are called column 1, column 2, ...",
                pointer=f"/columns/{role}",
            )
    return found, dict.fromkeys(found, "chosen in the request")


def _guesses(columns: Sequence[str], sample: Sequence[Values], *, has_text: bool) -> dict[Role, tuple[str, str]]:
    """Guess column and reason by role. `has_text`: the text is known already."""
    named = {name.lower(): name for name in reversed(columns)}
    texts = {name for name in columns if _mostly(sample, name, str)}
    lists = {name for name in columns if _mostly(sample, name, list)}
    found: dict[Role, tuple[str, str]] = {}
    for role, names in NAMES.items():
        usable = lists if role in LISTS else texts if role == "text" else set(columns) - lists
        match = next((named[name] for name in names if named.get(name) in usable), None)
        if match is not None:
            found[role] = match, "its name"
    if has_text:
        return {role: guess for role, guess in found.items() if role not in ("text", "words")}
    found |= _pair(named, texts)
    labels = {found["label"][0]} if "label" in found else set()
    if "text" not in found and "words" not in found and texts - labels:
        longest = max((name for name in columns if name in texts - labels), key=lambda name: _length(sample, name))
        found["text"] = longest, "it has the longest texts"
    if "label" not in found:
        found |= _label([name for name in columns if name not in lists], sample, found)
    return found


def _pair(named: Mapping[str, str], texts: set[str]) -> dict[Role, tuple[str, str]]:
    for first, second in PAIRS:
        if {named.get(first), named.get(second)} <= texts:
            why = "the two names form a known pair"
            return {"text": (named[first], why), "text_pair": (named[second], why)}
    return {}


def _label(
    columns: Sequence[str], sample: Sequence[Values], found: Mapping[Role, tuple[str, str]]
) -> dict[Role, tuple[str, str]]:
    """Guess the label: the last column with few distinct, short values."""
    taken = {column for column, _ in found.values()}
    for name in reversed(columns):
        values = [str(record[name]) for record in sample if record.get(name) is not None]
        kinds = set(values)
        if name not in taken and len(kinds) <= min(KINDS, len(values) // 2) and all(map(_short, kinds)) and kinds:
            return {"label": (name, "it has few distinct values, all short")}
    return {}


def _short(value: str) -> bool:
    return 0 < len(value) <= LABEL_CHARACTERS and len(value.split()) <= 3


def _mostly(sample: Sequence[Values], name: str, kind: type) -> bool:
    """Return whether at least half of the values have a type, ignoring missing ones."""
    values = [record[name] for record in sample if record.get(name) is not None]
    return bool(values) and sum(isinstance(value, kind) for value in values) * 2 >= len(values)


def _length(sample: Sequence[Values], name: str) -> float:
    return sum(len(value) for record in sample if isinstance(value := record.get(name), str))
