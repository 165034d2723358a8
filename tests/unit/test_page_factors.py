"""Pages of long texts: factors of chosen heads in two bytes per number, their error, and what is rejected.

`python -m tests.unit.test_page_factors` writes the cases with which the viewer's own tests compute the same entries.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load

import headscope
from headscope import Model
from headscope.api.documents import standalone
from headscope.api.documents.page_factors import LARGEST_ERROR, SINGLE_ERROR, pack
from headscope.api.documents.selection import Selection
from headscope.core.factors import Factors, ProjectionFactors, Remainder, Visible, WeightFactors, Whole
from headscope.errors import BudgetExceeded, InvalidRequest
from headscope.store import Stored
from headscope.store.factor_file import join
from tests.support.extent import mostly_long
from tests.support.variants import variants

from .conftest import TINY
from .test_kept_factors import LENSES, numbers, stored_with
from .test_map_factors import MODELS

Array = NDArray[Any]
CASES = Path(__file__).resolve().parents[2] / "frontend/tests/api/factors.json"
Q, K, D = 11, 13, 4
ALL = slice(None)
EVERYTHING = Visible()


def weights(visible: Visible = EVERYTHING, keys: int = Q, **terms: Any) -> WeightFactors:
    generator = np.random.default_rng(keys)
    query, key = (generator.standard_normal((1, n, D)).astype(np.float32) * 2 for n in (Q, keys))
    return WeightFactors.of(query, key, 0.5, visible, **terms)


def projection(causal: bool, first: int) -> ProjectionFactors:
    generator = np.random.default_rng(first)
    coefficients, basis = (generator.standard_normal((1, n, D)).astype(np.float32) for n in (Q - first, Q))
    return ProjectionFactors(coefficients, basis, np.tril(np.ones((1, first, first), np.float32)), causal)


def cases() -> dict[str, Factors]:
    """Every kind of head, with every kind of mask, bias, cap and sink."""
    generator = np.random.default_rng(0)
    places = np.arange(Q)
    window = Visible("interval", np.maximum(0, places - 2).astype(np.int32), (places + 1).astype(np.int32))
    holes = np.tril(generator.random((Q, Q)) < 0.6) | np.eye(Q, dtype=bool)
    slopes = -0.3 * np.abs(places - places[:, None])[None].astype(np.float32)
    return {
        "bidirectional": weights(),
        "two texts": weights(keys=K),
        "causal": weights(Visible("prefix")),
        "sliding window": weights(window),
        "holes": weights(Visible("mask", mask=holes)),
        "cap": weights(Visible("prefix"), softcap=3.0),
        "sink": weights(Visible("prefix"), sink=np.array([[1.5]], np.float32)),
        "bias by key": weights(keys=K, bias=np.tile(generator.standard_normal(K).astype(np.float32), (1, Q, 1))),
        "slopes": weights(Visible("prefix"), bias=slopes),
        "matrix of biases": weights(keys=K, bias=generator.standard_normal((1, Q, K)).astype(np.float32)),
        "effective": projection(causal=False, first=0),
        "causal effective": projection(causal=True, first=3),
        "null": Remainder(weights(Visible("prefix")), projection(causal=True, first=3)),
        "whole map": Whole(generator.random((1, Q, K)).astype(np.float32)),
    }


def unpack(document: bytes) -> tuple[Factors, float]:
    """Read a document as the viewer does: the factors, and the error of an entry that it states."""
    length = int.from_bytes(document[:8], "little")
    head = json.loads(json.loads(document[8 : 8 + length])["__metadata__"]["head"])
    tensors = load(document)
    scaled = {name: values * tensors.get(f"{name}.scale", values.dtype.type(1)) for name, values in tensors.items()}
    return join(head, {name: scaled[name] if f"{name}.scale" in tensors else tensors[name] for name in tensors}), float(
        tensors["error"][0]
    )


def entries(factors: Factors) -> Array:
    _, queries, keys = factors.shape
    return factors.exact(0, np.arange(queries), np.arange(keys))


@variants("name", cases())
def test_error_is_as_stated(name: str) -> None:
    """Every kind of head is rounded within the error that its document states, which is as small as promised."""
    factors = cases()[name]
    document, expected = pack(factors), entries(factors)
    found, error = unpack(document)
    errors = np.abs(entries(found) - expected)
    assert errors.max() <= error
    assert error <= LARGEST_ERROR * np.abs(expected).max() + SINGLE_ERROR
    of_row = float(load(document)["error"][1])
    assert errors.sum(1).max() <= of_row + K * SINGLE_ERROR
    assert of_row <= K * error


def test_viewer_reads_the_same() -> None:
    """The cases of the viewer's tests are those that are written here, and have these entries."""
    kept = json.loads(CASES.read_text("utf-8"))
    assert list(kept) == list(cases())
    for name, factors in cases().items():
        found, _ = unpack(base64.b64decode(kept[name]["document"]))
        np.testing.assert_allclose(entries(found), kept[name]["map"], atol=1e-6, err_msg=name)
        np.testing.assert_allclose(entries(found), entries(factors), atol=2e-3, err_msg=name)


