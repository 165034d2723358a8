"""Measures of whole analyses against the model's own states and weights, put together by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import headscope
from headscope import Model
from headscope.lenses import LENSES
from headscope.measures.projections import SPECTRUM

from ..conftest import eager
from . import test_concentration as concentration
from . import test_frequency as frequency
from . import test_hidden as hidden
from . import test_projections as projections
from . import test_rank as rank

N, LAYERS, HEADS, WIDTH, D = 20, 3, 4, 32, 8


def taken(model: Model, chosen: list[int]) -> Any:
    return eager(model, {"input_ids": torch.tensor([chosen])})


def block(model: Model, layer: int) -> Any:
    """The layer's attention module."""
    module = model.module
    if hasattr(module, "bert"):
        return module.bert.encoder.layer[layer].attention
    if hasattr(module, "transformer"):
        return module.transformer.h[layer].attn
    return module.model.layers[layer].self_attn


def output_weights(model: Model, layer: int) -> NDArray[Any]:
    """W_O of each head, [H, D, d]."""
    attention = block(model, layer)
    if hasattr(model.module, "bert"):
        weight = attention.output.dense.weight.detach().numpy().T
    elif hasattr(model.module, "transformer"):
        weight = attention.c_proj.weight.detach().numpy()
    else:
        weight = attention.o_proj.weight.detach().numpy().T
    return np.stack([weight[head * D : (head + 1) * D] for head in range(HEADS)])


def query_key_weights(model: Model, layer: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """W_Q and W_K of each head, [H, d, D]."""
    attention = block(model, layer)
    if hasattr(model.module, "bert"):
        query, key = (part.weight.detach().numpy().T for part in (attention.self.query, attention.self.key))
    elif hasattr(model.module, "model"):
        query, key = (part.weight.detach().numpy().T for part in (attention.q_proj, attention.k_proj))
        key = key.reshape(WIDTH, -1, 1, D).repeat(WIDTH // key.shape[1], 2).reshape(WIDTH, WIDTH)
    else:
        both = attention.c_attn.weight.detach().numpy()
        query, key = both[:, :WIDTH], both[:, WIDTH : 2 * WIDTH]
    query, key = (np.stack([side[:, h * D : (h + 1) * D] for h in range(HEADS)]) for side in (query, key))
    return query, key


def test_rows_and_ranks(tiny: Model, ids: Any) -> None:
    """Of the weights that eager attention returns."""
    chosen = ids(N)
    a = headscope.analyze(
        tiny, token_ids=chosen, lenses=("weights", "effective"), measures=("participation_ratio", "absolute_entropy", "negative_share", "rank")
    )  # fmt: skip
    for layer, weights in enumerate(taken(tiny, chosen).attentions):
        maps = weights[0].double().numpy()
        rows = [[concentration.slow(row) for row in head] for head in maps.tolist()]
        for place, name in enumerate(("participation_ratio", "absolute_entropy")):
            expected = [[row[place] for row in head] for head in rows]
            np.testing.assert_allclose(a.measures[name]["weights"][layer], expected, rtol=1e-3, atol=1e-4)
        expected = [rank.slow(head)[1:] for head in maps]
        np.testing.assert_allclose(a.measures["rank"]["weights"][layer][:, 1:], expected, rtol=1e-4)
        for head in range(HEADS):
            effective = a.maps["effective"][layer, head].astype(float).tolist()
            found = a.measures["negative_share"]["effective"][layer, head]
            np.testing.assert_allclose(found, [concentration.slow(row)[2] for row in effective], atol=1e-6)
    assert set(a.measures["negative_share"]) <= {name for name, lens in LENSES.items() if lens.signed}
    assert a.measures["rank"]["effective"].shape == (LAYERS, HEADS, 4)


def test_the_rank_of_the_output(tiny: Model, ids: Any) -> None:
    """At most the head width, where the map may have more."""
    a = headscope.analyze(tiny, token_ids=ids(N), lenses=("weights",), measures=({"name": "rank", "of": "output"},))
    assert (a.measures["rank"]["weights"][..., 0] <= D).all()


def test_hidden_states(tiny: Model, ids: Any) -> None:
    """After every layer; what a pre-LN model returns last has gone through its final normalisation, so its last layer is left out."""
    chosen = ids(N)
    measures = ("residual_ratio", {"name": "token_similarity", "centred": True}, "frequency")
    a = headscope.analyze(tiny, token_ids=chosen, measures=measures)
    special = [token.kind == "special" for token in a.tokens]
    for layer, states in enumerate(taken(tiny, chosen).hidden_states[1:]):
        if layer == LAYERS - 1 and not hasattr(tiny.module, "bert"):
            continue
        X = states[0].numpy()
        assert a.measures["residual_ratio"]["weights"][layer] == pytest.approx(
            hidden.slow_residual(X.astype(float).tolist()), rel=1e-4
        )
        cosines = hidden.slow_cosines(X, centred=True)
        found = a.measures["token_similarity"]["weights"][layer]
        np.testing.assert_allclose(found[1:3], [np.median(cosines), np.mean(cosines)], atol=1e-4)
        assert found[5:].sum() == pytest.approx(1)
        expected = frequency.slow(X[~np.array(special)], "dct", "none")
        np.testing.assert_allclose(a.measures["frequency"]["weights"][layer][:8], expected, atol=1e-4)


def test_output_projections(tiny: Model, ids: Any) -> None:
    """Overlap and dimensions from the weights of the model; one layer, some heads."""
    a = headscope.analyze(tiny, token_ids=ids(N), measures=("output_overlap", "head_dimension"))
    for layer in range(LAYERS):
        weights = output_weights(tiny, layer)
        expected = [[projections.slow_overlap(one, other) for other in weights] for one in weights]
        np.testing.assert_allclose(a.measures["output_overlap"]["weights"][layer], expected, atol=1e-5)
        alone = [projections.slow_summary(one, D)["effective"] for one in weights]
        np.testing.assert_allclose(a.measures["head_dimension"]["weights"][layer][:, -1], alone, rtol=1e-5)
    some = headscope.analyze(tiny, token_ids=ids(N), measures=("head_dimension",), heads=[1, 3], layers=[2])
    np.testing.assert_allclose(
        some.measures["head_dimension"]["weights"][0], a.measures["head_dimension"]["weights"][2, [1, 3]], rtol=1e-5
    )


def test_query_key_products(tiny: Model, ids: Any) -> None:
    """From the weights of the model; with rotary embeddings, of a token with itself."""
    measures = ("qk_spectrum", "qk_spectrum_layer")
    a = headscope.analyze(tiny, token_ids=ids(5), measures=measures)
    for layer in range(LAYERS):
        query, key = query_key_weights(tiny, layer)
        products = query.astype(float) @ key.astype(float).transpose(0, 2, 1)
        for head in range(HEADS):
            expected = projections.slow_summary(products[head], D)
            found = a.measures["qk_spectrum"]["weights"][layer, head]
            np.testing.assert_allclose(found, [expected[name] for name in SPECTRUM], rtol=1e-5)
        expected = projections.slow_summary(products.sum(0), WIDTH)
        found = a.measures["qk_spectrum_layer"]["weights"][layer]
        np.testing.assert_allclose(found, [expected[name] for name in SPECTRUM], rtol=1e-5)
