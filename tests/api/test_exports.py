"""Exports: the content and precision of each format, and what is rejected."""

from __future__ import annotations

import base64
import csv
import gzip
import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load

from headscope.api.documents import standalone
from headscope.core.streams import save
from headscope.errors import BudgetExceeded, Unsupported
from headscope.store import export
from headscope.store.export import Flat
from tests.support.hostile import HOSTILE

LAYERS, HEADS = 2, 3
SHAPES = {"weights": (LAYERS, HEADS), "effective": (LAYERS, HEADS), "rollout": (LAYERS, 1)}
BY_LAYER = ("rollout",)


def made(n: int = 5, texts: list[str] | None = None, heads: tuple[int, ...] = (0, 2, 5)) -> Any:
    """An analysis to export, with signed values, a lens with one map per layer, and undefined rows."""
    generator = np.random.default_rng(1)
    shapes = {lens: (LAYERS, min(count, len(heads))) for lens, (_, count) in SHAPES.items()}
    maps = {lens: generator.standard_normal((*shape, n, n)).astype(np.float32) for lens, shape in shapes.items()}
    for unsigned in ("weights", "rollout"):
        maps[unsigned] = np.abs(maps[unsigned])
    maps["weights"][0, len(heads) // 2, 2] = np.nan
    tiles = {f"tile/{lens}/tiles": np.zeros((*shape, n, n), np.uint8) for lens, shape in shapes.items()}
    scales = {
        f"tile/{lens}/{part}": np.ones(shape, np.float32)
        for lens, shape in shapes.items()
        for part in ("scale", "offset")
    }
    document = {
        "request": {"model": "<b>model</b>"},
        "shape": [LAYERS, len(heads), n, n],
        "shapes": {lens: [*shape, n, n] for lens, shape in shapes.items()},
        "kept": list(SHAPES),
        "lenses": list(SHAPES),
        "layers": [4, 7],
        "heads": list(heads),
        "measures": {"entropy": {"weights": [LAYERS, len(heads), n]}},
        "causal": False,
        "tokens": [{"text": text, "kind": "word"} for text in texts or [f"t{i}" for i in range(n)]],
        "key_tokens": None,
    }
    keys = np.full((LAYERS, n), n)
    arrays = {
        **tiles,
        **scales,
        "keys": keys,
        "measure/entropy/weights": np.full((LAYERS, len(heads), n), np.nan, np.float32),
    }
    return Flat(document, arrays, maps)


@pytest.fixture
def viewer(tmp_path: Path) -> Path:
    """A viewer whose script tries to close its element."""
    folder = tmp_path / "viewer"
    folder.mkdir()
    (folder / "viewer.js").write_text('const a = "</script><script>alert(1)</SCRIPT >"')
    (folder / "viewer.css").write_text('a::after { content: "</style>" }')
    return folder


def answers(text: str) -> dict[str, bytes]:
    """Return the responses embedded in a page, by path."""
    found = re.findall(r'<script type="text/plain" data-answer="([^"]+)">([A-Za-z0-9+/=]*)</script>', text)
    return {html.unescape(name): gzip.decompress(base64.b64decode(packed)) for name, packed in found}


def page(source: Any, folder: Path, viewer: Path, **given: bytes) -> str:
    path = folder / "page.html"
    save(standalone.stream_html(source, viewer, {f"/{name}": body for name, body in given.items()}), path)
    return path.read_text("utf-8")


def test_page_holds_everything_exactly(tmp_path: Path, viewer: Path) -> None:
    """A page contains a small analysis bit by bit."""
    source = made()
    found = answers(page(source, tmp_path, viewer, analysis=b'{"a": "</script>"}'))
    assert found["/analysis"] == b'{"a": "</script>"}'
    for lens, shape in SHAPES.items():
        assert load(found[f"/grid/{lens}"])["tiles"].shape[:2] == shape
        assert load(found[f"/grid/{lens}/without"])["tiles"].shape[:2] == shape
        for layer in range(LAYERS):
            np.testing.assert_array_equal(
                load(found[f"/maps/{lens}/{layer}"])["map"], source.whole_maps[lens][layer : layer + 1]
            )
    assert np.isnan(load(found["/measures/entropy/weights"])["values"]).all()


def test_page_is_one_document(tmp_path: Path, viewer: Path) -> None:
    """Neither names nor the viewer can close an element early, and the policy contains the script's digest."""
    text = page(made(), tmp_path, viewer)
    assert "<b>model" not in text
    assert text.lower().count("</script") == text.count("<script type=")
    script = re.search(r'<script type="module">(.*)</script>', text)
    assert script
    assert html.escape(f"script-src 'sha256-{standalone.digest(script[1])}'") in text


@pytest.mark.parametrize(("precision", "bound"), [("float16", 2**-11), ("uint8", 0.51 / 127)])
def test_large_maps_are_rounded_as_said(
    precision: str, bound: float, tmp_path: Path, viewer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maps that are too large for one precision use the next, within its stated error."""
    source = made()
    entries = sum(array.size for array in source.whole_maps.values())
    limits = {name: (entries * standalone.WIDTH[name] if name == precision else 0) for name in standalone.MOST}
    monkeypatch.setattr(standalone, "MOST", limits)
    found = answers(page(source, tmp_path, viewer))
    for lens in SHAPES:
        part, exact = load(found[f"/maps/{lens}/0"]), source.whole_maps[lens][:1]
        assert part["map"].dtype == precision
        values = part["map"].astype(np.float32)
        if precision == "uint8":
            values = values * part["scale"][..., None, None] + part["offset"][..., None, None]
            values[part["undefined"].astype(bool)] = np.nan
            assert (np.nan_to_num(np.abs(values - exact)).max(axis=(2, 3)) <= part["max_error"]).all()
        np.testing.assert_array_equal(np.isnan(values), np.isnan(exact))
        assert np.nanmax(np.abs(values - exact)) <= bound * np.nanmax(np.abs(exact))


def test_values_too_large_for_half_precision_stay_exact(
    tmp_path: Path, viewer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standalone, "MOST", {"float32": 0, "float16": 10**9, "uint8": 10**9})
    source = made()
    source.whole_maps["effective"][0, 0, 0, 0] = 1e6
    found = answers(page(source, tmp_path, viewer))
    assert load(found["/maps/effective/0"])["map"].dtype == np.float32
    assert load(found["/maps/effective/1"])["map"].dtype == np.float16


def test_too_much_is_refused_before_it_is_written(tmp_path: Path, viewer: Path) -> None:
    """144 heads at 2,048 tokens are too large for a page and for a table."""
    source = made()
    source.document["shapes"] = {"weights": [12, 12, 2048, 2048]}
    source.document["kept"] = ["weights"]
    source = replace(source, arrays={"tile/weights/scale": np.ones((12, 12), np.float32)})
    with pytest.raises(BudgetExceeded, match="too many entries for a table"):
        save(export.stream_parquet(source), tmp_path / "table.parquet")
    with pytest.raises(BudgetExceeded, match="too large for a web page"):
        save(standalone.stream_html(source, viewer, {}), tmp_path / "page.html")
    with pytest.raises(BudgetExceeded, match="too many entries for a table"):
        save(export.stream_csv(source), tmp_path / "table.csv")
    assert not list(tmp_path.glob("*.*"))


def test_no_viewer_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="make page"):
        save(standalone.stream_html(made(), tmp_path / "nowhere", {}), tmp_path / "page.html")


def test_table_holds_hostile_tokens(tmp_path: Path) -> None:
    """Every text is recovered, no cell begins like a formula, and undefined entries have no row."""
    source = made(len(HOSTILE), HOSTILE)
    path = tmp_path / "table.csv"
    save(export.stream_csv(source, BY_LAYER), path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    n = len(HOSTILE)
    assert len(rows) == n * n * (2 * LAYERS * HEADS + LAYERS) - n
    assert [json.loads(row["key_token"]) for row in rows[:n]] == HOSTILE
    assert {row["head"] for row in rows if row["lens"] == "rollout"} == {""}
    assert {row["layer"] for row in rows} == {"4", "7"}
    assert {row["head"] for row in rows if row["lens"] == "effective"} == {"0", "2", "5"}
    assert not [row for row in rows if row["query_token"][0] in "=+-@\t\r" or row["key_token"][0] in "=+-@\t\r"]
    values = np.array([row["value"] for row in rows if row["lens"] == "effective"], np.float32)
    np.testing.assert_array_equal(values, source.whole_maps["effective"].ravel())


def test_one_head_is_a_head(tmp_path: Path) -> None:
    """The table of a single head names it; that of a lens per layer names none."""
    source = made(heads=(5,))
    save(export.stream_csv(source, BY_LAYER), tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        found = {(row["lens"], row["head"]) for row in csv.DictReader(file)}
    assert found == {("weights", "5"), ("effective", "5"), ("rollout", "")}


def test_parquet_and_arrow_are_the_same_table_with_types(tmp_path: Path) -> None:
    """Parquet has the same rows as CSV, raw tokens, null heads for lenses per layer, and the document as metadata."""
    source = made(len(HOSTILE), HOSTILE)
    save(export.stream_csv(source, BY_LAYER), tmp_path / "table.csv")
    save(export.stream_parquet(source, BY_LAYER), tmp_path / "table.parquet")
    table = pq.read_table(tmp_path / "table.parquet")
    with (tmp_path / "table.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert table.column_names == list(lines[0])
    for name in ("lens", "layer", "query", "key"):
        assert [str(value) for value in table[name].to_pylist()] == [line[name] for line in lines]
    assert table["head"].to_pylist() == [int(line["head"]) if line["head"] else None for line in lines]
    for name in ("query_token", "key_token"):
        assert table[name].to_pylist() == [json.loads(line[name]) for line in lines]
    np.testing.assert_array_equal(table["value"].to_numpy(), np.array([line["value"] for line in lines], np.float32))
    assert json.loads(table.schema.metadata[b"headscope"]) == source.document
    save(export.stream_arrow(source, BY_LAYER), tmp_path / "table.arrows")
    assert pa.ipc.open_stream(tmp_path / "table.arrows").read_all().equals(table, check_metadata=False)
