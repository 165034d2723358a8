"""How often each lens puts its largest entry where the truth is: python -m benchmarks.scores [KIND ...] --data FOLDER

FOLDER has the data sets: blimp/ (github.com/alexwarstadt/blimp) and reactions/ (atom maps made by hand). What is found of an input is kept in build/scores/, so
that an interrupted run continues where it was, and a new lens costs only itself. The kind `faithfulness` needs no truth and no data: it compares the lenses with what happens to a
prediction without single edges of attention. Results are kept in docs/measured/scores.json, from which docs/scores.md is made.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headscope
from headscope import EFFECTS, LENSES, Model
from headscope.errors import Unsupported
from headscope.models.catalog import Catalog
from headscope.settings import Settings
from headscope.studies.scores import BASELINES, Ranks, baselines, ranks

from .score_cases import SLOW, TRUTHS, Case, Missing
from .score_edges import faithfulness, measure, pieces
from .score_summary import Arrays, Judged, summary

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "scores"
TEXT = ROOT / "models" / "twins" / "sample" / "text.txt"
LEAST = 20  # inputs
KINDS = (*TRUTHS, "faithfulness")
ATTRIBUTIONS = tuple(name for name, method in EFFECTS.items() if method.maps)
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
    """Return the scores of every lens and attribution map on the inputs of a kind whose truth is known."""
    truth = TRUTHS[kind]
    model = load(truth.model)
    untrained, names, judged = random_twin(model), list[str](), list[Judged]()
    for number, case in enumerate(islice(truth.cases(model, data), inputs)):
        names = names or [*readable(model, case.ids, truth.without), *BASELINES, "random-model"]
        found = once(kind, number, names, partial(judge, model, untrained, case))
        judged.append(Judged.of(ranks_in(found, names)))
    return {"title": truth.title, "model": truth.model, **summary(judged, truth.head)}


def without_edges(kind: str, inputs: int) -> dict[str, Any]:
    """Return how well every lens and attribution map tells what happens without edges."""
    model = load("smollm2")
    texts = list(islice(pieces(model, TEXT.read_text("utf-8")), inputs))
    names = [*readable(model, texts[0], SLOW), "previous-token", "first-token", "random", "contribution"]
    found = [once(kind, number, names, partial(edges_of, model, ids, number)) for number, ids in enumerate(texts)]
    return {"title": "Effect of single edges", "model": "smollm2", **faithfulness(found, names)}


def edges_of(model: Model, ids: list[int], number: int, names: list[str]) -> Arrays:
    """Measure the edges of one input for lenses and attribution maps, for baselines, and for what heads contribute directly by source."""
    maps = {**read(model, ids, dict.fromkeys(["weights", *names])), **baselines(len(ids), len(ids))}
    rows = {name: one[:, :, -1] for name, one in maps.items() if name in {"weights", *names}}
    if "random" in names:
        rows["random"] = np.random.default_rng(number).random(rows["weights"].shape)
    if "contribution" in names:
        method = {"name": "contribution", "sources": True}
        rows["contribution"] = np.asarray(headscope.effect(model, token_ids=ids, method=method).sources)
    rows |= {name: attribution(model, ids, name)[:, :, -1] for name in names if name in ATTRIBUTIONS}
    return measure(model, ids, rows, number)


def once(kind: str, number: int, names: list[str], compute: Callable[[list[str]], Arrays]) -> Arrays:
    """Return what is stored of an input; what is missing of some names is computed and stored. A file is there as a whole or not at all."""
    path = BUILD / kind / f"{number}.npz"
    found = stored(path)
    missing = [name for name in names if not any(key.startswith(f"{name}/") for key in found)]
    if missing:
        found |= compute(missing)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez_compressed(file, **found)
        part.replace(path)
        print(f"{kind}: {number + 1}", flush=True)
    return found


def stored(path: Path) -> dict[str, np.ndarray]:
    """Return what a file keeps of an input; nothing if there is none."""
    if not path.exists():
        return {}
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
    """Return the lenses that read the model, and the attribution maps that it has."""
    found = []
    for name in (one for one in (*LENSES, *ATTRIBUTIONS) if one not in without):
        try:
            attribution(model, ids, name, position=-1) if name in ATTRIBUTIONS else read(model, ids, [name])
        except Unsupported:
            continue
        found.append(name)
    return found


def read(model: Model, ids: list[int], names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return the maps of an input by those of the names that are lenses, [L, H, Q, K] each."""
    lenses = [name for name in names if name in LENSES]
    maps: dict[str, np.ndarray] = (
        headscope.analyze(model, token_ids=ids, lenses=lenses, measures=()).maps if lenses else {}
    )
    return maps


def attribution(
    model: Model, ids: list[int], name: str, target: tuple[int, int] | None = None, position: int | None = None
) -> np.ndarray:
    """Return the maps of a method for effects, [L, H, Q, K]: of the difference of two logits, or of the largest one."""
    return np.asarray(headscope.effect(model, token_ids=ids, target=target, position=position, method=name).maps)


def judge(model: Model, untrained: Model, case: Case, names: list[str]) -> Arrays:
    """Return the ranks of lenses, attribution maps and baselines, as "NAME/larger" and "NAME/equal"."""
    maps = {**read(model, case.ids, names), **baselines(len(case.ids), len(case.ids))}
    if "random-model" in names:
        maps["random-model"] = read(untrained, case.ids, ["weights"])["weights"]
    found = {name: ranks(maps[name], case.questions) for name in names if name in maps}
    found |= {name: attributed(model, case, name) for name in names if name in ATTRIBUTIONS}
    return {f"{name}/{part}": getattr(one, part) for name, one in found.items() for part in Ranks._fields}


def attributed(model: Model, case: Case, name: str) -> Ranks:
    """Return the ranks of an attribution map at the last question: every question has another map, of which what the model predicts at its query is the target."""
    last = case.questions[-1:]
    return ranks(attribution(model, case.ids, name, case.target, last[0].query), last)


def ranks_in(arrays: Arrays, names: list[str]) -> dict[str, Ranks]:
    """Return the ranks of lenses, attribution maps and baselines."""
    return {name: Ranks(arrays[f"{name}/larger"], arrays[f"{name}/equal"]) for name in names}


if __name__ == "__main__":
    main()