def test_outliers_are_kept_in_single_precision() -> None:
    """One token with huge numbers, whose scale would leave nothing of the others, makes the head exact instead."""
    factors = weights()
    key = factors.key.copy()
    key[0, 0] *= 1e5
    outlier = WeightFactors.of(factors.query, key, 0.5, Visible("interval", np.ones(Q, np.int32), np.full(Q, Q)))
    document = pack(outlier)
    assert load(document)["key"].dtype == np.float32
    found, error = unpack(document)
    assert error == pytest.approx(SINGLE_ERROR)
    np.testing.assert_allclose(entries(found), entries(outlier), atol=error)


def test_rows_without_a_null_space_stay_0() -> None:
    """The rounding of the weights, in either precision, adds nothing to the first rows, which are effective as they are."""
    whole, part = weights(Visible("prefix")), projection(causal=True, first=3)
    for kept in (whole, Whole(entries(whole)[None].astype(np.float32))):
        effective = ProjectionFactors(
            part.coefficients, part.basis, entries(kept)[None, :3, :3].astype(np.float32), True
        )
        factors = Remainder(kept, effective)
        assert not entries(factors)[:3].any()
        assert not entries(unpack(pack(factors))[0])[:3].any()


def test_maps_with_gaps_and_huge_entries() -> None:
    """Rows without a reading stay so, and entries beyond half precision stay in float32."""
    values = np.ones((1, 3, 3), np.float32)
    values[0, 1] = np.nan
    gaps = load(pack(Whole(values)))["map"]
    assert gaps.dtype == np.float16
    assert np.isnan(gaps[0, 1]).all()
    assert load(pack(Whole(values * 1e6)))["map"].dtype == np.float32


def answers(source: Any, viewer: Path, heads: tuple[str, ...] = ()) -> dict[str, bytes]:
    """Return the responses in a page, by path."""
    return responses(
        b"".join(standalone.stream_html(Selection(source, heads) if heads else source, viewer, {})).decode()
    )


def responses(text: str) -> dict[str, bytes]:
    """Return the responses in the text of a page, by path."""
    found = re.findall(r'<script type="text/plain" data-answer="([^"]+)">([A-Za-z0-9+/=]*)</script>', text)
    return {html.unescape(name): gzip.decompress(base64.b64decode(packed)) for name, packed in found}


@pytest.fixture(scope="module")
def viewer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    (folder / "viewer.js").write_text("")
    (folder / "viewer.css").write_text("")
    return folder


@pytest.fixture
def only_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    """No map is small enough to be kept exactly."""
    monkeypatch.setattr(standalone, "MOST", {**standalone.MOST, "float32": 0})


