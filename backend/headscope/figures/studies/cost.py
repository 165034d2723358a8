"""What reading through each lens costs, beside the forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.csv_text import Cell
from ...core.declarations import NoParams
from ...errors import NotReady
from ...lenses import LENSES
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..paper import Palette, axis, layout, plain, said
from .figure import StudyFigure, titles


def lens_cost(study: StudySummary, params: NoParams, palette: Palette) -> Drawing:
    """Bars of the milliseconds per input: the forward pass, each lens, and the measures."""
    names, times, rows, words = list[str](), list[float](), list[list[Cell]](), list[str]()
    for one, spent in zip(titles(study), study.document["timing_ms"], strict=True):
        parts = _parts(spent)
        if not parts.get("forward pass"):
            raise NotReady("The study did not keep how long it took. Send it again.")
        forward = parts["forward pass"]
        for part, ms in parts.items():
            names.append(f"{part}, {one}" if len(study.variants) > 1 else part)
            times.append(ms / study.inputs)
            rows.append([one, part, *plain([ms / 1e3, ms / study.inputs, ms / forward, (forward + ms) / forward], 7)])
        shown = [f"{part} {said(ms / forward)}" for part, ms in parts.items() if part != "forward pass"]
        words.append(f"{one}: {', '.join(shown)}")
    bars: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": plain(times),
        "marker": {"color": [palette.muted if name.startswith("forward") else palette.more for name in names]},
        "customdata": [[None, None, *plain([row[4]], 4)] for row in rows],
        "hovertemplate": "%{y}<br>%{x:.3g} ms per input, %{customdata[2]:.2f} of the forward pass<extra></extra>",
    }
    down = {**axis(palette, ""), "autorange": "reversed", "ticks": "", "showline": False}
    return Drawing(
        [bars],
        layout(palette, axis(palette, "milliseconds per input", grid=True, rangemode="tozero"), down),
        f"Time as parts of the forward pass, {study.inputs} inputs. {'; '.join(words)}.",
        ("variant", "part", "seconds", "ms_per_input", "of_forward_pass", "factor"),
        rows,
    )


def _parts(spent: Mapping[str, float]) -> dict[str, float]:
    """Milliseconds of the forward pass, of every lens, and of what is computed from them."""
    lenses = {LENSES[name.removeprefix("lens/")].title: ms for name, ms in spent.items() if name.startswith("lens/")}
    rest = {"measures": max(0.0, spent.get("lenses", 0.0) - sum(lenses.values()))}
    return {"forward pass": spent.get("forward", 0.0), **lenses, **rest}


LENS_COST = StudyFigure(
    name="lens-cost",
    title="Cost of the lenses",
    doc="How long the forward pass, each lens and the measures took, per input: what reading effective attention costs on top of running the model.",
    not_="Not a benchmark: times of the machine that ran the study, with whatever else ran on it. The paper's factor of two comes from a full decomposition, which "
    "the definition does not need.",
    citation="Sun & Marasović 2021, table 3",
    unit="ms",
    range=(0.0, None),
    lenses=("weights", "effective"),
    asks=("lenses",),
    draw=lens_cost,
)
