"""Models with quantised weights, in all forms in which packages store them: against the same model with dequantised weights."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import BertModel, BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

import headscope
from headscope import LENSES, MEASURES
from headscope.analysis.request import explain_missing
from headscope.capture import batches_exactly, examine
from headscope.core.lazy import LazyModule
from headscope.errors import ModelNotExact, Unsupported
from headscope.models.catalog import Catalog
from headscope.settings import Settings
from tests.support.extent import mostly_long

from .conftest import eager
from .test_adapters import filled

# Imported by the tests that need them: every process that collects tests would wait for a second.
bitsandbytes = LazyModule("bitsandbytes")
peft = LazyModule("peft")

IDS = [5, 17, 5, 42, 9, 23, 77, 12, 150, 3]
HEADS, GROUPS = 4, 2
SHAPE = {
    "vocab_size": 200, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "intermediate_size": 128,
    "initializer_range": 0.2, "attention_bias": True,
}  # fmt: skip
BITSANDBYTES = {
    "nf4": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "llm.int8": BitsAndBytesConfig(load_in_8bit=True),
}


class Int8Tensor(torch.Tensor):
    """Integers and a scale for each row, in the form of torchao and quanto: a tensor that ordinary layers compute with."""

    numbers: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor) -> Int8Tensor:
        made = torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype)
        made.numbers, made.scale = numbers, scale
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["numbers", "scale"], None

    def dequantize(self) -> torch.Tensor:
        return self.numbers.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_function__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.linear:
            return functional.linear(args[0], args[1].dequantize(), args[2])
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert function is torch.ops.aten.detach.default, function
        return cls(args[0].numbers, args[0].scale)


class PackedLinear(torch.nn.Module):
    """Four bits of integers in each number and scales, in the form of GPTQ: buffers, which it can use in its own type only."""

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = numbers.shape
        shifted = (numbers.int() + 8).view(self.out_features, -1, 8)  # -8..7 -> 0..15
        self.register_buffer(
            "qweight", (shifted << torch.arange(0, 32, 4, dtype=torch.int32)).sum(-1, dtype=torch.int32)
        )
        self.register_buffer("scales", scale)
        self.register_buffer("bias", bias)

    def dequantize(self) -> torch.Tensor:
        numbers = (self.qweight[..., None] >> torch.arange(0, 32, 4, dtype=torch.int32)) & 15
        return (numbers.flatten(1) - 8).to(self.scales.dtype) * self.scales

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        assert vectors.dtype == self.scales.dtype
        return functional.linear(vectors, self.dequantize(), self.bias)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model before quantisation, with biases."""
    torch.manual_seed(0)
    module, path = LlamaForCausalLM(LlamaConfig(**SHAPE)), tmp_path_factory.mktemp("whole")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    module.save_pretrained(path)
    return path


def quantised(folder: Path, way: str, dtype: torch.dtype = torch.float32) -> Any:
    if way in BITSANDBYTES:
        return LlamaForCausalLM.from_pretrained(folder, quantization_config=BITSANDBYTES[way], dtype=dtype)
    module, most = LlamaForCausalLM.from_pretrained(folder, dtype=dtype), 127 if way == "subclass" else 7
    for name, part in list(module.model.named_modules()):
        if isinstance(part, torch.nn.Linear):
            scale = part.weight.data.abs().amax(1, keepdim=True) / most
            numbers = (part.weight.data / scale).round().to(torch.int8)
            if way == "subclass":
                part.weight = torch.nn.Parameter(Int8Tensor(numbers, scale), requires_grad=False)
            else:
                bias = None if part.bias is None else part.bias.data
                module.model.set_submodule(name, PackedLinear(numbers, scale, bias))
    return module


