"""The scores again, slowly: python -m benchmarks.score_check [KIND ...] --data FOLDER

Runs the models in float64 with code that shares nothing with Headscope's lenses or with benchmarks.scores: the models written out (score_slow.py), and the
definitions of all lenses and attribution maps (score_maps.py). It judges what benchmarks.scores has stored in build/scores/: the ranks of every lens at three
questions of every input, and of every attribution map at the last one; and of edges the entries of every name and the effects of two edges. Ranks agree if they
are equal once entries closer than TOLERANCE of the largest count as equal. What was found is kept beside the scores, in docs/measured/scores.json.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from headscope.studies.scores import KeyQuestion, Ranks

from .score_cases import TRUTHS, Case, Missing
from .score_edges import pieces
from .score_maps import WAYS, SlowMaps
from .score_slow import Cut, Slow, numbers, slow
from .scores import BUILD, TEXT, arguments, keep, load, random_twin, stored, table

TOLERANCE = 1e-5
EDGES = 2
ABOUT_TARGETS = {*WAYS, "integrated-gradients"}
BASELINES = {
    "uniform": lambda query, keys: np.ones(keys),
    "previous-token": lambda query, keys: np.arange(keys) == query - 1,
    "first-token": lambda query, keys: np.arange(keys) == 0,
}


def agrees(row: np.ndarray, question: KeyQuestion, larger: int, equal: int) -> bool:
    """Return whether a rank is that of a row, apart from rounding. An entry without a reading is the smallest."""
    row = np.nan_to_num(row, nan=-np.inf)
    margin = TOLERANCE * float(np.abs(row[np.isfinite(row)]).max(initial=0))
    own = row[question.right].max()
    others = row[[key for key in question.keys if key not in question.right]]
    surely, possibly = (others > own + margin).sum(), (others >= own - margin).sum()
    return bool(surely <= larger and larger + equal <= possibly)


def check_truth(kind: str, data: Path, inputs: int) -> dict[str, Any]:
    """Judge the stored ranks of a kind."""
    truth = TRUTHS[kind]
    model = load(truth.model)
    known, untrained, counts, number = (
        slow(model.module),
        slow(random_twin(model).module),
        Counter[tuple[str, bool]](),
        0,
    )
    for number, case in enumerate(islice(truth.cases(model, data), inputs), 1):
        found = stored(BUILD / kind / f"{number - 1}.npz")
        if not found:
            number -= 1
            break
        counts.update(check(known, untrained, case, found))
        print(f"{kind}: {number} inputs, {counts.total():,} ranks", flush=True)
    different = {name: count for (name, right), count in counts.items() if not right}
    return {"inputs": number, "ranks": counts.total(), "different": sum(different.values()), "by name": different}


def check(known: Slow, untrained: Slow, case: Case, found: Mapping[str, np.ndarray]) -> Iterator[tuple[str, bool]]:
    """Yield every name with whether a rank agrees: those of every head, at the first, the middle and the last question."""
    maps, others = SlowMaps(known, case.ids), SlowMaps(untrained, case.ids)
    names = dict.fromkeys(key.partition("/")[0] for key in found)
    last = len(case.questions) - 1
    for place in sorted({0, len(case.questions) // 2, last}):
        question = case.questions[place]
        target = case.target or (int(maps.logits(question.query).argmax()),)
        for name in names if place == last else [one for one in names if one not in ABOUT_TARGETS]:
            if name in BASELINES:
                rows = BASELINES[name](question.query, len(case.ids))[None, None]
            elif name == "random-model":
                rows = others.row("weights", question.query)
            else:
                rows = maps.row(name, question.query, target)
            at = 0 if name in ABOUT_TARGETS else place
            larger, equal = (found[f"{name}/{part}"][at] for part in Ranks._fields)
            for head in np.ndindex(rows.shape[:2]):
                yield name, agrees(rows[head], question, int(larger[head]), int(equal[head]))


def check_edges(kind: str, inputs: int) -> dict[str, Any]:
    """Compute the entries of all stored edges, and some effects, again: the largest difference, relative to the largest entry or effect of the input."""
    model = load("smollm2")
    known, judged, difference, entries, number = slow(model.module), 0, 0.0, dict[str, float](), 0
    for number, ids in enumerate(islice(pieces(model, TEXT.read_text("utf-8")), inputs), 1):
        found = stored(BUILD / kind / f"{number - 1}.npz")
        if not found:
            number -= 1
            break
        maps = SlowMaps(known, ids)
        again = [effect_of(maps, *map(int, edge)) for edge in found["edges"][:EDGES]]
        judged += len(again)
        difference = max(difference, *(np.abs(again - found["effect"][:EDGES]) / np.abs(found["effect"]).max()))
        for name, one in entry_differences(maps, found):
            entries[name] = max(entries.get(name, 0.0), one)
        print(f"{kind}: {number} inputs", flush=True)
    by_name = {name: float(f"{one:.1e}") for name, one in entries.items()}
    return {"inputs": number, "edges": judged, "difference": float(f"{difference:.1e}"), "entries": by_name}


def entry_differences(maps: SlowMaps, found: Mapping[str, np.ndarray]) -> Iterator[tuple[str, float]]:
    """Yield by how much the stored entries of the edges of every name differ from the definition, relative to the largest of them."""
    last = maps.count - 1
    target = (int(maps.logits(last).argmax()),)
    shape = len(maps.layers), len(maps.layers[0].weights), maps.count
    for name in (key.removesuffix("/entry") for key in found if key.endswith("/entry")):
        if name != "random":
            rows = BASELINES[name](last, maps.count)[None, None] if name in BASELINES else maps.row(name, last, target)
            own = np.broadcast_to(rows, shape)[tuple(found["edges"].T)]
            largest = np.abs(own).max()
            yield name, float(np.abs(own - found[f"{name}/entry"]).max() / largest) if largest else 0.0


def effect_of(maps: SlowMaps, layer: int, head: int, key: int) -> float:
    """Return by how much the largest logit falls without an edge of the last token."""
    before = maps.logits(-1)
    without = maps.slow.layers(maps.ids, cut=Cut(layer, head, key))[-1].after[-1]
    return float((before - numbers(maps.slow.logits(without)))[before.argmax()])


def main() -> None:
    """Check the named kinds, or all."""
    chosen = arguments("score_check", __doc__)
    for kind in chosen.kinds:
        try:
            truth = kind in TRUTHS
            found = check_truth(kind, chosen.data, chosen.inputs) if truth else check_edges(kind, chosen.inputs)
        except Missing as error:
            print(f"{kind}: {error}")
            continue
        print(kind, found, flush=True)
        keep(kind, {**table()[kind], "check": found})


if __name__ == "__main__":
    main()
