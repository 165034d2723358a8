"""Models trained with a mechanism: it is the default, and loading them without Headscope gives a warning."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import headscope
from headscope import Analysis
from headscope.errors import InvalidRequest, ModelUnavailable, UnsafeModel, Unsupported
from headscope.models.catalog import Catalog
from headscope.models.trained_mechanism import read_mechanism
from headscope.settings import Settings
from tests.support.models import HOPFIELD, HOPFIELD_IN_FULL, Family, tiny_twin
from tests.support.variants import variants

TEXT = "The cat sat on the mat."
WARNING = "headscope.this_model_attends_by_hopfield_load_it_with_headscope"


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes twins by family and mechanism; all of one family have the same weights."""
    top, made = tmp_path_factory.mktemp("twins"), dict[str, Path]()

    def make(family: Family = "bert", of: dict[str, Any] | None = None) -> Path:
        key = json.dumps([family, of])
        if key not in made:
            made[key] = tiny_twin(top / f"twin-{len(made)}", family, of)
        return made[key]

    return make


def same(one: Analysis, other: Analysis) -> bool:
    """Whether two analyses have equal maps, bit by bit."""
    return all(np.array_equal(map_, other.maps[lens], equal_nan=True) for lens, map_ in one.maps.items())


def codes(a: Analysis) -> list[str]:
    return [warning.code for warning in a.warnings]


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_its_own_mechanism_holds_where_none_is_named(twin: Callable[..., Path], family: Family) -> None:
    """Named or not, it is the same analysis; the twin without it gives other maps, and the same ones where softmax is asked for."""
    model, plain = headscope.load(twin(family, HOPFIELD)), headscope.load(twin(family))
    own, named = headscope.analyze(model, TEXT), headscope.analyze(model, TEXT, mechanism=HOPFIELD)
    assert own.mechanism == HOPFIELD_IN_FULL
    assert own.id == named.id
    assert same(own, headscope.analyze(plain, TEXT, mechanism=HOPFIELD))
    softmax = headscope.analyze(model, TEXT, mechanism="softmax")
    assert softmax.id != own.id
    assert same(softmax, headscope.analyze(plain, TEXT))
    assert not same(softmax, own)


def test_what_it_was_not_trained_for_is_said(twin: Callable[..., Path]) -> None:
    """Under another mechanism, or other parameters, its analysis is a what-if; under its own it is none, and neither is anything new of ordinary models."""
    model, plain = headscope.load(twin("bert", HOPFIELD)), headscope.load(twin("bert"))
    assert "trained-otherwise" not in codes(headscope.analyze(model, TEXT))
    for other in ("softmax", {"name": "hopfield", "alpha": 0.7}):
        first = headscope.analyze(model, TEXT, mechanism=other).warnings[0]
        assert (first.code, first.lens) == ("trained-otherwise", None)
        assert ("other parameters" in first.message) == (other != "softmax")
    assert "trained-otherwise" not in codes(headscope.analyze(plain, TEXT, mechanism=HOPFIELD))


@pytest.mark.parametrize("of", [{"name": "hopfield", "alpha": 0.0}, {"name": "jump", "heads": []}])
def test_mechanisms_that_change_nothing(twin: Callable[..., Path], of: dict[str, Any]) -> None:
    """Without a share of earlier layers, or without heads that jump, a twin is the plain one, bit by bit."""
    own = headscope.analyze(headscope.load(twin("bert", of)), TEXT, keep_logits=False)
    assert own.mechanism["name"] == of["name"]
    assert same(own, headscope.analyze(headscope.load(twin("bert")), TEXT))


def test_half_precision_is_read_as_single(twin: Callable[..., Path]) -> None:
    """What the file holds is what the model computes with, in float32, and nothing of the file is missing or left over but the warning."""
    folder = twin("bert", HOPFIELD)
    stored, model = load_file(folder / "model.safetensors"), headscope.load(folder)
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    loaded = model.module.state_dict()
    assert WARNING in stored
    for name, tensor in stored.items():
        if name != WARNING:
            assert loaded[name].dtype == torch.float32
            assert torch.equal(loaded[name], tensor.float())


