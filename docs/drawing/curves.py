"""Pictures of the training of the twins: the loss by step, one line per twin, and the difference from softmax."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .figure import Figure
from .shapes import axes

TWINS = Path(__file__).resolve().parents[2] / "models" / "twins"
# Twins of a family in the order of the legend, with the title of the loss.
FAMILIES = {
    "bert": (("twin-bert-softmax", "twin-bert-hopfield", "twin-bert-jump"), "nats per masked token"),
    "gpt": (("twin-gpt-softmax", "twin-gpt-hopfield"), "nats per token"),
    "vit": (("twin-vit-softmax", "twin-vit-hopfield-05", "twin-vit-hopfield-07"), "nats per image"),
}
COLOURS = ("ink", "more", "less")
TICKS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
X, WIDTH = 66.0, 640.0

Curve = list[tuple[int, float]]


def draw(family: str) -> Figure:
    """The loss of every twin of the family by step, and below it the difference from the first one, which attends by softmax."""
    names, words = FAMILIES[family]
    curves = {name: read(name) for name in names if _path(name).exists()}
    plain, *others = curves.values()
    beside = [[(step, loss - own) for (step, loss), (_, own) in zip(curve, plain, strict=True)] for curve in others]
    figure = Figure(760, 440, f"Training loss of the twins: {', '.join(curves)}")
    _panel(figure, 20.0, 180.0, list(curves.values()), words, COLOURS)
    _panel(figure, 226.0, 120.0, beside, f"above {names[0].rpartition('-')[2]}", COLOURS[1:])
    last = plain[-1][0]
    for step in range(0, last + 1, 1_000):
        figure.text(X + WIDTH * step / last, 364, f"{step:,}", size=10, anchor="middle", colour="muted")
    figure.text(X + WIDTH / 2, 382, "step", size=11, anchor="middle", colour="muted")
    right = X
    for colour, name in zip(COLOURS, curves, strict=False):
        figure.line([(right, 406), (right + 22, 406)], colour=colour, width=2)
        figure.text(right + 28, 410, name, size=11, colour="muted")
        right += 60 + 6.2 * len(name)
    return figure


def _panel(figure: Figure, y: float, height: float, curves: list[Curve], words: str, colours: tuple[str, ...]) -> None:
    """Lines over the same steps; the axis ends at the nearest ticks below and above them."""
    values = [value for curve in curves for _, value in curve]
    tick = next(size for size in TICKS if max(values) - min(values) <= 5 * size)
    steps = range(math.floor(min(values) / tick), math.ceil(max(values) / tick) + 1)
    bottom, top, last = steps[0] * tick, steps[-1] * tick, curves[0][-1][0]
    digits = 0 if tick >= 1 else 1 if tick >= 0.1 else 2
    axes(figure, (X, y, WIDTH, height), [step * tick for step in steps], top, words, digits=digits, bottom=bottom)
    if bottom < 0 < top:
        zero = y + height * top / (top - bottom)
        figure.line([(X, zero), (X + WIDTH, zero)], colour="muted")
    for colour, curve in zip(colours, curves, strict=False):
        points = [(X + WIDTH * step / last, y + height * (top - value) / (top - bottom)) for step, value in curve]
        figure.line(points, colour=colour, width=1.5)


def read(name: str) -> Curve:
    """Return steps, and the mean loss since the previous row."""
    with _path(name).open(newline="") as file:
        return [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(file)]


def _path(name: str) -> Path:
    return TWINS / name / "curve.csv"


PICTURES: dict[str, Callable[[], Figure]] = {
    f"twins-{family}": partial(draw, family)
    for family, (names, _) in FAMILIES.items()
    if any(_path(name).exists() for name in names)
}
