"""The time that each lens takes, compared with the forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.csv_text import Cell
from ...core.declarations import NoParams
from ...errors import NotReady
from ...lenses import LENSES
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..theme import Palette, axis, format_number, layout, to_json, value_axis
from .figure import StudyFigure, variant_names


def draw_lens_cost(study: StudySummary, params: NoParams, palette: Palette) -> Drawing:
    """Draw bars of the milliseconds per input: the forward pass, each lens, and the measures."""
    names, times, rows, words = list[str](), list[float](), list[list[Cell]](), list[str]()
    for variant, timing in zip(variant_names(study), study.document["timing_ms"], strict=True):
        parts = _parts(timing)
        forward = parts["forward pass"]
        if not forward:
            raise NotReady("The study has no timings. Run it again.")
        for part, ms in parts.items():
            names.append(f"{part}, {variant}" if len(study.variants) > 1 else part)
            times.append(ms / study.inputs)
            together = forward if part == "forward pass" else forward + ms
            numbers = [ms / 1e3, ms / study.inputs, ms / forward, together / forward]
            rows.append([variant, part, *to_json(numbers, 7)])
        shown = [f"{part} {format_number(ms / forward)}" for part, ms in parts.items() if part != "forward pass"]
        words.append(f"{variant}: {', '.join(shown)}")
    bars: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": to_json(times),
        "marker": {"color": [palette.muted if name.startswith("forward") else palette.more for name in names]},
        "customdata": [[None, None, *to_json([row[4]], 4)] for row in rows],
        "hovertemplate": "%{y}<br>%{x:.3~r} ms per input, %{customdata[2]:.2f} of the forward pass<extra></extra>",
    }
    down = {**axis(palette, ""), "autorange": "reversed", "ticks": "", "showline": False}
    return Drawing(
        [bars],
        layout(palette, value_axis(palette, "milliseconds per input", rangemode="tozero"), down),
        f"Time relative to the forward pass, {study.inputs} inputs. {'; '.join(words)}.",
        ("variant", "part", "seconds", "ms_per_input", "of_forward_pass", "factor"),
        rows,
    )


def _parts(timing: Mapping[str, float]) -> dict[str, float]:
    """Return milliseconds of the forward pass, of each lens, and of the measures."""
    lenses = {LENSES[name.removeprefix("lens/")].title: ms for name, ms in timing.items() if name.startswith("lens/")}
    rest = {"measures": max(0.0, timing.get("lenses", 0.0) - sum(lenses.values()))}
    return {"forward pass": timing.get("forward", 0.0), **lenses, **rest}


LENS_COST = StudyFigure(
    name="lens-cost",
    title="Cost of the lenses",
    doc="How long the forward pass, each lens and the measures took per input: the overhead of effective attention over running the model.",
    not_="Not a benchmark: these are times of the machine that ran the study, under whatever load it had. The paper's factor of two comes from a full decomposition, which the "
    "definition does not need.",
    citation="Sun & Marasović 2021, table 3",
    unit="ms",
    range=(0.0, None),
    draw=draw_lens_cost,
)
