"""Figures of studies hold what a loop over the analyses of the same inputs gives, and are figures that plotly takes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import headscope
from headscope.errors import NotReady, Unknown, Unsupported
from headscope.figures.studies import STUDY_FIGURES, build_table
from headscope.figures.theme import PALETTES
from headscope.figures.violin import density, density_of_counts
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from headscope.studies.figure_needs import FIGURE_NEEDS, drawable_figures
from tests.support.variants import variants

TAGGED = [
    ("Ann met Bob in Oslo .", "PROPN VERB PROPN ADP PROPN PUNCT", "I-PER O I-PER O I-LOC O"),
    ("They told the Danish press that Shell would pay .", "PRON VERB DET ADJ NOUN SCONJ PROPN AUX VERB PUNCT", "O O O I-MISC O O I-ORG O O O"),
    ("Oslo and Lisbon are far apart .", "PROPN CCONJ PROPN AUX ADV ADV PUNCT", "I-LOC O I-LOC O O O O"),
    ("Ann pays .", "PROPN VERB PUNCT", "I-PER O O"),
    ("The old clock in Lisbon stopped , and Bob , who had wound it every morning for forty years , did not even look up when he walked past it .",
     "DET ADJ NOUN ADP PROPN VERB PUNCT CCONJ PROPN PUNCT PRON AUX VERB PRON DET NOUN ADP NUM NOUN PUNCT AUX PART ADV VERB ADV SCONJ PRON VERB ADP PRON PUNCT",
     " ".join(["O"] * 4 + ["I-LOC"] + ["O"] * 3 + ["I-PER"] + ["O"] * 22)),
    ("Shell told Ann .", "PROPN VERB PROPN PUNCT", "I-ORG O I-PER O"),
]  # fmt: skip
ROWS = [{"text": text, "pos": pos.split(), "labels": labels.split()} for text, pos, labels in TAGGED]
NEEDED = sorted({measure for name in STUDY_FIGURES for measure in FIGURE_NEEDS[name].measures})
READ = sorted({lens for name in STUDY_FIGURES for lens in FIGURE_NEEDS[name].lenses})
# Figures that need other inputs, or a model that predicts.
OTHERS = {name for name, needs in FIGURE_NEEDS.items() if {"effects", "truth"} & {*needs.asks}}
MARKED = [{"text": text, "labels": labels.split()} for text, labels in [
    ("Ann met Bob and thanked him", "O O key O O query"), ("Oslo is known for its fjord", "key O O O query O"),
    ("Bob said that he paid", "key O O query O"), ("Ann lost her clock", "key O query O"),
]]  # fmt: skip


@pytest.fixture(scope="module")
def study(minilm: headscope.Model) -> Any:
    """A study with everything that any figure needs, of two mechanisms."""
    figures = tuple(name for name in STUDY_FIGURES if name not in OTHERS)
    return headscope.study(minilm, ROWS, against_mechanism="jump", figures=figures)


@pytest.fixture(scope="module")
def studied(study: Any, minilm: headscope.Model) -> Callable[[str], Any]:
    """The study that a figure can be drawn from."""
    effects = ["contribution", {"name": "attribution-patching", "of": "zero"}]
    texts = ["The cat sat.", "It rained all day."]
    judged = headscope.study("twin-gpt-softmax", texts, lenses=(), measures=(), effects=effects)
    scored = headscope.study(minilm, MARKED, lenses=("weights", "rollout"), measures=(), figures=("scores",))
    others = {"effects": judged, "scores": scored}
    assert others.keys() == OTHERS
    return lambda name: others.get(name, study)


@pytest.fixture(scope="module")
def drawn(studied: Callable[[str], Any]) -> Callable[[str], Any]:
    """Every figure as it is by default, drawn once."""
    return cache(lambda name: studied(name).figure(name))


@pytest.fixture(scope="module")
def one_by_one(minilm: headscope.Model) -> list[Any]:
    """The same inputs, each an analysis of its own."""
    return [headscope.analyze(minilm, lenses=READ, measures=NEEDED, **row) for row in ROWS]


def rows(study: Any, name: str, **params: Any) -> list[dict[str, Any]]:
    """The figure's table."""
    found = build_table(study, name, params)
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def mean(one_by_one: list[Any], measure: str, lens: str = "weights") -> Any:
    """Mean over inputs of each input's mean over tokens, ignoring undefined values."""
    over = tuple(place for place, axis in enumerate(MEASURES[measure].shape.split()) if axis in "QK")
    each = [
        np.where(np.isfinite(a.measures[measure][lens]), a.measures[measure][lens], np.nan).astype(float)
        for a in one_by_one
    ]
    values = np.stack([one.mean(over) if over else one for one in each])
    defined = np.isfinite(values)
    return np.where(defined, values, 0).sum(0) / np.where(defined.any(0), defined.sum(0), np.nan)