def test_who_loads_it_without_headscope_is_warned(twin: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    """transformers names the tensor that it can't place; Headscope says nothing, and finds the mechanism in a module that transformers loaded, too."""
    folder = twin("bert", HOPFIELD)
    headscope.load(folder)
    assert not caplog.messages
    module = transformers.AutoModel.from_pretrained(folder)
    assert WARNING in caplog.text
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    a = headscope.analyze((module, tokenizer), TEXT)
    assert a.mechanism == HOPFIELD_IN_FULL
    np.testing.assert_allclose(
        a.maps["weights"], headscope.analyze(headscope.load(folder), TEXT).maps["weights"], atol=1e-6
    )


def test_vectors_that_came_with_the_model(twin: Callable[..., Path]) -> None:
    """They do what the same vectors do in a request; lists and analyses name them, and do not hold them."""
    vectors = torch.randn(2, 2, 32, generator=torch.Generator().manual_seed(0)).double().tolist()
    given = {"name": "pasta", "vectors": vectors}
    model = headscope.load(twin("bert", given))
    own = headscope.analyze(model, TEXT)
    assert own.mechanism == model.facts.mechanism == {"name": "pasta", "vectors": None, "layers": None}
    assert same(own, headscope.analyze(headscope.load(twin("bert")), TEXT, mechanism=given))
    assert not same(own, headscope.analyze(model, TEXT, mechanism="softmax"))
    with pytest.raises(InvalidRequest, match="inputs with 2 special tokens, but this input has 3"):
        headscope.analyze(model, TEXT, "Two texts have one more.")
    with pytest.raises(InvalidRequest, match="has no vectors of its own"):
        headscope.analyze(headscope.load(twin("bert")), TEXT, mechanism={"name": "pasta", "vectors": None})


def test_it_does_not_write_otherwise_than_it_was_trained(twin: Callable[..., Path]) -> None:
    with pytest.raises(Unsupported, match="trained with Hopfield"):
        headscope.analyze(headscope.load(twin("gpt2", HOPFIELD)), TEXT, generate={"max_new_tokens": 2})


def test_studies_of_twins(twin: Callable[..., Path]) -> None:
    """Each variant attends as its model was trained; one that is named, and then the same as the other, is refused."""
    model, plain = headscope.load(twin("bert", HOPFIELD)), headscope.load(twin("bert"))
    made = headscope.study(model, [TEXT, "Heads differ."], against=plain, measures=("entropy",))
    assert [one["mechanism"] for one in made.variants] == [HOPFIELD_IN_FULL, {"name": "softmax"}]
    beside = headscope.study(model, [TEXT, "Heads differ."], against_mechanism="softmax", measures=("entropy",))
    assert np.array_equal(beside.stat("entropy", variant=1).mean, made.stat("entropy", variant=1).mean)
    with pytest.raises(InvalidRequest, match="Both variants are the same"):
        headscope.study(model, [TEXT], against_mechanism=HOPFIELD)


@variants(
    "said",
    [
        "hopfield",
        ["hopfield"],
        {"mechanism": None},
        {"mechanism": "hopfield"},
        {"mechanism": {"alpha": 0.5}},
        {"mechanism": {"name": ["hopfield"]}},
        {"mechanism": {"name": "telepathy"}},
        {"mechanism": {"name": "hopfield", "alpha": 1}},
        {"mechanism": {"name": "hopfield", "alpha": "0.5"}},
        {"mechanism": {"name": "hopfield", "beta": 0.5}},
        {"mechanism": {"name": "pasta", "vectors": None}},
        {"mechanism": {"name": "pasta", "vectors": [[["a"]]]}},
    ],
)
def test_a_mechanism_that_is_none(said: object) -> None:
    with pytest.raises(UnsafeModel, match="mechanism"):
        read_mechanism({"headscope": said})


def test_on_offer(tmp_path: Path) -> None:
    """A card says the mechanism and the siblings; a model whose own can't be is not available, and says why."""
    tiny_twin(tmp_path / "twin-bert-hopfield", mechanism=HOPFIELD)
    tiny_twin(tmp_path / "twin-bert-softmax")
    tiny_twin(tmp_path / "bad", mechanism={"name": "hopfield", "alpha": 7})
    tiny_twin(tmp_path / "ahead", "gpt2", {"name": "jump"})
    catalog = Catalog(Settings(model_dirs=(tmp_path,), home=tmp_path / "home", hub="off"))
    card = catalog.describe("twin-bert-hopfield")
    assert (card["mechanism"], card["available"], card["layers"]) == (HOPFIELD_IN_FULL, True, 2)
    assert "twin-bert-softmax" in card["siblings"]
    assert "twin-bert-hopfield" in catalog.describe("twin-bert-softmax")["siblings"]
    assert set(card["siblings"]) < set(catalog.names())
    assert (catalog.describe("minilm")["mechanism"], catalog.describe("minilm")["siblings"]) == (
        {"name": "softmax"},
        [],
    )
    bad, ahead = catalog.describe("bad"), catalog.describe("ahead")
    assert not bad["available"]
    assert "alpha" in bad["reason"]
    assert not ahead["available"]
    assert "causal" in ahead["reason"]


def test_a_folder_of_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beside the catalogue are used without a network; if any are missing, the model is not listed, and the error says what to do."""
    listed = tmp_path / "catalog.toml"
    listed.write_text(
        '[here]\nfolder = "twins/here"\n\n[gone]\nfolder = "twins/gone"\n\n[part]\nfolder = "twins/part"\n'
    )
    monkeypatch.setattr("headscope.models.catalog._catalog_file", lambda: listed)
    tiny_twin(tmp_path / "twins" / "here", mechanism=HOPFIELD)
    shutil.copytree(tmp_path / "twins" / "here", tmp_path / "twins" / "part")
    (tmp_path / "twins" / "part" / "model.safetensors").unlink()
    catalog = Catalog(Settings(home=tmp_path / "home", hub="off"))
    assert catalog.names() == ["here"]
    assert catalog.describe("here")["available"]
    assert headscope.analyze("here", TEXT).mechanism == HOPFIELD_IN_FULL
    for name in ("gone", "part"):
        card = catalog.describe(name)
        assert (card["available"], card["local"]) == (False, False)
        assert "clone" in card["reason"]
        with pytest.raises(ModelUnavailable, match="clone"):
            headscope.load(name)
