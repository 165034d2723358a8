"""Tables of measurements in docs/measured/, by `make faults`, `python -m benchmarks.load`, `make proof` and docs/twins.py, and of the evaluation of the twins."""

from __future__ import annotations

import json
import re
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any

from declared import table

FOLDER = Path(__file__).resolve().parent / "measured"
TWINS = Path(__file__).resolve().parents[1] / "models" / "twins"
BROKEN = ("lost", "duplicate", "wrong", "errors")
RETRIES = ("refused", "resent", "again")
# Fields of proof.json, and their titles.
PROVED = {
    "weights": "weights",
    "outputs": "head outputs, relative",
    "logits": "logits, relative",
    "contributions": "contributions, relative",
}


def read(name: str) -> dict[str, Any]:
    """Read docs/measured/NAME.json."""
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    return found


def keep(name: str, more: dict[str, Any]) -> None:
    """Add entries to docs/measured/NAME.json, replacing those of the same names."""
    path = FOLDER / f"{name}.json"
    before = read(name) if path.exists() else {}
    path.write_text(json.dumps({**before, **more}, indent=1, sort_keys=True) + "\n", "utf-8")


def faults() -> str:
    """Return one row per deployment and fault, in the order of the matrix."""
    record = read("faults")
    runs: list[dict[str, Any]] = record["runs"]
    rows = []
    for deployment in ("embedded", "cluster"):
        for name, title in record["titles"].items():
            found = [run for run in runs if (run["home"], run["fault"]) == (deployment, name)]
            if found:
                rows.append((title, deployment, *_summary(found)))
    head = ("fault", "deployment", "promises kept", ", ".join(RETRIES), "seconds to the next, to the last")
    kept = sum(_kept(run) for run in runs)
    return f"{kept} of {len(runs)} runs kept every promise. {_where(record, runs)}\n\n{table(head, rows)}"


def _summary(runs: list[dict[str, Any]]) -> tuple[str, ...]:
    totals = {name: sum(run[name] for run in runs) for name in ("jobs", *BROKEN, *RETRIES)}
    broken = "".join(f", {totals[name]} {name}" for name in BROKEN if totals[name])
    kept = f"{sum(map(_kept, runs))} of {len(runs)} ({totals['jobs']} jobs{broken})"
    times = (_spread([run[name] for run in runs]) for name in ("first", "all"))
    return kept, ", ".join(str(totals[name]) for name in RETRIES), ", ".join(times)


def _kept(run: dict[str, Any]) -> bool:
    return not (run["broken"] or any(run[name] for name in BROKEN))


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({max(values):.1f})"


def _where(record: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in record["machine"].items())
    commits = ", ".join(dict.fromkeys(run["commit"] for run in runs))
    return f"Measured on: {machine}; commit {commits}."


def load() -> str:
    """Return tables of throughput, latencies, the crowd and the growth of memory."""
    record = read("load")
    reads, crowds, grown = record["tables"]
    for row in (*reads, *crowds, *grown):
        row["response"] = f"{row['deployment']}, {row.get('answer') or row.get('process')}"
        row["process"] = row["response"]
    for row in crowds:
        row["failed"] = row["not 200"] + row["transport errors"]
    latencies = tuple(f"{name}, {share} ms" for name in ("headscope", "bare") for share in ("p50", "p99"))
    return "\n\n".join(
        [
            _machine(record),
            _table(reads, "response", "bytes", "headscope, requests/s", "bare, requests/s", "ratio"),
            _table(reads, "response", *latencies),
            _table(crowds, "response", "requests", "failed", "p50 ms", "p99 ms"),
            _table(grown, "process", "jobs", "start MB", "end MB", "slope, KB/job"),
        ]
    )


def _machine(record: dict[str, Any]) -> str:
    return f"Measured on: {', '.join(f'{name} {value}' for name, value in record['machine'].items())}."


def _table(rows: list[dict[str, Any]], *columns: str) -> str:
    return table(columns, [tuple(str(row[column]) for column in columns) for row in rows])


