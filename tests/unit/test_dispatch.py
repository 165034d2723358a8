"""Models whose parts accelerate has spread over devices, memory and disk: everything is what it is for the model in one place."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._lazy.ts_backend
from transformers import (
    BertConfig,
    BertForMaskedLM,
    Dinov2Config,
    Dinov2Model,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import headscope
from headscope import LENSES, MEASURES
from headscope.analysis.request import explain_missing
from headscope.capture import examine
from headscope.core.lazy import LazyModule
from headscope.errors import InvalidRequest, Unsupported
from headscope.models import free_memory, safety
from headscope.models.generation import Generate
from tests.support.extent import mostly_long
from tests.support.models import tiny_model, wordpiece
from tests.sweep.build import build

# Imported by the tests that need it: every process that collects tests would wait for it.
accelerate = LazyModule("accelerate")

TEXT = "The cat sat on the mat, and it was tired of the mat."
SHAPE = {
    "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48, "initializer_range": 0.3,
}  # fmt: skip

MADE: dict[str, Callable[[], Any]] = {
    "bert": lambda: BertForMaskedLM(BertConfig(**SHAPE)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(**SHAPE, tie_word_embeddings=True)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, num_key_value_heads=2)),
    "gemma2": lambda: Gemma2ForCausalLM(
        Gemma2Config(**SHAPE, num_key_value_heads=2, head_dim=8, sliding_window=6, query_pre_attn_scalar=8)
    ),
    "dinov2": lambda: Dinov2Model(
        Dinov2Config(hidden_size=32, num_hidden_layers=3, num_attention_heads=4, image_size=28, patch_size=7)
    ),
}
# What holds the layers of each, and the parts beside them, in their order.
LAYERS = {
    "bert": ("bert.encoder.layer", "bert.embeddings", "cls"),
    "gpt2": ("transformer.h", "transformer.wte", "transformer.wpe", "transformer.ln_f", "lm_head"),
    "llama": ("model.layers", "model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"),
    "gemma2": ("model.layers", "model.embed_tokens", "model.norm", "model.rotary_emb", "lm_head"),
    "dinov2": ("encoder.layer", "embeddings", "layernorm"),
}


def made(family: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    module = MADE[family]().eval()
    with torch.no_grad():
        for parameter in module.parameters():  # no gain is exactly one, and no shift zero
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    return module.to(dtype)


def in_parts(family: str) -> dict[str, Any]:
    """The middle layer, and part of the last one, on the disk; the rest in memory."""
    layers, *others = LAYERS[family]
    last = dict.fromkeys(name for name, _ in made(family).get_submodule(f"{layers}.2").named_children())
    ends = {f"{layers}.2.{name}": "disk" if place % 2 else "cpu" for place, name in enumerate(last)}
    return {**dict.fromkeys([*others, f"{layers}.0"], "cpu"), f"{layers}.1": "disk", **ends}


def from_memory(family: str, module: Any, folder: Path) -> Any:
    return accelerate.cpu_offload(module, "cpu")


def from_disk(family: str, module: Any, folder: Path) -> Any:
    places = {name: "disk" for name, _ in module.named_children()}
    return accelerate.dispatch_model(module, places, main_device="cpu", offload_dir=folder)


def split(family: str, module: Any, folder: Path) -> Any:
    return accelerate.dispatch_model(module, in_parts(family), main_device="cpu", offload_dir=folder)


def analysed(module: Any, **options: Any) -> headscope.Analysis:
    """Everything that the model supports, of one input."""
    vision = isinstance(module, Dinov2Model)
    model = headscope.load(module, None if vision else wordpiece())
    missing = {**examine(model).missing("self"), **model.missing}
    lenses = [name for name, lens in LENSES.items() if explain_missing(lens, missing) is None]
    measures = [name for name, measure in MEASURES.items() if explain_missing(measure, missing) is None]
    picture = np.random.default_rng(0).integers(0, 256, (28, 28, 3), np.uint8)
    given = {"image": picture} if vision else {"text": TEXT}
    return headscope.analyze(model, **given, lenses=lenses, measures=measures, **options)


@cache
def expected(family: str) -> headscope.Analysis:
    return analysed(made(family))


def assert_same(found: headscope.Analysis, wanted: headscope.Analysis, limit: float = 1e-6) -> None:
    assert found.maps.keys() == wanted.maps.keys()
    assert {name: by_lens.keys() for name, by_lens in found.measures.items()} == {
        name: by_lens.keys() for name, by_lens in wanted.measures.items()
    }
    pairs = {f"lens {lens}": (found.maps[lens], wanted.maps[lens]) for lens in wanted.maps}
    for name, by_lens in wanted.measures.items():
        pairs |= {
            f"measure {name} of {lens}": (found.measures[name][lens], numbers) for lens, numbers in by_lens.items()
        }
    for name, (ours, theirs) in pairs.items():
        largest = max(1.0, float(np.nanmax(np.abs(theirs), initial=0)))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit * largest, err_msg=name)


@pytest.mark.parametrize(
    ("dispatch", "family"),
    mostly_long(
        product([from_memory, from_disk, split], MADE), (from_memory, "bert"), (from_disk, "gpt2"), (split, "llama")
    ),
)
def test_everything_is_as_in_one_place(family: str, dispatch: Callable[..., Any], tmp_path: Path) -> None:
    """Every lens and measure that the family supports, and the digest; afterwards the weights are where they were."""
    module = dispatch(family, made(family), tmp_path)
    before = {name: (one.device, one.dtype) for name, one in module.named_parameters()}
    assert {device.type for device, _ in before.values()} == ({"meta", "cpu"} if dispatch is split else {"meta"})
    found = analysed(module)
    assert len(found.maps) >= (8 if family == "gemma2" else 10)
    assert_same(found, expected(family))
    assert found.id == expected(family).id
    assert {name: (one.device, one.dtype) for name, one in module.named_parameters()} == before


@pytest.fixture
def second_device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Another device that every machine has: torch's own for tensors that are computed late. It has no inference mode, and refuses tensors of other devices."""
    _start_second_device()
    monkeypatch.setattr(torch, "inference_mode", torch.no_grad)
    return "lazy"


