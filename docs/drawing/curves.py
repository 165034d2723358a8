"""Pictures of how the twins were trained: the loss on the way, one line per twin of a family."""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .figure import Figure
from .shapes import axes

TWINS = Path(__file__).resolve().parents[2] / "models" / "twins"
# Twins of a family in the order in which their lines are named, with what the loss is of.
FAMILIES = {
    "bert": (("twin-bert-softmax", "twin-bert-hopfield", "twin-bert-jump"), "nats per masked token"),
    "gpt": (("twin-gpt-softmax", "twin-gpt-hopfield"), "nats per token"),
    "vit": (("twin-vit-softmax", "twin-vit-hopfield-05", "twin-vit-hopfield-07"), "nats per image"),
}
COLOURS = ("ink", "more", "less")


def draw(family: str) -> Figure:
    """The loss of every twin of the family by step."""
    names, words = FAMILIES[family]
    curves = {name: read(name) for name in names if _path(name).exists()}
    x, y, width, height = 66.0, 20.0, 640.0, 240.0
    highest, last = (max(point[place] for curve in curves.values() for point in curve) for place in (1, 0))
    tick = 1 if highest < 4 else 2
    top = tick * (int(highest / tick) + 1)
    figure = Figure(760, 330, f"Training loss of the twins: {', '.join(curves)}")
    axes(figure, (x, y, width, height), range(0, top + 1, tick), top, words, digits=0)
    for part in range(6):
        step = round(last * part / 5)
        figure.text(x + width * step / last, y + height + 18, f"{step:,}", size=10, anchor="middle", colour="muted")
    figure.text(x + width / 2, y + height + 36, "step", size=11, anchor="middle", colour="muted")
    right = x
    for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
        figure.line(
            [(x + width * step / last, y + height * (1 - loss / top)) for step, loss in curve], colour=colour, width=1.5
        )
        figure.line([(right, y + height + 54), (right + 22, y + height + 54)], colour=colour, width=2)
        figure.text(right + 28, y + height + 58, name, size=11, colour="muted")
        right += 60 + 6.2 * len(name)
    return figure


def read(name: str) -> list[tuple[int, float]]:
    """Steps and the mean loss since the row before."""
    with _path(name).open(newline="") as file:
        return [(int(row["step"]), float(row["loss"])) for row in csv.DictReader(file)]


def _path(name: str) -> Path:
    return TWINS / name / "curve.csv"


PICTURES: dict[str, Callable[[], Figure]] = {
    f"twins-{family}": partial(draw, family)
    for family, (names, _) in FAMILIES.items()
    if any(_path(name).exists() for name in names)
}