def proof() -> str:
    """Return one row per model and engine: the largest differences, and times."""
    rows = [
        (
            f"`{row['model']}`",
            f"`{row['revision']}`",
            row["engine"],
            *(_power(row.get(part)) for part in PROVED),
            *(row.get(name, "–") for name in ("time", "our time")),
        )
        for row in read("proof").values()
    ]
    return table(("model", "weights or revision", "engine", *PROVED.values(), "time", "Headscope's"), rows)


def ratios() -> str:
    """Return the latest result of every ratio on the machine of the last run, beside its goal and the medians there, and what bounds those that miss their goal."""
    path = FOLDER / "ratios.jsonl"
    runs = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    if not runs:
        return "There are no results yet."
    here = [runs[-1]["machine"].get(key) for key in ("cpu", "cores", "gpu")]
    alike = [run for run in runs if [run["machine"].get(key) for key in ("cpu", "cores", "gpu")] == here]
    latest: dict[str, dict[str, Any]] = {name: run for run in alike for name in run["ratios"]}
    rows = []
    for name in sorted(latest, key=lambda name: name.partition(":")[0]):  # a benchmark's in the order of its rows
        run, (benchmark, _, what) = latest[name], name.partition(": ")
        median, low, high = run["ratios"][name]
        medians = [one["ratios"][name][0] for one in alike if name in one["ratios"]]
        goal = f"{run['goals'][name]:g}" if name in run["goals"] else "–"
        earlier = f"{min(medians):g}-{max(medians):g} ({len(medians)})"
        rows.append((benchmark, what, f"{median:g} ({low:g}-{high:g})", goal, earlier, f"`{run['commit']}`"))
    head = ("benchmark", "ratio", "latest result", "goal", "medians on record (number)", "commit")
    parts = [f"{_machine(runs[-1])} The last run was on {runs[-1]['date']}.", table(head, rows)]
    missed = [name for name, run in latest.items() if name in run["missed"]]
    if missed:
        bounds, groups = read("bounds"), defaultdict[tuple[str, str], list[str]](list)
        for name in sorted(missed):
            benchmark, _, what = name.partition(": ")
            groups[benchmark, _bound(name, bounds)].append(f"`{what}`")
        lines = [f"- `{one}`: {bound}\n  Ratios: {'; '.join(names)}" for (one, bound), names in groups.items()]
        parts += ["Ratios that miss their goal, and what bounds them by a profile:", "\n".join(lines)]
    return "\n\n".join(parts)


def _bound(name: str, bounds: dict[str, str]) -> str:
    """Return the sentence of the first regular expression that fits a ratio's name."""
    return next((text for pattern, text in bounds.items() if re.fullmatch(pattern, name)), "not profiled yet.")


def _power(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.1e}" if value else "0"


# -- twins ------------------------------------------------------------------------------------------------------------------------------------------

MOST_INTERVALS = 4  # columns; with more of them, intervals are left out
# Fields of evaluation.json, and their titles.
WORTH = {"loss": "loss, nats", "bits_per_byte": "bits per byte", "accuracy": "accuracy", "f1": "F1"}


def twin_worth() -> str:
    """Return one row per twin, with the baseline without a model."""
    rows = []
    for path in sorted(TWINS.glob("*/evaluation.json")):
        found = json.loads(path.read_text("utf-8"))
        numbers = [_beside(found["held_out"].get(key), found["baseline"].get(key)) for key in WORTH]
        recipe, amount = found["recipe"], found["recipe"]["tokens"] / 1e6
        rows.append(
            (f"`{path.parent.name}`", f"{recipe['parameters']:,}", f"{recipe['steps']:,}", f"{amount:.1f}", *numbers)
        )
    return table(("twin", "parameters learned", "steps", "million tokens or images", *WORTH.values()), rows)


