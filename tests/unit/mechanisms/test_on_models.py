"""Mechanisms in whole forward passes, against the same passes written or hooked by hand in float64."""

from __future__ import annotations

import copy
from itertools import product

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

import headscope
from headscope.errors import InvalidRequest, Unsupported
from tests.support.extent import mostly_long

from ..conftest import TINY, VOCABULARY
from .test_jump import jumped

NOTHING = {
    "hopfield": {"name": "hopfield", "alpha": 0.0},
    "ablate": {"name": "ablate"},
    "pasta": {"name": "pasta"},
    "jump": {"name": "jump", "heads": []},
}


def analyze(model, ids, mechanism, **more):
    return headscope.analyze(
        model, token_ids=ids, mechanism=mechanism, lenses=("weights",), measures=(), keep_logits=True, **more
    )


def refused(model, ids, mechanism):
    """Whether the model is causal and the mechanism is jump, which must then be refused."""
    name = mechanism["name"] if isinstance(mechanism, dict) else mechanism
    if model.facts.kind != "decoder" or name != "jump":
        return False
    with pytest.raises(Unsupported, match="causal"):
        analyze(model, ids, mechanism)
    return True


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_asked_for_changes_nothing(tiny, ids, name):
    if refused(tiny, ids(9), NOTHING[name]):
        return
    plain, found = analyze(tiny, ids(9), "softmax"), analyze(tiny, ids(9), NOTHING[name])
    assert np.array_equal(found.logits, plain.logits)
    assert np.array_equal(found.maps["weights"], plain.maps["weights"])


# The model's own pass with attention of our own, heads and layers in plain sight


def by_hand(model, ids, logits_to_weights, hook=None, after=lambda layer, output: output, dtype=torch.float64):
    """Logits [Q, vocabulary] and weights [L, H, Q, K] of a float64 copy whose weights are made by a function of (layer, query, key, scaling, allowed)."""
    module = copy.deepcopy(model.module).to(dtype).eval()
    seen = []

    def attention(part, query, key, value, mask, scaling=None, **rest):
        repeat = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeat, 1), value.repeat_interleave(repeat, 1)
        n = query.shape[2]
        allowed = torch.ones(n, n, dtype=torch.bool) if mask is None else mask[0, 0, :, :n] >= 0
        weights = logits_to_weights(len(seen), query[0], key[0], scaling or query.shape[-1] ** -0.5, allowed)
        output = after(len(seen), weights @ value[0])
        seen.append(weights)
        return output.transpose(0, 1)[None], None

    AttentionInterface.register("by-hand", attention)
    AttentionMaskInterface.register("by-hand", eager_mask)
    module.set_attn_implementation("by-hand")
    if hook:
        hook(module)
    with torch.no_grad():
        logits = module(torch.tensor([ids])).logits[0]
    return logits.numpy(), torch.stack(seen).numpy()


def softmax(logits, allowed):
    powers = logits.masked_fill(~allowed, -torch.inf).exp()
    return powers / powers.sum(-1, keepdim=True)


