"""Maps of the one input that a study shows: a head through several lenses, and grids of all heads with their patterns."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from pydantic import Field

from ...core.arrays import Array, divide
from ...core.csv_text import Cell
from ...errors import NotReady
from ...lenses import LENSES
from ...measures import MEASURES
from ...studies.results.summary import StudySummary
from ..figure import Drawing
from ..theme import Palette, format_number, rows_by_head, to_json
from .figure import MapParams, StudyFigure, VariantParams, comparable_lenses, of_variant, variant_names
from .panels import Panel, arrange_panels, color_range, color_scale, head_columns, layer_rows, name_axis

NAME = "patterns"
# Cells per side that a map is pooled to in a grid, and cells of space around it.
TILE, ROOM = 20, 2
# Maximum token labels along an axis; more are thinned out.
MAX_TOKEN_LABELS = 24


class LensPairParams(VariantParams):
    """Which head."""

    layer: int | None = Field(
        default=None, ge=0, description="Its layer; by default that of the head whose maps differ most."
    )
    head: int | None = Field(default=None, ge=0, description="The head; by default the one whose maps differ most.")


def _shown_maps(study: StudySummary, lens: str, variant: int) -> Array:
    """Return the maps of the input that is shown, [L, H, n, n]. Raises NotReady."""
    name = f"shown/{variant}/{lens}/map"
    if name not in study.arrays:
        raise NotReady(
            "The study has no map to show through this lens. Run it again with the lens, and with inputs of at most 96 tokens."
        )
    return study.arrays[name].astype(float)


def draw_lens_pair(study: StudySummary, params: LensPairParams, palette: Palette) -> Drawing:
    """Draw a panel per lens, with the map of one head for one input."""
    variant = study.variant(params.variant)
    lenses = comparable_lenses(lens for lens in LENSES if f"shown/{params.variant}/{lens}/map" in study.arrays)
    maps = {lens: _shown_maps(study, lens, params.variant) for lens in lenses or ["weights"]}
    i, j = _choose_head(study, params, maps)
    row, names, keys = _shown_input(study, lenses[0], params.variant)
    layer, head = variant["layers"][i], variant["heads"][j]
    panels = [
        Panel(
            LENSES[lens].title,
            [_draw_map(palette, each[i, j], names, keys, layer, head, row)],
            _token_axis(keys, "key"),
            _token_axis(names, "query" if at == 0 else "", down=True),
            has_color_bar=True,
        )
        for at, (lens, each) in enumerate(maps.items())
    ]
    traces, arranged = arrange_panels(palette, panels, len(panels))
    first, *others = (each[i, j] for each in maps.values())
    differences = [float(np.abs(each - first).sum() / np.abs(first).sum()) for each in others]
    return Drawing(
        traces,
        arranged,
        f"Head {layer}.{head} on row {row}, {len(names)} tokens, through {' and '.join(LENSES[lens].title for lens in lenses)}."
        f"{_describe_differences(differences)}",
        ("row", "layer", "head", "query", "key", "query_token", "key_token", *lenses),
        [
            [row, layer, head, q, k, names[q], keys[k], *to_json([maps[lens][i, j, q, k] for lens in lenses], 6)]
            for q in range(len(names))
            for k in range(len(keys))
        ],
    )


def _describe_differences(differences: list[float]) -> str:
    """Describe the distances of maps from the first one, in units of its sum of weights."""
    if not differences:
        return ""
    if not any(differences):
        return " The maps are identical."
    shown = ", ".join(format_number(difference) for difference in differences)
    return f" Summed over all entries, the difference is {shown} of the sum of the weights."


def _choose_head(study: StudySummary, params: LensPairParams, maps: dict[str, Array]) -> tuple[int, int]:
    """Return the indices of the requested head, or of the one whose maps differ most, in a layer or of a number if that is requested. Raises Unknown."""
    described = study.variant(params.variant)
    layer = described["layers"][0] if params.layer is None else params.layer
    head = described["heads"][0] if params.head is None else params.head
    i, j = study.place(layer, head, params.variant)
    rows = slice(None) if params.layer is None else slice(i, i + 1)
    columns = slice(None) if params.head is None else slice(j, j + 1)
    first, *others = maps.values()
    size = np.abs(first).sum((-1, -2))  # [L, H]
    total = sum((np.abs(other - first).sum((-1, -2)) for other in others), np.zeros_like(size))
    differences = total / np.where(size > 0, size, 1)
    among = np.full(differences.shape, -1.0)
    among[rows, columns] = np.nan_to_num(differences)[rows, columns]
    place = np.unravel_index(np.argmax(among), among.shape)
    return int(place[0]), int(place[1])


def _shown_input(study: StudySummary, lens: str, variant: int) -> tuple[int, list[str], list[str]]:
    """Return the row that is shown, and the tokens of its queries and keys."""
    prefix = f"shown/{variant}/{lens}"
    tokens, keys = (json.loads(study.arrays[f"{prefix}/{axis}"].tobytes()) for axis in ("tokens", "keys"))
    return int(study.arrays[f"{prefix}/row"][0]), tokens, keys


def _draw_map(
    palette: Palette, values: Array, names: list[str], keys: list[str], layer: int, head: int, row: int
) -> dict[str, Any]:
    low, high = color_range(values)
    return {
        "type": "heatmap",
        "z": [to_json(line, 4) for line in values],
        "zmin": low,
        "zmax": high,
        "colorscale": color_scale(palette, low),
        "customdata": [[[layer, head, row, query, key] for key in keys] for query in names],
        "hovertemplate": "%{customdata[3]} to %{customdata[4]}<br>%{z:.3~r}<extra></extra>",
    }


def _token_axis(names: list[str], title: str, *, down: bool = False) -> dict[str, Any]:
    """Return an axis of tokens, thinned out to MAX_TOKEN_LABELS."""
    found = name_axis(names, title, down=down, step=-(-len(names) // MAX_TOKEN_LABELS)) | {"tickfont": {"size": 9}}
    if not down:
        found["tickangle"] = -90
    elif not title:
        found["showticklabels"] = False
    return found


LENS_PAIR = StudyFigure(
    name="lens-pair",
    title="One map by several lenses",
    doc="The map of one head for one input of the study through each lens, side by side: by default the head whose maps differ most. The input is drawn by the study's seed, "
    "if possible among those with more tokens than the head has dimensions (at most 96).",
    not_="Not the paper's picture of magnitudes: signed entries keep their sign, with zero as the background colour. If an input has no more tokens than the head has "
    "dimensions, both maps are the same.",
    citation="Sun & Marasović 2021, figs. 2 and 7",
    params=LensPairParams,
    of_one=True,
    draw=draw_lens_pair,
)


def draw_pattern_grid(study: StudySummary, params: MapParams, palette: Palette) -> Drawing:
    """Draw a grid of all heads' maps for each variant: vertical heads are greyed out, diagonal ones framed."""
    panels, shapes, rows, words = list[Panel](), list[dict[str, Any]](), list[list[Cell]](), list[str]()
    for number, title in enumerate(variant_names(study)):
        variant = study.variants[number]
        layers, heads = variant["layers"], variant["heads"]
        counts = study.classes(NAME, params.lens, number)  # [L, H, classes]
        inputs = counts.sum(-1)  # none for a head that its layer lacks
        shares = divide(counts.max(-1), inputs)
        tiles = np.stack([[_pool(each) for each in line] for line in _shown_maps(study, params.lens, number)])
        tiles = tiles / np.maximum(tiles.max((-1, -2), keepdims=True), 1e-12)
        end = "" if number == 0 else str(number + 1)
        names = np.where(inputs > 0, np.array(MEASURES[NAME].classes)[counts.argmax(-1)], "")
        shapes += _frames(names, end, palette)
        across, down = head_columns(palette, heads), layer_rows(palette, layers, "" if number else "layer")
        grid = of_variant([_draw_grid(palette, tiles), _draw_tips(layers, heads, names, shares)], number)
        panels.append(Panel(title, grid, across, down))
        rows += [[title, *row] for row in _class_rows(layers, heads, names, shares)]
        parts = [f"{kind} {int((names == kind).sum())}" for kind in MEASURES[NAME].classes if (names == kind).any()]
        words.append(f"{title}: {', '.join(parts)} of {np.count_nonzero(inputs)} heads")
    traces, arranged = arrange_panels(palette, panels, len(panels), shapes=shapes)
    head = ("variant", "layer", "head", "class", "share_of_inputs")
    return Drawing(traces, arranged, f"Patterns of the heads, by majority over inputs. {'; '.join(words)}.", head, rows)