def twin_tuned(names: str) -> str:
    """Return learned parameters, loss and accuracy of some twins, with 95 % intervals of the accuracy."""
    rows = []
    for name in names.split(","):
        shipped = TWINS / name / "evaluation.json"
        path = shipped if shipped.exists() else FOLDER / f"{name}.json"
        found = json.loads(path.read_text("utf-8"))
        learned, held_out = found["recipe"]["parameters"], found["held_out"]
        rows.append(
            (f"`{name}`", f"{learned:,}", f"{held_out['loss']:.3f}", _share(held_out["accuracy"], held_out["labels"]))
        )
    return table(("twin", "parameters learned", "loss, nats", "accuracy"), rows)


def twin_seeds(names: str) -> str:
    """Return the accuracy of twins by seed, and the difference within each pair of twins."""
    found = {name: _accuracies(name) for name in names.split(",")}
    rows = [(f"`{name}`", *(f"{one:.3f}" for one in by_seed), _mean(by_seed)) for name, by_seed in found.items()]
    pairs = list(found.items())
    for (first, plain), (second, other) in zip(pairs[::2], pairs[1::2], strict=True):
        apart = [b - a for a, b in zip(plain, other, strict=True)]
        rows.append((f"`{second}` - `{first}`", *(f"{one:+.3f}" for one in apart), _mean(apart, "+")))
    seeds = (f"seed {seed}" for seed in range(len(pairs[0][1])))
    return table(("accuracy", *seeds, "mean (standard deviation)"), rows)


def _accuracies(name: str) -> list[float]:
    """Return the accuracies by seed; the shipped twin has seed 0."""
    paths = [TWINS / name / "evaluation.json", *sorted(FOLDER.glob(f"{name}-seed-*.json"))]
    return [json.loads(path.read_text("utf-8"))["held_out"]["accuracy"] for path in paths]


def _mean(values: list[float], sign: str = "") -> str:
    return f"{statistics.mean(values):{sign}.3f} ({statistics.stdev(values):.3f})"


def _share(share: float, count: int) -> str:
    """Format a share with its Wilson interval."""
    square = 1.96**2 / count
    middle = (share + square / 2) / (1 + square)
    half = (share * (1 - share) * square + square**2 / 4) ** 0.5 / (1 + square)
    return f"{share:.3f} ({middle - half:.3f} to {middle + half:.3f})"


def _beside(own: float | None, without: float | None) -> str:
    if own is None:
        return ""
    return f"{own:.3f}" if without is None else f"{own:.3f} ({without:.3f})"


def twins(question: str) -> str:
    """Return one row per layer or class and one column per model, lens or head: `NAME:ROWS:COLUMNS:VALUE`, where the last three are fields of the records.

    COLUMNS may be two fields, `class,variant`; VALUE may be followed by the values of the first that are shown.
    """
    name, down, across, value, *wanted = question.split(":")
    first, *second = across.split(",")
    record = read("twins")[name]
    shown = [row for row in record["rows"] if not wanted or row[first] in wanted[0].split(",")]
    places = {(row[down], tuple(str(row[one]) for one in (first, *second))): row for row in shown}
    lines = list(dict.fromkeys(line for line, _ in places))
    groups = list(dict.fromkeys(head[0] for _, head in places))
    heads = sorted(dict.fromkeys(head for _, head in places), key=lambda head: groups.index(head[0]))
    wide = len(heads) > MOST_INTERVALS
    digits = 1 if max(row["high"] for row in shown) > 10 else 3
    cells = {place: f"{row[value]:.3f}" if wide else _interval(row, value, digits) for place, row in places.items()}
    rows = [(str(line), *(cells.get((line, head), "") for head in heads)) for line in lines]
    widest = max(row["high"] - row["low"] for row in shown)
    spread = f"each with a 95 % interval no wider than {widest:.3f}" if wide else "with 95 % intervals"
    return f"{table((down, *(', '.join(head) for head in heads)), rows)}\n\nOver {record['inputs']:,} inputs at most, {spread}."


def _interval(row: dict[str, Any], value: str, digits: int) -> str:
    middle, low, high = (f"{row[one]:.{digits}f}" for one in (value, "low", "high"))
    return f"{middle} ({low} to {high})"
