"""Attention statistics of a model that transformers' Trainer trains."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

import headscope
from headscope.errors import InvalidRequest, Unknown, Unsupported
from headscope.library.training_statistics import STATISTICS

from .small import SHAPE, module_of

INPUTS = [list(range(5, 25)), list(range(60, 72))]


def rows(count=16):
    generator = torch.Generator().manual_seed(0)
    found = [torch.randint(5, SHAPE.vocabulary, (12,), generator=generator) for _ in range(count)]
    return [{"input_ids": ids, "labels": ids} for ids in found]


def trainer_of(folder, steps=5, callbacks=(), module=None, evaluated=None, **given):
    options = {"logging_steps": 2, "save_strategy": "no", "learning_rate": 1e-3, **given}
    arguments = TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=4, use_cpu=True, report_to=[], disable_tqdm=True,
        dataloader_pin_memory=False, **options,
    )  # fmt: skip
    module = module_of("causal-lm") if module is None else module
    return Trainer(module, arguments, train_dataset=rows(), eval_dataset=evaluated, callbacks=list(callbacks))


def read(folder):
    return [json.loads(line) for line in (folder / "attention.jsonl").read_text("utf-8").splitlines()]


class Listener(TrainerCallback):
    """What MLflow or Weights & Biases would get."""

    def __init__(self):
        self.heard = []

    def on_log(self, args, state, control, logs=None, **given):
        self.heard.append((state.global_step, dict(logs)))


def test_records_of_a_training(tmp_path):
    """Before it, while it lasts and after it; training is the same bit by bit, and so are its own logs."""
    listener, alone = Listener(), trainer_of(tmp_path / "alone")
    alone.train()
    trainer = trainer_of(tmp_path / "out", callbacks=[listener])
    callback = headscope.watch_training(trainer, INPUTS, every=2, most_time=1)
    trainer.train()
    for name, weights in alone.model.state_dict().items():
        assert torch.equal(weights, trainer.model.state_dict()[name]), name
    assert trainer.model.training
    assert [row["step"] for row in callback.rows] == [0, 2, 4, 5]
    assert 0 < callback.time_share <= 1

    def losses(one):
        return [(log["step"], log["loss"]) for log in one.state.log_history if "loss" in log]

    assert losses(trainer) == losses(alone)
    measures = ("entropy", "null_share", "sink")
    found = [headscope.analyze(trainer.model, token_ids=ids, lenses=["weights"], measures=measures) for ids in INPUTS]
    last = callback.rows[-1]
    entropy = np.mean([a.measures["entropy"]["weights"].mean(2) for a in found], 0)  # [L, H]
    assert np.allclose(last["heads"]["entropy"], entropy, atol=1e-5)
    assert np.allclose(last["entropy"], entropy.mean(1), atol=1e-5)
    assert np.allclose(
        last["null_share"], np.mean([a.measures["null_share"]["weights"] for a in found], (0, 2)), atol=1e-5
    )
    sinks = np.mean([a.measures["sink"]["weights"] for a in found], (0, 2))  # [L, C]
    assert np.allclose(np.transpose([last["sink_weight"], last["sink_share"]]), sinks[:, :2], atol=1e-5)

    heard = [(step, logs) for step, logs in listener.heard if "attention/entropy/layer_0" in logs]
    assert [step for step, _ in heard] == [0, 2, 4, 5]
    assert heard[-1][1]["attention/sink_weight/layer_1"] == last["sink_weight"][1]
    folder = tmp_path / "out" / "attention"
    assert read(folder) == callback.rows
    lines = list(csv.DictReader(io.StringIO((folder / "attention.csv").read_text("utf-8"))))
    assert [(line["step"], line["layer"]) for line in lines] == [(step, layer) for step in "0245" for layer in "01"]
    assert float(lines[-1]["null_share"]) == pytest.approx(last["null_share"][1])
    figure = callback.figure("null_share")
    assert [line.name for line in figure.data] == ["layer 0", "layer 1"]
    assert list(figure.data[0].x) == [0, 2, 4, 5]
    with pytest.raises(Unknown):
        callback.figure("loss")
    with pytest.raises(InvalidRequest, match="theme is light or dark"):
        callback.figure("entropy", theme="blue")
    assert "null share" in (folder / "null_share.html").read_text("utf-8")
    names = {"attention.csv", "attention.jsonl", "plotly.min.js", *(f"{name}.html" for name in STATISTICS)}
    assert {path.name for path in folder.iterdir()} == names


def test_integrations_that_keep_files(tmp_path, monkeypatch, caplog):
    """They get the folder once training ends, also if another one fails; without `report`, none does."""
    sent = []
    stored = lambda folder, name: sent.append((name, {path.name for path in Path(folder).iterdir()}))  # noqa: E731
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(active_run=lambda: object(), log_artifacts=stored))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=SimpleNamespace(log_artifact=None)))
    for report in (True, False):
        trainer = trainer_of(tmp_path / str(report), steps=1)
        trainer.args.report_to = ["mlflow", "wandb"]  # the trainer was made without their callbacks
        headscope.watch_training(trainer, INPUTS, statistics=["entropy"], report=report)
        trainer.train()
    assert sent == [("attention", {"attention.csv", "attention.jsonl", "plotly.min.js", "entropy.html"})]
    assert "did not reach wandb" in caplog.text


def test_little_time(tmp_path):
    """Where no time is allowed, only the ends are recorded; without a folder or inputs they are the trainer's."""
    trainer = trainer_of(tmp_path)
    callback = headscope.watch_training(trainer, every=1, most_time=0, statistics=["entropy"], report=False)
    trainer.train()
    assert [row["step"] for row in callback.rows] == [0, 5]
    assert callback.rows[0].keys() == {"step", "epoch", "layers", "entropy", "heads", "seconds"}
    assert not any("attention/entropy/layer_0" in log for log in trainer.state.log_history)
    first = [headscope.analyze(module_of("causal-lm"), token_ids=row["input_ids"]) for row in rows(8)]
    expected = np.mean([a.measures["entropy"]["weights"] for a in first], (0, 2, 3))
    assert np.allclose(callback.rows[0]["entropy"], expected, atol=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_the_data_is_left_out(tmp_path, side):
    """The inputs are the rows without it; a row of padding alone is none."""
    whole, trainer = [row["input_ids"] for row in rows(3)], trainer_of(tmp_path, steps=1)
    padding = torch.zeros(30, dtype=torch.long)
    joined = [[padding, ids] if side == "left" else [ids, padding] for ids in whole]
    padded = [{"input_ids": torch.cat(one), "attention_mask": (torch.cat(one) > 0).long()} for one in joined]
    trainer.train_dataset = [{"input_ids": padding, "attention_mask": padding}, *padded]
    callback = headscope.watch_training(trainer, statistics=["entropy"])
    assert callback._inputs == [ids.tolist() for ids in whole]


class Loses(TrainerCallback):
    """A training whose folder of records vanishes."""

    def __init__(self, folder):
        self.folder = folder

    def on_step_begin(self, args, state, control, **given):
        if state.global_step == 1:
            shutil.rmtree(self.folder)


def test_a_folder_that_vanishes(tmp_path, caplog):
    """Neither a record nor a figure that cannot be written ends the training."""
    trainer = trainer_of(tmp_path, steps=2, callbacks=[Loses(tmp_path / "attention")])
    callback = headscope.watch_training(trainer, INPUTS, every=1, most_time=1, statistics=["entropy"])
    trainer.train()
    assert [row["step"] for row in callback.rows] == [0, 1, 2]
    assert "the figures of the attention statistics were not written" in caplog.text


@pytest.mark.parametrize("best", [False, True])
def test_training_that_stops_early(tmp_path, best):
    """The last step is recorded, unless the weights of the best one replaced its own, and there are figures either way."""
    chosen = {"save_strategy": "steps", "save_steps": 2, "load_best_model_at_end": True} if best else {}
    trainer = trainer_of(
        tmp_path, steps=50, callbacks=[EarlyStoppingCallback(1)], evaluated=rows(4), learning_rate=0.0,
        eval_strategy="steps", eval_steps=2, metric_for_best_model="eval_loss", **chosen,
    )  # fmt: skip
    callback = headscope.watch_training(trainer, INPUTS, every=3, most_time=1, statistics=["entropy"])
    trainer.train()
    assert trainer.state.global_step == 4
    assert [row["step"] for row in callback.rows] == ([0, 3] if best else [0, 3, 4])
    assert read(tmp_path / "attention") == callback.rows
    assert (tmp_path / "attention" / "entropy.html").exists()


def test_resumes_with_the_training(tmp_path):
    """Records after the checkpoint are replaced."""
    trainer = trainer_of(tmp_path, steps=5, save_strategy="steps", save_steps=4)
    headscope.watch_training(trainer, INPUTS, every=2, most_time=1)
    trainer.train()
    with (tmp_path / "attention" / "attention.jsonl").open("a") as file:
        file.write('{"step": 5, "lay')  # a process that was killed while it wrote
    trainer = trainer_of(tmp_path, steps=7, save_strategy="steps", save_steps=4)
    callback = headscope.watch_training(trainer, INPUTS, every=3, most_time=1)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert [row["step"] for row in callback.rows] == [0, 2, 4, 6, 7]
    assert read(tmp_path / "attention") == callback.rows


class Breaks(TrainerCallback):
    """A training that diverges."""

    def on_step_begin(self, args, state, control, model=None, **given):
        if state.global_step == 1:
            with torch.no_grad():
                for weights in model.parameters():
                    weights.fill_(torch.nan)


def test_a_training_that_diverges(tmp_path):
    """The error is recorded, and training goes on."""
    trainer = trainer_of(tmp_path, steps=3, callbacks=[Breaks()])
    callback = headscope.watch_training(trainer, INPUTS, every=1, most_time=1)
    trainer.train()
    assert ["error" in row for row in callback.rows] == [False, False, True, True]
    assert len(callback.figure("entropy").data[0].x) == 2


def test_what_cannot_be_watched(tmp_path):
    """Wrong arguments, inputs without a tokenizer, and sharded weights, before training begins."""
    trainer = trainer_of(tmp_path)
    for given in (
        {"every": 0},
        {"every": "all"},
        {"most_time": 2},
        {"most_time": None},
        {"inputs": []},
        {"inputs": "A text."},
        {"inputs": [[10**6]]},
        {"inputs": [5]},
    ):
        with pytest.raises(InvalidRequest):
            headscope.watch_training(trainer, **{"inputs": INPUTS, **given})
    with pytest.raises(Unknown):
        headscope.watch_training(trainer, INPUTS, statistics=["loss"])
    with pytest.raises(Unsupported):
        headscope.watch_training(trainer, ["A text."])
    trainer.is_fsdp_enabled = True
    with pytest.raises(Unsupported, match="FSDP"):
        headscope.watch_training(trainer, INPUTS)
