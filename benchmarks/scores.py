"""How often each lens puts its largest entry where the truth is: python -m benchmarks.scores [KIND ...] --data FOLDER

FOLDER has the data sets: blimp/ (github.com/alexwarstadt/blimp) and reactions/ (atom maps made by hand). Every input is kept in build/scores/ once it is
scored, so that an interrupted run continues where it was. The kind `faithfulness` needs no truth and no data: it compares the lenses with what happens to a
prediction without single edges of attention. Results are kept in docs/measured/scores.json, from which docs/scores.md is made.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headscope
from headscope import LENSES, Model
from headscope.errors import Unsupported
from headscope.models.catalog import Catalog
from headscope.settings import Settings
from headscope.studies.scores import Ranks, baselines, ranks

from .score_cases import SLOW, TRUTHS, Case, Missing
from .score_edges import faithfulness, measure, pieces
from .score_summary import Arrays, Judged, summary

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "scores"
TEXT = ROOT / "models" / "twins" / "sample" / "text.txt"
LEAST = 20  # inputs
KINDS = (*TRUTHS, "faithfulness")
TABLE = ROOT / "docs" / "measured" / "scores.json"


def main() -> None:
    """Score the named kinds, or all."""
    chosen = arguments("scores", __doc__)
    for kind in chosen.kinds:
        try:
            truth = kind in TRUTHS
            found = score(kind, chosen.data, chosen.inputs) if truth else without_edges(kind, chosen.inputs)
            keep(kind, found)
        except Missing as error:
            print(f"{kind}: {error}")


def arguments(name: str, description: str | None) -> argparse.Namespace:
    """Read the arguments of benchmarks.scores and benchmarks.score_check."""
    parser = argparse.ArgumentParser(f"python -m benchmarks.{name}", description=description)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"kinds (default: all): {', '.join(KINDS)}")
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with the data sets")
    parser.add_argument("--inputs", type=int, default=100, help="most inputs of each kind (default: 100)")
    chosen = parser.parse_args()
    if chosen.inputs < LEAST:
        parser.error(f"intervals need {LEAST} inputs")
    if unknown := set(chosen.kinds) - set(KINDS):
        parser.error(f"unknown kinds: {', '.join(sorted(unknown))}")
    chosen.kinds = chosen.kinds or list(KINDS)
    return chosen


def keep(kind: str, found: dict[str, Any]) -> None:
    """Write what was found of a kind into the table."""
    TABLE.write_text(json.dumps({**table(), kind: found}, indent=1) + "\n", "utf-8")


def table() -> dict[str, Any]:
    """Read the table, by kind."""
    found: dict[str, Any] = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    return found


def score(kind: str, data: Path, inputs: int) -> dict[str, Any]:
    """Return the scores of every lens on the inputs of a kind whose truth is known."""
    truth = TRUTHS[kind]
    model = load(truth.model)
    untrained, lenses, judged = random_twin(model), list[str](), list[Judged]()
    for number, case in enumerate(islice(truth.cases(model, data), inputs)):
        lenses = lenses or readable(model, case.ids, truth.without)
        found = once(kind, number, partial(judge, model, untrained, case, lenses))
        judged.append(Judged.of(ranks_in(found)))
    return {"title": truth.title, "model": truth.model, **summary(judged, truth.head)}


def without_edges(kind: str, inputs: int) -> dict[str, Any]:
    """Return how well every lens tells what happens without edges."""
    model = load("smollm2")
    texts = list(islice(pieces(model, TEXT.read_text("utf-8")), inputs))
    lenses = readable(model, texts[0], SLOW)
    found = [once(kind, number, partial(edges_of, model, ids, lenses, number)) for number, ids in enumerate(texts)]
    return {"title": "Effect of single edges", "model": "smollm2", **faithfulness(found)}


def edges_of(model: Model, ids: list[int], lenses: list[str], number: int) -> Arrays:
    """Measure the edges of one input for every lens, for baselines, for what heads contribute directly by source, and for weights times gradients."""
    maps = {**read(model, ids, lenses), **baselines(len(ids), len(ids))}
    rows = {name: one[:, :, -1] for name, one in maps.items() if name != "uniform"}  # of which no edge is the largest
    rows["random"] = np.random.default_rng(number).random(rows["weights"].shape)
    method = {"name": "contribution", "sources": True}
    rows["contribution"] = np.asarray(headscope.effect(model, token_ids=ids, method=method).sources)
    gradients = headscope.effect(model, token_ids=ids, method="gradient-attention")
    rows["gradient-attention"] = np.asarray(gradients.maps)[:, :, -1]
    return measure(model, ids, rows, number)


def once(kind: str, number: int, compute: Callable[[], Arrays]) -> Arrays:
    """Return what is stored of an input, or compute and store it: a file is there as a whole or not at all."""
    path = BUILD / kind / f"{number}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez_compressed(file, **compute())
        part.replace(path)
        print(f"{kind}: {number + 1}", flush=True)
    with np.load(path) as file:
        return dict(file)


def load(name: str) -> Model:
    """Load a model that is shipped, or one of the catalogue. Raises Missing if it is not installed."""
    shipped = ROOT / "models" / name
    if not shipped.is_dir() and not Catalog(Settings()).installed(name).is_dir():
        raise Missing(f"The model is not installed: headscope models install {name}")
    return headscope.load(shipped if shipped.is_dir() else name)


def random_twin(model: Model) -> Model:
    """Return a model of the same shape with random weights."""
    torch.manual_seed(0)
    return headscope.load(type(model.module)(model.module.config).eval())


def readable(model: Model, ids: list[int], without: tuple[str, ...] = ()) -> list[str]:
    """Return the lenses that read the model."""
    found = []
    for lens in (name for name in LENSES if name not in without):
        try:
            read(model, ids, [lens])
        except Unsupported:
            continue
        found.append(lens)
    return found


def read(model: Model, ids: list[int], lenses: list[str]) -> Arrays:
    """Return the maps of an input, lens -> [L, H, Q, K]."""
    return headscope.analyze(model, token_ids=ids, lenses=lenses, measures=()).maps


def judge(model: Model, untrained: Model, case: Case, lenses: list[str]) -> Arrays:
    """Return the ranks of every lens and baseline, as "NAME/larger" and "NAME/equal"."""
    maps = {**read(model, case.ids, lenses), **baselines(len(case.ids), len(case.ids))}
    maps["random-model"] = read(untrained, case.ids, ["weights"])["weights"]
    found = {name: ranks(one, case.questions) for name, one in maps.items()}
    return {f"{name}/{part}": getattr(one, part) for name, one in found.items() for part in Ranks._fields}


def ranks_in(arrays: Arrays) -> dict[str, Ranks]:
    """Return the ranks of every lens."""
    found = dict.fromkeys(key.partition("/")[0] for key in arrays)
    return {name: Ranks(arrays[f"{name}/larger"], arrays[f"{name}/equal"]) for name in found}


if __name__ == "__main__":
    main()
