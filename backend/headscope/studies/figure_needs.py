"""What each study figure needs of a study. Requests add these measures and lenses, and figures declare them; nothing here draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..core.right_key import SCORES
from ..effects.quantities import JUDGES

# A second variant, texts with entity labels, all of the figure's lenses, effects of heads, or labels that mark where heads should look.
Requirement = Literal["against", "labels", "lenses", "effects", "truth"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureNeeds:
    """The measures and lenses that are computed for a figure, and what else the study must have (`asks`)."""

    measures: tuple[str, ...] = ()
    lenses: tuple[str, ...] = ("weights",)
    asks: tuple[Requirement, ...] = ()


BOTH_LENSES = ("weights", "effective")
FIGURE_NEEDS: dict[str, FigureNeeds] = {
    "pattern-shares": FigureNeeds(measures=("patterns",), lenses=BOTH_LENSES),
    "token-types": FigureNeeds(measures=("token_types",), lenses=BOTH_LENSES),
    "lens-pair": FigureNeeds(lenses=BOTH_LENSES, asks=("lenses",)),
    "tuning": FigureNeeds(asks=("against",)),
    "special-maps": FigureNeeds(measures=("special_tokens",), lenses=BOTH_LENSES),
    "lens-cost": FigureNeeds(lenses=BOTH_LENSES, asks=("lenses",)),
    "connections": FigureNeeds(measures=("connections",), asks=("labels",)),
    "residual-ratio": FigureNeeds(measures=("residual_ratio",)),
    "token-similarity": FigureNeeds(measures=("token_similarity",)),
    "entropy": FigureNeeds(measures=("entropy",)),
    "pattern-grid": FigureNeeds(measures=("patterns",), asks=("lenses",)),
    "norms": FigureNeeds(measures=("token_norms",), lenses=("norm",)),
    "mixing-ratio": FigureNeeds(measures=("mixing_ratio",), lenses=("norm-residual",)),
    "head-entropy": FigureNeeds(measures=("entropy", "special_tokens")),
    "head-metrics": FigureNeeds(measures=("entropy", "head_roles", "qk_distance", "max_activation")),
    "effects": FigureNeeds(asks=("effects",)),
    "scores": FigureNeeds(asks=("truth",)),
}


def drawable_figures(document: Mapping[str, Any]) -> list[str]:
    """Return the names of the figures that can be drawn from a study, given its document."""
    return [name for name, needs in FIGURE_NEEDS.items() if _is_met(needs, document)]


def _is_met(needs: FigureNeeds, document: Mapping[str, Any]) -> bool:
    # Inputs that were passed as Python objects have no columns.
    labels = "labels" in (document["dataset"].get("chosen") or {"labels": ""})
    met: dict[Requirement, bool] = {
        "against": len(document["variants"]) > 1 and not document.get("not_compared"),
        "labels": labels,
        "lenses": set(needs.lenses) <= set(document["lenses"]),
        "truth": labels and SCORES.name in document["measures"],
        "effects": not JUDGES.keys().isdisjoint(document["measures"]),
    }
    return all(met[requirement] for requirement in needs.asks) and set(needs.measures) <= set(document["measures"])
