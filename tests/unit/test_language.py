"""Sentences: a fixed table of what they mean, and of those that must be asked about; nothing is guessed."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headscope.core.tokens import Token
from headscope.errors import InvalidQuery
from headscope.measures import MEASURES
from headscope.query import SentenceContext, parse, understand, write
from tests.support.extent import extent
from tests.support.variants import variants

WORDS = "The boats lay by the river bank while the bank in town kept token ization .".split()
PIECES = {"token": (13, "word"), "ization": (13, "subword"), ".": (14, "punct")}


def token(number: int, text: str, word: int | None, kind: str = "word") -> Token:
    return Token(text, number, 0, 0, word, 0, kind)


TOKENS = [
    token(0, "[CLS]", None, "special"),
    *(token(place + 1, text, *PIECES.get(text, (place, "word"))) for place, text in enumerate(WORDS)),
    token(99, "[SEP]", None, "special"),
]
SCENE = SentenceContext(range(12), range(12), TOKENS, TOKENS)

MEANT = [
    # The examples of the documentation.
    ("heads in layer 8 that look at [SEP]", "layer = 8 order by special_tokens.separator desc limit 5", {}),
    ("compare raw and effective for head 8-10", "", {"lens": "weights", "compare": "effective", "head": "8.10"}),
    ("entropy by layer", "", {"chart": "entropy layer"}),
    ("what does 'boats' attend to?", "", {"query": "2"}),
    ("previous token heads in the first three layers", "layer <= 2 order by head_roles.previous desc limit 5", {}),
    # Classes and roles.
    ("vertical heads", "vertical", {}),
    ("Show me all diagonal heads, please", "diagonal", {}),
    ("vertical or diagonal heads", "vertical or diagonal", {}),
    ("heads that are not vertical", "not vertical", {}),
    ("non-diagonal heads in the last layer", "not diagonal and layer = 11", {}),
    ("vertical+diagonal heads", "vertical+diagonal", {}),
    ("block heads in the upper half", "block and layer >= 6", {}),
    ("next-token heads", "order by head_roles.next desc limit 5", {}),
    ("induction heads", "order by head_roles.induction desc limit 5", {}),
    ("duplicate token heads below layer 6", "layer < 6 order by head_roles.duplicate desc limit 5", {}),
    ("attention sinks", "sink.is_sink = 1", {}),
    ("redundant heads", "order by null_share desc limit 5", {}),
    # Where heads look.
    ("which heads look at special tokens", "order by special_tokens.all desc limit 5", {}),
    ("heads that attend to [CLS]", "order by special_tokens.first desc limit 5", {}),
    ("heads looking back at the previous word", "order by head_roles.previous desc limit 5", {}),
    ("heads that mostly attend to themselves", "order by head_roles.self desc limit 5", {}),
    ("heads that don't look at the first token", "order by head_roles.first asc limit 5", {}),
    (
        "heads that attend to the separator and not vertical",
        "not vertical order by special_tokens.separator desc limit 5",
        {},
    ),
    # Numbers.
    ("heads with entropy above 2", "entropy > 2", {}),
    ("null share of more than 50 %", "null_share > 0.5", {}),
    ("heads whose entropy is between 1 and 2 in layers 3 to 5", "1 <= entropy <= 2 and 3 <= layer <= 5", {}),
    ("entropy < 1 in the second layer", "entropy < 1 and layer = 1", {}),
    ("stable rank at most 3", "rank.stable <= 3", {}),
    ("more than 30% null share", "null_share > 0.3", {}),
    # Orders.
    ("the 5 heads with the lowest entropy", "order by entropy asc limit 5", {}),
    ("highest null share", "order by null_share desc limit 5", {}),
    ("largest participation ratio", "order by participation_ratio desc limit 5", {}),
    ("top three heads by entropy", "order by entropy desc limit 3", {}),
    ("vertical heads sorted by null share ascending", "vertical order by null_share asc", {}),
    ("heads sorted by token_types.PUNCT", "order by token_types.PUNCT desc", {}),
    ("heads sorted by token_types.punct", "order by token_types.punct desc", {}),
    ("heads sorted by token types noun", "order by token_types.NOUN desc", {}),
    ("the ten sharpest heads", "order by entropy asc limit 10", {}),
    ("broad heads in layer 3", "layer = 3 order by entropy desc limit 5", {}),
    # Layers and heads.
    ("layers 2, 3 and 5", "layer = 2 or layer = 3 or layer = 5", {}),
    ("diagonal heads in layers 2 and 4", "diagonal and (layer = 2 or layer = 4)", {}),
    ("vertical heads after layer 7", "vertical and layer > 7", {}),
    ("the last two layers", "layer >= 10", {}),
    ("layer 4, head 5", "", {"head": "4.5"}),
    ("head 5 of layer 4", "", {"head": "4.5"}),
    ("head 4.5", "", {"head": "4.5"}),
    ("heads 3.1 and 4.5", "layer = 3 and head = 1 or layer = 4 and head = 5", {}),
    ("the 3rd layer", "layer = 2", {}),
    # Lenses, colours, charts.
    ("effective attention of head 3.4", "", {"lens": "effective", "head": "3.4"}),
    ("vertical heads under rollout", "vertical", {"lens": "rollout"}),
    ("vertical heads under max entropy", "vertical", {"lens": "max-entropy"}),
    ("the norm lens of head 2.3", "", {"lens": "norm", "head": "2.3"}),
    ("weights vs norm", "", {"lens": "weights", "compare": "norm"}),
    ("difference between weights and value zeroing", "", {"lens": "weights", "difference": "value-zeroing"}),
    ("colour by null share", "", {"measure": "null_share"}),
    ("entropy", "", {"measure": "entropy"}),
    ("plot null share per head", "", {"chart": "null_share head"}),
    # Tokens.
    ("what attends to token 4", "", {"key": "4"}),
    ('what does every "bank" attend to', "", {"query": "7 10"}),
    ("what looks at tokenization", "", {"key": "14 15"}),
    ("where does [SEP] look", "", {"query": "17"}),
    ("what does the first token look at", "", {"query": "0"}),
    ("how much does the last word attend to the second token", "", {"query": "16", "key": "1"}),
    # Names of queries among other words.
    ("heads that never attend to special_tokens.separator", "order by special_tokens.separator asc limit 5", {}),
    ("heads that do not special_tokens.separator >= 90 %", "not special_tokens.separator >= 0.9", {}),
    # Only these heads, not only these tokens.
    ("only vertical heads", "vertical", {}),
    (
        "heads that attend to [SEP] only in layer 3",
        "layer = 3 order by special_tokens.separator desc limit 5",
        {},
    ),
    # Queries pass as they are.
    ("vertical and layer < 4 and null_share > 0.5", "vertical and layer < 4 and null_share > 0.5", {}),
    ("order by entropy desc limit 3", "order by entropy desc limit 3", {}),
]

# A sentence, a piece of the question, and what each choice means: its query, or its one slot.
ASKED = [
    ("heads in layer 1", "counted from 0", ["layer = 0", "layer = 1"]),
    ("vertical heads in layer one", "counted from 0", ["vertical and layer = 0", "vertical and layer = 1"]),
    ("heads in layer 12", "no layer 12", ["layer = 11"]),
    ("heads in layer 40", "no layer 40", []),
    ("heads 8-10", "One head, or several", ["head 8.10", "8 <= head <= 10"]),
    ("head 3", "named by layer", ["head = 3", "layer = 3"]),
    ("what does 'bank' attend to", "2 times", ["query 7", "query 10", "query 7 10"]),
    ("what does 'bnak' attend to", "no such word", None),
    ("vertical and diagonal heads", "both at once", ["vertical+diagonal", "vertical or diagonal"]),
    ("early layers", "How many", ["layer <= 0", "layer <= 3", "layer <= 5"]),
    ("how many heads have high entropy", "How high", None),
    ("heads that look at 'river'", "No measure", None),
    ("verticle heads", "don't know the word", ["vertical"]),
    ("enntropy by layer", "don't know the word", ["chart entropy layer"]),
    ("heads that understand syntax", "don't understand", None),
    (
        "sorted by token types punct",
        "differ only in case",
        ["order by token_types.punct desc", "order by token_types.PUNCT desc"],
    ),
    ("rank", "several numbers", None),
    ("entropy above 40 %", "in nats", []),
    ("distance below 20 percent", "in tokens", []),
    ("entropi < 1", "don't know the word", ["entropy < 1"]),
    ("compare", "Compare what", None),
    ("draw entropy", "By layer, or by head", ["chart entropy layer", "chart entropy head"]),
    ("weights effective", "Compare them", None),
    (
        "heads",
        "Which heads",
        [
            "vertical",
            "order by head_roles.previous desc limit 5",
            "order by entropy asc limit 5",
            "chart entropy layer",
        ],
    ),
    ("the 40th layer", "12 layers", []),
    ("the 0th layer", "12 layers", []),
    ("what does the 0th word attend to", "15 words", []),
    ("what attends to token 900", "counted from 0", []),
    ("what does the 40th word attend to", "15 words", []),
    # What narrows a target is not dropped.
    (
        "heads that attend to special tokens in the first sentence",
        "“in the first sentence”",
        ["order by special_tokens.all desc limit 5"],
    ),
    ("entropy below 1 at the end of the text", "“at the end of the text”", ["entropy < 1"]),
    ("vertical heads in the second half of the text", "“in the second half of the text”", ["vertical"]),
    (
        "heads that attend to the first token of each sentence",
        "“of each sentence”",
        ["order by head_roles.first desc limit 5"],
    ),
    (
        "only [SEP]",
        "What share counts as “only”",
        [
            "special_tokens.separator >= 0.9",
            "special_tokens.separator >= 0.5",
            "order by special_tokens.separator desc limit 5",
        ],
    ),
    (
        "heads in layer 3 that look at nothing but [SEP]",
        "What share counts as “only”",
        [
            "layer = 3 and special_tokens.separator >= 0.9",
            "layer = 3 and special_tokens.separator >= 0.5",
            "layer = 3 order by special_tokens.separator desc limit 5",
        ],
    ),
    (
        "heads that attend to [SEP] alone",
        "What share counts as “only”",
        [
            "special_tokens.separator >= 0.9",
            "special_tokens.separator >= 0.5",
            "order by special_tokens.separator desc limit 5",
        ],
    ),
]


@variants(("said", "query", "slots"), MEANT, ids=[said for said, _, _ in MEANT])
def test_understood(said, query, slots):
    asked = understand(said, SCENE)
    assert asked.question is None
    view = asked.view
    assert view.query == write(parse(query))
    assert {part.slot: part.value for part in view.parts if part.slot not in ("where", "order", "limit")} == slots
    assert set(view.measures) <= set(MEASURES)
    assert all(part.said in said for part in view.parts)


@variants(("said", "words", "choices"), ASKED, ids=[said for said, _, _ in ASKED])
def test_asked_back(said, words, choices):
    asked = understand(said, SCENE)
    assert asked.view is None
    assert words in asked.question.text
    meanings = [meaning(choice.ask) for choice in asked.question.choices]
    assert None not in meanings, "a choice leads to another question"
    assert choices is None or meanings == choices


def meaning(said: str) -> str | None:
    """What a sentence comes to, in short."""
    view = understand(said, SCENE).view
    if view is None:
        return None
    return " ".join(
        [
            view.query,
            *(f"{part.slot} {part.value}" for part in view.parts if part.slot in ("head", "query", "key", "chart")),
        ]
    ).strip()


@pytest.mark.parametrize(
    ("said", "words"),
    [("entropy <", "missing"), ("vertical and (layer < 4", "parenthesis"), ("x" * 600, "characters")],
)
def test_what_is_meant_as_a_query_gets_its_fault(said, words):
    with pytest.raises(InvalidQuery, match=words):
        understand(said, SCENE)


def test_counting_is_said():
    assert understand("the second layer", SCENE).view.notes == ["Layers are counted from 0: the second is layer 1."]
    assert understand("head 8-10", SCENE).view.notes == ["Head 8.10: layer 8, head 10, both counted from 0."]


def test_a_choice_of_layers_is_counted_among_those_that_are_there():
    scene = SentenceContext([3, 4, 7], [0, 1], TOKENS, TOKENS)
    assert understand("first layer", scene).view.query == "layer = 3"
    assert understand("last two layers", scene).view.query == "layer >= 4"
    assert "no layer 5" in understand("layer 5", scene).question.text


def answered(said: str):
    """The answer, or None and the place of the fault."""
    try:
        return understand(said, SCENE), 0
    except InvalidQuery as error:
        return None, error.position


SPOKEN = st.lists(
    st.sampled_from(
        "heads head layer layers the that look at [SEP] vertical or and not entropy null share above 2 0.5 50% first last three compare raw effective by in to "
        "head_roles.previous < > = ( ) 'bank' token what does attend highest lowest 3.4 3-4 “ ’ [ \" % limit order colour".split()
    ),
    max_size=9,
).map(" ".join)


@given(SPOKEN | st.text(max_size=60))
@example("੦")
@example("top ३ heads")
@example("entropy above ٢")
@settings(max_examples=extent(300, 100), deadline=None)
def test_every_sentence_has_an_answer(said):
    """A view whose query can be read again, a question, or a fault with a place; never anything else."""
    asked, place = answered(said)
    assert 0 <= place <= len(said)
    if asked is None:
        return
    assert (asked.view is None) != (asked.question is None)
    if asked.view is not None:
        assert understand(asked.view.query, SCENE).view.query == asked.view.query
