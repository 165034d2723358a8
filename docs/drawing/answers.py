"""Pictures of the studies over the twins, from docs/measured/twins.json, which docs/twins.py writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import measured
import numpy as np

from headscope.mechanisms.jump import jump_layers

from .figure import Figure
from .shapes import axes, grid, key

# Mechanism of a twin, which ends its name -> label and colour of its line.
KINDS = {
    "softmax": ("softmax", "ink"),
    "hopfield": ("Hopfield, alpha 0.5", "more"),
    "hopfield-05": ("Hopfield, alpha 0.5", "more"),
    "hopfield-07": ("Hopfield, alpha 0.7", "less"),
    "jump": ("jumps", "more"),
}
PATTERNS = {"vertical": "more-end", "vertical+diagonal": "muted", "diagonal": "more", "block": "less"}
# Layers and heads of twin-bert-jump.
JUMPING = [(layer, head) for layer in sorted(jump_layers(range(6))) for head in range(0, 8, 2)]

Row = dict[str, Any]


def rows(question: str) -> list[Row]:
    """Return the answer to a question of docs/twins.py."""
    found: list[Row] = measured.read("twins")[question]["rows"]
    return found


# -- by layer ---------------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A chart of one number by layer, with a line per model; the first and last tick are its limits."""

    heading: str
    question: str
    value: str
    ticks: tuple[float, ...]
    # Field and value that select rows; None selects all.
    only: tuple[str, str] | None = None

    def lines(self) -> dict[str, list[Row]]:
        """Return the lines by the end of the model's name."""
        found: dict[str, list[Row]] = {}
        for row in rows(self.question):
            if self.only is None or row[self.only[0]] == self.only[1]:
                model = row["variant"] if "variant" in row else row["model"]
                found.setdefault(model.split("-", 2)[2], []).append(row)
        return found


def by_layer(title: str, words: str, panels: Sequence[Panel], digits: int = 1) -> Figure:
    """Panels side by side, with the 95 % interval of every mean."""
    left, gap, y, height = 66.0, 44.0, 34.0, 210.0
    width = (744 - left - gap * (len(panels) - 1)) / len(panels)
    figure = Figure(760, 320, title)
    named: dict[str, str] = {}
    for place, panel in enumerate(panels):
        x = left + place * (width + gap)
        bottom, top = panel.ticks[0], panel.ticks[-1]
        figure.text(x, 18, panel.heading, bold=True)
        axes(figure, (x, y, width, height), panel.ticks, top, words if place == 0 else "", digits=digits, bottom=bottom)
        lines = panel.lines()
        layers = len(next(iter(lines.values())))
        for layer in range(layers):
            middle = x + width * (layer + 0.5) / layers
            figure.text(middle, y + height + 18, str(layer), size=10, anchor="middle", colour="muted")
        figure.text(x + width / 2, y + height + 34, "layer", size=11, anchor="middle", colour="muted")
        for kind, line in lines.items():
            label, colour = KINDS[kind]
            named.setdefault(label, colour)
            _line(figure, (x, y, width, height), line, panel.value, (bottom, top), colour)
    key(figure, left, 302, list(named.items()), "with 95 % intervals")
    return figure


def _line(
    figure: Figure,
    frame: tuple[float, float, float, float],
    line: list[Row],
    value: str,
    ends: tuple[float, float],
    colour: str,
) -> None:
    x, y, width, height = frame
    bottom, top = ends

    def at(row: Row, number: float) -> tuple[float, float]:
        return x + width * (row["layer"] + 0.5) / len(line), y + height * (top - number) / (top - bottom)

    figure.line([at(row, row[value]) for row in line], colour=colour, width=1.5)
    for row in line:
        figure.line([at(row, row["low"]), at(row, row["high"])], colour=colour, width=2)
        figure.dot(*at(row, row[value]), colour=colour)


def families(measure: str, value: str, ticks: tuple[float, ...]) -> list[Panel]:
    """A measure of images, and of paragraphs read by BERT and GPT twins; `value` is its column in the table of a study."""
    dashed = measure.replace("_", "-")
    return [
        Panel("images, ViTs", f"{measure}-vit", "mean", ticks),
        Panel("paragraphs, BERTs", f"{dashed}-bert", value, ticks),
        Panel("paragraphs, GPTs", f"{dashed}-gpt", value, ticks),
    ]


def connections() -> Figure:
    """The tokens that strong connections join, in sentences with names."""
    asked = partial(Panel, question="connections", value="mean_per_input")
    panels = [
        asked("to special tokens", ticks=(0, 100, 200, 300, 400, 500), only=("class", "special")),
        asked("between entities of different types", ticks=(0, 20, 40, 60, 80), only=("class", "cross")),
    ]
    return by_layer("Connections per sentence of WikiGold, all heads of a layer", "connections per sentence", panels, 0)