def _class_rows(layers: list[int], heads: list[int], names: Array, shares: Array, digits: int = 10) -> list[list[Cell]]:
    """Return one row per head that has a class: its layer, its number, its class, and the share of inputs of this class."""
    by_head = zip(rows_by_head(layers, heads, shares, digits=digits), names.ravel().tolist(), strict=True)
    return [[layer, head, name, share] for (layer, head, share), name in by_head if name]


def _pool(values: Array) -> Array:
    """Pool a map [n, n] to [TILE, TILE] by the largest magnitude, so that no line is lost."""
    n = values.shape[-1]
    values = np.abs(np.nan_to_num(values))
    starts = np.arange(TILE) * n // TILE
    if n < TILE:
        return np.asarray(values[starts][:, starts])
    return np.asarray(np.maximum.reduceat(np.maximum.reduceat(values, starts, axis=0), starts, axis=1))


def _draw_grid(palette: Palette, tiles: Array) -> dict[str, Any]:
    """Draw all maps [L, H, TILE, TILE] as one heat map in units of heads, with space around each."""
    layers, heads = tiles.shape[:2]
    size = TILE + ROOM
    cells = np.full((layers, size, heads, size), np.nan)  # [L, rows, H, columns]
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
        "colorscale": color_scale(palette, 0),
        "showscale": False,
        "hoverinfo": "skip",
    }