def column(measure: str, name: str) -> int:
    return MEASURES[measure].columns.index(name)


@variants("theme", PALETTES, crossed=False)
@variants("name", STUDY_FIGURES)
def test_plotly_takes_every_figure(studied: Callable[[str], Any], name: str, theme: Any) -> None:
    """Every property is one of plotly's, every number is finite, there are words for it, and its marks say which layer and head they are."""
    figure = studied(name).figure(name, theme=theme)
    assert isinstance(figure, go.Figure)
    json.dumps(json.loads(figure.to_json()), allow_nan=False)
    assert re.search(r"\d", figure.layout.meta["sentence"])
    assert "nan" not in figure.layout.meta["sentence"]
    assert figure.layout.paper_bgcolor == PALETTES[theme].paper
    assert any(trace.customdata is not None for trace in figure.data)


@variants("name", STUDY_FIGURES)
def test_declarations(name: str) -> None:
    """Measures and lenses that exist, words, and a source."""
    described = STUDY_FIGURES[name].describe()
    assert set(described["measures"]) <= set(MEASURES)
    assert set(described["lenses"]) <= set(LENSES)
    assert all(described[field] for field in ("title", "doc", "not", "citation"))


def test_all_of_them_can_be_drawn(studied: Callable[[str], Any]) -> None:
    assert list(STUDY_FIGURES) == list(FIGURE_NEEDS)
    assert all(name in drawable_figures(studied(name).document) for name in STUDY_FIGURES)


@pytest.mark.parametrize("lens", ["weights", "effective"])
def test_pattern_shares_are_counted(study: Any, one_by_one: list[Any], lens: str) -> None:
    """Over heads and inputs; the intervals hold the shares."""
    kinds = np.stack([a.measures["patterns"][lens][..., column("patterns", "class")] for a in one_by_one])
    title = f"{LENSES[lens].title}, softmax"
    for number, kind in enumerate(MEASURES["patterns"].classes):
        (row,) = [row for row in rows(study, "pattern-shares") if (row["lens"], row["class"]) == (title, kind)]
        assert row["maps"] == (kinds == number).sum()
        assert row["share"] == pytest.approx((kinds == number).mean())
        assert row["low"] - 1e-9 <= row["share"] <= row["high"] + 1e-9
    by_layer = [row for row in rows(study, "pattern-shares", by="layer", lens=lens) if row["layer"] == "3"]
    assert sum(row["share"] for row in by_layer) == pytest.approx(1)
    assert [row["maps"] for row in by_layer] == [(kinds[:, 3] == number).sum() for number in range(6)]


def test_equal_bars_are_explained(study: Any, minilm: headscope.Model) -> None:
    """Inputs shorter than the width of a head have no null space to remove; one of these is longer."""
    short = headscope.study(minilm, ["The cat sat.", "It rained all day."], figures=("pattern-shares",))
    sentence = short.figure("pattern-shares").layout.meta["sentence"]
    assert sentence.endswith("no more tokens than the 32 dimensions of a head, both maps are usually the same.")
    assert "equal bars" not in study.figure("pattern-shares").layout.meta["sentence"]
    assert "equal bars" not in short.figure("pattern-shares", by="layer").layout.meta["sentence"]


