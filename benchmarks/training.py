"""Time that `watch_training` adds to a training with transformers' Trainer: records before the first step, after every 100th and after the last one.

A random BERT with 4 layers of 8 heads, 256 wide, trains on batches of 8 texts of 64 tokens, and a record reads 8 texts. `ratio` is the time of a training with
records to that of one without, in turn with it; `cpu_ratio` is the same of processor time, which other work on the machine changes less. `share_percent` is what
the callback itself counts, and `record_steps` is the time of one record in training steps.
"""

from __future__ import annotations

import tempfile
import time
from typing import Any, NamedTuple

import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

import headscope

from .common import DEVICE, Spread, ratios

REPEATS, STEPS, EVERY = 5, 200, 100
BATCH, TOKENS, VOCABULARY = 8, 64, 4000
SHAPE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 1024}
TINY = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
SMALLEST: dict[str, Any] = {"repeats": 1, "steps": 2, "tokens": 8, "shape": TINY}


class Run(NamedTuple):
    """A training: seconds, of which processor time, the share of its records, and the seconds of each."""

    seconds: float
    cpu_seconds: float
    share: float
    records: list[float]


def measure(
    repeats: int = REPEATS, steps: int = STEPS, every: int = EVERY, tokens: int = TOKENS, shape: dict[str, int] = SHAPE
) -> list[dict[str, Any]]:
    """Return one row: the training without records in seconds, and what records add."""
    torch.manual_seed(0)
    module = BertForMaskedLM(BertConfig(vocab_size=VOCABULARY, **shape))
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(5, VOCABULARY, (8 * BATCH, tokens))]
    _train(module, rows, min(steps, 5), every)  # warms up
    pairs = [(_train(module, rows, steps, None), _train(module, rows, steps, every)) for _ in range(repeats)]
    plain, watched = zip(*pairs, strict=True)
    records = [sum(run.records) / len(run.records) / (one.seconds / steps) for one, run in pairs]
    return [
        {
            "steps": steps,
            "every": every,
            "plain_s": Spread.of([run.seconds for run in plain]).text(digits=1),
            "ratio": ratios([run.seconds for run in watched], [run.seconds for run in plain]).text(digits=3),
            "cpu_ratio": ratios([run.cpu_seconds for run in watched], [run.cpu_seconds for run in plain]).text(
                digits=3
            ),
            "share_percent": Spread.of([run.share for run in watched]).text(100, 2),
            "record_steps": Spread.of(records).text(digits=2),
        }
    ]


def _train(module: Any, rows: list[dict[str, Any]], steps: int, every: int | None) -> Run:
    """Train for some steps, with a record every so many if that is given."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            save_strategy="no",
            report_to=[],
            use_cpu=DEVICE == "cpu",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = Trainer(module, arguments, train_dataset=rows)
        watched = headscope.watch_training(trainer, every=every) if every else None
        began, cpu_began = time.perf_counter(), time.process_time()
        trainer.train()
        taken, cpu_taken = time.perf_counter() - began, time.process_time() - cpu_began
    seconds = [row["seconds"] for row in watched.rows] if watched else []
    return Run(taken, cpu_taken, watched.seconds / taken if watched else 0.0, seconds)
