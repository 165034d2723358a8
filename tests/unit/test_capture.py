"""What is captured is what the model computes: against eager attention, for encoders, decoders and grouped heads."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    BigBirdPegasusConfig,
    BigBirdPegasusForConditionalGeneration,
    GraniteSWAConfig,
    GraniteSWAForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)
from transformers.models.bart.modeling_bart import BartDecoder, BartEncoder

import headscope
from headscope import Model
from headscope.capture import examine, interface
from headscope.core.attention import GPU_TIMES, at_once
from headscope.errors import NonFinite, Unsupported
from tests.support.extent import extent, mostly_long
from tests.support.variants import variants

from .conftest import TINY, eager, projected, relative
from .texts import TEXTS

Ids = Callable[[int], list[int]]


def values_of(model: Model, inputs: dict[str, torch.Tensor]) -> list[np.ndarray]:
    """The values of every layer, [H, K, D], caught by hooks on the projections and not by Headscope's own capture."""
    caught: list[torch.Tensor] = []
    heads, width = model.facts.heads, model.facts.head_width

    def keep(module: torch.nn.Module, _: object, output: torch.Tensor) -> None:
        caught.append(output.detach())

    names = [
        name
        for name, _ in model.module.named_modules()
        if name.endswith(("attention.self.value", "attn.c_attn", "self_attn.v_proj"))
    ]
    hooks = [model.module.get_submodule(name).register_forward_hook(keep) for name in names]
    eager(model, inputs)
    for hook in hooks:
        hook.remove()
    result = []
    for output in caught:
        values = output[0, :, -heads * width :] if "c_attn" in names[0] else output[0]
        groups = values.shape[-1] // width
        result.append(values.view(-1, groups, width).transpose(0, 1).repeat_interleave(heads // groups, 0).numpy())
    return result


@pytest.mark.parametrize("n", [1, 2, 8, 9, 40])
def test_tiny_models_are_exact(tiny: Model, ids: Ids, n: int) -> None:
    """Weights equal eager ones within 1e-5 and logits are unchanged; effective equals the float64 reference; nothing on future keys."""
    a = headscope.analyze(
        tiny, token_ids=ids(n), lenses=("weights", "effective", "effective-simplex"), keep_logits=True
    )
    inputs = tiny.inputs(tiny.encode(token_ids=ids(n)))
    theirs = eager(tiny, inputs)
    causal = tiny.facts.kind == "decoder"
    allowed = np.tril(np.ones((n, n), bool)) if causal else np.ones((n, n), bool)
    assert a.causal is causal
    np.testing.assert_allclose(a.logits, theirs.logits[0].numpy(), atol=1e-4)
    for layer, (expected, values) in enumerate(zip(theirs.attentions, values_of(tiny, inputs), strict=True)):
        np.testing.assert_allclose(a.maps["weights"][layer], expected[0].numpy(), atol=1e-5)
        effective = a.maps["effective"][layer]
        assert relative(effective, projected(expected[0].numpy(), values, allowed)) < 1e-4
        assert relative(effective @ values, expected[0].numpy() @ values) < 1e-4
        assert not effective[:, ~allowed].any()
        np.testing.assert_allclose(a.maps["effective-simplex"][layer].sum(-1), 1, atol=1e-4)
        if n <= tiny.facts.head_width:
            np.testing.assert_array_equal(effective, a.maps["weights"][layer])


@variants("text", extent([*TEXTS], [*TEXTS][::-4]))
def test_minilm_is_exact(minilm: Model, text: str) -> None:
    """The same on the real model and varied texts."""
    a = headscope.analyze(minilm, TEXTS[text], max_tokens=160, lenses=("weights", "effective", "effective-simplex"))
    inputs = minilm.inputs(minilm.encode(TEXTS[text], max_tokens=160))
    theirs, n = eager(minilm, inputs), len(a.tokens)
    for layer, (expected, values) in enumerate(zip(theirs.attentions, values_of(minilm, inputs), strict=True)):
        np.testing.assert_allclose(a.maps["weights"][layer], expected[0].numpy(), atol=1e-5)
        effective = a.maps["effective"][layer]
        heads = range(0, 12, 3) if n > 64 else range(12)  # the reference takes its time
        for head in heads:
            V = values[head].astype(np.float64)
            U, sigma, _ = np.linalg.svd(V, full_matrices=True)
            null = U[:, int((sigma > sigma[0] * max(V.shape) * np.finfo(np.float32).eps).sum()) :]
            row = expected[0, head].numpy().astype(np.float64)
            assert relative(effective[head], row - row @ null @ null.T) < 1e-4
        assert relative(effective @ values, expected[0].numpy() @ values) < 1e-4
        np.testing.assert_allclose(a.maps["effective-simplex"][layer].sum(-1), 1, atol=1e-4)
        if n <= 32:
            np.testing.assert_array_equal(effective, a.maps["weights"][layer])


def test_sliding_window_is_seen(ids: Ids) -> None:
    """A window cuts keys off, which must be columns neither of the weights nor of the effective map."""
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=200,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=64,
        sliding_window=5,
    )
    model = headscope.load(MistralForCausalLM(config))
    a = headscope.analyze(model, token_ids=ids(24))
    outside = ~np.tril(np.ones((24, 24), bool)) | np.tril(np.ones((24, 24), bool), -5)
    assert not a.maps["weights"][..., outside].any()
    assert not a.maps["effective"][..., outside].any()
    assert a.keys.max() == 5


def test_a_sink_that_takes_its_share_off_the_outputs(ids: Ids) -> None:
    """The map is what multiplies the values, though the model returns weights before the sink has taken its share."""
    torch.manual_seed(0)
    shape = {"vocab_size": 200, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    module = GraniteSWAForCausalLM(GraniteSWAConfig(**shape, num_key_value_heads=2, intermediate_size=64))
    for layer in module.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks)
    model, reached = headscope.load(module), list[np.ndarray]()
    a = headscope.analyze(model, token_ids=ids(12), lenses=("weights",))
    inputs = model.inputs(model.encode(token_ids=ids(12)))
    hooks = [
        layer.self_attn.o_proj.register_forward_pre_hook(lambda part, args: reached.append(args[0][0].numpy()))
        for layer in module.model.layers
    ]
    theirs = eager(model, inputs).attentions
    for hook in hooks:
        hook.remove()
    for layer, (expected, V) in enumerate(zip(theirs, values_of(model, inputs), strict=True)):
        ours = a.maps["weights"][layer]
        assert (ours.sum(-1) < 0.95).any()
        np.testing.assert_allclose(ours / ours.sum(-1, keepdims=True), expected[0].numpy(), atol=1e-5)
        np.testing.assert_allclose((ours @ V).transpose(1, 0, 2).reshape(12, -1), reached[layer], atol=1e-5)
    assert "sink" in [warning.code for warning in a.warnings]


def test_blocks_of_heads_change_nothing(tiny: Model, ids: Ids, monkeypatch: pytest.MonkeyPatch) -> None:
    """One head at a time gives what whole layers give."""
    whole = headscope.analyze(tiny, token_ids=ids(30), measures=("entropy", "null_share", "leverage"))
    monkeypatch.setattr(interface, "BLOCK_BYTES", 1)
    parts = headscope.analyze(tiny, token_ids=ids(30), measures=("entropy", "null_share", "leverage"))
    for lens, maps in whole.maps.items():
        np.testing.assert_allclose(parts.maps[lens], maps, atol=1e-6)
    for name, by_lens in whole.measures.items():
        np.testing.assert_allclose(parts.measures[name]["weights"], by_lens["weights"], atol=1e-5)
    np.testing.assert_array_equal(parts.tiles["weights"]["tiles"], whole.tiles["weights"]["tiles"])


def test_more_is_read_at_once_on_a_gpu() -> None:
    """Starting an operation takes longer there than a small one itself."""
    assert [at_once(3, torch.device(name)) for name in ("cpu", "cuda:1")] == [3, 3 * GPU_TIMES]


def test_selection_of_layers_and_heads(tiny: Model, ids: Ids) -> None:
    """Chosen layers and heads are the same slices of the whole, in the model's numbering."""
    whole = headscope.analyze(tiny, token_ids=ids(20))
    part = headscope.analyze(tiny, token_ids=ids(20), layers=[2, 0], heads=[3, 1])
    assert (part.layers, part.heads) == ([0, 2], [1, 3])
    for lens, maps in whole.maps.items():
        np.testing.assert_allclose(part.maps[lens], maps[[0, 2]][:, [1, 3]], atol=1e-6)


def test_the_model_is_left_as_it_was(ids: Ids) -> None:
    """Attention implementation, training mode, precision and weights of a user's model are untouched, also after an error."""
    torch.manual_seed(0)
    module = LlamaForCausalLM(
        LlamaConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    ).train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    implementation = module.config._attn_implementation
    model = headscope.load(module)
    headscope.analyze(model, token_ids=ids(9), dtype="float64")
    with pytest.raises(RuntimeError, match="stop"):
        headscope.analyze(model, token_ids=ids(9), progress=stop)
    assert module.training
    assert module.config._attn_implementation == implementation
    assert all(
        torch.equal(tensor, before[name]) and tensor.dtype == before[name].dtype
        for name, tensor in module.state_dict().items()
    )


def stop(fraction: float, stage: str, detail: str) -> None:
    raise RuntimeError("stop")


def test_inexact_capture_is_refused(ids: Ids) -> None:
    """A model whose attention does something the capture does not know gives only what it returns itself."""
    torch.manual_seed(0)
    module = LlamaForCausalLM(
        LlamaConfig(vocab_size=200, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    )
    attend = module.model.layers[1].self_attn
    forward = attend.forward

    def other(*args: object, **kwargs: object) -> object:
        attend.scaling = 0.5 if module.config._attn_implementation == "eager" else 0.1
        return forward(*args, **kwargs)

    attend.forward = other
    model = headscope.load(module)
    assert not examine(model).captured
    with pytest.raises(Unsupported, match="attention call 1"):
        headscope.analyze(model, token_ids=ids(9))
    a = headscope.analyze(model, token_ids=ids(9), lenses=("weights",))
    theirs = eager(model, model.inputs(model.encode(token_ids=ids(9))))
    for layer, expected in enumerate(theirs.attentions):
        np.testing.assert_array_equal(a.maps["weights"][layer], expected[0].numpy())
    assert [warning.code for warning in a.warnings] == ["weights-only"]


def test_attention_in_blocks_is_refused_and_kept(ids: Ids) -> None:
    """BigBird-Pegasus attends fully to short texts, such as the probe, and in blocks to longer ones, also afterwards."""
    torch.manual_seed(0)
    module = BigBirdPegasusForConditionalGeneration(
        BigBirdPegasusConfig(
            vocab_size=200, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=32, decoder_ffn_dim=32, block_size=2, num_random_blocks=1,
        )
    )  # fmt: skip
    parts = dict(module.named_modules())
    model, target = headscope.load(module), ids(5)
    short = headscope.analyze(model, token_ids=ids(9), target_ids=target, lenses=("weights",))
    generated = headscope.analyze(model, token_ids=ids(9), lenses=("weights",), generate={"max_new_tokens": 2})
    for found in (short, generated):
        np.testing.assert_allclose(found.maps["weights"].sum(-1), 1, atol=1e-5)
    with pytest.raises(Unsupported, match="blocks"):
        headscope.analyze(model, token_ids=ids(24), target_ids=target, lenses=("weights",))
    cross = headscope.analyze(model, token_ids=ids(24), target_ids=target, kind="cross", lenses=("weights",))
    np.testing.assert_allclose(cross.maps["weights"].sum(-1), 1, atol=1e-5)
    assert module.model.encoder.attention_type == "block_sparse"
    assert dict(module.named_modules()) == parts


@pytest.mark.parametrize(("part", "layers", "heads"), [(BartEncoder, 2, 4), (BartDecoder, 3, 8)])
def test_an_encoder_or_decoder_alone(ids: Ids, part: type[PreTrainedModel], layers: int, heads: int) -> None:
    """It has the configuration of an encoder-decoder, and one kind of attention."""
    torch.manual_seed(0)
    module = part(
        BartConfig(
            vocab_size=200, d_model=32, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=8,
            encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=64,
        )
    )  # fmt: skip
    model = headscope.load(module)
    a = headscope.analyze(model, token_ids=ids(9))
    theirs = eager(model, {"input_ids": torch.tensor([ids(9)])})
    assert (a.kind, a.causal, a.maps["weights"].shape[:2]) == ("self", part is BartDecoder, (layers, heads))
    for ours, expected in zip(a.maps["weights"], theirs.attentions, strict=True):
        np.testing.assert_allclose(ours, expected[0].numpy(), atol=1e-5)


def test_nan_is_refused(ids: Ids) -> None:
    """A model that computes NaN gets an error that names the layer."""
    torch.manual_seed(0)
    module = LlamaForCausalLM(
        LlamaConfig(vocab_size=200, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, intermediate_size=64)
    )
    module.model.layers[1].self_attn.v_proj.weight.data.fill_(float("nan"))
    with pytest.raises(NonFinite, match="Layer 1"):
        headscope.analyze(module, token_ids=ids(9))


@pytest.mark.parametrize(
    ("tiny", "dtype"),
    mostly_long(
        product(TINY, ("bfloat16", "float16", "float64")),
        ("llama", "bfloat16"),
        ("gpt2", "float16"),
        ("bert", "float64"),
    ),
    indirect=["tiny"],
    scope="session",
)
def test_other_precisions(tiny: Model, ids: Ids, dtype: str) -> None:
    """Half precision gives weights but refuses lenses that decide ranks; float64 gives everything."""
    if dtype == "float64":
        a = headscope.analyze(tiny, token_ids=ids(12), dtype="float64")
        np.testing.assert_allclose(a.maps["weights"].sum(-1), 1, atol=1e-6)
        return
    with pytest.raises(Unsupported):
        headscope.analyze(tiny, token_ids=ids(12), dtype=dtype)
    a = headscope.analyze(tiny, token_ids=ids(12), dtype=dtype, lenses=("weights",))
    assert a.maps["weights"].dtype == np.float32
    np.testing.assert_allclose(a.maps["weights"].sum(-1), 1, atol=2e-2)
