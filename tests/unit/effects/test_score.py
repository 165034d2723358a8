"""Scores of cells: their terms and what earlier parts bring to them, against the definition in float64; sums; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import rotate_half

import headscope
from headscope.core.attention import ScoreTerms
from headscope.effects.score import split_scores, weights_of
from headscope.errors import InvalidRequest, Unsupported
from tests.support.extent import mostly_long
from tests.support.variants import variants
from tests.sweep.build import build, ids

from ..conftest import TINY, VOCABULARY, eager
from .reference import Recorded, Step, Vector, chain
from .test_contribution import TOKENS, _t5, cohere, perturbed

LAYER, HEAD, QUERY, KEY = 2, 2, 4, 1
CELL = {"name": "score", "head": f"{LAYER}.{HEAD}", "query": QUERY, "key": KEY}


def _gemma3() -> Any:
    """Sandwich norms, normalised queries and keys, and sliding windows with rotations of their own."""
    config = Gemma3TextConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=64, initializer_range=0.5, sliding_window=4, layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    )  # fmt: skip
    return Gemma3ForCausalLM(config)


class Side:
    """What becomes the query or the key of a head at a token, by hand. `vector` takes what the projection reads; it is linear, at the statistics of this input."""

    def __init__(self, r: Recorded, family: str, name: str, place: int) -> None:
        self.r, self.place = r, place
        config, q = r.module.config, name == "query"
        d = config.hidden_size
        if family == "gpt2":
            attn, width = f"transformer.h.{LAYER}.attn.c_attn", d // config.n_head
            rows = slice((0 if q else d) + HEAD * width, (0 if q else d) + (HEAD + 1) * width)
            weight, self.bias, read = r.weight(f"{attn}.weight").T[rows], r.weight(f"{attn}.bias")[rows], r.read[attn]
        else:
            part = (
                f"bert.encoder.layer.{LAYER}.attention.self.{name}"
                if family == "bert"
                else f"model.layers.{LAYER}.self_attn.{name[0]}_proj"
            )
            width = 8
            head = HEAD if q or family == "bert" else HEAD // 2
            rows = slice(head * width, (head + 1) * width)
            weight, read = r.weight(f"{part}.weight")[rows], r.read[part]
            self.bias = r.weight(f"{part}.bias")[rows] if family == "bert" else np.zeros(width)
        self.given, self.tokens = read[0][place], len(read[0])
        steps: list[Step] = [lambda c: weight @ c]
        if family == "gemma3":
            gain = r.weight(f"model.layers.{LAYER}.self_attn.{name[0]}_norm.weight") + 1
            rms = np.sqrt(((weight @ self.given) ** 2).mean() + config.rms_norm_eps)
            steps.append(lambda c: c * gain / rms)
        self.still = chain(*steps)
        self.turned = family in ("llama", "gemma3")
        self.kind = ("full_attention",) if family == "gemma3" else ()

    def vector(self, c: Vector, place: int | None = None) -> Vector:
        """The part of the query or key that a vector brings, turned to a place."""
        still = self.still(c)
        if not self.turned:
            return still
        at = torch.arange(self.tokens)[None]  # of the whole text, whose length may change the angles
        both = self.r.module.model.rotary_emb(torch.zeros(1, 1, 1), at, *self.kind)
        cos, sin = (one[0, self.place if place is None else place].double() for one in both)
        turned = torch.tensor(still) * cos + rotate_half(torch.tensor(still)) * sin
        return turned.numpy()

    def whole(self, place: int | None = None) -> Vector:
        return self.vector(self.given, place) + self.bias


def below(r: Recorded, family: str, place: int) -> tuple[list[list[Vector]], list[Vector], Vector]:
    """What heads [l][H], feed-forward parts [l] and the embedding add at a token, as the projection of the layer reads it."""
    config = r.module.config
    if family == "gpt2":
        end = r.norm(f"transformer.h.{LAYER}.ln_1", place, "layer", config.layer_norm_epsilon)
        layers = [f"transformer.h.{i}" for i in range(LAYER)]
        heads = [[end(o) for o in r.heads(f"{one}.attn.c_proj", place, 4, transposed=True)] for one in layers]
        return heads, [end(r.wrote[f"{one}.mlp"][0][place]) for one in layers], end(r.read["transformer.h.0"][0][place])
    if family == "bert":
        epsilon, step = config.layer_norm_eps, chain()
        heads, mlps = [], []
        for one in (f"bert.encoder.layer.{i}" for i in reversed(range(LAYER))):
            step = chain(r.norm(f"{one}.output.LayerNorm", place, "layer", epsilon), step)
            mlps.insert(0, step(r.wrote[f"{one}.output.dense"][0][place]))
            step = chain(r.norm(f"{one}.attention.output.LayerNorm", place, "layer", epsilon), step)
            heads.insert(0, [step(o) for o in r.heads(f"{one}.attention.output.dense", place, 4)])
        return heads, mlps, step(r.read["bert.encoder.layer.0"][0][place])
    epsilon, one = config.rms_norm_eps, float(family == "gemma3")
    end = r.norm(f"model.layers.{LAYER}.input_layernorm", place, "rms", epsilon, one)
    heads, mlps = [], []
    for name in (f"model.layers.{i}" for i in range(LAYER)):
        after = chain(r.norm(f"{name}.post_attention_layernorm", place, "rms", epsilon, one), end) if one else end
        heads.append([after(o) for o in r.heads(f"{name}.self_attn.o_proj", place, 4)])
        mlps.append(end(r.wrote[f"{name}.post_feedforward_layernorm" if one else f"{name}.mlp"][0][place]))
    return heads, mlps, end(r.read["model.layers.0"][0][place])


FAMILIES: dict[str, Callable[[], Any]] = {**TINY, "gemma3": _gemma3}


@pytest.mark.parametrize("family", FAMILIES)
def test_is_the_definition(family: str) -> None:
    """Terms of the row, and what each earlier part brings to one score of it through the query and through the key."""
    torch.manual_seed(0)
    module = perturbed(FAMILIES[family]())
    model, r = headscope.load(module), Recorded(module, input_ids=TOKENS)
    scale = (module.config.query_pre_attn_scalar if family == "gemma3" else 8) ** -0.5
    query, key = (Side(r, family, name, place) for name, place in (("query", QUERY), ("key", KEY)))
    score = scale * query.whole() @ key.whole()
    for side, own, other in (("query", query, key.whole()), ("key", key, query.whole())):
        e = headscope.effect(model, token_ids=TOKENS, method={**CELL, "side": side})
        heads, mlps, embedding = below(r, family, own.place)
        expected = np.array([[scale * own.vector(o) @ other for o in one] for one in heads])
        close = {"rtol": 1e-4, "atol": 1e-5 * np.abs(expected).max()}
        np.testing.assert_allclose(e.effects[:LAYER], expected, **close)
        assert not e.effects[LAYER:].any()
        np.testing.assert_allclose(e.parts["mlp"], [scale * own.vector(m) @ other for m in mlps], **close)
        np.testing.assert_allclose(e.parts["embedding"], scale * own.vector(embedding) @ other, **close)
        assert e.target.value == pytest.approx(score, rel=1e-4, abs=2e-5 * np.abs(expected).max())
        assert abs(e.remainder) < 2e-5 * np.abs(expected).max()
    assert e.score is not None
    assert (e.score.query, e.score.key, e.target.position) == (QUERY, KEY, QUERY)
    keys = [Side(r, family, "key", place) for place in range(QUERY + 1)]
    content = [scale * query.whole(one.place) @ one.whole() for one in keys]
    np.testing.assert_allclose(
        e.score.terms["content"][: QUERY + 1], content, rtol=1e-4, atol=1e-4 * np.abs(content).max()
    )
    scores = [scale * query.whole() @ one.whole() for one in keys]
    np.testing.assert_allclose(e.score.terms["score"][: QUERY + 1], scores, rtol=1e-4, atol=2e-5 * np.abs(scores).max())
    assert ("rotation" in e.score.terms) is query.turned


ROPES = {
    "llama": {"rope_type": "default"},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "dynamic": {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 32},
    "longrope": {"rope_type": "longrope", "factor": 4.0, "original_max_position_embeddings": 32,
                 "short_factor": [1.0] * 4, "long_factor": [1.0, 2.0, 3.0, 4.0]},
}  # fmt: skip


@pytest.mark.parametrize("rope", mostly_long([*ROPES, "gemma3"], "dynamic", "longrope", "gemma3"))
def test_of_a_text_longer_than_the_probe(rope: str) -> None:
    """Content and rotation are by the angles that the model has for this text, which may depend on its length."""
    torch.manual_seed(0)
    if rope == "gemma3":
        module, family = _gemma3(), "gemma3"
    else:
        config = LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=64, initializer_range=0.5, max_position_embeddings=128,
            rope_parameters={"rope_theta": 10_000.0, **ROPES[rope]},
        )  # fmt: skip
        module, family = LlamaForCausalLM(config), "llama"
    numbers, query = [n % VOCABULARY for n in range(3, 600, 6)], 97
    r = Recorded(perturbed(module), input_ids=numbers)
    e = headscope.effect(module, token_ids=numbers, method={**CELL, "query": query})
    assert e.score is not None
    scale = (module.config.query_pre_attn_scalar if rope == "gemma3" else 8) ** -0.5
    own, places = Side(r, family, "query", query), [0, 1, 40, 96, 97]
    pairs = [(Side(r, family, "key", place).whole(), place) for place in places]
    content = [scale * own.whole(place) @ key for key, place in pairs]
    rotated = [scale * own.whole() @ key for key, _ in pairs]
    close = {"rtol": 1e-4, "atol": 1e-4 * np.abs(content).max()}
    np.testing.assert_allclose(e.score.terms["content"][places], content, **close)
    np.testing.assert_allclose(e.score.terms["rotation"][places], np.array(rotated) - content, **close)


@pytest.mark.parametrize("family", mostly_long(FAMILIES, "gpt2", "gemma3"))
def test_pairs_sum_to_the_product(family: str) -> None:
    """A part through the query times another one through the key, for every pair; the first few are the largest."""
    torch.manual_seed(0)
    module = perturbed(FAMILIES[family]())
    r, scale = (
        Recorded(module, input_ids=TOKENS),
        (module.config.query_pre_attn_scalar if family == "gemma3" else 8) ** -0.5,
    )
    e = headscope.effect(module, token_ids=TOKENS, method={**CELL, "pairs": 10_000})
    assert e.score is not None
    assert e.score.pairs is not None
    found = {(pair.query, pair.key): pair.value for pair in e.score.pairs}
    sides = []
    for name, place in (("query", QUERY), ("key", KEY)):
        heads, mlps, embedding = below(r, family, place)
        parts = {f"{layer}.{head}": o for layer, row in enumerate(heads) for head, o in enumerate(row)}
        parts |= {f"mlp {layer}": o for layer, o in enumerate(mlps)} | {"embedding": embedding}
        side = Side(r, family, name, place)
        sides.append({part: side.vector(o) for part, o in parts.items()})
    expected = {(a, b): scale * q @ k for a, q in sides[0].items() for b, k in sides[1].items()}
    assert set(found) - set(expected) == {pair for pair in found if "bias" in pair}
    assert len(found) == (len(sides[0]) + 1) ** 2
    largest = max(map(abs, expected.values()))
    for pair, value in expected.items():
        assert found[pair] == pytest.approx(value, rel=1e-4, abs=1e-5 * largest), pair
    terms = e.score.terms
    product = terms["content"][KEY] + (terms["rotation"][KEY] if "rotation" in terms else 0)
    assert sum(found.values()) == pytest.approx(product, rel=1e-4, abs=1e-4 * largest)
    few = headscope.effect(module, token_ids=TOKENS, method={**CELL, "pairs": 3})
    assert few.score is not None
    assert few.score.pairs == e.score.pairs[:3]
    assert few.to_document()["score"]["pairs"][0]["value"] == e.score.pairs[0].value


@variants("family", [*TINY, "cohere", "gemma2", "gemma3_text", "gpt_neox", "gpt_oss", "qwen3"])
def test_terms_sum_to_what_the_softmax_makes_weights_of(family: str) -> None:
    """The log of eager weights, up to one number per row: the terms sum to the score in every cell, and so do the parts in one."""
    torch.manual_seed(0)
    made = {**TINY, "cohere": cohere}
    model = headscope.load(perturbed(made[family]() if family in made else build(family).module))
    numbers = ids(9, 1)
    weights = eager(model, model.inputs(model.encode(token_ids=numbers))).attentions
    for side in ("query", "key"):
        e = headscope.effect(
            model, token_ids=numbers, method={"name": "score", "head": "1.1", "query": 6, "side": side}
        )
        assert e.score is not None
        own = weights[1][0, 1, 6].double().numpy()
        terms = {name: row.astype(float) for name, row in e.score.terms.items()}
        seen = ~np.isnan(terms["score"])
        assert (seen == (own > 0)).all()
        np.testing.assert_allclose(terms["weight"][seen], own[seen], atol=1e-5)
        sums = sum(row for name, row in terms.items() if name not in ("score", "weight"))
        np.testing.assert_allclose(sums[seen], terms["score"][seen], atol=1e-5 * np.abs(terms["score"][seen]).max())
        apart = np.log(own[seen]) - terms["score"][seen]  # minus lse
        np.testing.assert_allclose(apart, apart[0], atol=1e-4 * max(1, np.abs(terms["score"][seen]).max()))
        assert e.score.key == own.argmax()
        assert abs(e.remainder) < 1e-4 * max(1, abs(e.target.value))


@pytest.mark.parametrize("kind", mostly_long(["encoder", "decoder", "cross"], "encoder", "cross"))
def test_of_an_encoder_decoder(kind: Any) -> None:
    """Relative positions are a term of their own; in cross-attention only the query comes from the stream."""
    torch.manual_seed(0)
    model = headscope.load(perturbed(_t5()))
    cell = {"name": "score", "head": "1.3"}
    given: dict[str, Any] = {"token_ids": TOKENS, "target_ids": [0, 9, 31], "kind": kind}
    e = headscope.effect(model, **given, method=cell)
    assert e.score is not None
    assert ("position" in e.score.terms) is (kind != "cross")
    assert e.remainder == pytest.approx(0, abs=1e-5 * max(1, abs(e.target.value)))
    assert e.effects[0].all()
    assert set(e.parts) >= ({"encoder"} if kind == "encoder" else {"decoder", "cross"})
    layers: list[NDArray[Any]] = list(
        headscope.analyze(model, **given, measures=(), lenses=("weights",)).maps["weights"]
    )
    np.testing.assert_allclose(np.nan_to_num(e.score.terms["weight"]), layers[1][3, -1], atol=1e-6)
    if kind == "cross":
        with pytest.raises(Unsupported, match="come from the encoder"):
            headscope.effect(model, **given, method={**cell, "side": "key"})
        with pytest.raises(Unsupported, match="no pairs"):
            headscope.effect(model, **given, method={**cell, "pairs": 1})


@variants(
    "family", ["cohere2", "granite", "olmo2", "mixtral", "albert", "roberta", "esm", "phi", "starcoder2"], short=3
)
def test_sums_in_other_architectures(family: str) -> None:
    """Parallel blocks, multipliers, norms of queries and keys, experts, shared layers, partial rotations, biases."""
    model = headscope.load(build(family).module)
    for side in ("query", "key"):
        e = headscope.effect(
            model, token_ids=ids(9, 1), method={"name": "score", "head": "1.0", "query": 5, "key": 3, "side": side}
        )
        assert e.remainder == pytest.approx(0, abs=1e-4 * max(1, abs(e.target.value)))
        assert np.abs(e.effects[0]).max() > 0


def test_split_of_a_row_by_hand() -> None:
    """A quarter turn per token: two tokens on, content that agrees is opposed. The sink takes a share of the weight."""
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    query, keys = torch.tensor([1.0, 0.0]), torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    bias = torch.tensor([[[0.0, 0.25, -0.5]]])
    found = split_scores(query, keys, ScoreTerms(0.5, 2.0, bias), turn, 2)
    products = 0.5 * (keys @ query).double().numpy()
    np.testing.assert_allclose(found["content"], [-0.5, -1.0, 0.5], atol=1e-12)
    np.testing.assert_allclose(found["content"] + found["rotation"], products, atol=1e-12)
    np.testing.assert_allclose(found["cap"], 2 * np.tanh(products / 2) - products, atol=1e-12)
    np.testing.assert_allclose(found["score"], 2 * np.tanh(products / 2) + bias[0, 0].numpy(), atol=1e-12)
    share = weights_of(torch.tensor([0.0, -torch.inf], dtype=torch.float64), torch.zeros(1, 1, 1))
    assert share.tolist() == [0.5, 0.0]


def test_refusals(minilm: headscope.Model) -> None:
    """Cells that are not there, and requests for a prediction."""
    gpt2 = headscope.load(TINY["gpt2"]())
    for match, method, more in (
        ("no such head", {"head": "7.0"}, {}),
        ("6 tokens on this side", {"query": 6}, {}),
        ("6 tokens on this side", {"key": -7}, {}),
        ("may not attend", {"query": 1, "key": 2}, {}),
        ("no prediction", {}, {"target": 5}),
        ("no prediction", {}, {"position": 2}),
        ("head", {"head": None}, {}),
    ):
        with pytest.raises(InvalidRequest, match=match):
            headscope.effect(gpt2, token_ids=TOKENS, method={**CELL, **method}, **more)
    for family in ("bloom", "mpt"):  # with ALiBi
        with pytest.raises(Unsupported, match="does not go through transformers' AttentionInterface"):
            headscope.effect(build(family).module, token_ids=TOKENS, method=CELL)
    e = headscope.effect(minilm, "The cat sat.", method={"name": "score", "head": "0.3", "query": 1})
    assert (e.predictions, e.target.ids, set(e.parts)) == (None, (), {"self", "mlp", "embedding", "bias"})
    assert not e.effects.any()
    assert "score on a cell at token 1" in repr(e)
    assert torch.is_grad_enabled()
