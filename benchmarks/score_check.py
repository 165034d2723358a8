"""The scores again, slowly: python -m benchmarks.score_check [KIND ...] --data FOLDER

Runs the models in float64 with code that shares nothing with Headscope's lenses or with benchmarks.scores: weights that eager attention returns, values from
hooks, definitions written out. It judges what benchmarks.scores has stored in build/scores/: ranks of the lenses `weights`, `effective`, `effective-simplex`,
`null`, `norm` and `rollout` at three questions of every input, and the effects of two edges. Ranks agree if they are equal once entries closer than TOLERANCE of
the largest count as equal. What was found is kept beside the scores, in docs/measured/scores.json.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from headscope import Model
from headscope.studies.scores import KeyQuestion, Ranks

from .score_cases import TRUTHS, Case, Missing
from .score_edges import pieces
from .scores import BUILD, TEXT, arguments, keep, load, table

TOLERANCE = 1e-5
EDGES = 2
EPSILON = float(np.finfo(np.float32).eps)  # of the arithmetic whose null space is judged
VALUES = ("v_proj", "attention.value")
OUTPUTS = ("o_proj", "attention.dense")


class Pass(NamedTuple):
    """What a model computes: weights [L, H, Q, K], values [L, K, G, D], output projections [L, H, D, d], and the logits at the last token."""

    weights: np.ndarray
    values: np.ndarray
    outputs: np.ndarray
    logits: np.ndarray | None


class Slow:
    """A model in float64, as transformers computes it: a copy."""

    def __init__(self, model: Model) -> None:
        self._module = copy.deepcopy(model.module).double().eval()
        self._module.set_attn_implementation("eager")

    def run(self, ids: list[int]) -> Pass:
        """Run the model as it is."""
        values: list[torch.Tensor] = []
        hooks = [
            one.register_forward_hook(lambda part, args, out: values.append(out[0])) for one in self._parts(VALUES)
        ]
        with torch.no_grad():
            output = self._module(torch.tensor([ids]), output_attentions=True)
        for hook in hooks:
            hook.remove()
        weights = torch.cat(output.attentions).numpy()
        layers, heads = weights.shape[:2]
        parts = self._parts(OUTPUTS)
        written = np.stack([parts[layer % len(parts)].weight.detach().numpy().T for layer in range(layers)])
        split = written.reshape(layers, heads, -1, written.shape[-1])
        width = split.shape[2]
        logits = output.logits[0, -1].numpy() if "logits" in output else None
        return Pass(weights, torch.stack(values).unflatten(-1, (-1, width)).numpy(), split, logits)

    def without(self, ids: list[int], layer: int, head: int, change: np.ndarray) -> np.ndarray:
        """Return the logits at the last token if `change` [D] is taken from what a head writes there."""

        def take(part: Any, args: Any) -> Any:
            given = args[0].clone()
            given[0, -1, head * len(change) : (head + 1) * len(change)] -= torch.from_numpy(change)
            return (given,)

        hook = self._parts(OUTPUTS)[layer].register_forward_pre_hook(take)
        with torch.no_grad():
            logits: np.ndarray = self._module(torch.tensor([ids])).logits[0, -1].numpy()
        hook.remove()
        return logits

    def _parts(self, names: tuple[str, ...]) -> list[Any]:
        return [part for name, part in self._module.named_modules() if name.endswith(names)]


def rows_of(run: Pass, layer: int, head: int, query: int, keys: int) -> dict[str, np.ndarray]:
    """Return the row of a query, of which it sees the first `keys` keys, through every lens that is checked here."""
    weights = run.weights[layer, head, query, :keys]
    group = head // (run.weights.shape[1] // run.values.shape[2])
    values = run.values[layer, :keys, group]
    ones = np.full((keys, 1), np.sqrt(np.square(run.values[layer, :, group]).mean()))
    effective = projected(weights, values)
    return {
        "weights": weights,
        "effective": effective,
        "effective-simplex": projected(weights, np.concatenate([values, ones], 1)),
        "null": weights - effective,
        "norm": weights * np.linalg.norm(values @ run.outputs[layer, head], axis=1),
    }


def projected(row: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Project a row [K] on the column space of values [K, D]."""
    left, sizes, _ = np.linalg.svd(values, full_matrices=False)
    basis = left[:, sizes > sizes[0] * max(values.shape) * EPSILON]
    return row if basis.shape[1] == len(row) else basis @ (basis.T @ row)


