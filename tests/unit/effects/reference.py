"""Direct contributions written out slowly, in float64: what modules read and write is recorded, and every later normalisation is applied by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Vector = NDArray[Any]
Given = dict[str, Vector] | None
Step = Callable[[Vector], Vector]


class Recorded:
    """What the modules of a copy of a model in float64 read and write on one input; `given` replaces what output projections read, [H D] by name."""

    def __init__(self, module: Any, given: Given = None, **inputs: Any) -> None:
        self.given = given or {}
        self.module = copy.deepcopy(module).double().eval()
        self.read: dict[str, list[Vector]] = {}
        self.wrote: dict[str, list[Vector]] = {}
        for name, part in self.module.named_modules():
            part.register_forward_hook(self._keep(name))
        with torch.no_grad():
            tensors = {key: torch.tensor([value]) for key, value in inputs.items()}
            self.logits = self.module(**tensors, use_cache=False).logits[0].numpy()

    def _keep(self, name: str) -> Any:
        def keep(part: Any, args: Any, output: Any) -> None:
            for store, values in ((self.read, args), (self.wrote, output if isinstance(output, tuple) else (output,))):
                if values and isinstance(values[0], torch.Tensor):
                    store.setdefault(name, []).append(values[0].detach().numpy()[0])

        return keep

    def weight(self, name: str) -> Vector:
        """A parameter."""
        return self.module.get_parameter(name).detach().numpy()

    def norm(self, name: str, place: int, kind: str, epsilon: float, one: float = 0.0) -> Step:
        """The linear part of a normalisation at a token: of a LayerNorm, or of an RMSNorm whose gain is its weight plus `one`."""
        x, gain = self.read[name][0][place], self.weight(f"{name}.weight") + one
        if kind == "layer":
            return lambda c: (c - c.mean()) * gain / np.sqrt(x.var() + epsilon)
        return lambda c: c * gain / np.sqrt((x**2).mean() + epsilon)

    def heads(self, projection: str, place: int, heads: int, transposed: bool = False) -> list[Vector]:
        """The vector that each head adds at a token, through its rows of the output projection."""
        z = self.given.get(projection, self.read[projection][0][place]).reshape(heads, -1)
        w = self.weight(f"{projection}.weight")
        w = w if transposed else w.T  # [H D, d]
        return [part @ rows for part, rows in zip(z, w.reshape(heads, z.shape[1], -1), strict=True)]


def chain(*steps: Step) -> Step:
    """Apply steps one after another."""

    def run(c: Vector) -> Vector:
        for step in steps:
            c = step(c)
        return c

    return run


def gelu_gate(x: Vector) -> Step:
    """Multiply by the share of x that GELU lets through."""
    return lambda c: c * 0.5 * (1 + torch.erf(torch.tensor(x) / np.sqrt(2)).numpy())


def gpt2(module: Any, ids: list[int], place: int, given: Given = None) -> tuple[Recorded, Vector, Vector, Vector]:
    """Return the recording, and what heads [L, H, V], feed-forward parts [L, V] and the embedding [V] add to all logits."""
    r, config = Recorded(module, given, input_ids=ids), module.config
    end = chain(
        r.norm("transformer.ln_f", place, "layer", config.layer_norm_epsilon), lambda c: r.weight("lm_head.weight") @ c
    )
    layers = [f"transformer.h.{i}" for i in range(config.n_layer)]
    heads = [[end(o) for o in r.heads(f"{one}.attn.c_proj", place, config.n_head, transposed=True)] for one in layers]
    mlps = [end(r.wrote[f"{one}.mlp"][0][place]) for one in layers]
    return r, np.array(heads), np.array(mlps), end(r.read["transformer.h.0"][0][place])


def llama(module: Any, ids: list[int], place: int, given: Given = None) -> tuple[Recorded, Vector, Vector, Vector]:
    """Likewise."""
    r, config = Recorded(module, given, input_ids=ids), module.config
    end = chain(r.norm("model.norm", place, "rms", config.rms_norm_eps), lambda c: r.weight("lm_head.weight") @ c)
    layers = [f"model.layers.{i}" for i in range(config.num_hidden_layers)]
    heads = [[end(o) for o in r.heads(f"{one}.self_attn.o_proj", place, config.num_attention_heads)] for one in layers]
    mlps = [end(r.wrote[f"{one}.mlp"][0][place]) for one in layers]
    return r, np.array(heads), np.array(mlps), end(r.read["model.layers.0"][0][place])


def gemma2(module: Any, ids: list[int], place: int, given: Given = None) -> tuple[Recorded, Vector, Vector, Vector]:
    """Likewise, with a normalisation of each part before it is added; of the logits before the cap."""
    r, config = Recorded(module, given, input_ids=ids), module.config
    epsilon = config.rms_norm_eps
    end = chain(r.norm("model.norm", place, "rms", epsilon, 1.0), lambda c: r.weight("lm_head.weight") @ c)
    heads, mlps = [], []
    for i in range(config.num_hidden_layers):
        one = f"model.layers.{i}"
        after = chain(r.norm(f"{one}.post_attention_layernorm", place, "rms", epsilon, 1.0), end)
        heads.append([after(o) for o in r.heads(f"{one}.self_attn.o_proj", place, config.num_attention_heads)])
        mlps.append(end(r.wrote[f"{one}.post_feedforward_layernorm"][0][place]))
    r.logits = r.wrote["lm_head"][0]
    return r, np.array(heads), np.array(mlps), end(r.read["model.layers.0"][0][place])


def bert(module: Any, ids: list[int], place: int, given: Given = None) -> tuple[Recorded, Vector, Vector, Vector]:
    """Likewise, through every later normalisation and the output head, whose GELU keeps what it lets through."""
    r, config = Recorded(module, given, input_ids=ids), module.config
    epsilon, head = config.layer_norm_eps, "cls.predictions.transform"
    step = chain(
        lambda c: r.weight(f"{head}.dense.weight") @ c,
        gelu_gate(r.wrote[f"{head}.dense"][0][place]),
        r.norm(f"{head}.LayerNorm", place, "layer", epsilon),
        lambda c: r.weight("cls.predictions.decoder.weight") @ c,
    )
    heads, mlps = [], []
    for i in reversed(range(config.num_hidden_layers)):
        one = f"bert.encoder.layer.{i}"
        step = chain(r.norm(f"{one}.output.LayerNorm", place, "layer", epsilon), step)
        dense = f"{one}.output.dense"
        mlps.insert(0, step(r.wrote[dense][0][place]))
        step = chain(r.norm(f"{one}.attention.output.LayerNorm", place, "layer", epsilon), step)
        vectors = r.heads(f"{one}.attention.output.dense", place, config.num_attention_heads)
        heads.insert(0, [step(o) for o in vectors])
    return r, np.array(heads), np.array(mlps), step(r.read["bert.encoder.layer.0"][0][place])


def esm(module: Any, ids: list[int], place: int) -> tuple[Recorded, Vector, Vector, Vector]:
    """Likewise."""
    r, config = Recorded(module, None, input_ids=ids, attention_mask=[1] * len(ids)), module.config
    step = chain(
        r.norm("esm.encoder.emb_layer_norm_after", place, "layer", config.layer_norm_eps),
        lambda c: r.weight("lm_head.dense.weight") @ c,
        gelu_gate(r.wrote["lm_head.dense"][0][place]),
        r.norm("lm_head.layer_norm", place, "layer", config.layer_norm_eps),
        lambda c: r.weight("lm_head.decoder.weight") @ c,
    )
    layers = [f"esm.encoder.layer.{i}" for i in range(config.num_hidden_layers)]
    vectors = [r.heads(f"{one}.attention.output.dense", place, config.num_attention_heads) for one in layers]
    heads = [[step(o) for o in one] for one in vectors]
    mlps = [step(r.wrote[f"{one}.output.dense"][0][place]) for one in layers]
    return r, np.array(heads), np.array(mlps), step(r.read[layers[0]][0][place])


def t5(module: Any, ids: list[int], target: list[int], place: int, cross: bool) -> tuple[Recorded, Vector]:
    """Return the recording, and what the decoder's heads, of one kind of attention, add to all logits."""
    r, config = Recorded(module, input_ids=ids, decoder_input_ids=target), module.config
    norm = r.norm("decoder.final_layer_norm", place, "rms", config.layer_norm_epsilon)
    scale = config.d_model**-0.5 if config.tie_word_embeddings else 1.0
    part = "1.EncDecAttention" if cross else "0.SelfAttention"
    names = [f"decoder.block.{i}.layer.{part}.o" for i in range(config.num_decoder_layers)]
    end = chain(norm, lambda c: scale * (r.weight("lm_head.weight") @ c))
    return r, np.array([[end(o) for o in r.heads(name, place, config.num_heads)] for name in names])