def test_token_types_are_means_over_inputs_that_have_the_type(study: Any, one_by_one: list[Any]) -> None:
    """The largest weight from [CLS] to a word of that part of speech, in the last layer."""
    expected = {}
    for tag in ("NOUN", "PRON", "NUM"):
        found = []
        for a, row in zip(one_by_one, ROWS, strict=True):
            firsts = {
                token.word: place for place, token in reversed(list(enumerate(a.tokens))) if token.word is not None
            }
            places = [firsts[word] for word, own in enumerate(row["pos"]) if own == tag]
            found += [a.maps["weights"][5, :, 0][:, places].max(-1)] if places else []
        expected[tag] = np.mean(found, axis=0)
    shown = [row for row in rows(study, "token-types") if row["lens"] == "weights"]
    for tag, values in expected.items():
        assert [row["mean"] for row in shown if row["type"] == tag] == pytest.approx(values.tolist(), abs=1e-6)
    first = [row["mean"] for row in shown if row["type"] == "first"]
    assert first == pytest.approx(
        np.mean([a.maps["weights"][5, :, 0, 0] for a in one_by_one], axis=0).tolist(), abs=1e-6
    )
    assert {row["layer"] for row in rows(study, "token-types", layer=2)} == {2}


def test_the_map_shown_is_that_of_its_input(study: Any, one_by_one: list[Any]) -> None:
    """Of the one input with more tokens than the head has dimensions; to 16 bits."""
    table = rows(study, "lens-pair", layer=4, head=5)
    a = one_by_one[4]
    assert len(a.tokens) > 32
    assert {row["row"] for row in table} == {5}
    for lens in ("weights", "effective"):
        found = np.array([row[lens] for row in table]).reshape(len(a.tokens), -1)
        np.testing.assert_allclose(found, a.maps[lens][4, 5], atol=1e-3)
    assert table[1]["key_token"] == a.tokens[1].text
    chosen = rows(study, "lens-pair")[0]
    apart = [np.abs(a.maps["effective"][i, j] - a.maps["weights"][i, j]).sum() for i, j in np.ndindex(6, 12)]
    assert (chosen["layer"], chosen["head"]) == divmod(int(np.argmax(apart)), 12)


def test_tuning_compares_the_two_variants(study: Any, minilm: headscope.Model, one_by_one: list[Any]) -> None:
    """The mean over inputs of headscope.compare on the two analyses."""
    others = [headscope.analyze(minilm, lenses=("weights",), mechanism="jump", **row) for row in ROWS]
    for comparison in ("cosine", "js_divergence"):
        each = [headscope.compare(a, b)[comparison] for a, b in zip(one_by_one, others, strict=True)]
        found = [row[comparison] for row in rows(study, "tuning", comparison=comparison)]
        assert found == pytest.approx(np.mean(each, axis=0).ravel().tolist(), abs=1e-6)


def test_special_maps_norms_and_mixing_are_means(study: Any, one_by_one: list[Any]) -> None:
    special = mean(one_by_one, "special_tokens", "effective")
    table = [
        row["mean"] for row in rows(study, "special-maps") if (row["token"], row["lens"]) == ("separator", "effective")
    ]
    assert table == pytest.approx(special[..., column("special_tokens", "separator")].ravel().tolist(), abs=1e-6)
    norms = mean(one_by_one, "token_norms", "norm")[..., column("token_norms", "norm_punct")].mean(-1)
    table = [row["mean"] for row in rows(study, "norms") if (row["part"], row["class"]) == ("norm", "punct")]
    assert table == pytest.approx(norms.tolist(), rel=1e-5)
    mixing = mean(one_by_one, "mixing_ratio", "norm-residual")
    table = [row["mean"] for row in rows(study, "mixing-ratio") if row["variant"] == "softmax"]
    assert table == pytest.approx([*mixing.tolist(), mixing.mean()], abs=1e-6)
    ratio = [row["residual_ratio"] for row in rows(study, "residual-ratio") if row["variant"] == "softmax"]
    assert ratio == pytest.approx(mean(one_by_one, "residual_ratio").tolist(), abs=1e-6)


def test_connections_are_counts(study: Any, one_by_one: list[Any]) -> None:
    """Over heads and inputs, class by class."""
    total = np.sum([a.measures["connections"]["weights"].sum(1) for a in one_by_one], axis=0)  # [L, C]
    for row in rows(study, "connections"):
        if row["variant"] == "softmax":
            assert row["connections"] == pytest.approx(
                total[row["layer"], column("connections", row["class"])], abs=1e-6
            )