def rolled(run: Pass) -> np.ndarray:
    """Return the rollout up to every layer, [L, Q, K]."""
    found, before = [], np.eye(run.weights.shape[-1])
    for weights in run.weights:
        mixed = np.stack(list(weights)).sum(0) / len(weights) / 2 + np.eye(len(before)) / 2
        before = mixed @ before
        found.append(before)
    return np.stack(found)


def agrees(row: np.ndarray, question: KeyQuestion, larger: int, equal: int) -> bool:
    """Return whether a rank is that of a row, apart from rounding."""
    margin = TOLERANCE * max(abs(float(entry)) for entry in row)
    own = max(float(row[key]) for key in question.right)
    others = [float(row[key]) for key in question.keys if key not in question.right]
    surely = sum(entry > own + margin for entry in others)
    possibly = sum(entry >= own - margin for entry in others)
    return surely <= larger and larger + equal <= possibly


def check_truth(kind: str, data: Path, inputs: int) -> dict[str, Any]:
    """Judge the stored ranks of a kind."""
    truth = TRUTHS[kind]
    model = load(truth.model)
    slow = Slow(model)
    judged, wrong, number = 0, 0, 0
    for number, case in enumerate(islice(truth.cases(model, data), inputs), 1):
        path = BUILD / kind / f"{number - 1}.npz"
        if not path.exists():
            number -= 1
            break
        with np.load(path) as file:
            verdicts = list(check(slow.run(case.ids), case, dict(file), model.facts.kind == "decoder"))
        judged, wrong = judged + len(verdicts), wrong + verdicts.count(False)
    return {"inputs": number, "ranks": judged, "different": wrong}


def check(run: Pass, case: Case, stored: dict[str, np.ndarray], causal: bool) -> Iterator[bool]:
    """Yield whether ranks agree: those of every head, at the first, the middle and the last question."""
    layers, heads, count, _ = run.weights.shape
    rollout = rolled(run)
    for place in sorted({0, len(case.questions) // 2, len(case.questions) - 1}):
        question = case.questions[place]
        seen = question.query + 1 if causal else count
        rows = {("rollout", layer, 0): rollout[layer, question.query] for layer in range(layers)}
        for layer, head in np.ndindex(layers, heads):
            found = rows_of(run, layer, head, question.query, seen)
            rows |= {(name, layer, head): row for name, row in found.items()}
        for (name, layer, head), row in rows.items():
            larger, equal = (int(stored[f"{name}/{part}"][place, layer, head]) for part in Ranks._fields)
            yield agrees(row, question, larger, equal)


def check_edges(kind: str, inputs: int) -> dict[str, Any]:
    """Compute the effects of some stored edges again: the largest difference, relative to the largest effect of the input."""
    model = load("smollm2")
    slow = Slow(model)
    judged, difference, number = 0, 0.0, 0
    for number, ids in enumerate(islice(pieces(model, TEXT.read_text("utf-8")), inputs), 1):
        path = BUILD / kind / f"{number - 1}.npz"
        if not path.exists():
            number -= 1
            break
        with np.load(path) as file:
            edges, effect = file["edges"], file["effect"]
        run = slow.run(ids)
        for place in range(EDGES):
            again = slow_effect(slow, run, ids, *map(int, edges[place]))
            difference = max(difference, abs(again - float(effect[place])) / float(np.abs(effect).max()))
            judged += 1
    return {"inputs": number, "edges": judged, "difference": float(f"{difference:.1e}")}


def slow_effect(slow: Slow, run: Pass, ids: list[int], layer: int, head: int, key: int) -> float:
    """Return by how much the largest logit falls without an edge of the last token."""
    assert run.logits is not None
    group = head // (run.weights.shape[1] // run.values.shape[2])
    taken = run.weights[layer, head, -1, key] * run.values[layer, key, group]
    target = int(run.logits.argmax())
    return float(run.logits[target] - slow.without(ids, layer, head, taken)[target])


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