@pytest.fixture(scope="module")
def factored(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """A causal result that keeps factors."""
    return stored_with(tiny, tmp_path_factory.mktemp("factored"), "factors", token_ids=numbers(90))


CHOSEN = ("0.1", "1.0", "1.3")
PLACES = {"0.1": "0.1", "1.0": "1.0", "1.3": "1.2"}


def test_page_has_factors_of_chosen_heads(factored: Stored, viewer: Path, only_factors: None) -> None:
    """They are those of the result, within the stated error; no other head is in the file."""
    found = answers(factored, viewer, CHOSEN)
    names = {name for name in found if name.startswith(("/factors", "/maps"))}
    assert names == {f"/factors/{lens}/{place}" for lens in LENSES for place in PLACES.values()}
    for lens in LENSES:
        thumbnails = load(found[f"/grid/{lens}"])
        assert np.argwhere(~np.isnan(thumbnails["scale"])).tolist() == [[0, 1], [1, 0], [1, 2]]
        np.testing.assert_array_equal(thumbnails["tiles"][1, 2], factored.arrays[f"tile/{lens}/tiles"][1, 3])
        for head, place in PLACES.items():
            layer, number = (int(part) for part in head.split("."))
            read, error = unpack(found[f"/factors/{lens}/{place}"])
            expected = factored.maps(lens, slice(layer, layer + 1), slice(number, number + 1))[0, 0]
            np.testing.assert_allclose(entries(read), expected, atol=error, err_msg=f"{lens} {head}")


def test_exact_maps_are_preferred(tiny: Model, factored: Stored, viewer: Path, tmp_path: Path) -> None:
    """Of a short text, both kinds of results make the same page: exact maps of the chosen heads, and NaN for the others."""
    mapped = stored_with(tiny, tmp_path, "maps", token_ids=numbers(90))
    pages = [answers(source, viewer, CHOSEN) for source in (factored, mapped)]
    assert pages[0].keys() == pages[1].keys()
    for lens in LENSES:
        one, other = (load(page[f"/maps/{lens}/1"])["map"] for page in pages)
        np.testing.assert_allclose(one, other, atol=1e-5)
        assert np.isnan(one).all((0, 2, 3)).tolist() == [False, True, False]
        np.testing.assert_array_equal(other[:, 2], mapped.maps(lens, slice(1, 2), slice(3, 4))[0])


def test_chosen_heads_are_an_analysis(factored: Stored) -> None:
    """Axes, thumbnails, measures and maps are those of the layers and heads that include the chosen ones, which a warning names."""
    chosen = Selection(factored, CHOSEN)
    assert (chosen.document["layers"], chosen.document["heads"]) == ([0, 1], [0, 1, 3])
    assert "3 of the 12 heads: 0.1, 1.0, 1.3" in chosen.document["warnings"][-1]["message"]
    absent = [[True, False, True], [False, True, False]]
    assert np.isnan(chosen.arrays["tile/weights/scale"]).tolist() == absent
    assert np.isnan(chosen.arrays["measure/entropy/weights"]).all(-1).tolist() == absent
    np.testing.assert_array_equal(
        chosen.arrays["measure/entropy/weights"][1, 2], factored.arrays["measure/entropy/weights"][1, 3]
    )
    maps = chosen.maps("effective", slice(1, 2), ALL)
    np.testing.assert_array_equal(maps[0, 2], factored.maps("effective", slice(1, 2), slice(3, 4))[0, 0])
    parts = [part for part in chosen.parts("effective") if part.layer == 1]
    np.testing.assert_array_equal(np.concatenate([part.values for part in parts]), maps[0])
    with pytest.raises(InvalidRequest, match="analysed"):
        Selection(factored, ["7.7"])


@pytest.mark.parametrize("tiny", mostly_long(TINY, "llama"), indirect=True)
def test_too_many_heads_are_refused(
    factored: Stored, viewer: Path, only_factors: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence has both sizes and how many heads fit; so many of them do."""
    monkeypatch.setattr(standalone, "MOST_BYTES", 110_000)
    with pytest.raises(
        BudgetExceeded, match=r"12 heads .* the limit is 0\.11 MB\. Choose fewer heads: \d fit\."
    ) as refusal:
        answers(factored, viewer)
    assert refusal.value.actual
    assert refusal.value.actual > 110_000
    fit = int(re.findall(r"(\d) fit", refusal.value.detail)[0])
    assert answers(factored, viewer, tuple(f"{at // 4}.{at % 4}" for at in range(fit)))
    monkeypatch.setattr(standalone, "MOST_BYTES", 12_000)
    with pytest.raises(BudgetExceeded, match=r"1 head of .* Analyse fewer lenses or tokens"):
        answers(factored, viewer, ("0.1",))


@pytest.mark.parametrize("name", list(MODELS))
def test_models_with_terms(name: str, tmp_path: Path, viewer: Path, only_factors: None) -> None:
    """Caps, sinks, biases and windows of real architectures."""
    stored = stored_with(headscope.load(MODELS[name]()), tmp_path, "factors", token_ids=numbers(60), lenses=["weights"])
    found = answers(stored, viewer, ("0.1",))
    read, error = unpack(found["/factors/weights/0.0"])
    np.testing.assert_allclose(entries(read), stored.maps("weights", slice(0, 1), slice(1, 2))[0, 0], atol=error)


def main() -> None:
    """Write the cases for the viewer's tests."""
    packed = {name: pack(factors) for name, factors in cases().items()}
    kept = {
        name: {"document": base64.b64encode(document).decode(), "map": entries(unpack(document)[0]).round(9).tolist()}
        for name, document in packed.items()
    }
    CASES.write_text(json.dumps(kept, indent=1).replace(",\n    ", ", ") + "\n", "utf-8")


if __name__ == "__main__":
    main()
