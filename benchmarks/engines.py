"""What other engines read from a model, and how long that takes: python -m benchmarks.engines ENGINE FOLDER INPUTS OUT

INPUTS are lists of token ids, as JSON. OUT becomes a .npz with `weights` [L, H, Q, K], and if the engine reads them `outputs` [L, H, Q, D], the heads' outputs before
the output projection, `logits` [Q, V] of a language head, and `contributions` [L, H], each with the number of the input, and `version`. `times` are, for the last
input, the times of reading the weights of all heads, relative to transformers' own eager pass that returns them, in turn. The exit status is 3, with a sentence, for a
model that the engine does not read.

TransformerLens's own classes compute the forward pass by code of their own; its bridge, nnsight, interp-engine and inseq read the modules of transformers, under its
eager attention.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoTokenizer

from .common import interleaved

UNREAD = 3
REPEATS = 11
DECODERS = ("gpt2", "llama")


class Reading(NamedTuple):
    """What an engine read of one input, in float32: weights [L, H, Q, K], and if it reads them outputs [L, H, Q, D] and logits [Q, V].

    contributions [L, H] are what every head adds to the largest logit of the last token on the direct path, if the engine tells.
    """

    weights: Tensor
    outputs: Tensor | None = None
    logits: Tensor | None = None
    contributions: Tensor | None = None


class Opened(NamedTuple):
    """A model that an engine has loaded: what reads an input [1, Q], and what reads only the weights of all heads, [L, H, Q, K]."""

    read: Callable[[Tensor], Reading]
    weights: Callable[[Tensor], Tensor]


class Unread(Exception):
    """The engine does not read this model."""


def transformer_lens(folder: Path) -> Opened:
    """Read with HookedTransformer or HookedEncoder, which have forward passes of their own."""
    import transformer_lens
    from transformer_lens import loading_from_pretrained as loading

    config = AutoConfig.from_pretrained(folder)
    if config.model_type not in (*DECODERS, "bert"):
        raise Unread(f"TransformerLens has no {config.model_type} of its own.")
    bert = config.model_type == "bert"
    # It reads the weights of a BERT from the class with all heads.
    name = "BertForPreTraining" if bert else config.architectures[0]
    module = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32).eval()
    with tempfile.TemporaryDirectory() as copied:
        place = Path(shutil.copytree(folder, copied, dirs_exist_ok=True))
        asked = {"architectures": ["BertForMaskedLM" if bert else name], "n_ctx": config.max_position_embeddings}
        entries = json.loads((place / "config.json").read_text("utf-8"))
        (place / "config.json").write_text(json.dumps({**entries, **asked}), "utf-8")
        settings = loading.get_pretrained_model_config(str(place), device="cpu", dtype=torch.float32)
        state = loading.get_pretrained_state_dict(str(place), settings, module)
        if bert:
            model: Any = transformer_lens.HookedEncoder(settings, None, move_to_device=False)
            model.load_state_dict(state, strict=False)
        else:
            model = transformer_lens.HookedTransformer(settings, None, move_to_device=False)
            model.load_and_process_state_dict(
                state, fold_ln=False, center_writing_weights=False, center_unembed=False, fold_value_biases=False
            )
    return _lens(model, settings.n_layers, config)


def bridge(folder: Path) -> Opened:
    """Read with the bridge of TransformerLens 4 to the modules of transformers."""
    from transformer_lens.model_bridge import TransformerBridge

    config = AutoConfig.from_pretrained(folder)
    try:
        model = TransformerBridge.boot_transformers(str(folder), device="cpu", dtype=torch.float32)
    except ValueError as error:
        raise Unread(f"TransformerBridge has no adapter for {config.model_type}.") from error
    return _lens(model, config.num_hidden_layers, config)


def _lens(model: Any, layers: int, config: Any) -> Opened:
    def weights(ids: Tensor) -> Tensor:
        _, cache = model.run_with_cache(ids, names_filter=lambda name: name.endswith("attn.hook_pattern"))
        return _patterns(cache, layers)

    return Opened(lambda ids: _cached(model, ids, layers, config), weights)


def _patterns(cache: Any, layers: int) -> Tensor:
    return torch.stack([cache[f"blocks.{layer}.attn.hook_pattern"][0] for layer in range(layers)])


def _cached(model: Any, ids: Tensor, layers: int, config: Any) -> Reading:
    logits, cache = model.run_with_cache(ids)
    outputs = torch.stack([cache[f"blocks.{layer}.attn.hook_z"][0] for layer in range(layers)])  # [L, Q, H, D]
    contributions = None
    if config.model_type in DECODERS:
        heads = cache.stack_head_results(pos_slice=-1)  # [L H, 1, d]
        normed = cache.apply_ln_to_stack(heads, pos_slice=-1)[:, 0] * model.ln_final.w
        contributions = (normed @ model.W_U[:, logits[0, -1].argmax()]).reshape(layers, -1)
    return Reading(
        _patterns(cache, layers), outputs.transpose(1, 2), logits[0] if _has_head(config) else None, contributions
    )


def nnsight(folder: Path) -> Opened:
    """Read with nnsight, inside the forward function of each attention module."""
    from nnsight import NNsight

    config = AutoConfig.from_pretrained(folder)
    model: Any = NNsight(_eager(folder))

    def read(ids: Tensor) -> Reading:
        attended, logits = _traced(model, ids, config)
        outputs, weights = (
            torch.stack([part[place][0] for part in attended]) for place in (0, 1)
        )  # outputs [L, Q, H, D]
        return Reading(weights, outputs.transpose(1, 2), logits)

    return Opened(read, lambda ids: torch.stack([weights[0] for _, weights in _traced(model, ids, config)[0]]))


def _traced(model: Any, ids: Tensor, config: Any) -> tuple[list[Any], Tensor | None]:
    """Return what the attention function of every layer returned, and the logits [Q, V]."""
    with model.trace(input_ids=ids) as tracer:
        read = list().save()  # noqa: C408  nnsight saves what it is called on
        if config.model_type == "albert":  # one module for all layers
            attention = model.albert.encoder.albert_layer_groups[0].albert_layers[0].attention
            for _ in tracer.iter[0 : config.num_hidden_layers]:
                read.append(attention.source.attention_interface_1.output)
        else:
            for attention in _attentions(model, config):
                read.append(attention.source.attention_interface_1.output)
        output = model.output.save()
    return read, output.logits[0] if _has_head(config) else None


def _attentions(model: Any, config: Any) -> list[Any]:
    if config.model_type == "gpt2":
        return [block.attn for block in model.transformer.h]
    if config.model_type == "llama":
        return [block.self_attn for block in model.model.layers]
    if config.model_type == "bert":
        return [block.attention.self for block in getattr(model, "bert", model).encoder.layer]
    raise Unread(f"No place is known where nnsight would read a {config.model_type}.")


def interp_engine(folder: Path) -> Opened:
    """Read with interp-engine's eager backend."""
    import interp_engine as engine

    config = AutoConfig.from_pretrained(folder)
    if config.model_type not in DECODERS:
        raise Unread("interp-engine reads decoders only.")
    model, layers = engine.load_model(str(folder), backend="eager", dtype="float32"), range(config.num_hidden_layers)

    def weights(ids: Tensor) -> Tensor:
        points = [engine.Address("attn_probs", layer) for layer in layers]
        cache = engine.capture(model, ids, points)
        return torch.stack([cache[point][0] for point in points])

    return Opened(lambda ids: _addressed(engine, model, ids, config), weights)


