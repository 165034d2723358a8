"""Maps of the one input that a study shows: a head through two lenses, and the grids of two variants with the heads' patterns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pydantic import Field

from ...core.csv_text import Cell
from ...errors import NotReady
from ...lenses import LENSES
from ...measures import MEASURES
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..paper import Palette, plain, said
from .figure import Array, MapParams, StudyFigure, VariantParams, maps_of_heads, titles
from .panels import Panel, Scale, head_columns, laid, layer_rows, reach, sequential, tone

NAME = "patterns"
# Cells that the map of a head is pooled to in a grid, and the room around it, in the same cells.
TILE, ROOM = 20, 2
# Tokens that are named along an axis; of more only some are.
MOST_NAMED = 24


class LensPairParams(VariantParams):
    """Which head."""

    layer: int | None = Field(
        default=None, ge=0, description="Its layer; without it that of the head that differs most."
    )
    head: int | None = Field(default=None, ge=0, description="The head; without it the one that differs most.")


def shown(study: StudySummary, lens: str, number: int) -> Array:
    """Maps of the input that is shown, [L, H, n, n]. Raises NotReady."""
    name = f"shown/{number}/{lens}/map"
    if name not in study.arrays:
        raise NotReady(
            "The study keeps no map to show through that lens. Send it again with the lens, and with inputs of at most 96 tokens."
        )
    return study.arrays[name].astype(float)


def lens_pair(study: StudySummary, params: LensPairParams, palette: Palette) -> Drawing:
    """A panel per lens with the same head's map of the same input, and a third one with their difference where there are two."""
    one = study.variant(params.variant)
    lenses = maps_of_heads(lens for lens in LENSES if f"shown/{params.variant}/{lens}/map" in study.arrays)
    maps = {lens: shown(study, lens, params.variant) for lens in lenses or ["weights"]}
    i, j = _chosen(study, params, maps)
    row, names = _input(study, lenses[0], params.variant)
    layer, head = one["layers"][i], one["heads"][j]
    panels = [
        Panel(
            LENSES[lens].title,
            [_map(palette, each[i, j], names, layer, head, row)],
            _tokens(names, "key"),
            _tokens(names, "query" if at == 0 else "", down=True),
            Scale(),
        )
        for at, (lens, each) in enumerate(maps.items())
    ]
    traces, arranged = laid(palette, panels, len(panels))
    apart = [
        said(float(np.abs(each[i, j] - maps[lenses[0]][i, j]).sum() / np.abs(maps[lenses[0]][i, j]).sum()))
        for each in list(maps.values())[1:]
    ]
    far = f" Their entries differ by {', '.join(apart)} times the sum of the weights." if apart else ""
    return Drawing(
        traces,
        arranged,
        f"Head {layer}.{head} on row {row}, {len(names)} tokens, through {' and '.join(LENSES[lens].title for lens in lenses)}.{far}",
        ("row", "layer", "head", "query", "key", "query_token", "key_token", *lenses),
        [
            [row, layer, head, q, k, names[q], names[k], *plain([maps[lens][i, j, q, k] for lens in lenses], 6)]
            for q in range(len(names))
            for k in range(len(names))
        ],
    )


def _chosen(study: StudySummary, params: LensPairParams, maps: dict[str, Array]) -> tuple[int, int]:
    """Places of the head asked for, or of that whose maps differ most. Raises Unknown."""
    first, *others = maps.values()
    size = np.abs(first).sum((-1, -2))
    apart = sum((np.abs(other - first).sum((-1, -2)) for other in others), np.zeros_like(size)) / np.where(
        size > 0, size, 1
    )
    if params.layer is not None or params.head is not None:
        return study.place(params.layer or 0, params.head or 0, params.variant)
    i, j = np.unravel_index(np.argmax(np.nan_to_num(apart)), apart.shape)
    return int(i), int(j)