def dequantised(part: Any) -> torch.Tensor:
    """The weight of a quantised layer that has not run yet, by the functions of its own package."""
    if isinstance(part, bitsandbytes.nn.Linear4bit):
        return bitsandbytes.functional.dequantize_4bit(part.weight.data, part.weight.quant_state).float()
    if isinstance(part, bitsandbytes.nn.Linear8bitLt):
        return part.weight.CB.float() * part.weight.SCB[:, None] / 127
    return (part if isinstance(part, PackedLinear) else part.weight).dequantize().float()


def plain(module: Any) -> Any:
    """An ordinary model in float32 with the weights that a quantised one has."""
    twin = LlamaForCausalLM(LlamaConfig(**SHAPE)).eval()
    for name, part in twin.named_modules():
        if isinstance(part, torch.nn.Linear):
            other = module.get_submodule(name)
            part.weight.data = (other.weight.float() if name == "lm_head" else dequantised(other)).detach().clone()
            if part.bias is not None:
                part.bias.data = other.bias.detach().float().clone()
        elif hasattr(part, "weight"):
            part.weight.data = module.get_submodule(name).weight.detach().float().clone()
    return twin


def analysed(module: Any) -> headscope.Analysis:
    model = headscope.load(module)
    missing = {**examine(model).missing("self"), **model.missing}
    lenses = [name for name, lens in LENSES.items() if explain_missing(lens, missing) is None]
    measures = [name for name, measure in MEASURES.items() if explain_missing(measure, missing) is None]
    return headscope.analyze(model, token_ids=IDS, lenses=lenses, measures=measures)


@pytest.mark.parametrize("way", mostly_long(["subclass", "buffers"], "subclass"))
def test_quantised_weights_alone_change_nothing_else(folder: Path, way: str) -> None:
    """Every lens and measure is that of the model with the weights that the quantised ones stand for."""
    module = quantised(folder, way)
    wanted, found = analysed(plain(module)), analysed(module)
    assert found.maps.keys() == wanted.maps.keys() >= {"norm", "norm-residual", "alti", "effective", "value-zeroing"}
    for lens, maps in wanted.maps.items():
        np.testing.assert_allclose(found.maps[lens], maps, atol=1e-5 * max(1.0, np.nanmax(np.abs(maps))), err_msg=lens)
    for name, by_lens in wanted.measures.items():
        for lens, numbers in by_lens.items():
            limit = 1e-4 * max(1.0, float(np.nanmax(np.abs(numbers), initial=0)))
            np.testing.assert_allclose(found.measures[name][lens], numbers, atol=limit, err_msg=f"{name} of {lens}")
    assert {one.code for one in found.warnings} - {one.code for one in wanted.warnings} == {"quantised"}


