"""A request's id is a digest of its content: equal requests have equal ids everywhere, different ones different ids."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.analysis.request import AnalysisRequest
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from tests.support.extent import extent, mostly_long
from tests.support.variants import variants

DIGEST = "0" * 64
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
NUMBERS = st.none() | st.lists(st.integers(0, 9), min_size=1, max_size=4)
REQUESTS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["minilm", "gpt2", "org/name"]),
        "text": TEXT,
        "text_pair": st.none() | TEXT,
        "lenses": st.lists(st.sampled_from(list(LENSES)), min_size=1, max_size=4),
        "measures": st.lists(st.sampled_from(list(MEASURES)), max_size=3),
        "layers": NUMBERS,
        "heads": NUMBERS,
        "max_tokens": st.none() | st.integers(1, 500),
        "dtype": st.sampled_from(["float32", "float64"]),
        "maps": st.booleans(),
    }
)


def key(body: dict[str, Any], digest: str = DIGEST) -> str:
    """Return the id of a request."""
    return AnalysisRequest(**body).settled({"name": "softmax"}).key(digest)


def meaning(body: dict[str, Any]) -> dict[str, Any]:
    """Return the meaning of a request, without the order of sets."""
    sets = ("lenses", "measures", "layers", "heads")
    return {name: sorted(set(value)) if name in sets and value is not None else value for name, value in body.items()}


@settings(max_examples=extent(300, 75), derandomize=True, deadline=None)
@given(REQUESTS, REQUESTS)
def test_same_name_exactly_for_the_same_request(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Ids are equal exactly if the meanings are equal."""
    assert (key(one) == key(other)) == (meaning(one) == meaning(other))


@settings(max_examples=extent(100, 25), derandomize=True, deadline=None)
@given(REQUESTS, st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_matter(body: dict[str, Any], random: Any) -> None:
    """Lenses, measures, layers and heads are treated as sets."""
    shuffled = dict(body)
    for name in ("lenses", "measures", "layers", "heads"):
        if body[name]:
            shuffled[name] = random.sample([*body[name], body[name][0]], len(body[name]) + 1)
    assert key(shuffled) == key(body)


SHIFTED = [
    ({"text": "ab", "text_pair": "c"}, {"text": "a", "text_pair": "bc"}),
    ({"text": "abc"}, {"text": "ab", "text_pair": "c"}),
    ({"text": "a"}, {"text": "a", "text_pair": ""}),
    ({"text": "1,2"}, {"token_ids": [1, 2]}),
    ({"token_ids": [1, 23]}, {"token_ids": [12, 3]}),
    ({"token_ids": [1, 2]}, {"token_ids": [2, 1]}),
    ({"text": "a", "layers": [1, 2]}, {"text": "a", "heads": [1, 2]}),
    ({"text": "a", "layers": [1]}, {"text": "a"}),
    ({"text": 'a", "text_pair": "b'}, {"text": "a", "text_pair": "b"}),
    ({"text": "é"}, {"text": "e\u0301"}),
    ({"text": "a"}, {"text": "a "}),
    ({"text": "a"}, {"text": "A"}),
    ({"text": "a", "measures": []}, {"text": "a"}),
    ({"text": "a", "maps": False}, {"text": "a"}),
]


@variants(("one", "other"), SHIFTED, ids=range(len(SHIFTED)))
def test_boundaries_do_not_shift(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Fields that would look equal when concatenated are not confused."""
    assert key({"model": "m", **one}) != key({"model": "m", **other})


def test_another_model_is_another_request() -> None:
    """The id depends on the digest of the model's files, not only on its name."""
    body = {"model": "m", "text": "a"}
    assert key(body, "0" * 64) != key(body, "1" * 64)


def test_defaults_are_spelled_out() -> None:
    """Omitting a field is the same as giving its default."""
    short = {"model": "m", "text": "a"}
    long = {
        **short,
        "mechanism": "softmax",
        "lenses": ["effective", "weights"],
        "measures": ["entropy"],
        "kind": "self",
    }
    assert key(short) == key(long)
    assert key(short) == key({**short, "mechanism": {"name": "softmax"}})
    trained = AnalysisRequest(**short).settled({"name": "hopfield", "alpha": 0.5, "initial": "zero"})
    assert trained.key(DIGEST) == key({**short, "mechanism": "hopfield"}) != key(short)


def test_a_name_is_an_id() -> None:
    """An id has 128 bits as 32 hexadecimal digits."""
    assert len(key({"model": "m", "text": "a"})) == 32
    assert int(key({"model": "m", "text": "a"}), 16) >= 0


@pytest.mark.parametrize("seed", mostly_long(["0", "1", "4242"], "0", "4242"))
def test_the_name_is_the_same_in_every_process(seed: str) -> None:
    """The id does not depend on PYTHONHASHSEED or the process."""
    body = {"model": "m", "text": "Größe \U0001f600", "lenses": ["effective", "weights"], "heads": [3, 1]}
    code = f"from headscope.analysis.request import AnalysisRequest; print(AnalysisRequest(**{body!r}).settled({{'name': 'softmax'}}).key({DIGEST!r}))"
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONIOENCODING": "utf-8"}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert shown.stdout.strip() == key(body)


def test_a_payload_gives_the_same_request() -> None:
    """A worker reads the request from the job database as it was accepted."""
    request = AnalysisRequest(model="m", text="a\u2028b", mechanism={"name": "softmax"}, heads=[2, 1])
    assert AnalysisRequest.model_validate_json(request.model_dump_json()) == request


@settings(max_examples=extent(100, 25), derandomize=True, deadline=None)
@given(REQUESTS, REQUESTS)
def test_one_recipe_for_all_inputs(one: dict[str, Any], other: dict[str, Any]) -> None:
    """The recipe is the request without its input, and empty if the model runs again on the input."""
    swapped = {**one, "text": other["text"], "text_pair": other["text_pair"]}
    again = [lens for lens in one["lenses"] if {"replay", "padding"} & set(LENSES[lens].needs)]
    assert (recipe(one) == "") is bool(again)
    assert recipe(swapped) == recipe(one)
    if not again:
        assert (recipe(one) == recipe({**other, "text": one["text"]})) == (
            meaning({**one, "text": "", "text_pair": None}) == meaning({**other, "text": "", "text_pair": None})
        )
        assert recipe(one, "1" * 64) != recipe(one)


def recipe(body: dict[str, Any], digest: str = DIGEST) -> str:
    """Return the recipe of a request."""
    return AnalysisRequest(**body).recipe(digest)


@pytest.mark.parametrize(
    "other",
    [{"image": "aGVhZHM="}, {"token_ids": [1], "target_ids": [1]}, {"text": "a", "generate": {"max_new_tokens": 1}}],
)
def test_some_inputs_go_alone(other: dict[str, Any]) -> None:
    """Images, texts for two stacks and texts to continue have no recipe; token ids and pairs share that of a text."""
    assert recipe({"model": "m", **other}) == ""
    assert recipe({"model": "m", "token_ids": [1]}) == recipe({"model": "m", "text": "a", "text_pair": "b"}) != ""
