"""Tiny random models and plain references that the engine is compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import headscope
from headscope import Model

VOCABULARY = 200

TINY: dict[str, Callable[[], Any]] = {
    "bert": lambda: BertForMaskedLM(
        BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=64,
            initializer_range=0.5,
        )
    ),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=3, n_head=4, initializer_range=0.5)
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=64,
            initializer_range=0.5,
        )
    ),
}


@pytest.fixture(scope="session", params=list(TINY))
def tiny(request: pytest.FixtureRequest) -> Model:
    """A tiny random model of each architecture, in memory."""
    torch.manual_seed(0)
    return headscope.load(TINY[request.param]())


@pytest.fixture(scope="session")
def minilm() -> Model:
    """The default model."""
    return headscope.load("minilm")


@pytest.fixture
def ids() -> Callable[[int], list[int]]:
    """Random token ids of a given number."""
    return lambda n: np.random.default_rng(n).integers(0, VOCABULARY, n).tolist()


def eager(model: Model, inputs: dict[str, torch.Tensor]) -> Any:
    """The model's own eager forward pass with everything it can give, and the values of every layer."""
    before = model.module.config._attn_implementation
    model.module.eval().set_attn_implementation("eager")
    try:
        with torch.no_grad():
            return model.module(**inputs, output_attentions=True, output_hidden_states=True)
    finally:
        model.module.set_attn_implementation(before)


def projected(weights: NDArray[Any], values: NDArray[Any], allowed: NDArray[Any], ones: bool = False) -> NDArray[Any]:
    """The slow, obvious reference in float64: for every row a full SVD of the values it may see. [H, Q, K], [H, K, D], [Q, K] -> [H, Q, K]."""
    result = np.zeros(weights.shape)
    for head in range(weights.shape[0]):
        for query in range(weights.shape[1]):
            keys = np.flatnonzero(allowed[query])
            V = values[head, keys].astype(np.float64)
            if ones:
                V = np.hstack([V, np.ones((len(keys), 1))])
            U, sigma, _ = np.linalg.svd(V, full_matrices=True)
            rank = int((sigma > sigma[0] * max(V.shape) * np.finfo(np.float32).eps).sum()) if sigma[0] > 0 else 0
            null = U[:, rank:]
            row = weights[head, query, keys].astype(np.float64)
            result[head, query, keys] = row - (row @ null) @ null.T
    return result


def relative(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Relative Frobenius distance."""
    return float(np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30))


def hooks(part: Any) -> list[str]:
    """Return the hooks of a part that are not those by which transformers returns attention."""
    every = [*part._forward_hooks.values(), *part._forward_pre_hooks.values()]
    return [hook.__module__ for hook in every if not hook.__module__.startswith("transformers.")]