def test_connections_of_texts_without_labels(minilm: headscope.Model) -> None:
    """They have no entities, so they add to no count of these; and of one input there is no interval."""
    asked: dict[str, Any] = {"lenses": ("weights",), "measures": ("connections",)}
    alone = headscope.study(minilm, ROWS[:1], **asked)
    among = headscope.study(minilm, [*ROWS[:1], "It rained.", "The clock stopped."], **asked)
    for one, other in zip(rows(alone, "connections"), rows(among, "connections"), strict=True):
        if one["class"] not in ("special tokens", "special", "other"):
            assert other["connections"] == one["connections"]
            assert (other["low"], other["high"]) == (None, None)


def test_one_map_whose_keys_are_other_tokens(study: Any) -> None:
    """As those of cross-attention: each axis has its own tokens, as many as it has."""
    arrays, names = dict(study.arrays), [f"key {number}" for number in range(9)]
    for lens in ("weights", "effective"):
        prefix = f"shown/0/{lens}"
        arrays[f"{prefix}/map"] = arrays[f"{prefix}/map"][..., :9]
        arrays[f"{prefix}/keys"] = np.frombuffer(json.dumps(names).encode(), np.uint8)
    crossed = replace(study, arrays=arrays)
    table = rows(crossed, "lens-pair")
    assert [row["key_token"] for row in table[:10]] == [*names, "key 0"]
    tokens = json.loads(arrays["shown/0/weights/tokens"].tobytes())
    assert [row["query_token"] for row in table[::9]] == tokens
    figure = crossed.figure("lens-pair")
    assert np.shape(figure.data[0].z) == (len(tokens), 9)


def test_the_head_of_a_layer_whose_maps_differ_most(study: Any, one_by_one: list[Any]) -> None:
    """Or of a number, in any layer."""
    a = one_by_one[4]
    apart = np.abs(a.maps["effective"] - a.maps["weights"]).sum((-1, -2))
    chosen = rows(study, "lens-pair", layer=2)[0]
    assert (chosen["layer"], chosen["head"]) == (2, int(np.argmax(apart[2])))
    chosen = rows(study, "lens-pair", head=7)[0]
    assert (chosen["layer"], chosen["head"]) == (int(np.argmax(apart[:, 7])), 7)


def test_entropy_and_similarity_hold_all_rows_and_pairs(study: Any, one_by_one: list[Any]) -> None:
    """Quantiles to the width of a bin; means exactly."""
    width = 10 / 400
    for layer, row in enumerate(rows(study, "entropy")):
        of = np.concatenate([a.measures["entropy"]["weights"][layer].ravel() for a in one_by_one])
        assert row["rows"] == of.size
        assert row["median"] == pytest.approx(np.median(of), abs=width)
        assert (row["minimum"], row["maximum"]) == (
            pytest.approx(of.min(), abs=1e-6),
            pytest.approx(of.max(), abs=1e-6),
        )
    by_head = [row["mean"] for row in rows(study, "entropy", layer=2)]
    assert by_head == pytest.approx(mean(one_by_one, "entropy")[2].tolist(), abs=1e-6)
    similar = mean(one_by_one, "token_similarity")
    bins = similar[:, column("token_similarity", "bin_00") :]
    for layer, row in enumerate(rows(study, "token-similarity")):
        assert row["mean"] == pytest.approx(similar[layer, column("token_similarity", "mean")], abs=1e-6)
        assert row["mode"] == pytest.approx(-1 + (bins[layer].argmax() + 0.5) / 20)


