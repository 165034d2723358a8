"""Lenses of heads on whole models, against what follows from each model's own eager weights and its value and output projections."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import headscope
from headscope import Model
from headscope.errors import HeadscopeError, InvalidRequest, Unsupported

from ..conftest import eager, projected, relative
from .heads import Array, allowed
from .test_effective_published import published
from .test_max_entropy import entropy

LENSES = ("weights", "null", "max-entropy", "norm")


def parts(model: Model, inputs: dict[str, torch.Tensor]) -> tuple[Array, Array, Array]:
    """Weights [L, H, Q, K], values [L, H, K, D] and parts of the output projection [L, H, D, d], all in float64 and in the model's own terms."""
    kind, module = model.module.config.model_type, model.module
    blocks = {
        "bert": lambda: module.bert.encoder.layer,
        "gpt2": lambda: module.transformer.h,
        "llama": lambda: module.model.layers,
    }[kind]()
    made, projections, hooks = [], [], []
    for block in blocks:
        if kind == "bert":
            source, target = block.attention.self.value, block.attention.output.dense.weight.T
        elif kind == "gpt2":
            source, target = block.attn.c_attn, block.attn.c_proj.weight
        else:
            source, target = block.self_attn.v_proj, block.self_attn.o_proj.weight.T
        projections.append(target.detach().double().reshape(4, 8, -1).numpy())
        hooks.append(source.register_forward_hook(lambda module, given, made_: made.append(made_[0].detach().double())))
    weights = torch.stack(eager(model, inputs).attentions)[:, 0].double().numpy()
    for hook in hooks:
        hook.remove()
    values = []
    for one in made:
        own = one[:, 2 * 32 :] if kind == "gpt2" else one  # queries, keys and values stand side by side
        heads = own.reshape(own.shape[0], -1, 8).transpose(0, 1)
        values.append(heads.repeat_interleave(4 // heads.shape[0], 0).numpy())
    return weights, np.array(values), np.array(projections)


def ids_of(model: Model, ids: list[int], pad_to: int | None = None) -> dict[str, torch.Tensor]:
    found = torch.tensor([ids])
    if pad_to is None:
        return {"input_ids": found}
    mask = torch.ones(1, pad_to, dtype=torch.long)
    mask[:, len(ids) :] = 0
    padding = torch.full((1, pad_to - len(ids)), model.module.config.pad_token_id or 0)
    return {"input_ids": torch.cat([found, padding], 1), "attention_mask": mask}


@pytest.mark.parametrize("n", [1, 9, 30])
def test_lenses_of_heads(tiny: Model, ids: Callable[[int], list[int]], n: int) -> None:
    """8 dimensions: 30 tokens have a large null space. Relative 1e-4 of models in float32."""
    a = headscope.analyze(tiny, token_ids=ids(n), lenses=LENSES, measures=("entropy",))
    weights, values, projections = parts(tiny, ids_of(tiny, ids(n)))
    mask = allowed("all" if tiny.module.config.model_type == "bert" else "prefix", n)
    for layer in range(3):
        null = weights[layer] - projected(weights[layer], values[layer], mask)
        assert np.linalg.norm(a.maps["null"][layer] - null) < 1e-4 * np.linalg.norm(weights[layer])
        lengths = np.linalg.norm(np.einsum("hkm,hmd->hkd", values[layer], projections[layer]), axis=-1)
        assert relative(a.maps["norm"][layer], weights[layer] * lengths[:, None]) < 1e-4
        even = a.maps["max-entropy"][layer].astype(np.float64)
        assert relative(even @ values[layer], weights[layer] @ values[layer]) < 1e-4
        np.testing.assert_allclose(even.sum(-1), 1, atol=1e-5)
        assert not even[:, ~mask].any()
        found = a.measures["entropy"]["max-entropy"][layer]
        np.testing.assert_allclose(found, [[entropy(row) for row in head] for head in even], atol=1e-5)
        assert (found >= a.measures["entropy"]["weights"][layer] - 1e-5).all()


@pytest.fixture(scope="module")
def bert() -> Model:
    from ..conftest import TINY

    torch.manual_seed(0)
    return headscope.load(TINY["bert"]())


@pytest.mark.parametrize("n", [1, 6, 20])
def test_as_published_runs_the_padded_input(bert: Model, ids: Callable[[int], list[int]], n: int) -> None:
    """Values of a second forward pass whose padding is masked as a key and still makes values.

    Those of the last layer are so much alike that the projection turns a rounding of the values by 6e-8 into 7e-6, and three layers have rounded by then.
    """
    choice = {"name": "effective-published", "pad_to": 24}
    found = headscope.analyze(bert, token_ids=ids(n), lenses=("weights", choice), measures=()).maps
    _, values, _ = parts(bert, ids_of(bert, ids(n), 24))
    for layer in range(3):
        expected = published(found["weights"][layer].astype(np.float64), values[layer])
        np.testing.assert_allclose(found["effective-published"][layer], expected, atol=2e-5 if layer < 2 else 1e-4)


def test_as_published_has_limits(tiny: Model, ids: Callable[[int], list[int]]) -> None:
    """Texts longer than the padding are refused, and models that look back only."""
    refused: type[HeadscopeError] = InvalidRequest if tiny.module.config.model_type == "bert" else Unsupported
    with pytest.raises(refused):
        headscope.analyze(tiny, token_ids=ids(30), lenses=({"name": "effective-published", "pad_to": 24},), measures=())


def test_share_of_special_tokens(minilm: Model) -> None:
    """From the maps of the norm lens, over the queries that are words."""
    a = headscope.analyze(minilm, "The cat sat on the mat.", lenses=("norm",), measures=("special_broadcast",))
    norms, special = a.maps["norm"].astype(np.float64), np.array([token.kind == "special" for token in a.tokens])
    rows = norms[:, :, ~special]
    expected = rows[..., special].sum((2, 3)) / rows.sum((2, 3))
    np.testing.assert_allclose(a.measures["special_broadcast"]["weights"], expected, atol=1e-5)
    assert special.sum() == 2