def _input(study: StudySummary, lens: str, number: int) -> tuple[int, list[str]]:
    """The row that is shown, and its tokens."""
    prefix = f"shown/{number}/{lens}"
    tokens: list[str] = json.loads(study.arrays[f"{prefix}/tokens"].tobytes())
    return int(study.arrays[f"{prefix}/row"][0]), tokens


def _map(palette: Palette, values: Array, names: list[str], layer: int, head: int, row: int) -> dict[str, Any]:
    low, high = reach(values)
    return {
        "type": "heatmap",
        "z": [plain(line, 4) for line in values],
        "zmin": low,
        "zmax": high,
        "colorscale": tone(palette, low),
        "customdata": [[[layer, head, row, query, key] for key in names] for query in names],
        "hovertemplate": "%{customdata[3]} to %{customdata[4]}<br>%{z:.3g}<extra></extra>",
    }


def _tokens(names: list[str], title: str, *, down: bool = False) -> dict[str, Any]:
    """An axis of tokens; of many only some are named."""
    step = -(-len(names) // MOST_NAMED)
    places = list(range(0, len(names), step))
    ends = [len(names) - 0.5, -0.5] if down else [-0.5, len(names) - 0.5]
    found = {"tickvals": places, "ticktext": [names[place] for place in places], "range": ends, "tickfont": {"size": 9}}
    if not down:
        found["tickangle"] = -90
    elif not title:
        found["showticklabels"] = False
    return {
        **found,
        "title": {"text": title},
        "showgrid": False,
        "zeroline": False,
        "automargin": True,
        "fixedrange": True,
    }


LENS_PAIR = StudyFigure(
    name="lens-pair",
    title="One map by several lenses",
    doc="The map of one head for one input of the study through each lens, side by side: by default the head whose maps differ most. The input is drawn by the "
    "study's seed among those of more tokens than the head has "
    "dimensions (up to 96), where there are any.",
    not_="Not the paper's picture of magnitudes: signed entries keep their sign, around white. On inputs with no more tokens than dimensions both maps are the same, "
    "for there is nothing to take away.",
    citation="Sun & Marasović 2021, figs. 2 and 7",
    params=LensPairParams,
    lenses=("weights", "effective"),
    asks=("lenses",),
    of_one=True,
    draw=lens_pair,
)


def pattern_grid(study: StudySummary, params: MapParams, palette: Palette) -> Drawing:
    """A grid of all heads' maps for each variant: vertical heads are greyed, diagonal ones framed."""
    panels, shapes, rows, words = list[Panel](), list[dict[str, Any]](), list[list[Cell]](), list[str]()
    for number, title in enumerate(titles(study)):
        one = study.variants[number]
        layers, heads = one["layers"], one["heads"]
        counts = study.classes(NAME, params.lens, number)  # [L, H, classes]
        kinds, shares = counts.argmax(-1), counts.max(-1) / np.maximum(counts.sum(-1), 1)
        tiles = np.stack([[tile(each) for each in line] for line in shown(study, params.lens, number)])
        tiles = tiles / np.maximum(tiles.max((-1, -2), keepdims=True), 1e-12)
        end = "" if number == 0 else str(number + 1)
        names = np.array(MEASURES[NAME].classes)[kinds]
        shapes += _frames(names, end, palette)
        across, down = head_columns(palette, heads), layer_rows(palette, layers, "" if number else "layer")
        panels.append(Panel(title, [_grid(palette, tiles), _marks(layers, heads, names, shares)], across, down))
        rows += [
            [title, layer, head, str(names[i, j]), *plain([shares[i, j]], 10)]
            for i, layer in enumerate(layers)
            for j, head in enumerate(heads)
        ]
        parts = [f"{kind} {int((names == kind).sum())}" for kind in MEASURES[NAME].classes if (names == kind).any()]
        words.append(f"{title}: {', '.join(parts)} of {names.size} heads")
    traces, arranged = laid(palette, panels, len(panels), shapes=shapes)
    head = ("variant", "layer", "head", "class", "share_of_inputs")
    return Drawing(traces, arranged, f"Patterns of the heads by majority over inputs. {'; '.join(words)}.", head, rows)


def tile(values: Array) -> Array:
    """A map [n, n] as TILE x TILE cells: the largest magnitude in each, so that no line is lost."""
    n = values.shape[-1]
    values = np.abs(np.nan_to_num(values))
    starts = np.arange(TILE) * n // TILE
    if n < TILE:
        return np.asarray(values[starts][:, starts])
    return np.asarray(np.maximum.reduceat(np.maximum.reduceat(values, starts, axis=0), starts, axis=1))


def _grid(palette: Palette, tiles: Array) -> dict[str, Any]:
    """All maps as one picture: [L, H, TILE, TILE] in units of heads, with room around each."""
    layers, heads = tiles.shape[:2]
    size = TILE + ROOM
    cells = np.full((layers, size, heads, size), np.nan)
    cells[:, ROOM // 2 : ROOM // 2 + TILE, :, ROOM // 2 : ROOM // 2 + TILE] = tiles.transpose(0, 2, 1, 3)
    values = cells.reshape(layers * size, heads * size)
    return {
        "type": "heatmap",
        "z": [[None if not np.isfinite(value) else round(float(value), 2) for value in line] for line in values],
        "x0": -0.5 + 0.5 / size,
        "dx": 1 / size,
        "y0": -0.5 + 0.5 / size,
        "dy": 1 / size,
        "zmin": 0,
        "zmax": 1,
        "colorscale": sequential(palette),
        "showscale": False,
        "hoverinfo": "skip",
    }


def _marks(layers: list[int], heads: list[int], names: Array, shares: Array) -> dict[str, Any]:
    """An invisible mark on every head, which says what it is."""
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": [place for _ in layers for place in range(len(heads))],
        "y": [place for place in range(len(layers)) for _ in heads],
        "marker": {"size": 18, "opacity": 0, "symbol": "square"},
        "customdata": [
            [layer, head, str(names[i, j]), *plain([shares[i, j]], 3)]
            for i, layer in enumerate(layers)
            for j, head in enumerate(heads)
        ],
        "hovertemplate": "Head %{customdata[0]}.%{customdata[1]}<br>%{customdata[2]} in %{customdata[3]:.0%} of inputs<extra></extra>",
    }


def _frames(names: Array, end: str, palette: Palette) -> list[dict[str, Any]]:
    """A veil over vertical heads, and a frame around diagonal ones."""
    found = []
    for i, j in np.ndindex(names.shape):
        box = {
            "type": "rect",
            "xref": f"x{end}",
            "yref": f"y{end}",
            "x0": j - 0.47,
            "x1": j + 0.47,
            "y0": i - 0.47,
            "y1": i + 0.47,
        }
        if str(names[i, j]).startswith("vertical"):
            found.append(box | {"fillcolor": palette.muted, "opacity": 0.55, "line": {"width": 0}})
        if str(names[i, j]).endswith("diagonal"):
            found.append(box | {"line": {"color": palette.less, "width": 2}})
    return found


PATTERN_GRID = StudyFigure(
    name="pattern-grid",
    title="Grid of patterns",
    doc="Every head's map for one input, as a grid for each variant: heads that are vertical in most inputs lie under a grey veil, diagonal ones have a frame. Two "
    "models side by side show what changed.",
    not_="Not the papers' own rule: TLM does not publish one, and PASTA's looks at the first and the last token only. The picture is of one input, the classes are "
    "of all; each map has a scale of its own.",
    citation="Yao et al. 2022, NLP From Scratch Without Large-Scale Pretraining (TLM), fig. of attention patterns; Yang et al. 2023, PASTA, fig. of vertical heads",
    params=MapParams,
    measures=(NAME,),
    asks=("lenses",),
    draw=pattern_grid,
)
