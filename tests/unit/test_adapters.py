"""Models with adapters: what is read of a projection is what it computes, not the weight inside."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope.capture import examine
from headscope.core.lazy import LazyModule
from headscope.errors import Unsupported

from .test_precision import MADE

# Imported by the tests that need it: every process that collects tests would wait for a second.
peft = LazyModule("peft")

pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft's own

IDS = [101, 1996, 4937, 2938, 2006, 1996, 13523, 2138, 2009, 2001, 5458, 102]
TARGETS = ["query", "key", "attention.output.dense"]
SCALE = 8 / 4  # lora_alpha / r
HEADS, WIDTH = 12, 32


@pytest.fixture(scope="module")
def adapted() -> Any:
    """MiniLM with LoRA on queries, keys and the output projection, as transformers adds it, its weights not zero."""
    module = MADE["minilm"]()
    module.add_adapter(peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.5, target_modules=TARGETS))
    return filled(module)


def filled(module: Any) -> Any:
    """Give the adapters the same random values every time."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return module


def merged(part: Any) -> torch.Tensor:
    """Return the weight of a module with LoRA in float64, by the definition: W + alpha / r B A."""
    added = part.lora_B["default"].weight.detach().double() @ part.lora_A["default"].weight.detach().double()
    total: torch.Tensor = part.base_layer.weight.detach().double() + SCALE * added
    return total


def values_of(module: Any, ids: list[int]) -> list[torch.Tensor]:
    """Return every layer's values [H, K, D] in float64."""
    kept: list[torch.Tensor] = []
    handles = [
        layer.attention.self.value.register_forward_hook(lambda part, args, output: kept.append(output[0].double()))
        for layer in module.encoder.layer
    ]
    with torch.no_grad():
        module.eval()(torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    return [values.reshape(len(ids), HEADS, WIDTH).transpose(0, 1) for values in kept]


def test_lenses_and_measures_see_the_adapter(adapted: Any) -> None:
    """Against float64 arithmetic on W + alpha / r B A: norms of contributions, overlap of output spaces, dimensions, broadcast, and query-key products."""
    names = ("output_overlap", "head_dimension", "qk_spectrum")
    a = headscope.analyze(headscope.load(adapted), token_ids=IDS, lenses=("weights", "norm"), measures=names)
    values = values_of(adapted, IDS)
    for number, layer in enumerate(adapted.encoder.layer):
        parts = merged(layer.attention.output.dense).mT.reshape(HEADS, WIDTH, -1)
        weights = torch.from_numpy(a.maps["weights"][number]).double()
        norms = weights * (values[number] @ parts).norm(dim=-1)[:, None]
        np.testing.assert_allclose(a.maps["norm"][number], norms, rtol=1e-4, atol=1e-6)
        bases = torch.linalg.svd(parts, full_matrices=False).Vh
        overlap = [[float((one @ other.mT).square().sum() / WIDTH) for other in bases] for one in bases]
        np.testing.assert_allclose(a.measures["output_overlap"]["weights"][number], overlap, atol=1e-4)
        written = weights @ values[number] @ parts
        sigma = torch.linalg.svdvals(written - written.mean(1, keepdim=True))
        shares = sigma / sigma.sum(-1, keepdim=True)
        effective = torch.exp(-torch.special.xlogy(shares, shares).sum(-1))
        np.testing.assert_allclose(a.measures["head_dimension"]["weights"][number, :, 0], effective, rtol=1e-3)
        query, key = (
            merged(getattr(layer.attention.self, name)).reshape(HEADS, WIDTH, -1) for name in ("query", "key")
        )
        largest = torch.linalg.svdvals(query.mT @ key)[:, 0]
        np.testing.assert_allclose(a.measures["qk_spectrum"]["weights"][number, :, 0], largest, rtol=1e-4)


def test_nothing_is_missing(adapted: Any) -> None:
    """With the adapter, the module has the same structure around attention as without."""
    assert examine(headscope.load(adapted)).missing("self") == examine(headscope.load("minilm")).missing("self")


def test_a_peft_model_is_analysed_like_its_model(adapted: Any) -> None:
    """The adapters of a PeftModel take part, and the maps are those of the same adapters added by transformers."""
    wrapped = peft.get_peft_model(
        MADE["minilm"](), peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.5, target_modules=TARGETS)
    )
    filled(wrapped)
    found, expected = (
        headscope.analyze(headscope.load(module), token_ids=IDS, lenses=("weights", "norm")).maps
        for module in (wrapped, adapted)
    )
    for lens in ("weights", "norm"):
        np.testing.assert_array_equal(found[lens], expected[lens])
    headscope.attend_by(wrapped, "softmax")


def test_an_adapter_that_comes_later_is_seen() -> None:
    """A wrapper that has been used sees adapters added, trained and switched off after that."""
    module = copy.deepcopy(MADE["minilm"]())
    model = headscope.load(module)

    def norms() -> Any:
        return headscope.analyze(model, token_ids=IDS, lenses=("norm",), measures=()).maps["norm"]

    plain = norms()
    module.add_adapter(peft.LoraConfig(r=4, lora_alpha=8, target_modules=["attention.output.dense"]))
    np.testing.assert_allclose(norms(), plain, atol=1e-5)
    filled(module)
    assert np.abs(norms() - plain).max() > 1e-2
    digest = model.digest
    module.disable_adapters()
    np.testing.assert_allclose(norms(), plain, atol=1e-5)
    assert model.digest != digest


def test_learned_vectors_before_the_input_are_refused() -> None:
    """A prompt-tuned PeftModel computes something else than its model."""
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pytest.raises(Unsupported, match="prepends learned vectors"):
        headscope.load(peft.get_peft_model(MADE["gpt2"](), config))


def test_a_second_path_from_the_heads_is_no_projection() -> None:
    """Where something beside the output projection reads the heads' outputs, no matrix stands for what they become."""
    module = copy.deepcopy(MADE["minilm"]())
    output = module.encoder.layer[0].attention.output
    output.beside = torch.nn.Linear(384, 384)
    plain = output.forward
    output.forward = lambda hidden, given: plain(hidden, given + torch.tanh(output.beside(hidden)))
    missing = examine(headscope.load(module)).all[0].missing
    assert "projection" in missing
