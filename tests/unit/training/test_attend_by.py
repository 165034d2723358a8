"""A module that attends by a mechanism gives, for every row of a batch, what an analysis of that row alone gives."""

from __future__ import annotations

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

import headscope
from headscope.errors import InvalidRequest, Unknown, Unsupported
from tests.support.extent import mostly_long
from tests.sweep.build import build

from .small import HOPFIELD, JUMP, SHAPE, module_of

FIRST = {"name": "hopfield", "alpha": 0.7, "initial": "first"}
ABLATE = {"name": "ablate", "heads": ["0.1", "1.3"]}
LEFT_OUT = {"name": "ablate", "heads": ["1.0"], "how": "leave-one-out"}
TWICE = {"name": "jump", "rho": 0.02, "order": 2, "signed": True, "layers": [1], "heads": [1, 3]}
ENCODER = ["softmax", HOPFIELD, FIRST, JUMP, TWICE, ABLATE, LEFT_OUT]
DECODER = ["softmax", HOPFIELD, FIRST, ABLATE, LEFT_OUT]
CASES = [("masked-lm", one) for one in ENCODER] + [("causal-lm", one) for one in DECODER]
# Each mechanism once.
SOME = [("masked-lm", one) for one in (HOPFIELD, JUMP, TWICE, ABLATE)] + [
    ("causal-lm", one) for one in (FIRST, LEFT_OUT)
]