# bitsandbytes computes with 4 bits in bfloat16 where the processor has an instruction for it.
@pytest.mark.parametrize(
    ("way", "dtype", "percent"),
    [
        ("llm.int8", torch.float32, 5),
        ("nf4", torch.float32, 2),
        ("nf4", torch.bfloat16, 3),
        ("subclass", torch.bfloat16, 2),
        ("buffers", torch.float16, 0.5),
    ],
)
def test_rounding_within_layers_is_declared(folder: Path, way: str, dtype: torch.dtype, percent: float) -> None:
    """Weights are the model's own; contributions are those of the matrix, which gives the outputs of its layer as closely as the warning says."""
    module = quantised(folder, way, dtype)
    matrices = [dequantised(layer.self_attn.o_proj) for layer in module.model.layers]
    model, projected = headscope.load(module), list[tuple[torch.Tensor, torch.Tensor]]()
    values = list[torch.Tensor]()
    found = headscope.analyze(model, token_ids=IDS, lenses=("weights", "norm", "norm-residual"))
    with model.using("float32"):
        hooks = [
            hook
            for layer in module.model.layers
            for hook in (
                layer.self_attn.o_proj.register_forward_hook(
                    lambda part, args, out: projected.append((args[0][0], out[0]))
                ),
                layer.self_attn.v_proj.register_forward_hook(lambda part, args, out: values.append(out[0])),
            )
        ]
        theirs = eager(model, model.inputs(model.encode(token_ids=IDS))).attentions
        for hook in hooks:
            hook.remove()
    messages = {one.code: one.message for one in found.warnings}
    package = "bitsandbytes" if way in BITSANDBYTES else __name__.partition(".")[0]
    assert f"quantised ({package})" in messages["quantised"]
    declared = float(messages.get("rounded-projection", "within 0 %").partition("within ")[2].partition(" %")[0])
    assert declared < percent
    if way != "nf4":
        assert declared > 0
        assert not batches_exactly(model)
    for index, W in enumerate(matrices):
        np.testing.assert_allclose(found.maps["weights"][index], theirs[index][0].numpy(), atol=2e-2)
        given, output = projected[index]
        bias = module.model.layers[index].self_attn.o_proj.bias.detach().float()
        off = (given @ W.mT + bias - output).abs().max() / output.abs().max()
        assert float(off) < 3 * declared / 100 + 1e-4
        V = (
            values[index].reshape(len(IDS), GROUPS, -1).transpose(0, 1).repeat_interleave(HEADS // GROUPS, 0)
        )  # [H, K, D]
        lengths = (V @ W.mT.reshape(HEADS, -1, W.shape[0])).norm(dim=-1)
        expected = found.maps["weights"][index] * lengths[:, None].numpy()
        np.testing.assert_allclose(found.maps["norm"][index], expected, atol=1e-2 * expected.max())


@pytest.mark.parametrize("way", BITSANDBYTES)
def test_folders_of_quantised_models(folder: Path, way: str, tmp_path: Path) -> None:
    """Saved by transformers and loaded by name: the maps of the model in memory, in a part of the memory. Afterwards every layer has its own tensors and method."""
    module = quantised(folder, way, torch.bfloat16)
    module.save_pretrained(tmp_path)
    wanted, model = headscope.analyze(module, token_ids=IDS, lenses=("weights",)), headscope.load(tmp_path)
    assert {type(part).__name__ for part in model.module.model.modules()} & {"Linear4bit", "Linear8bitLt"}
    before = {name: id(one) for name, one in model.module.named_parameters()}
    found = headscope.analyze(model, token_ids=IDS, lenses=("weights",))
    np.testing.assert_allclose(found.maps["weights"], wanted.maps["weights"], atol=1e-6)
    assert {name: id(one) for name, one in model.module.named_parameters()} == before
    assert not any("forward" in vars(part) for part in model.module.modules())
    assert model.bytes < 0.4 * headscope.load(folder).bytes
    card = Catalog(Settings(model_dirs=[tmp_path.parent])).describe(tmp_path.name)
    assert (card["quantised_by"], card["parameters"], card["available"]) == ("bitsandbytes", None, True)


def test_a_package_that_fails(folder: Path) -> None:
    """Its kernel cannot run on this machine: the error names the package."""
    module = quantised(folder, "buffers", torch.float16)
    module.model.layers[0].mlp.up_proj.qweight = module.model.layers[0].mlp.up_proj.qweight[:, 1:]
    with pytest.raises(
        ModelNotExact, match=r"^The layers of this model that are quantised by tests fail on this machine"
    ):
        headscope.analyze(module, token_ids=IDS)


@pytest.mark.parametrize("way", mostly_long(["nf4", "subclass", "buffers"], "nf4", "buffers"))
def test_the_id_follows_quantised_weights(folder: Path, way: str) -> None:
    """Analyses of models with the same weights have the same id, also the second time; with a bit changed, another."""
    modules = [quantised(folder, way) for _ in range(3)]
    flip(modules[2].model.layers[1].mlp.up_proj)

    def id_of(module: Any) -> str:
        return headscope.analyze(module, token_ids=IDS, lenses=("weights",)).id

    ids = [id_of(module) for module in modules]
    assert ids[0] == ids[1] != ids[2]
    assert id_of(modules[0]) == ids[0]
    flip(modules[0].model.layers[1].mlp.up_proj)
    assert id_of(modules[0]) != ids[0]


def flip(part: Any) -> None:
    """Change one bit of the weight of a layer."""
    weight = part.qweight if isinstance(part, PackedLinear) else getattr(part.weight, "numbers", part.weight.data)
    weight.flatten().view(torch.uint8)[3] ^= 64


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft's own
def test_adapters_on_quantised_layers(folder: Path) -> None:
    """LoRA on 4 bits: contributions are those of both together, and the id of a model in training is the same every time."""
    config = peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.5, target_modules=["v_proj", "o_proj"])
    module = filled(peft.get_peft_model(quantised(folder, "nf4", torch.bfloat16), config)).train()
    first, second = (headscope.analyze(module, token_ids=IDS, lenses=("weights", "norm")) for _ in range(2))
    assert first.id == second.id
    model, values = headscope.load(module), list[torch.Tensor]()
    with model.using("float32"), torch.no_grad():
        layers = model.module.eval().model.layers
        hooks = [
            layer.self_attn.v_proj.register_forward_hook(lambda part, args, out: values.append(out[0]))
            for layer in layers
        ]
        eager(model, model.inputs(model.encode(token_ids=IDS)))
        for hook in hooks:
            hook.remove()
        units, zero = torch.eye(SHAPE["hidden_size"]), torch.zeros(1, SHAPE["hidden_size"])
        for index, layer in enumerate(layers):
            W = (layer.self_attn.o_proj(units) - layer.self_attn.o_proj(zero)).reshape(
                HEADS, -1, len(units)
            )  # [H, D, d]
            V = values[index].reshape(len(IDS), GROUPS, -1).transpose(0, 1).repeat_interleave(HEADS // GROUPS, 0)
            expected = first.maps["weights"][index] * (V @ W).norm(dim=-1)[:, None].numpy()
            np.testing.assert_allclose(first.maps["norm"][index], expected, atol=1e-4 * expected.max())


def test_a_real_model_in_eight_bits(minilm: headscope.Model) -> None:
    """MiniLM: most weights stay within a hundredth of what they were; and shares of contributions still sum to 1."""
    assert minilm.source is not None
    module = BertModel.from_pretrained(
        minilm.source.folder, quantization_config=BITSANDBYTES["llm.int8"], dtype=torch.float32
    )
    ids = [token.id for token in minilm.encode("The researcher said that she would publish the code next week.").tokens]
    wanted, found = (headscope.analyze(one, token_ids=ids, lenses=("weights", "alti")) for one in (minilm, module))
    difference = np.abs(found.maps["weights"] - wanted.maps["weights"])
    assert 0 < np.quantile(difference, 0.9) < 0.01
    assert difference.max() < 0.2
    np.testing.assert_allclose(found.maps["alti"].sum(-1), 1, atol=1e-5)
    assert {"quantised", "rounded-projection"} <= {one.code for one in found.warnings}


def test_a_layer_that_no_matrix_describes(folder: Path) -> None:
    """Rounds so much that its weight says little: methods that need the projection are refused for that reason, the others work."""
    module = quantised(folder, "buffers")
    attention = module.model.layers[0].self_attn
    forward = attention.o_proj.forward
    attention.o_proj.forward = lambda vectors: forward((vectors * 2).round() / 2)
    with pytest.raises(Unsupported, match="The quantised layer that takes the heads' outputs rounds them so much"):
        headscope.analyze(module, token_ids=IDS, lenses=("norm",))
    assert headscope.analyze(module, token_ids=IDS, lenses=("weights", "effective")).maps


def test_a_package_that_is_missing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is named."""
    quantised(folder, "nf4").save_pretrained(tmp_path)
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(Unsupported, match=r"a package that it needs is not installed\. Install bitsandbytes"):
        headscope.load(tmp_path)