# -- patterns ---------------------------------------------------------------------------------------------------------------------------------------


def patterns(title: str, questions: Sequence[str], top: float) -> Figure:
    """Shares of maps with a pattern, one bar per model and lens; missing ones have no bar."""
    shares: dict[str, dict[str, float]] = {}
    for question in questions:
        for row in rows(question):
            shares.setdefault(row["lens"], {})[row["class"]] = row["share"]
    bars = sorted(shares, key=lambda name: not name.startswith("Weights"))
    left, width, step = 276.0, 456.0, 24.0
    height = step * len(bars)
    figure = Figure(760, height + 92, title)
    for tick in np.arange(0, top + 0.001, 0.05):
        x = left + width * tick / top
        figure.line([(x, 14), (x, 14 + height)], colour="line")
        figure.text(x, 30 + height, f"{tick:.0%}".replace("%", " %"), size=10, anchor="middle", colour="muted")
    for place, name in enumerate(bars):
        x, y = left, 14 + step * place
        lens, _, model = name.partition(", ")
        figure.text(left - 8, y + 16, f"{model}, {lens.lower()}", size=11, anchor="end")
        for pattern, colour in PATTERNS.items():
            long = width * shares[name].get(pattern, 0.0) / top
            figure.box(x, y + 5, long, step - 10, colour=colour)
            x += long
    figure.text(left + width / 2, 46 + height, "maps with a pattern", size=11, anchor="middle", colour="muted")
    key(figure, left, 76 + height, list(PATTERNS.items()))
    return figure


# -- heads ------------------------------------------------------------------------------------------------------------------------------------------


def changes(title: str, parts: Sequence[tuple[str, str]], marked: Sequence[tuple[int, int]] = ()) -> Figure:
    """The distance of the two maps of every head, 1 - cosine; each grid has a heading and a question."""
    cell, y = 36.0, 56.0
    found = [(heading, _apart(question)) for heading, question in parts]
    largest = max(float(values.max()) for _, values in found)
    figure = Figure(760, y + cell * len(found[0][1]) + 66, title)
    for place, (heading, values) in enumerate(found):
        x = 66 + place * (values.shape[1] * cell + 60)
        figure.text(x, 22, heading, bold=True)
        grid(figure, x, y, values, largest, cell)
        for layer, head in marked:
            corner = x + (head + 1) * cell - 8, y + layer * cell + 8
            figure.dot(*corner, colour="paper", radius=4.5)  # visible on dark cells
            figure.dot(*corner, colour="ink")
    foot = y + cell * len(found[0][1]) + 26
    figure.text(66, foot + 8, "1 \N{MINUS SIGN} cosine; layers down, heads across", size=11, colour="muted")
    if marked:
        key(figure, 66, foot + 28, [("heads that jump", "ink")])
    figure.legend(382, foot, largest, signed=False)
    return figure


def _apart(question: str) -> Any:
    """[L, H]."""
    found = {(row["layer"], row["head"]): row["cosine"] for row in rows(question)}
    layers, heads = (1 + max(place) for place in zip(*found, strict=True))
    return np.array([[1 - found[layer, head] for head in range(heads)] for layer in range(layers)])


PICTURES: dict[str, Callable[[], Figure]] = {
    "twins-token-similarity": lambda: by_layer(
        "Mean cosine between the tokens of an input after each layer, of the twins",
        "mean cosine between tokens",
        families("token_similarity", "mean", (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)),
    ),
    "twins-residual-ratio": lambda: by_layer(
        "Residual ratio after each layer, of the twins",
        "residual ratio",
        families("residual_ratio", "residual_ratio", (0.6, 0.7, 0.8, 0.9, 1.0)),
    ),
    "twins-entropy": lambda: by_layer(
        "Mean entropy of the rows of all heads of a layer, of the twins",
        "entropy, nats",
        families("entropy", "mean", (0, 1, 2, 3, 4, 5, 6)),
        0,
    ),
    "twins-patterns": lambda: patterns(
        "Maps with a pattern, of the BERT-like twins, over pairs of QNLI", ("patterns", "patterns-jump"), 0.3
    ),
    "twins-patterns-reviews": lambda: patterns(
        "Maps with a pattern, of a twin that read all kinds of text and one that read reviews, over SST-2",
        ("patterns-reviews",),
        0.35,
    ),
    "twins-jumps": lambda: changes(
        "What jumps change in the maps of twin-bert-jump",
        [("twin-bert-jump, with and without jumps", "jumps")],
        JUMPING,
    ),
    "twins-tuning": lambda: changes(
        "What fine-tuning on SST-2 changes in the maps of the twins",
        [("softmax", "tuning-softmax"), ("Hopfield, alpha 0.5", "tuning-hopfield")],
    ),
    "twins-connections": connections,
}