def test_head_metrics_are_those_of_the_maps(study: Any, one_by_one: list[Any]) -> None:
    """Straight from the weights."""

    def average(of: Callable[[Any], Any]) -> Any:
        return np.mean([of(a.maps["weights"].astype(float)) for a in one_by_one], axis=0).ravel()

    def distance(A: Any, power: int) -> Any:
        places = np.arange(A.shape[-1])
        return (A * np.abs(places[:, None] - places) ** power).sum((-1, -2)) / A.shape[-1]

    first, second = average(lambda A: distance(A, 1)), average(lambda A: distance(A, 2))
    expected = {
        "self_attention_score": average(lambda A: A.diagonal(0, -2, -1).mean(-1)),
        "prev_token_score": average(lambda A: A.diagonal(-1, -2, -1).mean(-1)),
        "pattern_entropy": average(lambda A: -np.where(A > 0, A * np.log(np.maximum(A, 1e-38)), 0).sum(-1).mean(-1)),
        "qk_distance": first,
        "qk_distance_variance": second - first**2,
    }
    table = rows(study, "head-metrics")
    for name, values in expected.items():
        assert [row[name] for row in table] == pytest.approx(values.tolist(), abs=2e-4), name
    assert {row["induction_score"] for row in table} == {None}, "MiniLM is not causal"


@variants("name", STUDY_FIGURES)
def test_no_band_covers_a_curve(drawn: Callable[[str], Any], name: str) -> None:
    """Bands are below everything else in their panel, and what is below a band shows through."""
    data = drawn(name).data
    for axis in {trace.xaxis for trace in data}:
        traces = [trace for trace in data if trace.xaxis == axis and trace.type == "scatter"]
        bands = [trace for trace in traces if trace.fill == "toself" and trace.line.width == 0]
        assert traces[: len(bands)] == bands
        assert all(trace.fillcolor.startswith("rgba(") for trace in bands)


@variants("name", STUDY_FIGURES)
def test_no_axis_title_is_above_a_panel(drawn: Callable[[str], Any], name: str) -> None:
    """Between panels there is room for ticks and the title of the panel below; a shared axis is named once."""
    layout = drawn(name).layout.to_plotly_json()
    panels = [(layout[axis], layout[axis.replace("x", "y", 1)]) for axis in layout if axis.startswith("xaxis")]
    for across, down in panels:
        for other, lower in panels:
            stacked = (
                "domain" in down and other["domain"] == across["domain"] and lower["domain"][1] < down["domain"][0]
            )
            assert not (stacked and across["title"].get("text"))


@variants("name", [name for name, needs in FIGURE_NEEDS.items() if name not in OTHERS and "against" not in needs.asks])
def test_every_variant_is_drawn_or_the_one_is_named(study: Any, name: str) -> None:
    drawn = STUDY_FIGURES[name].build(study, STUDY_FIGURES[name].params())
    told = json.dumps([drawn.traces, drawn.layout], default=str)
    assert ("jump" in told) != STUDY_FIGURES[name].of_one
    assert "softmax" in told
    assert "softmax" in drawn.sentence


def test_head_entropy_has_a_row_of_panels_per_variant(study: Any) -> None:
    both, second = rows(study, "head-entropy"), rows(study, "head-entropy", variant=1)
    assert {row["variant"] for row in both} == {"softmax", "jump"}
    assert [row for row in both if row["variant"] == "jump"] == second
    assert len(study.figure("head-entropy").layout.annotations) == 4


@variants("name", ["residual-ratio", "mixing-ratio", "pattern-grid", "head-entropy"])
def test_marks_name_their_variant(study: Any, name: str) -> None:
    """The page opens a mark's head in the variant that it is about."""
    marked = [trace for trace in study.figure(name).to_dict()["data"] if trace.get("customdata") is not None]
    assert {trace["meta"]["variant"] for trace in marked} == {0, 1}
    second = study.figure(name, **({"variant": 1} if name == "head-entropy" else {})).to_dict()["data"][-1]
    assert second["meta"]["variant"] == 1


def test_the_forward_pass_is_its_own_measure(study: Any) -> None:
    """Of costs: the factor is that of a pass with the lens to one without."""
    assert [row["factor"] for row in rows(study, "lens-cost") if row["part"] == "forward pass"] == [1, 1]


def test_the_axis_of_the_residual_ratio_holds_its_bands(study: Any) -> None:
    figure = study.figure("residual-ratio")
    low, high = (10**end for end in figure.layout.yaxis.range)
    assert all(low <= value <= high for trace in figure.data for value in trace.y)


