"""Tables of docs/measured/scores.json, which `python -m benchmarks.scores` writes."""

from __future__ import annotations

from typing import Any

from declared import LENSES, table
from measured import read

BASELINES = {
    "uniform": "uniform",
    "previous-token": "previous token",
    "first-token": "first token",
    "random-model": "weights of a random model",
    "random": "random order",
}
EDGES = "faithfulness"
SHOWN = {
    "correlation": "rank correlation with effects of edges",
    "within": "rank correlation among edges of similar weight",
    "area": "prediction kept",
}


def scores(kind: str) -> str:
    """Return one row per lens and baseline, of a kind whose truth is known."""
    found = read("scores")[kind]
    rows = [
        (
            _title(name, "explanation/"),
            row["head"] if name not in BASELINES or name == "random-model" else "–",
            _interval(row["best"]["accuracy"]),
            f"{row['best']['reciprocal'][0]:.3f}",
            "–" if name == "weights" else _interval(row["best"]["against"], "+"),
            _interval(row["mean"]["accuracy"]),
        )
        for name, row in found["lenses"].items()
    ]
    head = (
        "lens",
        "best head",
        "accuracy",
        "reciprocal rank",
        "accuracy minus that of weights",
        "mean accuracy of all",
    )
    return f"{_size(found)}\n\n{table(head, rows)}"


def known(kind: str) -> str:
    """Return one row per lens: the scores of the head that is known beforehand."""
    found = read("scores")[kind]["lenses"]
    rows = [
        (_title(name, "explanation/"), _interval(row["known"]["accuracy"]), _interval(row["known"]["reciprocal"]))
        for name, row in found.items()
        if "known" in row
    ]
    return table(("lens", "accuracy", "reciprocal rank"), rows)


def edges() -> str:
    """Return one row per lens: how well it tells what happens without edges."""
    found = read("scores")[EDGES]
    rows = [
        (_title(name, "explanation/"), *(_interval(row[of]) for of in SHOWN)) for name, row in found["lenses"].items()
    ]
    check = found.get("check")
    checked = "" if check is None else (
        f" Slow code in float64 computed {check['edges']} of these effects again, on {check['inputs']} inputs: "
        f"the largest difference is {check['difference']:.0e} of the largest effect of its input."
    )  # fmt: skip
    if check is not None and "entries" in check:
        checked += f" So it did the entries of all rows but the random one: they differ by at most {max(check['entries'].values()):.0e} of the largest of their input."
    size = f"{found['inputs']} inputs, {found['edges']:,} edges.{checked}"
    return f"{size}\n\n{table(('lens', *SHOWN.values()), rows)}"


def beside_weights(lens: str) -> str:
    """Return one row per score: that of the weights, that of the lens, and the difference, where the two can differ."""
    record = read("scores")
    rows = []
    for found in (record[kind] for kind in ("repetitions", "needles", "reactions")):
        pair = [found["lenses"][name]["best"] for name in ("weights", lens)]
        cells = (*(_interval(row["accuracy"]) for row in pair), _interval(pair[1]["against"], "+"))
        rows.append((f"{found['title']}, accuracy of the best head", *cells))
    for of, title in SHOWN.items():
        pair = [record[EDGES]["lenses"][name] for name in ("weights", lens)]
        rows.append((title, *(_interval(row[of]) for row in pair), _interval(pair[1][f"{of} against"], "+")))
    return table(("score", "`weights`", f"`{lens}`", "difference"), rows)


def scored(lens: str) -> str:
    """Return the scores of one lens, on every kind of truth."""
    record = read("scores")
    rows = [
        (
            found["title"],
            _interval(row["best"]["accuracy"]),
            f"{row['best']['reciprocal'][0]:.3f}",
            "–" if lens == "weights" else _interval(row["best"]["against"], "+"),
        )
        for kind, found in record.items()
        if kind != EDGES and (row := found["lenses"].get(lens))
    ]
    head = ("truth", "accuracy of the best head", "reciprocal rank", "accuracy minus that of weights")
    lines = [table(head, rows)] if rows else []
    if row := record.get(EDGES, {}).get("lenses", {}).get(lens):
        lines.append(
            f"Rank correlation with the effects of single edges: {_interval(row['correlation'])}, "
            f"among edges of similar weight {_interval(row['within'])}."
        )
    return "\n\n".join([*lines, "[Scores](../../scores.md) has all lenses, baselines, and what a score is not."])


def _title(name: str, up: str) -> str:
    kind = "lenses" if name in LENSES else "effects"
    return f"*{BASELINES[name]}*" if name in BASELINES else f"[`{name}`]({up}{kind}/{name}.md)"


def _interval(values: list[float], sign: str = "") -> str:
    """Format a value with its interval."""
    middle, low, high = values
    return f"{middle:{sign}.3f} ({low:{sign}.3f} to {high:{sign}.3f})"


def _size(found: dict[str, Any]) -> str:
    check = found.get("check")
    size = f"`{found['model']}`, {found['inputs']} inputs, {found['questions']:,} questions."
    if check is None:
        return size
    rows = "every row" if "by name" in check else "six of the rows"  # earlier records tell no names
    agree = f"{check['ranks'] - check['different']:,} of {check['ranks']:,} ranks agree"
    return f"{size} Slow code in float64 ranked {rows} again on {check['inputs']} of the inputs: {agree}."
