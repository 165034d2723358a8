"""Attention statistics while a model is trained: a callback of transformers' Trainer."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from transformers import TrainerCallback

from ..analysis import pipeline
from ..analysis.reader import AnalysisTask
from ..analysis.request import AnalysisRequest, check_capabilities
from ..analysis.result import MemorySink, Result
from ..capture import examine
from ..core.arrays import Array, to_lists
from ..core.csv_text import csv_text
from ..core.lazy import go
from ..errors import HeadscopeError, InvalidRequest, Unknown, Unsupported
from ..figures import Theme
from ..figures.theme import PALETTES, layout, to_json, value_axis
from ..measures import MEASURES
from ..models.loading import DTYPES, Model, wrap
from ..query.search import token_mean
from .arguments import check_theme, count, items, numbers, request_of

logger = logging.getLogger("headscope")

# Statistic -> its title, its measure, and the column of the measure if it has several.
STATISTICS: dict[str, tuple[str, str, str | None]] = {
    "entropy": ("entropy (nats)", "entropy", None),
    "null_share": ("null share", "null_share", None),
    "sink_weight": ("weight of the sink", "sink", "value"),
    "sink_share": ("share of heads with a sink", "sink", "is_sink"),
}
# Inputs that are taken from the data set, and most tokens of each.
TAKEN, MOST_TOKENS = 8, 128
SHARDED = "The weights of this model are spread over several processes (FSDP or DeepSpeed), so its attention cannot be read while it is trained."

Row = dict[str, Any]


def watch_training(
    trainer: Any,
    inputs: Sequence[str | Sequence[int]] | None = None,
    *,
    folder: str | Path | None = None,
    every: int = 100,
    statistics: Sequence[str] = tuple(STATISTICS),
    most_time: float = 0.02,
    report: bool = True,
) -> AttentionCallback:
    """Make a Trainer of transformers record attention statistics of its model while it trains, and return the callback that does so.

    `inputs` are texts or lists of token ids; by default the first 8 of the evaluation data, or of the training data, without padding and cut to 128 tokens. They
    are analysed before the first step, after every `every` steps and after the last one; a record in between is left out while all of them together took more
    than `most_time` of the time since training began. The weights are read where they are, and training is the same, bit by bit.

    `statistics` are entropy (in nats), null_share, sink_weight and sink_share, as means over heads, tokens and inputs for every layer. They are appended to
    attention.jsonl, which also has every head, and attention.csv in `folder`, by default "attention" in the trainer's output folder; with `report` they also
    go through trainer.log, and from there to MLflow, Weights & Biases, TensorBoard and any other integration that `report_to` names. After the last record the
    folder has a figure of each statistic, too, as a web page, and with `report` MLflow and Weights & Biases get the folder as an artefact of the run.

    Raises InvalidRequest, Unknown for a statistic, and Unsupported for models that cannot be analysed or whose weights are sharded. An error while training, such
    as a value that is not finite, is recorded in place of the numbers.
    """
    count(every, "every", 1)
    if not isinstance(most_time, Real) or not 0 <= most_time <= 1:
        raise InvalidRequest("most_time must be between 0 and 1.", pointer="/most_time")
    names = items(statistics, "statistics") or []
    for name in names:
        if name not in STATISTICS:
            raise Unknown("measure", f"statistics are {', '.join(STATISTICS)}.", pointer="/statistics")
    if getattr(trainer, "is_fsdp_enabled", False) or getattr(trainer, "is_deepspeed_enabled", False):
        raise Unsupported(SHARDED)
    given = _first_inputs(trainer) if inputs is None else items(inputs, "inputs")
    if not given:
        raise InvalidRequest("Give at least one input.", pointer="/inputs")
    chosen = Path(folder) if folder is not None else Path(trainer.args.output_dir) / "attention"
    callback = AttentionCallback(given, chosen, every, names, most_time, trainer.log if report else None)
    callback.check(trainer.model, trainer.processing_class)
    trainer.add_callback(callback)
    return callback


def _first_inputs(trainer: Any) -> list[list[int]]:
    """Return the token ids of the first rows of the evaluation data, or of the training data. Raises InvalidRequest if these have none."""
    for dataset in (trainer.eval_dataset, trainer.train_dataset):
        rows = list(islice(iter(dataset), TAKEN)) if dataset is not None and not isinstance(dataset, Mapping) else []
        found = [ids[:MOST_TOKENS] for row in rows if "input_ids" in row and (ids := _without_padding(row))]
        if found:
            return found
    raise InvalidRequest("The trainer's data have no input_ids. Give inputs: texts or lists of token ids.")


def _without_padding(row: Mapping[str, Any]) -> list[int]:
    """Return the token ids of a row, from a list or a tensor, that its attention_mask, if it has one, does not hide."""
    ids = [int(one) for one in row["input_ids"]]
    if "attention_mask" not in row:
        return ids
    return [one for one, seen in zip(ids, row["attention_mask"], strict=True) if seen]


class AttentionCallback(TrainerCallback):  # type: ignore[misc]
    """Records attention statistics; see watch_training. `rows` are the records so far, `seconds` the time that they took."""

    def __init__(
        self,
        inputs: Sequence[str | Sequence[int]],
        folder: Path,
        every: int,
        statistics: list[str],
        most_time: float,
        log: Callable[[dict[str, float]], None] | None,
    ) -> None:
        self.rows, self.seconds = list[Row](), 0.0
        self._inputs, self._folder, self._every = inputs, folder, every
        self._statistics, self._most_time, self._log = statistics, most_time, log
        self._model: Model | None = None
        self._began = time.perf_counter()

    @property
    def time_share(self) -> float:
        """The share of the time since training began that was spent on records, 0 to 1."""
        return self.seconds / max(time.perf_counter() - self._began, 1e-9)

    def check(self, module: Any, tokenizer: Any) -> None:
        """Raise the errors that every record would have."""
        model = wrap(module, tokenizer)
        for request in self._requests(model):
            check_capabilities(request.methods, {**examine(model, request.dtype).missing("self"), **model.missing})
            model.encode(**request.input)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Record the model as it is, after the records that an interrupted run has left."""
        if not state.is_world_process_zero:
            return
        self._began, self.seconds = time.perf_counter(), 0.0
        self._model = wrap(given["model"], given["processing_class"])
        self._resume(state.global_step)
        if not self.rows or self.rows[-1]["step"] < state.global_step:
            self._record(self._model, state)
            self._send(control)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Record the model if it is time, or training ends."""
        if self._model is None:
            return
        ends = control.should_training_stop or state.global_step >= state.max_steps
        if ends or (state.global_step % self._every == 0 and self.time_share <= self._most_time):
            self._record(self._model, state)
            self._send(control)
        if ends:
            self._finish(args.report_to)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Record the last step if training ended elsewhere than after a step, as early stopping ends it, unless its weights are those of the best step now.

        Integrations may have closed their runs, so the trainer's log does not get this record.
        """
        if self._model is None:
            return
        replaced = args.load_best_model_at_end and state.best_model_checkpoint is not None
        if not replaced and self.rows[-1]["step"] < state.global_step:
            self._record(self._model, state)
        self._finish(args.report_to)

    def figure(self, statistic: str, *, theme: Theme = "light") -> Any:
        """Return a plotly figure of a statistic: a line per layer over the steps. Raises Unknown."""
        if statistic not in self._statistics:
            raise Unknown("measure", f"The records have {', '.join(self._statistics)}.", pointer="/statistic")
        check_theme(theme)
        palette, rows = PALETTES[theme], [row for row in self.rows if statistic in row]
        layers = rows[-1]["layers"] if rows else []
        lines = [
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"layer {layer}",
                "x": [row["step"] for row in rows],
                "y": to_json(np.array([row[statistic][place] for row in rows], float)),
                "line": {"color": colour, "width": 1.5},
            }
            for place, (layer, colour) in enumerate(zip(layers, palette.ramp(len(layers)), strict=True))
        ]
        axes = value_axis(palette, "step"), value_axis(palette, STATISTICS[statistic][0])
        return go.Figure({"data": lines, "layout": layout(palette, *axes, legend={})})

    def _requests(self, model: Model) -> list[AnalysisRequest]:
        """Return a request per input, in the type that the weights have: nothing is converted."""
        dtype = next((name for name, one in DTYPES.items() if one == model.module.dtype), "float32")
        measures = list(dict.fromkeys(STATISTICS[name][1] for name in self._statistics))
        return [
            request_of(
                None,
                ["weights"],
                measures,
                model=model.name[:200],
                dtype=dtype,
                maps=False,
                **({"text": one} if isinstance(one, str) else {"token_ids": numbers(one, "inputs")}),
            )
            for one in self._inputs
        ]

    def _record(self, model: Model, state: Any) -> None:
        started = time.perf_counter()
        row: Row = {"step": state.global_step, "epoch": state.epoch}
        try:
            row |= self._measure(model)
        except HeadscopeError as error:
            row["error"] = error.detail
        row["seconds"] = round(time.perf_counter() - started, 4)
        self.rows.append(row)
        try:
            self._append([row])
        except OSError:
            logger.exception("a record of the attention statistics was not written")
        self.seconds += time.perf_counter() - started

    def _send(self, control: Any) -> None:
        """Send the last record to the trainer's log."""
        started = time.perf_counter()
        if self._log is not None:
            logging = control.should_log
            self._log(self._scalars(self.rows[-1]))
            control.should_log = logging  # which a log of its own would cancel
        self.seconds += time.perf_counter() - started

    def _measure(self, model: Model) -> Row:
        """Return the statistics of every layer, and of its heads."""
        tasks = [AnalysisTask(request, MemorySink(), tiles=False) for request in self._requests(model)]
        outcomes = pipeline.run_many(model, tasks)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
        heads = {name: _mean([_by_head(result, name) for result in results], 0) for name in self._statistics}
        layers = {name: to_lists(_mean(values, 1)) for name, values in heads.items()}
        return {"layers": results[0].layers, **layers, "heads": {name: to_lists(each) for name, each in heads.items()}}

    def _finish(self, integrations: Collection[str]) -> None:
        """Write the figures, and send the folder to the integrations that keep files. An error there is logged: the training is worth more."""
        started, self._model = time.perf_counter(), None
        try:
            for name in self._statistics:
                self.figure(name).write_html(self._folder / f"{name}.html", include_plotlyjs="directory")
        except Exception:
            logger.exception("the figures of the attention statistics were not written")
        for name in PUBLISHERS.keys() & set(integrations if self._log else ()):
            try:
                PUBLISHERS[name](self._folder)
            except Exception:
                logger.exception("the attention statistics did not reach %s", name)
        self.seconds += time.perf_counter() - started

    def _scalars(self, row: Row) -> dict[str, float]:
        """Return the statistics of a record as numbers by name."""
        return {
            f"attention/{name}/layer_{layer}": value
            for name in self._statistics
            for layer, value in zip(row.get("layers", ()), row.get(name, ()), strict=True)
            if value is not None
        }

    def _resume(self, step: int) -> None:
        """Keep the records of the folder that are not after this step, and forget the others."""
        path = self._folder / "attention.jsonl"
        lines = path.read_text("utf-8").splitlines() if step and path.exists() else []
        rows = [row for line in lines if (row := _to_row(line)) is not None]
        self.rows = [row for row in rows if row["step"] <= step]
        self._folder.mkdir(parents=True, exist_ok=True)
        path.write_text("", "utf-8")
        (self._folder / "attention.csv").write_text(csv_text([("step", "epoch", "layer", *self._statistics)]), "utf-8")
        self._append(self.rows)

    def _append(self, rows: Sequence[Row]) -> None:
        with (self._folder / "attention.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)
        lines = [
            (
                row["step"],
                row["epoch"],
                layer,
                *(row[name][place] if name in row else None for name in self._statistics),
            )
            for row in rows
            for place, layer in enumerate(row.get("layers", ()))
        ]
        with (self._folder / "attention.csv").open("a", encoding="utf-8") as file:
            file.write(csv_text(lines))


def _to_row(line: str) -> Row | None:
    """Return the record in a line; None if a process that was killed has written a part of it."""
    with suppress(json.JSONDecodeError):
        row: Row = json.loads(line)
        return row
    return None


def _to_mlflow(folder: Path) -> None:
    if sys.modules["mlflow"].active_run():
        sys.modules["mlflow"].log_artifacts(str(folder), "attention")


def _to_wandb(folder: Path) -> None:
    if run := sys.modules["wandb"].run:
        run.log_artifact(str(folder), name="attention", type="attention")


# Integrations of the trainer, which has imported them, that keep files.
PUBLISHERS = {"mlflow": _to_mlflow, "wandb": _to_wandb}


def _by_head(result: Result, statistic: str) -> Array:
    """Return a statistic of one input, averaged over tokens, [L, H]."""
    _, name, column = STATISTICS[statistic]
    measure = MEASURES[name]
    values = token_mean(result.measures[name]["weights"], measure.shape.split())
    return values if column is None else values[..., measure.columns.index(column)]


def _mean(values: Any, axis: int) -> Array:
    """Return the mean of the defined values along an axis; NaN where none is."""
    found = np.asarray(values, np.float64)
    defined = np.isfinite(found)
    counts = defined.sum(axis)
    means: Array = np.divide(
        np.where(defined, found, 0).sum(axis), counts, out=np.full(counts.shape, np.nan), where=counts > 0
    )
    return means
