"""Train one twin, in one loop that can be stopped and resumed.

.venv/bin/python -m models.train twin-bert-hopfield --objective masked-lm --mechanism '{"name": "hopfield", "alpha": 0.5}' --steps 5000

models/runs holds the exact command of every twin. The seed and the number of a step determine everything that it does, so a resumed run ends with the same
weights as an uninterrupted one.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import json
import math
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file

import headscope

from . import twin
from .card import card
from .data import CLS, SEP, SHARED, MissingData, Source
from .evaluate import majority, score
from .objectives import CLASSES, IMAGES, Objective, Shape, configuration, loss
from .tasks import Task, sample

EVERY = 50  # steps per row of curve.csv
SAVE_SECONDS = 300


@dataclass(frozen=True)
class Recipe:
    """Everything that determines the weights of a twin, besides its data."""

    objective: Objective
    mechanism: Mapping[str, Any]
    steps: int
    rate: float = 1e-3
    warmup: int = 500
    decay: float = 0.01
    clip: float = 1.0
    dropout: float = 0.0
    seed: int = 0
    text: Literal["english", "reviews"] = "english"  # training text of language models
    start: str | None = None  # folder of the twin that training starts from
    # "head" freezes the body, "pasta" also adds vectors to its special tokens.
    learn: Literal["all", "head", "pasta"] = "all"
    bf16: bool = True

    def rate_at(self, step: int) -> float:
        """Return the learning rate: linear warm-up over `warmup` steps, then cosine decay to 0."""
        rising = (step + 1) / self.warmup if self.warmup else 1.0
        left = 0.5 * (1 + math.cos(math.pi * step / self.steps))
        return self.rate * min(1.0, rising) * left


@dataclass
class Progress:
    """The progress of a run."""

    step: int = 0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)  # since the last row of curve.csv


class Run:
    """The training of a module by a recipe, with its files in `folder`."""

    def __init__(self, recipe: Recipe, module: Any, folder: Path, device: str = "cpu") -> None:
        self.recipe, self.module, self.folder, self.device = recipe, module.to(device), folder, device
        self.progress = Progress()
        self._learned = {name: one for name, one in module.named_parameters() if one.requires_grad}
        flat = [one for one in self._learned.values() if one.dim() < 2]  # no weight decay for biases and norms
        wide = [one for one in self._learned.values() if one.dim() >= 2]
        groups = [{"params": wide, "weight_decay": recipe.decay}, {"params": flat, "weight_decay": 0.0}]
        self._optimiser = torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98), fused=True)
        self._stopping = False
        folder.mkdir(parents=True, exist_ok=True)
        if self._file.exists():
            self._resume()

    @property
    def learned(self) -> int:
        """Number of trained parameters."""
        return sum(one.numel() for one in self._learned.values())

    # -- the loop ---------------------------------------------------------------------------------------------------------------------------------

    def train(self, source: Source, until: int | None = None) -> bool:
        """Train to the end, or to step `until`; return False if the process was told to stop before."""
        last = self.recipe.steps if until is None else until
        saved = started = time.monotonic()
        begun = self.progress.tokens
        self.module.train()
        while self.progress.step < last and not self._stopping:
            self._step(source)
            if self.progress.step % EVERY == 0 or self.progress.step == self.recipe.steps:
                self._report((self.progress.tokens - begun) / (time.monotonic() - started))
            if time.monotonic() - saved > SAVE_SECONDS:
                self.save()
                saved = time.monotonic()
        self.save()
        return self.progress.step >= last

    def _step(self, source: Source) -> None:
        step = self.progress.step
        torch.manual_seed(int(np.random.SeedSequence([self.recipe.seed, step]).generate_state(1)[0]))  # for dropout
        batch = source.batch(step).to(self.device)
        with self._autocast():
            lost = loss(self.recipe.objective, self.module, batch)
        lost.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self._learned.values(), self.recipe.clip, error_if_nonfinite=True)
        for group in self._optimiser.param_groups:
            group["lr"] = self.recipe.rate_at(step)
        self._optimiser.step()
        self._optimiser.zero_grad()
        self.progress.step += 1
        self.progress.tokens += batch.tokens
        self.progress.losses.append(lost.item())

    def _autocast(self) -> AbstractContextManager[Any]:
        """Compute products in bfloat16, if the recipe says so; parameters and sums stay float32."""
        return torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.recipe.bf16)

    def stop(self, *_: int | FrameType | None) -> None:
        """Stop after the current step and save."""
        self._stopping = True

    # -- files ------------------------------------------------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    def _report(self, speed: float) -> None:
        """Append a row to curve.csv and print a line. `speed` is in tokens per second."""
        progress, path = self.progress, self.folder / "curve.csv"
        mean = sum(progress.losses) / len(progress.losses)
        progress.losses.clear()
        new = not path.exists()
        with path.open("a", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            if new:
                rows.writerow(["step", "tokens", "loss"])
            rows.writerow([progress.step, progress.tokens, f"{mean:.4f}"])
        left = (self.recipe.steps - progress.step) / progress.step * progress.tokens / max(speed, 1e-9)
        print(
            f"{self.folder.name}  step {progress.step} of {self.recipe.steps}  loss {mean:.4f}  {speed:,.0f} tokens/s  {left / 60:.0f} min left",
            flush=True,
        )

    def save(self) -> None:
        """Write a checkpoint atomically."""
        tensors = {f"model.{name}": one.detach() for name, one in self._learned.items()}
        for number, state in self._optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{number}.{name}": one for name, one in state.items()}
        partial = self._file.with_suffix(".part")
        save_file(
            {name: one.cpu().contiguous() for name, one in tensors.items()},
            partial,
            {"progress": json.dumps(vars(self.progress))},
        )
        partial.replace(self._file)

    def _resume(self) -> None:
        state: dict[int, dict[str, Any]] = {}
        with safe_open(self._file, "pt", device=self.device) as file:
            self.progress = Progress(**json.loads(file.metadata()["progress"]))
            for name in file.keys():  # noqa: SIM118 - not a mapping
                kind, _, rest = name.partition(".")
                if kind == "model":
                    self._learned[rest].data.copy_(file.get_tensor(name))
                else:
                    number, _, what = rest.partition(".")
                    state.setdefault(int(number), {})[what] = file.get_tensor(name)
        groups = self._optimiser.state_dict()["param_groups"]
        self._optimiser.load_state_dict({"state": state, "param_groups": groups})
        self._cut_curve()

    def _cut_curve(self) -> None:
        """Drop rows after the checkpoint, which will be written again."""
        path = self.folder / "curve.csv"
        if path.exists():
            head, *rows = path.read_text().splitlines()
            kept = [row for row in rows if int(row.split(",")[0]) <= self.progress.step]
            path.write_text("\n".join([head, *kept, ""]))


# -- the command ------------------------------------------------------------------------------------------------------------------------------------


def create_module(recipe: Recipe, task: Task, shape: Shape) -> Any:
    """Create the module of a recipe as it is before the first step, attending by its mechanism."""
    torch.manual_seed(recipe.seed)
    cls = getattr(transformers, CLASSES[recipe.objective])
    transformers.utils.logging.set_verbosity_error()
    if recipe.start:
        if not Path(recipe.start).exists():
            raise MissingData(f"There is no {recipe.start} yet, which this twin starts from. Train it first.")
        named = configuration(recipe.objective, shape, task.labels)
        kept = {name: getattr(named, name) for name in ("id2label", "label2id")} if task.labels else {}
        module = cls.from_pretrained(recipe.start, dtype=torch.float32, **kept)
    else:
        module = cls(configuration(recipe.objective, shape, task.labels))
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        setattr(module.config, name, recipe.dropout)
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = recipe.dropout
    if recipe.learn != "all":
        for name, parameter in module.base_model.named_parameters():
            parameter.requires_grad = name.startswith("pooler.")
    if recipe.learn == "pasta":
        headscope.learn_pasta(module, (CLS, SEP))
    else:
        headscope.attend_by(module, recipe.mechanism)
    return module


def finish(run: Run, task: Task, out: Path) -> None:
    """Write the trained twin, with its evaluation and card."""
    module, recipe = run.module, run.recipe
    twin.round_weights(module)
    mechanism = recipe.mechanism
    if recipe.learn == "pasta":
        mechanism = {"name": "pasta", "vectors": module.pasta.detach().cpu().tolist()}
    measured = {
        "recipe": {**asdict(recipe), "tokens": run.progress.tokens, "parameters": run.learned},
        "held_out": score(recipe.objective, module, task.held_out(), task.lengths).figures,
        "baseline": majority(task.counts, task.held_out(), task.lengths).figures,
        "sample": score(recipe.objective, module, sample(recipe.objective, task.tokenizer), task.lengths).figures,
    }
    partial = out.with_name(f".{out.name}")
    twin.save(partial, module, mechanism, task.tokenizer)
    shutil.copy(run.folder / "curve.csv", partial)
    (partial / "evaluation.json").write_text(json.dumps(measured, indent=2) + "\n", "utf-8")
    (partial / "README.md").write_text(card(out.name, measured), "utf-8")
    partial.rename(out)


def parse_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Train one twin. A stopped run is resumed.")
    parser.add_argument("name", help="name of the twin")
    parser.add_argument("--objective", required=True, choices=list(CLASSES), help="what it learns")
    parser.add_argument("--mechanism", default={"name": "softmax"}, type=json.loads, help="how it attends, as JSON")
    parser.add_argument("--steps", required=True, type=int, help="number of batches")
    parser.add_argument("--rate", default=1e-3, type=float, help="highest learning rate")
    parser.add_argument("--warmup", default=500, type=int, help="steps in which the learning rate rises")
    parser.add_argument("--dropout", default=0.0, type=float)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument(
        "--text", default="english", choices=["english", "reviews"], help="training text of a language model"
    )
    parser.add_argument("--start", help="folder of the twin to start from")
    parser.add_argument("--learn", default="all", choices=["all", "head", "pasta"])
    parser.add_argument("--data", default=SHARED, type=Path, help="folder of the data sets")
    parser.add_argument(
        "--work", default=Path("build/twins"), type=Path, help="folder for checkpoints and prepared data"
    )
    parser.add_argument("--out", default=Path("models/twins"), type=Path, help="folder for the finished twin")
    parser.add_argument("--threads", default=torch.get_num_threads(), type=int)
    return parser.parse_args()


def main() -> None:
    """Train the twin given on the command line, unless it exists already."""
    options = vars(parse_arguments())
    name, folder, work, out = (options.pop(key) for key in ("name", "data", "work", "out"))
    torch.set_num_threads(options.pop("threads"))
    if (out / name).exists():
        print(f"{name} exists already.")
        return
    (work / name).mkdir(parents=True, exist_ok=True)
    with (work / name / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{name} is being trained by another process.")
            return
        _train(name, options, folder, work, out)


def _train(name: str, options: dict[str, Any], folder: Path, work: Path, out: Path) -> None:
    """Train a twin; the caller holds its lock."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    recipe = Recipe(**options, bf16=has_bf16(device))
    try:
        task = Task(recipe.objective, recipe.text, recipe.seed, recipe.steps, folder, work / "data")
        shape = IMAGES if recipe.objective == "images" else Shape()
        run = Run(recipe, create_module(recipe, task, shape), work / name, device)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, run.stop)
        if run.train(task.source):
            finish(run, task, out / name)
        else:
            sys.exit(f"{name} was stopped at step {run.progress.step}; run the same command to resume.")
    except MissingData as error:
        sys.exit(str(error))


def has_bf16(device: str) -> bool:
    """Return whether the CPU or GPU has bfloat16 multiplication in hardware."""
    if device == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu.get_capabilities().get("avx512_bf16"))


if __name__ == "__main__":
    main()
