"""Mechanisms, lenses and measures of every shape over REST: with parameters, by word, for cross-attention and images; and what is rejected."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load

import headscope
from headscope.core.words import group
from headscope.measures.compare import COSINE, JS_DIVERGENCE
from tests.support.server import Server
from tests.support.variants import variants

TEXT = "The cat sat on the mat because it was tired."


def picture(side: int = 40, kind: str = "PNG") -> str:
    """Return a random image in base64."""
    pixels = np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, kind)
    return base64.b64encode(written.getvalue()).decode()


def fetch(server: Server, document: dict[str, Any], path: str, **query: Any) -> dict[str, np.ndarray]:
    """Return the tensors of a route below an analysis."""
    answer = server.get(f"/analyses/{document['id']}/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return load(answer.content)


def refused(server: Server, path: str = "/analyses", **body: Any) -> tuple[int, str, str | None]:
    """Return status, code and pointer of a request that is rejected before it is queued."""
    answer = server.post({"model": "bert", "text": TEXT, **body} if path == "/analyses" else body, path)
    problem = answer.json()
    return answer.status_code, problem["code"], problem["errors"][0]["pointer"] if problem["errors"] else None


@variants(
    ("model", "mechanism", "lens", "measure"),
    [
        ("bert", {"name": "hopfield", "alpha": 0.9, "initial": "first"}, "weights", "entropy"),
        ("bert", {"name": "jump", "rho": 0.01, "layers": [1]}, "effective", "null_share"),
        ("bert", {"name": "ablate", "heads": ["0.1", "1.2"]}, "norm", "participation_ratio"),
        (
            "gpt2",
            {"name": "ablate", "heads": ["0.0"], "how": "zero"},
            {"name": "rollout", "residual": 0.25},
            "token_similarity",
        ),
        ("bert", "softmax", {"name": "max-entropy", "iterations": 3}, {"name": "rank", "of": "output"}),
        ("llama", "softmax", "norm-residual", "mixing_ratio"),
        ("bert", "softmax", {"name": "value-zeroing", "rollout": True}, "output_overlap"),
        ("gpt2", "softmax", {"name": "alti", "rollout": False}, "residual_ratio"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["name"],
)
def test_the_library_and_the_service_agree(
    server: Server, models: Path, model: str, mechanism: Any, lens: Any, measure: Any
) -> None:
    """Any mechanism, lens and measure with parameters has the same numbers and id as in the library, and the declared shape."""
    asked: dict[str, Any] = {"mechanism": mechanism, "lenses": [lens], "measures": [measure]}
    document = server.analyse(model=model, text=TEXT, **asked)
    a = headscope.analyze(headscope.load(models / model), TEXT, **asked)
    assert a.id == document["id"]
    name = lens if isinstance(lens, str) else lens["name"]
    assert document["maps"][name]["shape"] == list(a.maps[name].shape)
    assert document["maps"][name]["params"].items() >= ({} if isinstance(lens, str) else {k: v for k, v in lens.items() if k != "name"}).items()  # fmt: skip
    assert document["mechanism"].items() >= (mechanism if isinstance(mechanism, dict) else {"name": mechanism}).items()
    got = fetch(server, document, f"maps/{name}")["map"]
    np.testing.assert_allclose(got, a.maps[name], atol=1e-5)
    for measured, by_lens in a.measures.items():
        for of, values in by_lens.items():
            whole = fetch(server, document, f"measures/{measured}", lens=of)["values"]
            np.testing.assert_allclose(whole, values, rtol=1e-3, atol=1e-4)
            check_json(server, document, measured, of, values)


def check_json(server: Server, document: dict[str, Any], measure: str, lens: str, values: np.ndarray) -> None:
    """The JSON of a measure names its axes and columns; its mean over tokens has neither Q nor K."""
    declared = headscope.MEASURES[measure]
    for asked in ("none", "head"):
        query = {"lens": lens, "format": "json", "summary": asked}
        body = server.get(f"/analyses/{document['id']}/measures/{measure}", params=query).json()
        axes = [axis for axis in declared.shape.split() if asked == "none" or axis not in "QK"]
        assert body["axes"] == axes
        assert body["shape"] == [size for axis, size in zip(declared.shape.split(), values.shape, strict=True) if asked == "none" or axis not in "QK"]  # fmt: skip
        assert body["columns"] == list(declared.columns)
    summary = document["summaries"][measure][lens]
    assert summary["shape"] == list(values.shape)
    assert list(summary["columns"]) == list(declared.columns)
    spread = summary["columns"][declared.columns[0]] if declared.columns else summary
    of = values[..., 0] if declared.columns else values
    assert spread["max"] == pytest.approx(np.nanmax(of), rel=1e-3, abs=1e-4)


@pytest.fixture(scope="module")
def layered(server: Server) -> dict[str, Any]:
    """An analysis with a lens per layer and a measure without heads."""
    return server.analyse(
        model="bert", text=TEXT, lenses=["weights", "rollout"], measures=["residual_ratio"], heads=[1, 3]
    )


def test_lenses_of_whole_layers_have_one_map_per_layer(server: Server, layered: dict[str, Any]) -> None:
    """H is 1 and the only head is 0, whichever heads were selected, in maps, grid and edges."""
    n = len(layered["tokens"])
    assert fetch(server, layered, "maps/rollout")["map"].shape == (2, 1, n, n)
    assert fetch(server, layered, "maps/rollout", layer=1, head=0)["map"].shape == (1, 1, n, n)
    assert fetch(server, layered, "grid/rollout")["tiles"].shape == (2, 1, n, n)
    edges = server.get(f"/analyses/{layered['id']}/edges/rollout", params={"layer": 1, "head": 0}).json()
    assert edges["total"] > 0
    answer = server.get(f"/analyses/{layered['id']}/maps/rollout", params={"head": 1})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-head")
    answer = server.get(f"/analyses/{layered['id']}/measures/residual_ratio", params={"head": 1})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/head")


@pytest.fixture(scope="module")
def gaps(server: Server) -> dict[str, Any]:
    """An analysis with undefined rows: one Newton step is too few."""
    lens = {"name": "max-entropy", "iterations": 1}
    document = server.analyse(
        model="minilm", text=f"{TEXT} {TEXT} {TEXT} {TEXT}", lenses=["weights", lens], layers=[0, 1], heads=[0, 1, 2]
    )
    assert np.isnan(fetch(server, document, "maps/max-entropy")["map"]).any()
    return document


def test_rows_without_a_reading(server: Server, gaps: dict[str, Any]) -> None:
    """Undefined rows are NaN in floats, null in JSON, 0 and marked in bytes, without edges, and counted in the document."""
    exact = fetch(server, gaps, "maps/max-entropy")["map"]
    missing = np.isnan(exact).all(-1)
    assert np.array_equal(missing, np.isnan(exact).any(-1))
    assert gaps["maps"]["max-entropy"]["undefined"] == missing.sum(-1).tolist()
    assert gaps["maps"]["weights"]["undefined"] is None
    assert np.array_equal(np.isnan(fetch(server, gaps, "maps/max-entropy", dtype="float16")["map"]), np.isnan(exact))
    small = fetch(server, gaps, "maps/max-entropy", dtype="uint8")
    assert np.array_equal(small["undefined"].astype(bool), missing)
    value = small["offset"][..., None, None] + small["scale"][..., None, None] * small["map"]
    assert np.all(np.abs(value - np.nan_to_num(exact)) <= small["max_error"][..., None, None])
    layer, head, row = np.argwhere(missing)[0]
    answer = server.get(
        f"/analyses/{gaps['id']}/maps/max-entropy",
        params={"layer": layer, "head": head, "query": row, "format": "json"},
    )
    assert set(json.loads(answer.text, parse_constant=pytest.fail)["map"][0][0][0]) == {None}
    for rule in ("top-k", "mass", "mean+std", "value"):
        found = server.get(f"/analyses/{gaps['id']}/edges/max-entropy", params={"layer": layer, "head": head, "rule": rule, "limit": 20000})  # fmt: skip
        assert found.status_code == 200
        assert not {edge["query"] for edge in found.json()["edges"]} & set(np.flatnonzero(missing[layer, head]))
    assert np.isfinite(fetch(server, gaps, "grid/max-entropy")["scale"]).all()


def test_maps_by_word(server: Server) -> None:
    """Tokens of a word are summed over keys and averaged over queries, as in the library, in maps and edges; the document lists the words."""
    text = "The researcher researches; heads attend."
    document = server.analyse(model="bert", text=text, lenses=["weights"])
    words = document["words"]
    assert [number for word in words for number in word["tokens"]] == list(range(len(document["tokens"])))
    assert "researcher" in [word["text"].lower() for word in words]
    assert document["key_words"] is None
    sizes = [len(word["tokens"]) for word in words]
    expected = group(fetch(server, document, "maps/weights")["map"], sizes, sizes)
    by_word = fetch(server, document, "maps/weights", by="word")["map"]
    np.testing.assert_array_equal(by_word, expected)
    np.testing.assert_allclose(by_word.sum(-1), 1, atol=1e-5)
    one = fetch(server, document, "maps/weights", by="word", query=2, key="1:3")["map"]
    np.testing.assert_array_equal(one, expected[:, :, 2:3, 1:3])
    query = {"layer": 0, "head": 0, "by": "word", "rule": "value", "value": 0, "limit": 20000}
    edges = server.get(f"/analyses/{document['id']}/edges/weights", params=query).json()
    assert edges["total"] == len(words) ** 2
    for edge in edges["edges"]:
        assert edge["weight"] == pytest.approx(float(expected[0, 0, edge["query"], edge["key"]]))


def test_maps_by_groups(server: Server, layered: dict[str, Any]) -> None:
    """Any contiguous tokens can be merged; all others stay separate."""
    exact, n = fetch(server, layered, "maps/weights")["map"], len(layered["tokens"])
    grouped = fetch(server, layered, "maps/weights", groups="0,1|2|4-6")["map"]
    sizes = [2, 1, 1, 3] + [1] * (n - 7)
    np.testing.assert_array_equal(grouped, group(exact, sizes, sizes))
    keys_only = fetch(server, layered, "maps/weights", key_groups=f"0-{n - 1}")["map"]
    np.testing.assert_allclose(keys_only, np.ones((2, 2, n, 1)), atol=1e-5)


def test_cross_attention(server: Server, models: Path) -> None:
    """Queries and keys are different tokens: shapes, both token lists, words, export and the library agree."""
    body = {"text": "The cat sat on the mat.", "text_pair": "A head looks.", "kind": "cross", "lenses": ["weights", "effective"]}  # fmt: skip
    document = server.analyse(model="t5", **body)
    q, k = len(document["tokens"]), len(document["key_tokens"])
    assert q != k
    assert (document["kind"], document["layers"]) == ("cross", 3)
    assert document["maps"]["effective"]["shape"] == [3, 4, q, k]
    assert len(document["key_words"]) == len({token["word"] for token in document["key_tokens"]})
    assert fetch(server, document, "maps/weights", query=q - 1, key=f"0:{k - 1}")["map"].shape == (3, 4, 1, k - 1)
    assert fetch(server, document, "maps/weights", by="word")["map"].shape == (3, 4, len(document["words"]), len(document["key_words"]))  # fmt: skip
    assert fetch(server, document, "grid/weights", tile=4)["tiles"].shape == (3, 4, min(4, q), min(4, k))
    exported = models.parent / "cross.safetensors"
    exported.write_bytes(server.get(f"/analyses/{document['id']}/export").content)
    opened = headscope.open(exported)
    assert [token.text for token in opened.key_tokens] == [token["text"] for token in document["key_tokens"]]
    np.testing.assert_array_equal(opened.maps["weights"], fetch(server, document, "maps/weights")["map"])


def test_generated_text(server: Server) -> None:
    """The model continues the text, and the whole text is analysed."""
    before = server.analyse(model="gpt2", text="The cat")
    document = server.analyse(model="gpt2", text="The cat", generate={"max_new_tokens": 3})
    assert len(before["tokens"]) < len(document["tokens"]) <= len(before["tokens"]) + 3
    assert document["tokens"][: len(before["tokens"])] == before["tokens"]
    assert document["generated"] == len(document["tokens"]) - len(before["tokens"])
    assert (before["full_text"], document["text"]) == ("The cat", "The cat")
    assert document["full_text"].startswith("The cat")
    last = document["tokens"][-1]
    assert last["kind"] == "special" or document["full_text"][last["start"] : last["end"]] == last["text"]


def test_an_image(server: Server) -> None:
    """Patches are tokens with a position; the stored result names the image by its digest and does not contain it."""
    image = picture()
    document = server.analyse(model="vit", image=image, lenses=["weights", "rollout"])
    assert len(document["tokens"]) == 1 + 16
    assert document["tokens"][1]["box"] == [0, 0, 8, 8]
    assert document["grid"] == {"rows": 4, "columns": 4, "patch": [8, 8], "size": [32, 32]}
    assert document["image"].startswith("sha256:")
    assert document["text"] is None
    manifest = next((server.home / "results").glob(f"*/{document['id']}/manifest.json"))
    assert image[:200] not in manifest.read_text()
    exported = server.home.parent / "image.safetensors"
    exported.write_bytes(server.get(f"/analyses/{document['id']}/export").content)
    opened = headscope.open(exported)
    assert opened.id == document["id"]
    assert (opened.grid.rows, opened.grid.columns, opened.grid.size) == (4, 4, (32, 32))


def test_a_large_image_fits_a_larger_one_does_not(server: Server) -> None:
    """An image of 10 MB is accepted in base64; beyond the limit is 413."""
    noise = np.random.default_rng(0).integers(0, 256, (1800, 1800, 3), dtype=np.uint8)
    written = io.BytesIO()
    Image.fromarray(noise).save(written, "PNG", compress_level=0)
    assert 9_500_000 < len(written.getvalue()) < 10_000_000
    answer = server.post(
        {"model": "vit", "image": base64.b64encode(written.getvalue()).decode(), "lenses": ["weights"]}
    )
    assert answer.status_code in (200, 202), answer.text
    assert server.ended(answer.json()["id"])["status"] == "done"
    answer = server.post({"model": "vit", "image": "A" * 17_000_000})
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


def test_a_batch_of_everything(server: Server) -> None:
    """Every input has its own annotations, target or image, and errors point to the invalid input."""
    texts = {"model": "bert", "inputs": [{"text": "The cat.", "pos": ["DET", "NOUN", "PUNCT"]}, {"text": "A dog", "labels": ["O", "ANIMAL"]}]}  # fmt: skip
    ids = server.post(texts, "/analyses/batch").json()["ids"]
    documents = [server.ended(id_) for id_ in ids]
    assert next(token["pos"] for token in documents[0]["tokens"] if token["kind"] != "special") == "DET"
    assert "ANIMAL" in [token["label"] for token in documents[1]["tokens"]]
    images = {"model": "vit", "inputs": [{"image": picture(40)}, {"image": picture(41)}]}
    assert len({*server.post(images, "/analyses/batch").json()["ids"]}) == 2
    pairs = {"model": "t5", "kind": "cross", "inputs": [{"token_ids": [40, 41, 42], "target_ids": [0, 50]}]}
    (id_,) = server.post(pairs, "/analyses/batch").json()["ids"]
    assert server.ended(id_)["maps"]["weights"]["shape"][2:] == [2, 3]
    wrong = {"model": "bert", "inputs": [{"text": "Fine."}, {"text": "  "}, {"text": "Fine."}]}
    assert refused(server, "/analyses/batch", **wrong) == (422, "invalid-text", "/inputs/1/text")
    twice = {"model": "bert", "inputs": [{"text": "Fine."}, {"text": "a", "token_ids": [1]}]}
    assert refused(server, "/analyses/batch", **twice) == (422, "invalid-request", "/inputs/1/text")


@variants(
    ("change", "pointer"),
    [
        ({"mechanism": {"name": "hopfield", "alpha": 2}}, "/mechanism/alpha"),
        ({"mechanism": {"name": "hopfield", "beta": 2}}, "/mechanism"),
        ({"mechanism": {"name": "hopfield", "initial": "last"}}, "/mechanism/initial"),
        ({"mechanism": {"name": "ablate", "heads": ["4"]}}, "/mechanism/heads/0"),
        ({"mechanism": {"name": "pasta", "vectors": [[["x"]]]}}, "/mechanism/vectors/0/0/0"),
        ({"mechanism": {}}, "/mechanism"),
        ({"lenses": ["weights", {"name": "rollout", "residual": 5}]}, "/lenses/1/residual"),
        ({"measures": [{"name": "patterns", "rules": "mine"}]}, "/measures/0/rules"),
        ({"generate": {"max_new_tokens": 0}}, "/generate/max_new_tokens"),
    ],
    ids=str,
)
def test_wrong_parameters(server: Server, change: dict[str, Any], pointer: str) -> None:
    """An invalid parameter is 422, and the pointer names it."""
    assert refused(server, **change) == (422, "invalid-request", pointer)


@variants(
    ("change", "expected"),
    [
        ({"mechanism": {"name": "nonsense"}}, (404, "unknown-mechanism", "/mechanism")),
        ({"model": "gpt2", "mechanism": "jump"}, (422, "unsupported", "/mechanism")),
        ({"model": "gpt2", "lenses": ["effective-published"]}, (422, "unsupported", "/lenses")),
        ({"model": "t5", "text_pair": "A dog.", "kind": "cross", "lenses": ["rollout"]}, (422, "unsupported", "/lenses")),
        ({"model": "t5", "text_pair": "A dog.", "kind": "cross", "measures": ["patterns"], "lenses": []}, (422, "unsupported", "/measures")),
        ({"model": "t5", "kind": "cross"}, (422, "invalid-request", "/text_pair")),
        ({"kind": "cross"}, (422, "unsupported", "/kind")),
        ({"target_ids": [1]}, (422, "invalid-request", "/target_ids")),
        ({"generate": {"max_new_tokens": 3}}, (422, "unsupported", "/generate")),
        ({"text": None, "image": "QUJD"}, (422, "unsupported", "/image")),
        ({"model": "vit"}, (422, "invalid-request", "/image")),
    ],
    ids=str,
)  # fmt: skip
def test_what_can_not_be_combined(server: Server, change: dict[str, Any], expected: Any) -> None:
    """What this kind of model does not support is rejected before anything is queued."""
    queued = len(server.get("/analyses", params={"limit": 200}).json()["items"])
    assert refused(server, **change) == expected
    assert len(server.get("/analyses", params={"limit": 200}).json()["items"]) == queued


def test_support_by_model_and_kind(server: Server) -> None:
    """A model lists what it supports for each kind of its attention, and why it does not support the rest."""
    bert, gpt2, t5 = (server.get(f"/models/{name}").json() for name in ("bert", "gpt2", "t5"))
    reason = lambda card, group, name: next(item["reason"] for item in card[group] if item["name"] == name)  # noqa: E731
    assert all(item["supported"] for item in bert["lenses"])
    assert "masks later" in reason(gpt2, "mechanisms", "jump")
    assert "pads only" in reason(gpt2, "lenses", "effective-published")
    assert [kind["kind"] for kind in t5["kinds"]] == ["encoder", "decoder", "cross"]
    encoder, decoder, cross = t5["kinds"]
    assert (encoder["layers"], decoder["layers"], cross["layers"]) == (2, 3, 3)
    assert t5["lenses"] == encoder["lenses"]
    assert "different tokens" in reason(cross, "lenses", "rollout")
    assert reason(decoder, "lenses", "rollout") is None
    assert {item["name"] for item in cross["measures"]} == set(headscope.MEASURES)
    for card in (bert, gpt2, t5):
        for kind in card["kinds"]:
            assert all(item["supported"] == (item["reason"] is None) for item in kind["lenses"] + kind["mechanisms"])
    assert [card["predicts"] for card in (bert, gpt2, t5)] == [None, "next-token", "next-token"]
    assert "no head" in reason(bert["kinds"][0], "effects", "ablation")
    assert "through the decoder" in reason(encoder, "effects", "ablation")
    for kind in (decoder, cross):
        assert {item["name"] for item in kind["effects"] if not item["supported"]} == {
            "alti-logit",
            "dual-path",
            "path-patching",
        }
    assert "reads its encoder" in reason(decoder, "effects", "alti-logit")
    assert all(item["supported"] for item in gpt2["kinds"][0]["effects"])
    away = server.get("/models/t5-small").json()
    assert (away["kinds"], {item["supported"] for item in away["lenses"]}) == ([], {False})


def test_what_is_called_supported_runs(server: Server) -> None:
    """A model computes every lens that it is listed to support, all in one analysis."""
    for name, more in (("bert", {}), ("gpt2", {}), ("t5", {"text_pair": "A dog.", "kind": "cross"})):
        kinds = {kind["kind"]: kind for kind in server.get(f"/models/{name}").json()["kinds"]}
        support = kinds[more.get("kind", next(iter(kinds)))]
        lenses = [item["name"] for item in support["lenses"] if item["supported"]]
        document = server.ended(server.submit(model=name, text=TEXT, lenses=lenses, measures=["entropy"], **more))
        assert document["status"] == "done" or document["error"]["code"] == "unsupported", document["error"]


def test_compare(server: Server, layered: dict[str, Any]) -> None:
    """Cosine and Jensen-Shannon divergence per head, of two analyses or of two lenses of one."""
    other = server.analyse(
        model="bert",
        text=TEXT,
        lenses=["weights", "effective"],
        heads=[1, 3],
        mechanism={"name": "hopfield", "alpha": 0.7},
    )
    answer = server.get(f"/analyses/{layered['id']}/compare/{other['id']}").json()
    a, b = (fetch(server, one, "maps/weights")["map"] for one in (layered, other))
    np.testing.assert_allclose(answer["cosine"], COSINE(a, b), atol=1e-6)
    np.testing.assert_allclose(answer["js_divergence"], JS_DIVERGENCE(a, b), atol=1e-6)
    assert (answer["layer_numbers"], answer["head_numbers"]) == ([0, 1], [1, 3])
    same = server.get(f"/analyses/{other['id']}/compare/{other['id']}", params={"other_lens": "effective"}).json()
    assert same["js_divergence"] is None
    assert np.array(same["cosine"]).shape == (2, 2)


def test_compare_words(server: Server, layered: dict[str, Any]) -> None:
    """Two texts are compared by word; one head is compared with every head of a larger analysis."""
    path = f"/analyses/{layered['id']}/compare"
    other = server.analyse(model="bert", text="The small cat sat on a mat because it was tired.", lenses=["weights"])
    tokens = server.get(f"{path}/{other['id']}/tokens").json()
    assert tokens["by"] == "word"
    assert tokens["keys"] is None
    found = {pair["text"].casefold(): pair["other_text"].casefold() for pair in tokens["queries"]}
    assert found["cat"] == "cat"
    assert (found["the"], "small" in found.values()) == ("a", False)
    answer = server.get(f"{path}/{other['id']}", params={"layer": 1, "head": 3}).json()
    assert (answer["by"], np.array(answer["cosine"]).shape) == ("word", (2, 4))
    a, b = (fetch(server, one, "maps/weights")["map"] for one in (layered, other))
    runs = [[pair[name] for pair in tokens["queries"]] for name in ("tokens", "other_tokens")]

    def words(maps: np.ndarray, runs: list[list[int]]) -> np.ndarray:
        summed = np.stack([maps[..., run].sum(-1) for run in runs], -1)
        return np.stack([summed[..., run, :].mean(-2) for run in runs], -2)

    expected = COSINE(np.broadcast_to(words(a, runs[0])[1, 1], (2, 4, len(runs[0]), len(runs[0]))), words(b, runs[1]))
    np.testing.assert_allclose(answer["cosine"], expected, atol=1e-6)
    assert server.get(f"{path}/{layered['id']}/tokens").json()["by"] == "token"


def test_compare_refuses(server: Server, layered: dict[str, Any]) -> None:
    """Different tokens, heads or kinds of lenses are 422 with an explanation; missing ones are 404."""
    others = {
        "tokens": server.analyse(model="bert", text="Something else."),
        "heads": server.analyse(model="bert", text=TEXT),
    }
    for what, other in others.items():
        answer = server.get(f"/analyses/{layered['id']}/compare/{other['id']}")
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
        assert what in answer.json()["detail"]
    path = f"/analyses/{layered['id']}/compare/{layered['id']}"
    assert server.get(path, params={"other_lens": "rollout"}).status_code == 422
    assert server.get(path, params={"lens": "norm"}).json()["code"] == "unknown-lens"
    assert server.get(path, params={"layer": 1}).status_code == 422
    assert server.get(path, params={"layer": 1, "head": 0}).json()["code"] == "unknown-head"
    assert server.get(path, params={"lens": "rollout"}).json()["head_numbers"] == [0]
    assert server.get(f"/analyses/{layered['id']}/compare/{'0' * 32}").status_code == 404
    assert server.get(f"/analyses/{layered['id']}/compare/../x").status_code in (404, 422)