def _draw_tips(layers: list[int], heads: list[int], names: Array, shares: Array) -> dict[str, Any]:
    """Draw an invisible mark on every head that has a class, for its tooltip."""
    down, across = np.nonzero(names != "")
    return {
        "type": "scatter",
        "mode": "markers",
        "showlegend": False,
        "x": across.tolist(),
        "y": down.tolist(),
        "marker": {"size": 18, "opacity": 0, "symbol": "square"},
        "customdata": _class_rows(layers, heads, names, shares, digits=3),
        "hovertemplate": "Head %{customdata[0]}.%{customdata[1]}<br>%{customdata[2]} in %{customdata[3]:.0%} of inputs<extra></extra>",
    }


def _frames(names: Array, end: str, palette: Palette) -> list[dict[str, Any]]:
    """Return a veil over vertical heads, and a frame around diagonal ones."""
    frames = []
    for i, j in np.ndindex(names.shape):
        sides = {"x0": j - 0.47, "x1": j + 0.47, "y0": i - 0.47, "y1": i + 0.47}
        box = {"type": "rect", "xref": f"x{end}", "yref": f"y{end}", **sides}
        if str(names[i, j]).startswith("vertical"):
            frames.append(box | {"fillcolor": palette.muted, "opacity": 0.55, "line": {"width": 0}})
        if str(names[i, j]).endswith("diagonal"):
            frames.append(box | {"line": {"color": palette.less, "width": 2}})
    return frames


PATTERN_GRID = StudyFigure(
    name="pattern-grid",
    title="Grid of patterns",
    doc="Every head's map for one input, as a grid for each variant: heads that are vertical in most inputs are greyed out, diagonal ones have a frame. Two models side by "
    "side show what changed.",
    not_="Not the papers' own rule: TLM does not publish one, and PASTA's uses the first and the last token only. Maps are those of one input, classes those of all inputs; "
    "each map has its own scale.",
    citation="Yao et al. 2022, NLP From Scratch Without Large-Scale Pretraining (TLM), fig. of attention patterns; Yang et al. 2023, PASTA, fig. of vertical heads",
    params=MapParams,
    draw=draw_pattern_grid,
)