def _addressed(engine: Any, model: Any, ids: Tensor, config: Any) -> Reading:
    layers = range(config.num_hidden_layers)
    points = [engine.Address(name, layer) for name in ("attn_probs", "z") for layer in layers]
    cache = engine.capture(model, ids, [*points, engine.Address("lm_head")])
    weights = torch.stack([cache[engine.Address("attn_probs", layer)][0] for layer in layers])
    outputs = torch.stack([cache[engine.Address("z", layer)][0] for layer in layers])
    outputs = outputs.reshape(len(layers), ids.shape[1], config.num_attention_heads, -1)  # [L, Q, H, D]
    return Reading(weights, outputs.transpose(1, 2), cache[engine.Address("lm_head")][0])


def inseq(folder: Path) -> Opened:
    """Read with the method `attention` of inseq, which knows heads and layers before it aggregates them."""
    import inseq
    from inseq.data import BatchEncoding

    config = AutoConfig.from_pretrained(folder)
    if config.model_type not in DECODERS:
        raise Unread("inseq reads models that generate.")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = inseq.load_model(_eager(folder), "attention", tokenizer=tokenizer)
    texts: dict[str, Tensor] = {}

    def encode(given: list[str], *_: object, **__: object) -> Any:
        """Encode as these ids, of which no text may exist."""
        ids = texts[given[0]]
        names = [tokenizer.convert_ids_to_tokens(ids[0])]
        nothing = torch.zeros_like(ids)
        return BatchEncoding(input_ids=ids, input_tokens=names, attention_mask=nothing + 1, baseline_ids=nothing)

    model.encode = encode

    def weights(ids: Tensor) -> Tensor:
        # Its queries are the tokens from which something is predicted: one more after the last makes that a query.
        texts.update(first=ids[:, :1], first_and_rest=torch.cat([ids, ids[:, :1]], 1))
        done = model.attribute("first", "first_and_rest", show_progress=False)
        attended = done.sequence_attributions[0].target_attributions[:-1]  # [K, Q, L, H], NaN for later tokens
        return torch.nan_to_num(attended).permute(2, 3, 1, 0)

    return Opened(lambda ids: Reading(weights(ids)), weights)


