"""The figures of the page's gallery: drawn from fixed numbers, as JSON.

    .venv/bin/python -m tests.unit.figures.fixed

writes frontend/gallery/figures.json; a test fails if it differs from what the code draws.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from headscope.figures import FIGURES
from headscope.figures.theme import PALETTES
from headscope.measures import MEASURES
from headscope.store.export import Flat

FILE = Path(__file__).parents[3] / "frontend" / "gallery" / "figures.json"
LAYERS, HEADS, TOKENS = 6, 12, 34


def numbers() -> Flat:
    """Measures of the shape that an analysis has; no model was asked."""
    random = np.random.default_rng(7)
    layer = np.arange(LAYERS)[:, None, None]

    def columns(measure: str, *shape: int, **known: Any) -> Any:
        values = np.full((*shape, len(MEASURES[measure].columns)), np.nan)
        for name, given in known.items():
            values[..., MEASURES[measure].columns.index(name)] = given
        return values

    bins = np.exp(-(((np.arange(40) - 22 - 2 * np.arange(LAYERS)[:, None]) / 4) ** 2))
    shares = {f"bin_{place:02d}": share for place, share in enumerate((bins / bins.sum(1, keepdims=True)).T)}
    middle = 0.12 + 0.1 * np.arange(LAYERS)
    counts = (1, 2, 4, 8, 16, 32, 64)
    energy = {f"share_{count}": 1 - np.exp(-count / (6 + 3 * np.arange(LAYERS))) for count in counts}
    kinds = (np.arange(LAYERS)[:, None] * 5 + np.arange(HEADS) * 7) % 5
    found = {
        "entropy": {"weights": random.beta(4, 2 + layer / 3, (LAYERS, HEADS, TOKENS)) * np.log(TOKENS)},
        "token_similarity": {
            "weights": columns(
                "token_similarity", LAYERS, **shares, mode=middle, median=middle, mean=middle, low=middle - 0.2, high=middle + 0.2
            )
        },
        "residual_ratio": {"weights": 0.9 * 0.7 ** np.arange(LAYERS)},
        "rank": {"weights": columns("rank", LAYERS, HEADS, effective=random.gamma(4, 3 - layer[..., 0] / 3, (LAYERS, HEADS)))},
        "patterns": {"weights": columns("patterns", LAYERS, HEADS, **{"class": kinds})},
        "token_types": {
            lens: columns("token_types", LAYERS, HEADS, special=0.5 / at, punct=0.1, word=0.16 * at, subword=0.05)
            for at, lens in enumerate(("weights", "effective"), 1)
        },
        "qk_spectrum_layer": {"weights": columns("qk_spectrum_layer", LAYERS, **energy, most=64, dims_90=14 + 7 * np.arange(LAYERS))},
    }  # fmt: skip
    document = {
        "layers": list(range(LAYERS)),
        "heads": list(range(HEADS)),
        "measures": {
            measure: {lens: list(each.shape) for lens, each in lenses.items()} for measure, lenses in found.items()
        },
        "request": {"measures": [{"name": measure} for measure in found]},
    }
    arrays = {f"measure/{measure}/{lens}": each for measure, lenses in found.items() for lens, each in lenses.items()}
    return Flat(document, {**arrays, "keys": np.full((LAYERS, TOKENS), TOKENS)})


def _key(name: str, params: dict[str, Any]) -> str:
    return f"{name} by head" if params else name


def drawn() -> dict[str, Any]:
    """Declarations, and by theme every figure; of the entropy also that by head."""
    held = numbers()
    asked: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in FIGURES] + [("entropy", {"layer": 4})]
    tables = {
        _key(name, params): FIGURES[name].build(held, FIGURES[name].params(**params)).csv() for name, params in asked
    }
    return {"tables": tables, "declared": [figure.describe() for figure in FIGURES.values()]} | {
        theme: {
            _key(name, params): FIGURES[name].build(held, FIGURES[name].params(**params), theme).figure()
            for name, params in asked
        }
        for theme in PALETTES
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(drawn(), separators=(",", ":")) + "\n", "utf-8")
