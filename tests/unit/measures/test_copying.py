"""Copying: against the eigenvalues of whole matrices over the vocabulary, heads whose score is known, and models that have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertModel

import headscope
from headscope.capture import examine
from headscope.errors import Unsupported

from ..conftest import TINY, VOCABULARY
from ..effects.test_contribution import FAMILIES, SMALL, TOKENS, _t5, perturbed

Array = NDArray[Any]
HEADS = 4


def measured(module: Any) -> Array:
    """[L, H]."""
    given: dict[str, Any] = {"token_ids": TOKENS, "measures": ["ov_copying"], "maps": False}
    return headscope.analyze(module, **given).measures["ov_copying"]["weights"]


def weights(module: Any, name: str) -> Array:
    return module.get_parameter(name).detach().double().numpy()


def gained(gain: Array, centred: bool) -> Array:
    """The matrix N of a normalisation without its scale: x -> x N."""
    d = len(gain)
    centre = np.eye(d) - 1 / d if centred else np.eye(d)
    return centre @ np.diag(gain)


def gpt2(module: Any, layer: int, head: int) -> tuple[Array, Array, Array]:
    """What leads from embeddings to the value of a head, what it adds for a value, and what leads from there to the logits."""
    d, block = module.config.n_embd, f"transformer.h.{layer}"
    part = slice(head * d // HEADS, (head + 1) * d // HEADS)
    value = weights(module, f"{block}.attn.c_attn.weight")[:, 2 * d :][:, part]
    before, after = (gained(weights(module, f"{name}.weight"), True) for name in (f"{block}.ln_1", "transformer.ln_f"))
    return (
        before @ value,
        weights(module, f"{block}.attn.c_proj.weight")[part],
        after @ weights(module, "lm_head.weight").T,
    )


def llama(module: Any, layer: int, head: int, one: float = 0.0) -> tuple[Array, Array, Array]:
    """Likewise."""
    block = f"model.layers.{layer}"
    value, output = (weights(module, f"{block}.self_attn.{name}_proj.weight") for name in ("v", "o"))
    part, shared = (slice(number * 8, number * 8 + 8) for number in (head, head // 2))
    before, after = (
        gained(weights(module, f"{name}.weight") + one, False) for name in (f"{block}.input_layernorm", "model.norm")
    )
    return before @ value[shared].T, output[:, part].T, after @ weights(module, "lm_head.weight").T


def gemma2(module: Any, layer: int, head: int) -> tuple[Array, Array, Array]:
    """Likewise, with the normalisation of what attention adds."""
    value, output, end = llama(module, layer, head, 1.0)
    name = f"model.layers.{layer}.post_attention_layernorm.weight"
    return value, output @ gained(weights(module, name) + 1, False), end


MATRICES = {"gpt2": gpt2, "llama": llama, "gemma2": gemma2}


@pytest.mark.parametrize("family", MATRICES)
def test_is_the_sum_of_the_eigenvalues_of_the_whole_matrix(family: str) -> None:
    """[vocabulary, vocabulary], in float64, less what all logits share."""
    torch.manual_seed(0)
    module = perturbed(FAMILIES[family]())
    embedding = module.get_input_embeddings().weight.detach().double().numpy()
    found = measured(module)
    for layer in range(len(found)):
        for head in range(HEADS):
            value, output, end = MATRICES[family](module, layer, head)
            logits = embedding @ value @ output @ end
            values = np.linalg.eigvals(logits - logits.mean(-1, keepdims=True))
            assert len(values) == VOCABULARY
            assert found[layer, head] == pytest.approx(values.sum().real / np.abs(values).sum(), abs=1e-4)
    assert np.ptp(found) > 0.1


def test_heads_whose_score_is_known() -> None:
    """One that writes what it reads, one that writes its opposite, and one that only turns it; and one that writes nothing."""
    torch.manual_seed(0)
    module = TINY["gpt2"]().eval()
    d, width = 32, 8
    turn = torch.kron(torch.eye(width // 2), torch.tensor([[0.0, 1], [-1, 0]]))
    block = module.transformer.h[1].attn
    with torch.no_grad():
        values = block.c_attn.weight[:, 2 * d :]
        for head, matrix in enumerate((torch.eye(width), -torch.eye(width), turn, torch.zeros(width, width))):
            part = slice(head * width, head * width + width)
            block.c_proj.weight[part] = matrix @ values[:, part].T
    np.testing.assert_allclose(measured(module)[1], [1, -1, 0, np.nan], atol=1e-5)


def test_changed_weights_are_read_again() -> None:
    """Of the embedding, too, which is cached."""
    torch.manual_seed(0)
    module = TINY["llama"]().eval()
    before = measured(module)
    with torch.no_grad():
        module.model.embed_tokens.weight *= -1
    np.testing.assert_allclose(measured(module), -before, atol=1e-6)


def test_refusals() -> None:
    """Models without an output matrix, or whose heads reach it through more than a normalisation."""
    for module, reason in (
        (BertModel(BertConfig(**SMALL)), "no output matrix"),
        (TINY["bert"](), "more than a linear map"),
        (_t5(), "more than a linear map"),
    ):
        model = headscope.load(module)
        kind = examine(model).all[-1].kind
        given = {"target_ids": [0, 5], "kind": "decoder"} if kind == "cross" else {}
        with pytest.raises(Unsupported, match=reason):
            headscope.analyze(model, token_ids=TOKENS, measures=["ov_copying"], **given)