@cache
def _start_second_device() -> None:
    torch._lazy.ts_backend.init()


@pytest.mark.parametrize("family", mostly_long(["bert", "llama", "gemma2"], "gemma2"))
def test_everything_is_as_on_one_device(family: str, second_device: str) -> None:
    """The middle layer is on another device than what is before and after it."""
    layers, *others = LAYERS[family]
    module = made(family)
    places = {**dict.fromkeys([*others, f"{layers}.0", f"{layers}.2"], "cpu"), f"{layers}.1": second_device}
    with pytest.raises(RuntimeError, match="not a lazy tensor"):
        torch.ones(1) + torch.ones(1, device=second_device)
    module = accelerate.dispatch_model(module, places, main_device="cpu")
    assert {parameter.device.type for parameter in module.parameters()} == {"cpu", second_device}
    assert_same(analysed(module), expected(family), 1e-5)  # it adds in another order


def test_half_precision_is_widened_on_its_way(tmp_path: Path) -> None:
    """Offloaded bfloat16 weights of an analysis in float32 are those that a model in memory has, and the module itself stays in bfloat16."""
    plain, module = made("llama", torch.bfloat16), split("llama", made("llama", torch.bfloat16), tmp_path)
    assert_same(analysed(module), analysed(plain))
    ids = torch.tensor([[5, 17, 5, 42]])
    with torch.no_grad():
        assert torch.equal(module(ids).logits, plain(ids).logits)
    assert {one.dtype for one in module.parameters()} == {torch.bfloat16}


