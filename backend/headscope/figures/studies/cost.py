"""What reading through each lens costs, beside the forward pass."""

from __future__ import annotations

from typing import Any

from ...declarations import NoParams
from ...errors import NotReady
from ...study.summary import Summary
from ..figure import Cell, Drawing
from ..paper import Palette, axis, layout, plain, said
from .figure import StudyFigure, titles

NAMES = {"forward": "forward pass", "total": "all"}


def lens_cost(study: Summary, params: NoParams, palette: Palette) -> Drawing:
    """Bars of the milliseconds per input: the forward pass, and each lens with its measures."""
    names, times, rows, words = list[str](), list[float](), list[list[Cell]](), list[str]()
    inputs = study.inputs
    for one, spent in zip(titles(study), study.document["timing_ms"], strict=True):
        forward = spent.get("forward", 0.0)
        if not forward:
            raise NotReady("The study did not keep how long it took. Send it again.")
        for part, ms in spent.items():
            several = len(study.variants) > 1
            names.append(f"{NAMES.get(part, part)}, {one}" if several else NAMES.get(part, part))
            times.append(ms / inputs)
            rows.append([one, part, *plain([ms / 1e3, ms / inputs, ms / forward], 7)])
        whole = spent.get("total", sum(spent.values()))
        words.append(f"{one}: {said(whole / forward)} times the forward pass")
    bars: dict[str, Any] = {
        "type": "bar",
        "orientation": "h",
        "y": names,
        "x": plain(times),
        "marker": {"color": [palette.muted if name.startswith(("forward", "all")) else palette.more for name in names]},
        "customdata": [[None, None, *plain([row[4]], 4)] for row in rows],
        "hovertemplate": "%{y}<br>%{x:.3g} ms per input, %{customdata[2]:.2f} of the forward pass<extra></extra>",
    }
    down = {**axis(palette, ""), "autorange": "reversed", "ticks": "", "showline": False}
    return Drawing(
        [bars],
        layout(palette, axis(palette, "milliseconds per input", grid=True, rangemode="tozero"), down),
        f"Time of the study, {inputs} inputs. {'; '.join(words)}.",
        ("variant", "part", "seconds", "ms_per_input", "of_forward_pass"),
        rows,
    )


LENS_COST = StudyFigure(
    name="lens-cost",
    title="Cost of the lenses",
    doc="How long the forward pass and the lenses with their measures took, per input: what reading effective attention costs on top of running the model.",
    not_="Not a benchmark: times of the machine that ran the study, with whatever else ran on it. The paper's factor of two comes from a full decomposition, which "
    "the definition does not need.",
    citation="Sun & Marasović 2021, table 3",
    unit="ms",
    range=(0.0, None),
    lenses=("weights", "effective"),
    asks=("lenses",),
    draw=lens_cost,
)
