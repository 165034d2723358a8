"""Files for HeadVis: the ones its page reads, with the numbers of the maps."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headscope
from headscope.errors import NotReady, Unknown
from headscope.store.export import Flat
from headscope.studies import kept_maps
from headscope.studies.results import headvis

from .texts import texts

COUNT = 14


@pytest.fixture(scope="module")
def study(minilm: headscope.Model) -> Any:
    return headscope.study(minilm, texts(COUNT), figures=("head-metrics",))


@pytest.fixture(scope="module")
def written(study: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every file, as JSON."""
    path = tmp_path_factory.mktemp("headvis") / "a.zip"
    headvis.write(study, path)
    again = path.with_name("b.zip")
    headvis.write(study, again)
    assert path.read_bytes() == again.read_bytes(), "the same study, the same bytes"
    with zipfile.ZipFile(path) as file:
        return {name: json.loads(file.read(name)) for name in file.namelist()}


def test_files_are_those_that_the_page_reads(written: dict[str, Any]) -> None:
    heads = {f"heads/L{layer}H{head}.json" for layer in range(6) for head in range(12)}
    assert (
        set(written) == {"config.json", "scatter_data.json", "server_config.json", "attributions/manifest.json"} | heads
    )
    config = written["config.json"]
    assert (config["n_layers"], config["n_heads"], len(config["heads"])) == (6, 12, 72)
    assert config["metrics"] == list(config["metric_descriptions"])
    assert (written["server_config.json"], written["attributions/manifest.json"]) == ({}, {})
    for row in written["scatter_data.json"]:
        assert set(row) == {"layer", "head", *config["metrics"]}
        assert row["induction_score"] is None


def test_sequences_hold_the_strongest_entries(written: dict[str, Any], minilm: headscope.Model) -> None:
    """Row by row the eight largest weights from 0.005 on, to four decimals, in order."""
    given = texts(COUNT)
    for layer, head in ((0, 2), (4, 5)):
        shown = written[f"heads/L{layer}H{head}.json"]["sequences"]
        assert len(shown) == kept_maps.SPARSE_INPUTS
        for one in shown[:3]:
            a = headscope.analyze(minilm, given[one["sequence_id"] - 1], lenses=("weights",), measures=())
            assert one["tokens"] == [token.text for token in a.tokens]
            n, A = one["seq_len"], a.maps["weights"][layer, head]
            found = np.zeros((n, n))
            found.ravel()[one["attention_indices"]] = one["attention_values"]
            assert one["attention_indices"] == sorted(set(one["attention_indices"]))
            assert ((found > 0).sum(1) <= 8).all()
            np.testing.assert_allclose(found[found > 0], A[found > 0], atol=6e-5)
            least = np.sort(A, axis=1)[:, ::-1][:, : min(8, n)]
            np.testing.assert_allclose(found.sum(1), np.where(least < 0.005, 0, least).sum(1), atol=1e-3)
            inner = found[1:, 1:]
            assert one["max_activation"] == pytest.approx(inner.max(initial=0))
            assert 1 <= one["interval"] <= 5


def test_an_analysis_is_read_in_parts(minilm: headscope.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its strongest entries are those of whole maps, of which no more than a part is read."""
    a = headscope.analyze(minilm, texts(1)[0], lenses=("weights",), measures=headvis.MEASURES)
    source = Flat(a.to_document(), a.to_arrays(), a.maps)
    tokens = [token.text for token in a.tokens]
    monkeypatch.setattr("headscope.store.map_file.BLOCK", 3 * len(tokens) ** 2 * 4)
    monkeypatch.setattr(kept_maps, "AT_ONCE", 2 * len(tokens))
    monkeypatch.delattr(Flat, "maps")
    found = headvis.summary_of_analysis(source).arrays
    weights = a.maps["weights"]
    keys = np.sort(np.argsort(-weights, axis=-1, kind="stable")[..., : kept_maps.TOP], axis=-1)
    np.testing.assert_array_equal(found["sparse/0/0/key"], keys)
    values = np.take_along_axis(weights, keys, -1)
    np.testing.assert_array_equal(
        found["sparse/0/0/value"], np.where(values < 0.005, 0, np.round(values * kept_maps.SCALE))
    )
    assert json.loads(found["sparse/0/0/tokens"].tobytes()) == tokens


def test_histograms_are_over_all_inputs(written: dict[str, Any], study: Any) -> None:
    for head in (0, 7):
        found = written[f"heads/L3H{head}.json"]
        assert sum(found["histogram"]["bin_values"]) == COUNT
        assert len(found["histogram"]["bin_edges"]) == 51
        assert sum(found["qk_distance_histogram"]["bin_values"]) == pytest.approx(1, abs=1e-3)
        assert len(found["qk_distance_histogram"]["bin_edges"]) == len(found["qk_distance_histogram"]["bin_values"]) + 1
        assert found["statistics"]["mean_max_activation"] == pytest.approx(
            study.stat("max_activation").input_mean[3, head], abs=1e-4
        )
        weights = [entry["weight"] for entry in found["top_key_tokens"]]
        assert weights == sorted(weights, reverse=True)
        total = sum(sum(one["attention_values"]) for one in found["sequences"])
        assert sum(entry["weight"] for entry in found["top_query_tokens"]) <= total + 1e-2


def test_what_is_kept_does_not_depend_on_the_order_of_merging() -> None:
    """The same eight inputs from any two halves."""

    def held(rows: range) -> dict[str, Any]:
        return {f"sparse/0/{row}/key": np.zeros(1) for row in rows}

    whole = kept_maps.sparse_rows(kept_maps.prune_sparse(held(range(40)), 7))
    low, high = kept_maps.prune_sparse(held(range(17)), 7), kept_maps.prune_sparse(held(range(17, 40)), 7)
    assert kept_maps.sparse_rows(kept_maps.prune_sparse({**high, **low}, 7)) == whole
    assert len(whole) == kept_maps.SPARSE_INPUTS


def test_what_is_refused(minilm: headscope.Model, study: Any, tmp_path: Path) -> None:
    plain = headscope.study(minilm, ["The cat sat."], lenses=("weights",), measures=("entropy",))
    with pytest.raises(NotReady, match="head-metrics"):
        headvis.write(plain, tmp_path / "a.zip")
    with pytest.raises(Unknown, match="variants"):
        headvis.write(study, tmp_path / "a.zip", 1)
