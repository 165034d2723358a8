"""The texts of the pictures, and their cached analyses by MiniLM."""

from __future__ import annotations

from functools import cache
from typing import Any

import headscope

from .figure import Array

SHORT = "The trophy did not fit into the suitcase because it was too big."
MIDDLE = (
    "The old clock on the town hall stopped at noon, and nobody noticed at first: the baker opened his shop when the bread was done, "
    "and the children came to school when they were hungry for company."
)
LONG = (
    f"{MIDDLE} The mayor held his speeches whenever he saw a crowd, and the train left once everybody who wanted to leave had come. "
    "Only the clockmaker, who had wound the clock every morning for forty years, walked past it with a small smile and did not look up. "
    "When a stranger asked him for the time, he thought for a while, looked at the shadow of the tower, and said that it was early enough "
    "for another coffee, and late enough to go home. In the evening the bells rang all the same, because the sexton had never trusted clocks."
)
TAGGED = "Ann met Bob in Oslo on Monday , and they told the Danish press that Shell would pay ."
POS = "PROPN VERB PROPN ADP PROPN ADP PROPN PUNCT CCONJ PRON VERB DET ADJ NOUN SCONJ PROPN AUX VERB PUNCT"
LABELS = "B-PER O B-PER O B-LOC O O O O O O O B-MISC O O B-ORG O O O"
TOKENS = 64


@cache
def model() -> Any:
    """MiniLM: 6 layers of 12 heads of 32 dimensions."""
    return headscope.load("minilm")


def analysed(text: str, lenses: tuple[Any, ...] = ("weights",), measures: tuple[Any, ...] = (), **more: Any) -> Any:
    """Return the analysis of a text."""
    return headscope.analyze(model(), text, lenses=lenses, measures=measures, **more)


@cache
def middle() -> Any:
    """A sentence with a few more tokens than the heads have dimensions, with most lenses."""
    lenses = ("weights", "effective", "effective-simplex", "norm")
    measures = (
        *("entropy", "null_share", "null_share_rows", "leverage", "special_broadcast"),
        *("patterns", "special_tokens", "sink", "head_roles", "qk_distance", "max_activation", "token_norms"),
    )
    return analysed(MIDDLE, lenses, measures)


@cache
def layers() -> Any:
    """The same sentence, with the lenses of whole layers."""
    return analysed(
        MIDDLE, ("weights", "norm-residual", "rollout", "norm-rollout", "alti", "value-zeroing"), ("mixing_ratio",)
    )


@cache
def measured() -> Any:
    """The first tokens of a longer text, with the measures of rows, ranks, hidden states and projections."""
    measures = (
        *("participation_ratio", "absolute_entropy", "negative_share", "rank", "residual_ratio", "token_similarity"),
        *("frequency", "output_overlap", "qk_spectrum", "qk_spectrum_layer", "head_dimension"),
    )
    lenses = ("weights", "effective", "effective-simplex")
    return analysed(LONG, lenses, measures, max_tokens=TOKENS, maps=False)


@cache
def otherwise() -> Any:
    """The same tokens, with measures that are computed differently."""
    measures = ({"name": "rank", "of": "output"}, {"name": "token_similarity", "centred": True})
    return analysed(LONG, measures=measures, max_tokens=TOKENS, maps=False)


@cache
def tagged() -> Any:
    """A sentence with its parts of speech and its entities."""
    return analysed(TAGGED, measures=("token_types", "connections"), pos=POS.split(), labels=LABELS.split())


@cache
def gated(of: str = "size") -> Any:
    """Random tokens in a small random model of Qwen3.5 with one layer of attention, whose heads have gates of 16 numbers."""
    import torch
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    sizes = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 64, "num_hidden_layers": 1, "head_dim": 16}
    config = Qwen3_5TextConfig(**sizes, num_attention_heads=4, num_key_value_heads=2, layer_types=["full_attention"])
    torch.manual_seed(0)
    module = Qwen3_5ForCausalLM(config)
    torch.nn.init.normal_(module.model.layers[0].self_attn.q_proj.weight, std=0.35)
    return headscope.analyze(module, token_ids=list(range(5, 29)), measures=({"name": "gate", "of": of},))


@cache
def rotary() -> Any:
    """A small random Llama whose heads use other planes of the rotary embedding: all eight, the slowest four, the middle one, the fastest one."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 64, "vocab_size": 64, "num_hidden_layers": 1}
    torch.manual_seed(0)
    module = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=4))
    used = [slice(0, 8), slice(4, 8), slice(3, 4), slice(0, 1)]
    with torch.no_grad():
        query = module.model.layers[0].self_attn.q_proj.weight.view(4, 2, 8, 64)  # [head, half, plane, width]
        for head, planes in enumerate(used):
            kept = query[head, :, planes].clone()
            query[head] = 0
            query[head, :, planes] = kept
    return headscope.analyze(module, token_ids=list(range(5, 17)), measures=("qk_offset",), maps=False)


@cache
def states(text: str) -> tuple[Array, ...]:
    """Hidden states [tokens, width] before the first layer and after each."""
    import torch

    ids = torch.tensor([[token.id for token in analysed(text).tokens]])
    with torch.no_grad():
        found = model().module(ids, output_hidden_states=True).hidden_states
    return tuple(state[0].numpy() for state in found)


def columns(a: Any, measure: str, column: str, lens: str = "weights") -> Array:
    """Return one column of a measure by its name."""
    values: Array = a.measures[measure][lens][..., headscope.MEASURES[measure].columns.index(column)]
    return values