def times(folder: Path, weights: Callable[[Tensor], object], ids: Tensor) -> list[float]:
    """Return the times of reading the weights of all heads, relative to transformers' eager pass that returns them, of the same repeat."""
    module = _eager(folder)
    seconds = interleaved(
        {"plain": lambda: module(ids, output_attentions=True), "engine": lambda: weights(ids)}, REPEATS
    )
    return [one / plain for one, plain in zip(seconds["engine"], seconds["plain"], strict=True)]


def _eager(folder: Path) -> Any:
    """Return the model of transformers, with its eager attention."""
    module = getattr(transformers, AutoConfig.from_pretrained(folder).architectures[0])
    return module.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


def _has_head(config: Any) -> bool:
    return config.architectures[0].endswith(("LMHeadModel", "ForCausalLM", "ForMaskedLM"))


# With the package, whose version the table gives.
ENGINES: dict[str, tuple[str, Callable[[Path], Opened]]] = {
    "TransformerLens": ("transformer-lens", transformer_lens),
    "TransformerLens bridge": ("transformer-lens", bridge),
    "nnsight": ("nnsight", nnsight),
    "interp-engine": ("interp-engine", interp_engine),
    "inseq": ("inseq", inseq),
}


def main(engine: str, folder: str, inputs: str, out: str) -> int:
    """Write what the engine reads."""
    numbers = [torch.tensor([ids]) for ids in json.loads(inputs)]
    try:
        with torch.no_grad():
            opened = ENGINES[engine][1](Path(folder))
            readings = [opened.read(ids) for ids in numbers]
            taken = times(Path(folder), opened.weights, numbers[-1])
    except Unread as error:
        print(error)
        return UNREAD
    np.savez(
        out,
        version=version(ENGINES[engine][0]),
        times=taken,
        **{
            f"{part}-{number}": value.float().numpy()
            for number, reading in enumerate(readings)
            for part, value in reading._asdict().items()
            if value is not None
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
