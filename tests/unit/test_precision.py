"""Models in half precision, and of several types: analysed in float32 unless asked otherwise, and left exactly as they were."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import headscope
from headscope.capture import examine
from headscope.errors import OutOfMemory
from tests.support.variants import variants

from .conftest import hooks

IDS = [5, 17, 5, 42, 9, 23, 77, 12, 55, 31, 8, 64]
SHAPE = {
    "num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 64, "vocab_size": 100, "initializer_range": 0.2,
    "max_position_embeddings": 64, "intermediate_size": 96,
}  # fmt: skip
GROUPED = {**SHAPE, "num_key_value_heads": 2}
MADE: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**SHAPE)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED)),
    "gpt-neox": lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**SHAPE)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**GROUPED, head_dim=16)),
    "minilm": lambda: copy.deepcopy(headscope.load("minilm").module),
}
HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def made(name: str, kind: str) -> Any:
    """Return a module in half precision; `mixed` has its first layer in float32, so that half of its types do not fit together without conversion."""
    torch.manual_seed(0)
    module = MADE[name]().eval()
    if kind != "mixed":
        return module.to(HALF[kind])
    return module.to(torch.bfloat16).apply(lambda part: part.float() if isinstance(part, torch.nn.LayerNorm) else part)


def eager(module: Any, dtype: torch.dtype | None = None) -> Any:
    """Return the eager output of a copy, with all its parameters in another type."""
    apart = copy.deepcopy(module)
    if dtype is not None:
        apart.to(dtype)
    apart.set_attn_implementation("eager")
    with torch.no_grad():
        return apart(torch.tensor([IDS]), output_attentions=True)


def state(module: Any) -> list[Any]:
    """Return everything that an analysis might leave changed."""
    tensors = [
        (name, tensor.dtype, tensor.data_ptr(), tensor.requires_grad) for name, tensor in module.state_dict().items()
    ]
    return [*tensors, *[(part.training, hooks(part)) for part in module.modules()], dict(vars(module.config))]


@variants("kind", ["bfloat16", "float16", "mixed"], crossed=False)
@variants("name", list(MADE), short=3)
def test_half_precision_is_analysed_in_float32(name: str, kind: str) -> None:
    """The maps are those of a float32 copy; afterwards every tensor, and the module's own output, is the very same."""
    module = made(name, kind)
    before = state(module)
    output = None if kind == "mixed" else module(torch.tensor([IDS]))[0]
    a = headscope.analyze(headscope.load(module), token_ids=IDS, lenses=("weights", "norm"))
    expected = np.stack([one[0].numpy() for one in eager(module, torch.float32).attentions])
    np.testing.assert_allclose(a.maps["weights"], expected, atol=1e-5)
    assert state(module) == before
    if output is not None:
        assert torch.equal(module(torch.tensor([IDS]))[0], output)


@variants("kind", list(HALF), crossed=False)
@variants("name", list(MADE), short=3)
def test_half_precision_on_request(name: str, kind: Any) -> None:
    """Asked to compute in the module's own type, Headscope gives its eager weights within four roundings of that type."""
    module = made(name, kind)
    a = headscope.analyze(headscope.load(module), token_ids=IDS, lenses=("weights",), dtype=kind)
    expected = np.stack([one[0].float().numpy() for one in eager(module).attentions])
    assert np.abs(a.maps["weights"] - expected).max() <= 4 * torch.finfo(HALF[kind]).eps
    assert examine(headscope.load(module), kind).captured


def test_frequencies_of_positions_keep_their_type() -> None:
    """As with from_pretrained(dtype=...), a buffer that no file holds stays in float32 when the parameters become bfloat16."""
    module = made("llama", "bfloat16")
    module.model.rotary_emb.inv_freq = module.model.rotary_emb.inv_freq.float()
    model = headscope.load(module)
    seen = {}

    def look(part: Any, args: Any) -> None:
        seen["type"] = part.inv_freq.dtype

    module.model.rotary_emb.register_forward_pre_hook(look)
    headscope.analyze(model, token_ids=IDS, lenses=("weights",), dtype="bfloat16")
    assert seen["type"] == torch.float32
    headscope.analyze(model, token_ids=IDS, lenses=("weights",), dtype="float64")
    assert seen["type"] == torch.float64


def test_a_conversion_that_fails_is_undone() -> None:
    """A tensor that cannot be converted leaves none of the others converted."""
    module = made("gpt2", "bfloat16")

    class Full(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            if getattr(function, "__name__", "") == "to":
                raise MemoryError
            return super().__torch_function__(function, kinds, args, kwargs or {})

    module.transformer.h[1].ln_1.register_buffer("late", torch.zeros(1, dtype=torch.bfloat16).as_subclass(Full))
    model, before = headscope.load(module), [parameter.dtype for parameter in module.parameters()]
    with pytest.raises(MemoryError), model.using("float32"):
        pass
    assert [parameter.dtype for parameter in module.parameters()] == before


@pytest.mark.parametrize(("stored", "kept"), [("bfloat16", torch.bfloat16), ("float16", torch.float32)])
def test_stored_weights_stay_in_half_precision(stored: str, kept: torch.dtype, tmp_path: Path) -> None:
    """Loaded in the type in which all of them are stored, and in float32 otherwise; the maps are those of the model converted to that type."""
    made("llama", stored).save_pretrained(tmp_path)
    narrow, wide = headscope.load(tmp_path, dtype="bfloat16"), headscope.load(tmp_path)
    for model, dtype in ((narrow, kept), (wide, torch.float32)):
        assert {parameter.dtype for parameter in model.module.parameters()} == {dtype}
    maps = [
        headscope.analyze(model, token_ids=IDS, lenses=("weights",), dtype="bfloat16").maps["weights"]
        for model in (narrow, wide)
    ]
    assert np.array_equal(*maps)


@pytest.mark.parametrize(("stored", "numbers"), [("F32", 2**38), ("BF16", 2**39), ("U8", 2**40)])
def test_weights_beyond_the_free_memory_are_not_loaded(stored: str, numbers: int, tmp_path: Path) -> None:
    """A file with a tebibyte of weights, all of it a hole, is refused before anything of it is read: large narrow ones and quantised ones by that in the file."""
    made("gpt2", "bfloat16").save_pretrained(tmp_path)
    size = numbers * {"F32": 4, "BF16": 2, "U8": 1}[stored]
    header = json.dumps({"wte": {"dtype": stored, "shape": [numbers], "data_offsets": [0, size]}}).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + size)
    with pytest.raises(
        OutOfMemory, match=r"^The model's weights need 1099\.5 GB of memory, and \d+\.\d GB are free\. "
    ):
        headscope.load(tmp_path)