def test_a_dispatched_model_continues_a_text(tmp_path: Path) -> None:
    """With the words that the model in one place adds."""
    ids, more = [5, 17, 5, 42], Generate(max_new_tokens=4)
    texts = [
        [token.id for token in headscope.load(module).encode(token_ids=ids, generate=more).tokens]
        for module in (made("gpt2"), split("gpt2", made("gpt2"), tmp_path))
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 8


def test_a_folder_is_loaded_by_a_device_map(tmp_path: Path) -> None:
    """Of a model in several files, one layer stays in them; also those in half precision, and as accelerate chooses. Its files are there as long as it is."""
    made("llama", torch.bfloat16).save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    wanted = headscope.analyze(headscope.load(tmp_path), token_ids=[5, 17, 5, 42], lenses=("weights", "alti"))
    for places in ({"": "cpu", "model.layers.1": "disk"}, "auto"):
        model = headscope.load(tmp_path, device_map=places)
        where = {name.split(".")[2] for name, one in model.module.named_parameters() if one.is_meta}
        assert where == ({"1"} if places != "auto" else set())
        gc.collect()
        found = headscope.analyze(model, token_ids=[5, 17, 5, 42], lenses=("weights", "alti"))
        assert_same(found, wanted)
        assert found.id == wanted.id


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"device_map": "everywhere"}, "device_map is one of auto, balanced"),
        ({"device_map": {"": "nowhere"}}, "device_map is one of auto, balanced"),
        ({"device_map": {"": "cuda:99"}}, "This machine has no device cuda:99"),
        ({"device_map": {"model.norm": "cpu"}}, "device_map gives some modules no device"),
        ({"device_map": {"": "cpu", "model.nose": "disk"}}, "device_map names modules that the model does not have"),
        ({"device_map": "auto", "device": "cpu"}, "Give device or device_map"),
    ],
)
def test_device_maps_that_are_refused(options: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """With what is wrong about them, and not about the model's files."""
    with pytest.raises(InvalidRequest, match=reason):
        headscope.load(tiny_model(tmp_path / "llama", "llama"), **options)


def test_a_device_that_is_missing(tmp_path: Path) -> None:
    """A GPU that the machine does not have is refused with a sentence."""
    with pytest.raises(Unsupported, match="This machine has no device cuda:99"):
        headscope.load(tiny_model(tmp_path / "llama", "llama"), device="cuda:99")


def test_a_device_map_is_not_for_a_module() -> None:
    with pytest.raises(InvalidRequest, match="Pass it to from_pretrained"):
        headscope.load(made("gpt2"), device_map="auto")


def test_weights_that_nothing_loads_are_refused() -> None:
    """On the meta device without a hook, or with one hook for a whole layer, whose modules cannot be read one by one."""
    with torch.device("meta"):
        module = MADE["llama"]()
    with pytest.raises(Unsupported, match="were never loaded"):
        headscope.load(module)


def test_every_file_of_a_model_counts(tmp_path: Path) -> None:
    """A model in several files is the model in one; its id follows each of them, and so does the estimate of its memory."""
    module = made("llama")
    module.save_pretrained(tmp_path / "one")
    module.save_pretrained(tmp_path / "several", max_shard_size="20KB")
    files = sorted((tmp_path / "several").glob("*.safetensors"))
    assert len(files) > 3
    one, several = headscope.load(tmp_path / "one"), headscope.load(tmp_path / "several")
    assert_same(*(headscope.analyze(model, token_ids=[5, 17, 5, 42], lenses=("alti",)) for model in (several, one)))
    sizes = [sum(safety.weight_bytes(path, 8).values()) for path in files]
    assert sum(sizes) == 2 * sum(parameter.nbytes for parameter in module.parameters())
    digests = {several.digest}
    for path in files:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        digests.add(headscope.load(tmp_path / "several").digest)
    assert len(digests) == len(files) + 1


def test_the_memory_of_each_device_is_that_of_its_modules() -> None:
    """By the longest name that fits, with or without the first part of the names in the files."""
    places = {"": "cpu", "model.layers.1": "disk", "model.layers.1.mlp": "cpu", "model.layers.11": "meta"}
    for name, device in (
        ("model.layers.1.self_attn.q_proj.weight", "disk"),
        ("layers.1.self_attn.q_proj.weight", "disk"),
        ("model.layers.1.mlp.up_proj.weight", "cpu"),
        ("model.layers.11.mlp.up_proj.weight", "meta"),
        ("lm_head.weight", "cpu"),
    ):
        assert free_memory._device(name, places) == device


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
@pytest.mark.parametrize("family", ["mobilebert", "jetmoe"])
def test_a_model_that_reaches_into_an_offloaded_module(family: str) -> None:
    """Uses a weight that is not in memory: torch computes something with it or raises an error, and Headscope says why, instead of showing it."""
    with pytest.raises(Unsupported, match="This model uses weights outside of the modules that hold them"):
        headscope.analyze(
            accelerate.cpu_offload(build(family).module, "cpu"), token_ids=[5, 17, 5, 42], lenses=("weights",)
        )
