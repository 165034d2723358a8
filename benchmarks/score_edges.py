"""What happens to a prediction without single edges of attention, and how well lenses tell, for benchmarks.scores.

An edge is what the last token, at which a decoder predicts, takes from one token through one head: the weight is set to 0 after the softmax, the others stay.
Nothing that another token reads changes, so the tokens before are computed once, and many edges are judged in one batch of last tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface, DynamicCache

from headscope import Model
from headscope.models.modules import configured

from .score_summary import Arrays, Bootstrap, interval

NAME = "headscope_edges"
BOUNDS = (0.001, 0.01, 0.05, 0.2)  # of weights, between strata
EDGES = 520  # of an input
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)  # of all edges, that are kept
BATCH = 64
TOKENS = 80  # of an input: more than a head is wide, so that weights have a null space


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    keep: Tensor,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Attend from the last token: query [B, H, 1, D], key and value [B, G, K, D] -> [B, 1, H, D]. `keep` [B, L, H, K] is 0 where an edge is cut, otherwise 1."""
    group = query.shape[1] // key.shape[1]
    key, value = (one.repeat_interleave(group, 1) for one in (key, value))
    weights = (query @ key.mT * scaling).softmax(-1) * keep[:, module.layer_idx, :, None]
    return (weights @ value).transpose(1, 2), None


AttentionInterface.register(NAME, attend)


def logits_with(model: Model, ids: list[int], keep: Tensor) -> Tensor:
    """Return the logits [B, vocabulary] at the last token of a decoder with the edges that are kept, [B, L, H, K]."""
    with torch.inference_mode(), configured(model.module):
        model.module.set_attn_implementation("eager")
        before = model.module(torch.tensor([ids[:-1]]), use_cache=True).past_key_values
        model.module.set_attn_implementation(NAME)
        return torch.cat([_last(model, before, ids[-1], part) for part in keep.split(BATCH)])


def _last(model: Model, before: DynamicCache, last: int, keep: Tensor) -> Tensor:
    cache = copy.deepcopy(before)
    cache.batch_repeat_interleave(len(keep))
    logits: Tensor = model.module(torch.full((len(keep), 1), last), past_key_values=cache, keep=keep).logits[:, -1]
    return logits


def effects(model: Model, ids: list[int], edges: np.ndarray, shape: tuple[int, ...]) -> tuple[int, np.ndarray]:
    """Return the largest logit, and by how much it falls without each of the edges, [E]. `edges` [E, 3] are layer, head and key; `shape` is [L, H, K]."""
    keep = torch.ones(1 + len(edges), *shape)
    keep[(torch.arange(1, len(keep)), *torch.from_numpy(edges.T))] = 0
    logits = logits_with(model, ids, keep)
    target = int(logits[0].argmax())
    return target, (logits[0, target] - logits[1:, target]).numpy()


def draw(weights: np.ndarray, seed: int) -> np.ndarray:
    """Draw edges [E, 3] from weights [L, H, K], as many of every stratum of weights as of any other, where it has enough."""
    order = np.random.default_rng(seed).permutation(weights.size)
    strata = np.digitize(weights.ravel()[order], BOUNDS)
    turn = np.empty(len(order), int)
    for stratum in range(len(BOUNDS) + 1):
        turn[strata == stratum] = np.arange((strata == stratum).sum())
    chosen = order[np.argsort(turn, kind="stable")[:EDGES]]
    return np.stack(np.unravel_index(chosen, weights.shape), 1)


def pieces(model: Model, text: str, count: int = TOKENS) -> Iterator[list[int]]:
    """Cut a text into pieces of equal length."""
    ids = [token.id for token in model.encode(text).tokens]
    for start in range(0, len(ids) - count + 1, count):
        yield ids[start : start + count]


def measure(model: Model, ids: list[int], rows: Arrays, seed: int) -> Arrays:
    """Return what happens without edges, and what lenses tell of them. `rows` are those of the last token, lens -> [L, H or 1, K]; the weights are one of them.

    edges            [E, 3] that were drawn: layer, head and key
    effect, stratum  [E] of them
    whole            probability of the prediction, the token with the largest logit
    NAME/entry       [E] entries of the lens
    NAME/kept        [shares] the same probability with no edges but those of largest entries, by magnitude, of all heads
    """
    shape = rows["weights"].shape
    rows = {name: np.broadcast_to(one, shape) for name, one in rows.items()}
    edges = draw(rows["weights"], seed)
    target, effect = effects(model, ids, edges, shape)
    kept = {name: _kept(one, np.random.default_rng(seed)) for name, one in rows.items()}
    keep = torch.from_numpy(np.concatenate([np.ones((1, *shape)), *kept.values()])).float()
    probabilities = logits_with(model, ids, keep).softmax(-1)[:, target].numpy()
    found = {
        "edges": edges,
        "effect": effect,
        "stratum": np.digitize(rows["weights"][tuple(edges.T)], BOUNDS),
        "whole": probabilities[0],
    }
    for name, curve in zip(kept, probabilities[1:].reshape(-1, len(SHARES)), strict=True):
        found |= {f"{name}/entry": rows[name][tuple(edges.T)], f"{name}/kept": curve}
    return found


def _kept(entries: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return which edges are kept for every share, [shares, L, H, K] (0 or 1); equal entries come in random order."""
    size = np.abs(np.nan_to_num(entries)).ravel()
    place = np.empty(size.size)
    place[np.lexsort((generator.random(size.size), -size))] = np.arange(size.size) / size.size
    return np.stack([(place < share).reshape(entries.shape) for share in SHARES]).astype(float)


def correlation(entries: np.ndarray, effect: np.ndarray) -> float:
    """Return the rank correlation (Spearman) of two lists of magnitudes; 0 if one is constant."""
    one, other = (_ranks(np.abs(np.nan_to_num(values))) for values in (entries, effect))
    one, other = one - one.mean(), other - other.mean()
    size = np.sqrt((one @ one) * (other @ other))
    return float(one @ other / size) if size else 0.0


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the ranks of values; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks


def faithfulness(found: list[Arrays], names: list[str]) -> dict[str, Any]:
    """Return the scores of every name, each with an interval over inputs.

    correlation  of its entries with the effects of the edges, by rank and magnitude, and `within` strata of nearly equal weights
    area         mean over SHARES of the probability of the prediction with the kept edges only, relative to that with all
    """
    inputs = Bootstrap.of(np.ones(len(found)))
    relative = Bootstrap(inputs.weights, np.array([float(one["whole"]) for one in found]))
    lenses = {}
    for name in names:
        whole = np.array([correlation(one[f"{name}/entry"], one["effect"]) for one in found])
        within = np.array([_within(one[f"{name}/entry"], one["effect"], one["stratum"]) for one in found])
        area = np.array([one[f"{name}/kept"].mean() for one in found])
        lenses[name] = {
            "correlation": inputs.means(whole),
            "within": inputs.means(within),
            "area": relative.means(area),
        }
    base = lenses["weights"]
    table = {
        name: {of: interval(one) for of, one in scores.items()}
        | {f"{of} against": interval(one - base[of]) for of, one in scores.items()}
        for name, scores in lenses.items()
    }
    return {"inputs": len(found), "edges": sum(len(one["effect"]) for one in found), "lenses": table}


def _within(entries: np.ndarray, effect: np.ndarray, strata: np.ndarray) -> float:
    return float(np.mean([correlation(entries[strata == one], effect[strata == one]) for one in np.unique(strata)]))
