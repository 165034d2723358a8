"""The objectives of the twins: models, predictions and loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
import transformers
from torch import Tensor

from .data import CLS, END, IGNORED, PAD, SEP, Batch

Objective = Literal["masked-lm", "causal-lm", "images", "sentences", "words"]
# Objective -> class of transformers.
CLASSES: dict[Objective, str] = {
    "masked-lm": "BertForMaskedLM",
    "causal-lm": "GPT2LMHeadModel",
    "images": "ViTForImageClassification",
    "sentences": "BertForSequenceClassification",
    "words": "BertForTokenClassification",
}


@dataclass(frozen=True)
class Shape:
    """The size of a model."""

    layers: int = 6
    heads: int = 8
    width: int = 192
    positions: int = 256
    vocabulary: int = 8_192


IMAGES = Shape(heads=4, width=128)


def configuration(objective: Objective, shape: Shape, labels: list[str]) -> Any:
    """Return the configuration of an untrained model, without dropout: no run sees its data often."""
    # Scale the initial weights such that projections have the same variance as at width 768.
    spread = {"initializer_range": 0.02 * (768 / shape.width) ** 0.5}
    named = {"id2label": dict(enumerate(labels)), "label2id": {name: number for number, name in enumerate(labels)}}
    if objective == "images":
        return transformers.ViTConfig(
            hidden_size=shape.width, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
            intermediate_size=4 * shape.width, image_size=32, patch_size=4,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **named, **spread,
        )  # fmt: skip
    if objective == "causal-lm":
        return transformers.GPT2Config(
            vocab_size=shape.vocabulary, n_embd=shape.width, n_layer=shape.layers, n_head=shape.heads, n_positions=shape.positions,
            activation_function="gelu_pytorch_tanh", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
            bos_token_id=END, eos_token_id=END, pad_token_id=PAD, **spread,
        )  # fmt: skip
    return transformers.BertConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.width, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width, max_position_embeddings=shape.positions, type_vocab_size=2,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=PAD, bos_token_id=CLS, eos_token_id=SEP,
        **spread, **(named if labels else {}),
    )  # fmt: skip


def logits(objective: Objective, module: Any, batch: Batch) -> Tensor:
    """Return the logits [n, classes] of every label that is not IGNORED. A language model's head runs on these tokens only."""
    known = batch.labels != IGNORED
    if objective in ("masked-lm", "causal-lm"):
        hidden = module.base_model(**batch.inputs)[0][known]
        found: Tensor = module.cls(hidden) if objective == "masked-lm" else module.lm_head(hidden)
    else:
        found = module(**batch.inputs).logits[known]
    return found


def loss(objective: Objective, module: Any, batch: Batch) -> Tensor:
    """Return the mean cross-entropy in nats."""
    labels = batch.labels[batch.labels != IGNORED]
    return torch.nn.functional.cross_entropy(logits(objective, module, batch).float(), labels)