def test_numbers_of_a_head_have_the_unit_of_their_column(study: Any) -> None:
    numbers = {one["column"]: one for one in study.head(0, 0)["numbers"] if one["measure"] == "qk_distance"}
    assert [numbers[name]["unit"] for name in ("mean", "from_0", "from_1")] == ["tokens", "1", "1"]
    shares = [one["mean"] for name, one in numbers.items() if name.startswith("from")]
    assert sum(shares) == pytest.approx(1, abs=1e-6)


def test_the_grid_has_the_class_of_most_inputs(study: Any, one_by_one: list[Any]) -> None:
    kinds = np.stack([a.measures["patterns"]["weights"][..., column("patterns", "class")] for a in one_by_one]).astype(
        int
    )
    for row in rows(study, "pattern-grid"):
        if row["variant"] == "softmax":
            counts = np.bincount(kinds[:, row["layer"], row["head"]], minlength=6)
            assert row["class"] == MEASURES["patterns"].classes[counts.argmax()]
            assert row["share_of_inputs"] == pytest.approx(counts.max() / len(ROWS))
    figure = study.figure("pattern-grid")
    assert len(figure.data[1].customdata) == 72
    framed = [row for row in rows(study, "pattern-grid") if row["class"].endswith("diagonal")]
    veiled = [row for row in rows(study, "pattern-grid") if row["class"].startswith("vertical")]
    assert len(figure.layout.shapes) == len(framed) + len(veiled)


def test_intervals_come_from_resampling_inputs(study: Any, one_by_one: list[Any]) -> None:
    """About as wide as the standard error says, and around the mean."""
    values = np.stack([a.measures["residual_ratio"]["weights"] for a in one_by_one])
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    for layer, row in enumerate(rows(study, "residual-ratio")[:6]):
        assert row["low"] < row["residual_ratio"] < row["high"]
        assert 1.5 * error[layer] < row["high"] - row["low"] < 6 * error[layer]


def test_what_is_refused(minilm: headscope.Model) -> None:
    """In one sentence that says what to do."""
    small = headscope.study(minilm, ["The cat sat.", "It rained all day."], lenses=("weights",), measures=("entropy",))
    assert drawable_figures(small.document) == ["entropy"]
    unlabelled = {**small.document, "dataset": {"chosen": {"text": "text"}}, "measures": ["right_key"]}
    assert drawable_figures(unlabelled) == []
    assert drawable_figures({**unlabelled, "dataset": {"chosen": {"text": "text", "labels": "tags"}}}) == ["scores"]
    with pytest.raises(NotReady, match="Run the study again"):
        small.figure("residual-ratio")
    with pytest.raises(NotReady, match="against"):
        small.figure("tuning")
    with pytest.raises(Unknown, match="0 to 5"):
        small.figure("entropy", layer=9)
    with pytest.raises(Unknown, match="variants"):
        small.figure("entropy", variant=1)
    with pytest.raises(Unsupported, match="computed for: weights"):
        small.figure("entropy", lens="max-entropy")
    with pytest.raises(Unknown, match="Unknown study figure"):
        small.figure("no-such-figure")
    labelled = headscope.study(minilm, ["The cat sat."], lenses=("weights",), measures=("connections",))
    with pytest.raises(NotReady, match="labels"):
        labelled.figure("connections")


def test_one_input_has_no_interval_and_is_drawn(minilm: headscope.Model) -> None:
    """Nothing to resample from: the marks are there, without an interval."""
    asks = {"against", "labels", "effects", "truth"}
    figures = [name for name, needs in FIGURE_NEEDS.items() if not set(needs.asks) & asks]
    single = headscope.study(minilm, ["[UNK]"], figures=figures)
    for name in figures:
        assert isinstance(single.figure(name), go.Figure)


def test_density_of_counts_is_that_of_the_values() -> None:
    """To a hundredth of its highest place, where bins are narrow."""
    values = np.random.default_rng(0).normal(3, 0.7, 4000)
    counts, edges = np.histogram(values, 400, (0, 10))
    grid, found = density_of_counts(counts, edges, values.min(), values.max())
    reference = density(values)
    np.testing.assert_allclose(grid, reference[0])
    np.testing.assert_allclose(found, reference[1], atol=0.02 * reference[1].max())