def batch():
    """Three rows of different length."""
    ids = torch.randint(5, SHAPE.vocabulary, (3, 20), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 15:] = mask[2, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize(("objective", "mechanism"), mostly_long(CASES, *SOME))
@pytest.mark.parametrize(
    ("dtype", "tolerance"), mostly_long([("float32", 2e-5), ("float64", 1e-12)], ("float64", 1e-12))
)
def test_rows_of_a_batch_are_analyses(objective, mechanism, dtype, tolerance):
    module = module_of(objective).eval().to(getattr(torch, dtype))
    headscope.attend_by(module, mechanism)
    given = batch()
    with torch.inference_mode():
        together = module(**given).logits
    for ids, mask, row in zip(given["input_ids"], given["attention_mask"].bool(), together, strict=True):
        alone = headscope.analyze(
            module,
            token_ids=ids[mask].tolist(),
            mechanism=mechanism,
            lenses=("weights",),
            measures=(),
            keep_logits=True,
            dtype=dtype,
        )
        scale = row.abs().max().item()
        assert torch.allclose(
            torch.from_numpy(alone.logits).to(row.dtype), row[mask], atol=max(tolerance, 2e-6) * scale, rtol=0
        )


@pytest.mark.parametrize("mechanism", [HOPFIELD, FIRST, JUMP])
def test_images(mechanism):
    module = module_of("images").eval()
    headscope.attend_by(module, mechanism)
    pixels = torch.randint(256, (2, 32, 32, 3), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    processor = ViTImageProcessorPil(size={"height": 32, "width": 32})
    with torch.inference_mode():
        together = module(pixels.permute(0, 3, 1, 2).float() / 127.5 - 1).logits
    for picture, row in zip(pixels, together, strict=True):
        alone = headscope.analyze(
            (module, processor),
            image=picture.numpy(),
            mechanism=mechanism,
            lenses=("weights",),
            measures=(),
            keep_logits=True,
        )
        assert torch.allclose(torch.from_numpy(alone.logits), row, atol=1e-5)


NOTHING = ["softmax", {"name": "hopfield", "alpha": 0.0}, {"name": "ablate"}]
CHANGES_NOTHING = [(one, mechanism) for one in ("masked-lm", "causal-lm") for mechanism in NOTHING]


@pytest.mark.parametrize(("objective", "mechanism"), [*CHANGES_NOTHING, ("masked-lm", {"name": "jump", "heads": []})])
def test_a_mechanism_that_changes_nothing_is_softmax_to_the_bit(objective, mechanism):
    module, given = module_of(objective).eval(), batch()
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        plain = module(**given).logits
        headscope.attend_by(module, mechanism)
        assert torch.equal(module(**given).logits, plain)


@pytest.mark.parametrize(
    ("objective", "mechanism"), [("masked-lm", HOPFIELD), ("masked-lm", ABLATE), ("causal-lm", FIRST)]
)
def test_gradients_are_those_of_finite_differences(objective, mechanism):
    module = module_of(objective).eval().double()
    headscope.attend_by(module, mechanism)
    given = batch()
    parameter = next(
        one for name, one in module.named_parameters() if "query.weight" in name or "c_attn.weight" in name
    )

    def lost():
        return module(**given).logits[given["attention_mask"].bool()].square().mean()

    lost().backward()
    direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    slope = (parameter.grad * direction).sum().item()
    with torch.no_grad():
        parameter.add_(direction, alpha=1e-5)
        above = lost().item()
        parameter.sub_(direction, alpha=2e-5)
        assert (above - lost().item()) / 2e-5 == pytest.approx(slope, rel=1e-4)


def test_heads_that_share_keys():
    torch.manual_seed(0)
    shape = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3}
    module = LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3))
    headscope.attend_by(module.eval(), HOPFIELD)
    ids = torch.randint(50, (2, 9), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        together = module(ids).logits
    for row, logits in zip(ids, together, strict=True):
        alone = headscope.analyze(
            module, token_ids=row.tolist(), mechanism=HOPFIELD, lenses=("weights",), measures=(), keep_logits=True
        )
        assert torch.allclose(torch.from_numpy(alone.logits), logits, atol=1e-5)


def test_ties_take_no_gradient_and_scores_do():
    module, given = module_of("masked-lm").eval(), batch()
    headscope.attend_by(module, JUMP)
    module(**given).logits.sum().backward()
    assert all(one.grad.isfinite().all() for name, one in module.named_parameters() if "query" in name)
    plain = module_of("masked-lm").eval()
    with torch.inference_mode():
        assert not torch.allclose(module(**given).logits, plain(**given).logits, atol=1e-3)


def test_a_text_can_be_continued():
    module = module_of("causal-lm").eval()
    headscope.attend_by(module, HOPFIELD)
    ids = batch()["input_ids"][:1]
    options = {"max_new_tokens": 6, "do_sample": False, "attention_mask": torch.ones_like(ids)}
    assert torch.equal(
        module.generate(ids, use_cache=True, **options), module.generate(ids, use_cache=False, **options)
    )


@pytest.mark.parametrize("family", ["opt", "bart", "t5", "albert"])
def test_models_whose_parts_are_called_otherwise(family):
    """A head that calls the decoder itself, `generate`, which calls the encoder first, and layers that share one module."""
    module = build(family).module.eval()
    headscope.attend_by(module, {**ABLATE, "how": "uniform"})
    ids = torch.tensor([[1, 17, 5, 42, 9, 23]])
    given = {"input_ids": ids, **({"decoder_input_ids": ids} if module.config.is_encoder_decoder else {})}
    with torch.inference_mode():
        changed = module(**given)[0][0]
        assert torch.equal(module(**given)[0][0], changed)
        if module.config.is_encoder_decoder:
            encoded = module.get_encoder()(ids)
            assert torch.equal(module(encoder_outputs=encoded, decoder_input_ids=ids)[0][0], changed)
            assert module.generate(ids, max_new_tokens=4, do_sample=False, decoder_start_token_id=1).shape[1] > 1
            with pytest.raises(Unsupported, match="Name the mechanism of the decoder"):
                headscope.analyze(module, token_ids=ids[0].tolist(), target_ids=[1, 2], kind="decoder")
    targets = {"target_ids": ids[0].tolist()} if module.config.is_encoder_decoder else {}
    a = headscope.analyze(module, token_ids=ids[0].tolist(), keep_logits=True, lenses=("weights",), **targets)
    np.testing.assert_allclose(a.logits, changed, atol=2e-5 * changed.abs().max())
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        assert not torch.allclose(module(**given)[0][0], changed, atol=1e-3)


def test_padding_without_keys():
    """Queries of padding that see no key are averages of nothing, and stay numbers, which reach no other token."""
    module = module_of("causal-lm").eval()
    headscope.attend_by(module, {**ABLATE, "how": "uniform"})
    ids, mask = torch.tensor([[0, 0, 5, 6], [7, 8, 5, 6]]), torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    with torch.inference_mode():
        together = module(ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp_min(0)).logits
        alone = module(ids[:1, 2:]).logits
    torch.testing.assert_close(together[0, 2:], alone[0], atol=1e-5, rtol=0)


def test_the_last_mechanism_counts_and_transformers_can_take_over():
    module, given = module_of("masked-lm").eval(), batch()
    with torch.inference_mode():
        module.set_attn_implementation("eager")
        plain = module(**given).logits
        headscope.attend_by(module, HOPFIELD)
        changed = module(**given).logits
        headscope.attend_by(module, JUMP)
        headscope.attend_by(module, HOPFIELD)
        assert torch.equal(module(**given).logits, changed)
        module.set_attn_implementation("eager")
        assert torch.equal(module(**given).logits, plain)


def test_an_analysis_between_two_batches_disturbs_nothing():
    module, given = module_of("masked-lm").eval(), batch()
    headscope.attend_by(module, HOPFIELD)
    with torch.inference_mode():
        before = module(**given).logits
        a = headscope.analyze(module, mechanism="softmax", token_ids=[5, 6, 7], lenses=("weights",), measures=())
        assert a.mechanism["name"] == "softmax"
        assert torch.equal(module(**given).logits, before)


def test_analyses_attend_as_the_module_does():
    """By default; of an effect, which is computed with softmax, that is a refusal."""
    model = headscope.load(module_of("masked-lm").eval())
    request = {"token_ids": [5, 6, 7, 8], "lenses": ("weights",), "measures": (), "keep_logits": True}
    headscope.attend_by(model.module, HOPFIELD)
    a = headscope.analyze(model, **request)
    assert a.mechanism == headscope.analyze(model, mechanism=HOPFIELD, **request).mechanism
    with torch.inference_mode():
        logits = model.module(torch.tensor([[5, 6, 7, 8]])).logits[0]
    np.testing.assert_allclose(a.logits, logits, atol=1e-5)
    with pytest.raises(Unsupported, match="softmax"):
        headscope.effect(model, token_ids=[5, 6, 7, 8], target=5, position=2)
    model.module.set_attn_implementation("eager")
    assert headscope.analyze(model, **request).mechanism["name"] == "softmax"
    headscope.learn_pasta(model.module, (1,), count=1)
    assert model.facts.mechanism["name"] == "pasta"
    with pytest.raises(InvalidRequest, match="special tokens of this input: 0"):
        headscope.analyze(model, **request)


def test_a_copy_attends_alike_and_nothing_is_kept_alive():
    module, given = module_of("masked-lm").eval(), batch()
    headscope.attend_by(module, HOPFIELD)
    module(**given).logits.sum().backward()  # after which its pass keeps no tensors, which could not be copied
    twin = copy.deepcopy(module)
    with torch.inference_mode():
        assert torch.equal(module(**given).logits, twin(**given).logits)
    kept = weakref.ref(module)
    del module
    gc.collect()
    assert kept() is None


def test_pasta_adds_learned_vectors_to_special_tokens():
    module, given = module_of("sentences").eval(), batch()
    given["input_ids"][:, 0] = 1
    for row, last in enumerate((19, 14, 6)):
        given["input_ids"][row, last] = 2
        given["input_ids"][row, last + 1 :] = 0
    with torch.inference_mode():
        plain = module(**given).logits
    vectors = headscope.learn_pasta(module, (0, 1, 2))
    with torch.inference_mode():
        assert torch.allclose(module(**given).logits, plain, atol=1e-6)
    module(**given).logits.sum().backward()
    assert vectors.shape == (2, 2, 32)
    assert (vectors.grad.abs().amax(-1) > 0).all()
    with torch.no_grad():
        vectors.copy_(torch.randn(vectors.shape, generator=torch.Generator().manual_seed(0)))
        learned = module(**given).logits
        assert not torch.allclose(learned, plain, atol=1e-3)
        headscope.attend_by(module, {"name": "pasta", "vectors": vectors.tolist()}, special_ids=(0, 1, 2))
        assert torch.equal(module(**given).logits, learned)


def test_vectors_are_added_once_to_the_special_tokens_of_a_prompt():
    """Also where the mask is passed by position, and generated tokens follow those of a cache."""
    module, ids = module_of("causal-lm").eval(), torch.tensor([[1, 5, 6, 7]])
    with torch.no_grad():
        headscope.learn_pasta(module, (0, 1), count=1).fill_(0.5)
    options = {"max_new_tokens": 6, "do_sample": False}
    cached = module.generate(ids, use_cache=True, **options)
    assert torch.equal(cached, module.generate(ids, use_cache=False, **options))
    headscope.attend_by(module, {"name": "pasta", "vectors": module.pasta.tolist()}, special_ids=(0, 1))
    assert torch.equal(cached, module.generate(ids, use_cache=True, **options))
    encoder = module_of("sentences").eval().bert
    headscope.learn_pasta(encoder, (0, 1), count=1)
    encoder(torch.tensor([[1, 5, 0], [1, 5, 6]]), torch.tensor([[1, 1, 0], [1, 1, 1]]))
    cache = module(ids, use_cache=True).past_key_values
    with pytest.raises(Unsupported, match="after those in the cache"):
        module(torch.tensor([[1, 5]]), past_key_values=cache)
    with pytest.raises(Unsupported, match="Pass the model input_ids"):
        module(inputs_embeds=torch.zeros(1, 2, 32))


def test_what_can_not_be_is_refused():
    module = module_of("causal-lm")
    with pytest.raises(Unsupported, match="causal"):
        headscope.attend_by(module, "jump")
    with pytest.raises(Unknown, match="There are: softmax"):
        headscope.attend_by(module, "hopfeld")
    with pytest.raises(InvalidRequest, match="less than 1"):
        headscope.attend_by(module, {"name": "hopfield", "alpha": 1.0})
    with pytest.raises(InvalidRequest, match="no such head"):
        headscope.attend_by(module, {"name": "ablate", "heads": ["9.9"]})
    headscope.learn_pasta(module, (1,), count=2)
    kept = module.pasta
    for refused, match in (
        ({"special_ids": ()}, "special_ids"),
        ({"special_ids": (1,), "count": True}, "count"),
        ({"special_ids": (1,), "count": 10**9}, "64"),
    ):
        with pytest.raises(InvalidRequest, match=match):
            headscope.learn_pasta(module, **refused)
    assert module.pasta is kept
    with pytest.raises(Unsupported, match="2 special tokens"):
        module(torch.tensor([[1, 5, 6]]))
    with pytest.raises(Unsupported, match="different numbers of special"):
        module(torch.tensor([[1, 5, 6], [1, 1, 6]]))


def test_layers_called_on_their_own_are_refused():
    module = module_of("masked-lm")
    headscope.attend_by(module, HOPFIELD)
    module(torch.tensor([[5, 6, 7]]))
    with pytest.raises(Unsupported, match="another order"):
        module.bert.encoder.layer[1](torch.zeros(1, 3, 32))