def near(found, logits, weights):
    """Random weights of this size make logits of some tens."""
    np.testing.assert_allclose(found.maps["weights"], weights, atol=1e-4)
    np.testing.assert_allclose(found.logits, logits, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("initial", ["zero", "first"])
@pytest.mark.parametrize("n", [1, 9])
def test_hopfield_is_a_running_mean_over_layers(tiny, ids, n, initial):
    past = []

    def weights(layer, query, key, scaling, allowed):
        past.append(query @ key.mT * scaling)
        if initial == "first":  # h_l = 0.6^l S_0 + sum_m 0.4 * 0.6^(l-m) S_m
            share = [0.6**layer, *(0.4 * 0.6 ** (layer - m) for m in range(1, layer + 1))]
        else:
            share = [0.4 * 0.6 ** (layer - m) for m in range(layer + 1)]
        return softmax(sum(s * one for s, one in zip(share, past, strict=True)), allowed)

    found = analyze(tiny, ids(n), {"name": "hopfield", "alpha": 0.6, "initial": initial})
    near(found, *by_hand(tiny, ids(n), weights))
    if tiny.facts.kind == "decoder":
        assert not found.maps["weights"][..., ~np.tril(np.ones((n, n), bool))].any()


def test_hopfield_is_that_of_a_bert_written_out(ids):
    """Nothing of transformers but the weights."""
    torch.manual_seed(1)
    from ..conftest import TINY

    module = TINY["bert"]()
    tokens, W = ids(7), {name: tensor.double().numpy() for name, tensor in module.state_dict().items()}

    def linear(x, name):
        return x @ W[f"{name}.weight"].T + W[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * W[f"{name}.weight"] + W[f"{name}.bias"]

    def gelu(x):
        return torch.nn.functional.gelu(torch.from_numpy(x)).numpy()

    E = "bert.embeddings"
    x = W[f"{E}.word_embeddings.weight"][tokens] + W[f"{E}.token_type_embeddings.weight"][0]
    x = norm(x + W[f"{E}.position_embeddings.weight"][: len(tokens)], f"{E}.LayerNorm")
    hidden = np.zeros((4, 7, 7))
    for layer in range(3):
        at = f"bert.encoder.layer.{layer}"
        Q, K, V = (linear(x, f"{at}.attention.self.{part}").reshape(7, 4, 8) for part in ("query", "key", "value"))
        outputs = np.zeros((7, 4, 8))
        for head in range(4):
            hidden[head] = 0.5 * hidden[head] + 0.5 * Q[:, head] @ K[:, head].T / np.sqrt(8)
            for query in range(7):
                powers = np.exp(hidden[head, query] - hidden[head, query].max())
                outputs[query, head] = powers / powers.sum() @ V[:, head]
        mixed = linear(outputs.reshape(7, 32), f"{at}.attention.output.dense")
        x = norm(x + mixed, f"{at}.attention.output.LayerNorm")
        inner = linear(gelu(linear(x, f"{at}.intermediate.dense")), f"{at}.output.dense")
        x = norm(x + inner, f"{at}.output.LayerNorm")
    x = norm(gelu(linear(x, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm")
    expected = linear(x, "cls.predictions.decoder")
    found = analyze(headscope.load(module), tokens, "hopfield")
    assert expected.shape == (7, VOCABULARY)
    np.testing.assert_allclose(found.logits, expected, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("params", [{}, {"mix": 1.0, "order": 2, "signed": True, "layers": [1], "heads": [3]}])
def test_jump_is_that_of_the_loop(tiny, ids, params):
    mechanism = {"name": "jump", "rho": 0.5, **params}
    if refused(tiny, ids(6), mechanism):
        return

    def weights(layer, query, key, scaling, allowed):
        S = query @ key.mT
        if layer in params.get("layers", [0, 2]):
            for head in params.get("heads", [0, 2]):
                mix, order, signed = params.get("mix", 0.5), params.get("order", 1), params.get("signed", False)
                S[head] = torch.from_numpy(jumped(query[head].numpy(), key[head].numpy(), 0.5, mix, order, signed))
        return softmax(S * scaling, allowed)

    found, plain = analyze(tiny, ids(6), mechanism), analyze(tiny, ids(6), "softmax")
    near(found, *by_hand(tiny, ids(6), weights))
    assert np.abs(found.logits - plain.logits).max() > 0.01


@pytest.mark.parametrize("how", ["uniform", "zero", "leave-one-out"])
def test_ablated_heads_are_off_and_others_feel_it_in_later_layers_only(tiny, ids, how):
    off, n = {(0, 1), (0, 2), (2, 0)}, 7

    def weights(layer, query, key, scaling, allowed):
        made = softmax(query @ key.mT * scaling, allowed)
        for head in range(4):
            if (layer, head) in off:
                made[head] = allowed / allowed.sum(-1, keepdim=True) if how == "uniform" else 0
        return made

    def after(layer, output):
        gone = sum(one == layer for one, _ in off)
        return output * (4 / (4 - gone)) if how == "leave-one-out" else output

    found = analyze(tiny, ids(n), {"name": "ablate", "heads": [f"{layer}.{head}" for layer, head in off], "how": how})
    near(found, *by_hand(tiny, ids(n), weights, after=after))
    plain = analyze(tiny, ids(n), "softmax")
    assert np.array_equal(found.maps["weights"][0, [0, 3]], plain.maps["weights"][0, [0, 3]])


def test_pasta_adds_to_the_special_tokens_of_a_real_model(minilm):
    text, draw = "The cat sat.", np.random.default_rng(0)
    vectors = draw.standard_normal((2, 2, 384))
    found = headscope.analyze(
        minilm,
        text,
        mechanism={"name": "pasta", "vectors": vectors.tolist(), "layers": [4, 1]},
        lenses=("weights",),
        measures=(),
    )
    module = copy.deepcopy(minilm.module).eval()
    module.set_attn_implementation("eager")
    for vector, layer in zip(vectors, (4, 1), strict=True):

        def add(part, args, vector=vector):
            hidden = args[0].clone()
            hidden[0, 0] += torch.tensor(vector[0]).float()
            hidden[0, -1] += torch.tensor(vector[1]).float()
            return (hidden, *args[1:])

        module.get_submodule(f"encoder.layer.{layer}").register_forward_pre_hook(add)
    with torch.no_grad():
        theirs = module(**minilm.inputs(minilm.encode(text)), output_attentions=True).attentions
    np.testing.assert_allclose(found.maps["weights"], torch.cat(theirs).numpy(), atol=1e-5)
    plain = headscope.analyze(minilm, text, lenses=("weights",), measures=()).maps["weights"]
    assert np.array_equal(found.maps["weights"][0], plain[0])
    assert np.abs(found.maps["weights"][1] - plain[1]).max() > 0.01


def test_pasta_that_does_not_fit_is_refused(minilm):
    for vectors in ([[[0.0] * 384]], [[[0.0] * 3] * 2]):
        with pytest.raises(InvalidRequest):
            headscope.analyze(minilm, "The cat sat.", mechanism={"name": "pasta", "vectors": vectors})


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
@pytest.mark.parametrize(
    ("tiny", "name"),
    mostly_long(
        product(TINY, ("hopfield", "jump", "ablate")), ("llama", "hopfield"), ("bert", "jump"), ("gpt2", "ablate")
    ),
    indirect=["tiny"],
    scope="session",
)
def test_other_precisions_run(tiny, ids, name, dtype):
    if refused(tiny, ids(9), name):
        return
    more = {"heads": ["0.0"], "how": "leave-one-out"} if name == "ablate" else {}
    found = analyze(tiny, ids(9), {"name": name, **more}, dtype=dtype)
    assert np.isfinite(found.logits).all()


@pytest.mark.parametrize("tiny", mostly_long(TINY, "bert"), indirect=True)
def test_every_lens_reads_every_mechanism(tiny, ids):
    """Lenses run on what the mechanism made of the model, blocks of heads or whole layers."""
    decoder = tiny.facts.kind == "decoder"
    lenses = [
        name
        for name, lens in headscope.LENSES.items()
        if not (decoder and {"bidirectional", "padding"} & {*lens.needs})
    ]
    for mechanism in ("hopfield", "jump", {"name": "ablate", "heads": ["1.1"], "how": "zero"}):
        if refused(tiny, ids(5), mechanism):
            continue
        found = headscope.analyze(tiny, token_ids=ids(12), mechanism=mechanism, lenses=lenses, measures=())
        assert set(found.maps) == set(lenses)
        assert np.isfinite(found.maps["weights"]).all()


def test_scaled_heads_do_not_add_up_to_the_residual_stream(tiny, ids):
    """Where a mechanism rescales what heads put out, lenses of the residual stream refuse instead of drawing sums that are not the model's."""
    mechanism = {"name": "ablate", "heads": ["1.1"], "how": "leave-one-out"}
    with pytest.raises(Unsupported, match="add up"):
        headscope.analyze(tiny, token_ids=ids(8), mechanism=mechanism, lenses=("norm-residual",), measures=())
