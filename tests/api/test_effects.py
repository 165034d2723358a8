"""Effects over REST: computed by a job, stored once, read by those who may read the analysis."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from safetensors.numpy import load, save

import headscope
from headscope.analysis.effect_request import NOTHING_READ
from headscope.analysis.request import versions
from headscope.api.documents.effects import LATER
from headscope.models.jacobian_lens import SHAPE, UNREADABLE
from headscope.models.support import BEFORE_DECODER, NO_HEAD
from headscope.server.datasets import NO_ROWS
from headscope.server.effects import PLAIN
from headscope.store.manifest import Manifest, sealed
from tests.api.users import Users
from tests.support.cluster import both_deployments, cluster_long
from tests.support.server import API, SLOW, Server, eventually
from tests.support.variants import variants

WAIT = {"Prefer": "wait=60"}
TEXT = "The cat sat on the mat."
REFERENCE = ["A dog sat on a mat.", "The cat."]
BRIEF: dict[str, Any] = {"lenses": ["weights"], "measures": [], "maps": False}


@pytest.fixture(scope="module")
def gpt2(models: Path) -> headscope.Model:
    """The same model in this process."""
    return headscope.load(models / "gpt2")


def analysed(server: Server, text: str = TEXT, model: str = "gpt2", **more: Any) -> str:
    """Return the id of a finished analysis."""
    return str(server.analyse(model=model, text=text, **BRIEF, **more)["id"])


def computed(server: Server, id_: str, **body: Any) -> dict[str, Any]:
    """Ask for an effect, and return its document once it has ended."""
    answer = server.post(body, f"/analyses/{id_}/effects", headers=WAIT)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


@both_deployments
def test_an_effect_from_request_to_document(server: Server, gpt2: headscope.Model) -> None:
    """What the library computes, as a resource of its own: the same request is the same one, and it can be cached for ever."""
    id_ = analysed(server)
    before = server.get(f"/analyses/{id_}").json()
    for method, more in (
        ("contribution", {"target": [5, 9], "method": {"name": "contribution", "sources": True, "writes": 2}}),
        ("ablation", {"target": "t", "position": -2, "method": "ablation", "heads": ["1.0", "0.3"]}),
        ("ablation", {"target": "t", "method": {"name": "ablation", "how": "reference"}, "reference": REFERENCE}),
        ("patching", {"method": "patching", "against": "The mat sat on the cat.", "predictions": 2}),
        (
            "path-patching",
            {"method": {"name": "path-patching", "receiver": "1.2"}, "against": "The mat sat on the cat."},
        ),
        ("score", {"method": {"name": "score", "head": "1.0", "key": 1, "side": "key", "pairs": 2}}),
    ):
        document = computed(server, id_, **more)
        assert (document["status"], document["error"], document["analysis"]) == ("done", None, id_), method
        assert document["versions"] == versions()
        given = dict(more)
        if isinstance(given.get("target"), list):
            given["target"] = tuple(given["target"])
        if "heads" in given:
            given["method"] = {"name": given["method"], "heads": given.pop("heads")}
        expected = headscope.effect(gpt2, TEXT, **given).to_document()
        found = document["result"]
        assert (found["score"] is None) is (method != "score"), method
        for name in ("effects", "sources", "baseline"):
            want, got = (np.array(one[name], float) for one in (expected, found))
            np.testing.assert_allclose(got, want, atol=1e-4, err_msg=f"{method}: {name}")
        for name in ("method", "kind", "layers", "heads", "tokens", "key_tokens"):
            assert found[name] == expected[name], (method, name)
        assert [head["id"] for head in np.ravel(found["writes"] or [])] == [
            head["id"] for head in np.ravel(expected["writes"] or [])
        ], method
        assert (found["together"] or {}).get("heads") == (expected["together"] or {}).get("heads"), method
        assert found["target"]["texts"] == expected["target"]["texts"]
        assert [one["text"] for one in found["predictions"]] == [one["text"] for one in expected["predictions"]]
        again = server.post(more, f"/analyses/{id_}/effects")
        assert (again.status_code, again.json()["id"]) == (200, document["id"])
        assert again.headers["location"] == document["links"]["self"]
        read = server.client.get(document["links"]["self"])
        assert read.json() == again.json() == document
        assert "immutable" in read.headers["cache-control"]
        known = {"If-None-Match": read.headers["etag"]}
        assert server.client.get(document["links"]["self"], headers=known).status_code == 304
    assert server.get(f"/analyses/{id_}").json() == before


@cluster_long
def test_maps_of_an_effect_are_read_by_slices(server: Server, gpt2: headscope.Model) -> None:
    """As those of a lens: any part of them, rounded or pooled; an effect without maps says so."""
    id_ = analysed(server)
    method = {"name": "gradient-attention"}
    document = computed(server, id_, target=[5, 9], method=method)
    expected = headscope.effect(gpt2, TEXT, target=(5, 9), method=method).maps
    assert expected is not None
    assert document["result"]["shape"] == list(expected.shape)
    largest = np.abs(expected).max()
    url = document["links"]["maps"]
    whole = server.client.get(url)
    np.testing.assert_allclose(load(whole.content)["map"], expected, atol=1e-5 * largest)
    assert server.client.get(url, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    for part, chosen in (
        ({"layer": "1", "head": "2"}, expected[1:2, 2:3]),
        ({"layer": "0:2", "query": "3", "key": "1:4"}, expected[:2, :, 3:4, 1:4]),
    ):
        found = load(server.client.get(url, params=part).content)["map"]
        np.testing.assert_allclose(found, chosen, atol=1e-5 * largest)
    rounded = load(server.client.get(url, params={"dtype": "uint8"}).content)
    scale, offset = (rounded[name][..., None, None] for name in ("scale", "offset"))
    np.testing.assert_allclose(
        offset + scale * rounded["map"], expected, atol=rounded["max_error"].max() + 1e-5 * largest
    )
    assert server.client.get(url, params={"format": "open-inference"}).content.endswith(
        load(whole.content)["map"].tobytes()
    )
    pooled = server.client.get(url, params={"pool": 100, "format": "json"}).json()["map"]
    np.testing.assert_allclose(np.abs(pooled).ravel(), np.abs(expected).max((2, 3)).ravel(), rtol=1e-3)
    assert server.client.get(url, params={"layer": "9"}).json()["code"] == "unknown-layer"
    plain = computed(server, id_, target=5)
    assert plain["result"]["shape"] is None
    assert "maps" not in plain["links"]
    answer = server.client.get(f"{plain['links']['self']}/maps")
    assert (answer.status_code, answer.json()["code"]) == (409, "not-ready")
    assert "gradient-attention" in answer.json()["detail"]


def test_predictions_are_what_the_model_says(server: Server, gpt2: headscope.Model) -> None:
    """The most likely tokens at the target's position; without a target, it is the first of them."""
    result = computed(server, analysed(server), position=2)["result"]
    row = headscope.analyze(gpt2, TEXT, keep_logits=True).logits[2].astype(float)
    order = np.argsort(-row)[:5]
    assert [one["id"] for one in result["predictions"]] == order.tolist()
    chances = np.exp(row - row.max()) / np.exp(row - row.max()).sum()
    np.testing.assert_allclose([one["probability"] for one in result["predictions"]], chances[order], rtol=1e-4)
    np.testing.assert_allclose([one["logit"] for one in result["predictions"]], row[order], atol=1e-4)
    assert result["target"]["ids"] == [order[0]]


def test_the_input_is_that_of_the_analysis(server: Server) -> None:
    """Also where it is no plain text: a continuation, the sides of an encoder-decoder, or a limit of tokens."""
    for model, more in (
        ("gpt2", {"generate": {"max_new_tokens": 3}}),
        ("gpt2", {"max_tokens": 4}),
        ("t5", {"text_pair": "Die Katze.", "kind": "decoder"}),
        ("llama", {"dtype": "float64"}),
    ):
        id_ = analysed(server, model=model, **more)
        result = computed(server, id_)["result"]
        assert result["tokens"] == server.get(f"/analyses/{id_}").json()["tokens"], (model, more)
        assert result["target"]["position"] == len(result["tokens"]) - 1


def test_bad_requests(server: Server) -> None:
    """Refused at once, with a pointer to the field, and nothing is queued."""
    refer: Any = {"method": {"name": "ablation", "how": "reference"}}
    id_ = analysed(server)
    for body, code, pointer in (
        ({"target": [1, 2, 3]}, "invalid-request", "/target"),
        ({"target": True}, "invalid-request", "/target"),
        ({"method": "gradient"}, "unknown-effect", "/method"),
        ({"method": {"name": "ablation", "how": "some"}}, "invalid-request", "/method/how"),
        ({"method": "patching"}, "invalid-request", "/against"),
        ({"method": "patching", "against": "\x00"}, "invalid-text", "/against"),
        ({**refer, "reference": []}, "invalid-request", "/reference"),
        ({**refer, "reference": ["A cat."] * 1001}, "invalid-request", "/reference"),
        ({**refer, "reference": ["A cat.", "\x00"]}, "invalid-text", "/reference/1"),
        ({"method": "ablation", "reference": ["A cat."]}, "invalid-request", "/reference"),
        (refer, "invalid-request", "/reference"),
        ({"heads": ["1"]}, "invalid-request", "/heads/0"),
        ({"heads": ["1.0"]}, "invalid-request", "/heads"),
        ({"heads": []}, "invalid-request", "/heads"),
        ({"against": "Another cat."}, "invalid-request", "/against"),
        ({"position": 1.5}, "invalid-request", "/position"),
        ({"predictions": 0}, "invalid-request", "/predictions"),
        ({"lens": "weights"}, "invalid-request", ""),
    ):
        answer = server.post(body, f"/analyses/{id_}/effects")
        assert answer.json()["code"] == code, (body, answer.text)
        assert answer.json()["errors"][0]["pointer"] == pointer, (body, answer.text)
    for analysis, reason in (
        (analysed(server, mechanism="hopfield"), PLAIN),
        (analysed(server, model="bert"), NO_HEAD),
        (analysed(server, model="t5", text_pair="Die Katze.", kind="encoder"), BEFORE_DECODER),
    ):
        answer = server.post({}, f"/analyses/{analysis}/effects").json()
        assert (answer["code"], answer["detail"]) == ("unsupported", reason)
    document = computed(server, analysed(server, model="bert"), method={"name": "score", "head": "1.0", "query": 2})
    assert document["result"]["score"]["query"] == 2
    assert document["result"]["predictions"] == []


def test_what_only_the_worker_knows(server: Server) -> None:
    """The effect fails with the reason, and with a pointer where a field of its request is wrong."""
    id_ = analysed(server)
    for body, pointer in (
        ({"target": " Paris in spring"}, "/target"),
        ({"target": 10**6}, "/target"),
        ({"position": 99}, "/position"),
        ({"position": -99}, "/position"),
        ({"method": "ablation", "heads": ["0.1", "7.0"]}, "/heads"),
        ({"method": "patching", "against": "The cat."}, "/against"),
    ):
        document = computed(server, id_, **body)
        assert (document["status"], document["result"]) == ("failed", None), body
        assert document["error"]["code"] == "invalid-request", (body, document["error"])
        assert [one["pointer"] for one in document["error"]["errors"]] == [pointer]


def test_an_unfinished_analysis_has_no_effects(server: Server) -> None:
    """409 if it was cancelled; 404 for one that does not exist, and for an effect on another analysis."""
    first, second = analysed(server), analysed(server, "Another cat.")
    effect = computed(server, first)["id"]
    assert server.get(f"/analyses/{second}/effects/{effect}").json()["code"] == "unknown-effect"
    assert server.get(f"/analyses/{effect}").json()["code"] == "unknown-analysis"
    assert server.post({}, f"/analyses/{'0' * 32}/effects").json()["code"] == "unknown-analysis"
    cancelled = server.submit(**{**SLOW, "text": SLOW["text"] + "Without effects."})
    assert server.client.delete(f"{API}/analyses/{cancelled}").status_code == 202
    assert server.post({}, f"/analyses/{cancelled}/effects").json()["code"] == "not-ready"


@cluster_long
def test_cancelled_and_deleted(server: Server) -> None:
    """A running effect stops; a deleted one is gone, also with its analysis; and each can be asked for again."""
    slow = analysed(server, "The cat sat on the mat because it was tired. " * 8, model="slow")
    path = f"/analyses/{slow}/effects"
    running = server.post({"method": "ablation"}, path)
    assert running.status_code == 202
    own = f"{path}/{running.json()['id']}"
    eventually(lambda: server.get(own).json()["progress"]["stage"] == "forward", "the middle of the effect")
    cancelled = server.client.delete(f"{API}{own}")
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "cancelled")
    server.idle()
    assert server.get(own).json()["status"] == "cancelled"
    done = computed(server, slow)["links"]["self"]
    assert server.client.delete(done).status_code == 204
    assert server.client.get(done).json()["code"] == "unknown-effect"
    assert computed(server, slow)["links"]["self"] == done
    assert server.client.delete(f"{API}/analyses/{slow}").status_code == 204
    assert server.client.get(done).json()["code"] == "unknown-analysis"
    assert analysed(server, "The cat sat on the mat because it was tired. " * 8, model="slow") == slow
    assert server.client.get(done).json()["code"] == "unknown-effect"


def test_an_effect_that_does_not_fit(new_server: Callable[..., Server]) -> None:
    """It is refused before it is queued, and the number of tokens that it names does fit; a method that keeps less is accepted."""
    server = new_server(job_bytes=20_000)
    id_ = analysed(server)
    answer = server.post({}, f"/analyses/{id_}/effects")
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["limit"]) == (422, "attention-budget-exceeded", 20_000)
    assert problem["actual"] > problem["limit"]
    fitting = int(re.findall(r"at most (\d+) tokens", problem["detail"])[0])
    for tokens, status in ((fitting, 200), (fitting + 1, 422)):
        shorter = analysed(server, max_tokens=tokens)
        assert server.post({}, f"/analyses/{shorter}/effects", headers=WAIT).status_code == status
    assert computed(server, id_, method="ablation")["status"] == "done"


def test_a_corrupt_effect_is_computed_again(server: Server) -> None:
    """A reader sees the same numbers, not the damage."""
    document = computed(server, analysed(server, "A cat to be damaged."), target=7)
    (manifest,) = server.home.rglob(f"{document['id']}/manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:-40])
    path = document["links"]["self"]
    again = eventually(lambda: (one := server.client.get(path).json())["status"] == "done" and one, "its repair")
    assert again["result"]["target"] == document["result"]["target"]
    assert server.client.delete(path).status_code == 204


def test_an_effect_that_an_earlier_version_stored(server: Server) -> None:
    """Fields that did not exist then are null."""
    document = computed(server, analysed(server, "A cat of old."), target=7)
    (path,) = server.home.rglob(f"{document['id']}/manifest.json")
    known = Manifest(document["id"], path.read_bytes())
    result = {name: value for name, value in document["result"].items() if name not in LATER}
    content = {**known.document, "result": result}
    del content["versions"]
    path.write_bytes(sealed(known.id, known.folder, known.made, known.size - known.length, content, known.digests))
    found = server.client.get(document["links"]["self"])
    assert (found.status_code, found.json()) == (
        200,
        {**document, "result": {**result, **LATER}, "versions": None},
    )
    assert server.client.get(f"{document['links']['self']}/maps").json()["code"] == "not-ready"


def test_the_rights_are_those_of_the_analysis(lab: Users) -> None:
    """A share key reads effects and asks for none; another user sees neither, until they have the analysis themselves."""
    id_ = lab.submit(lab.ada, TEXT, model="gpt2")
    path = f"{API}/analyses/{id_}/effects"
    document = lab.ada.post(path, json={}, headers=WAIT).json()
    own = document["links"]["self"]
    assert lab.ada.get(own).json() == document
    assert lab.anonymous.get(own).status_code == lab.anonymous.post(path, json={}).status_code == 401
    for answer in (lab.emmy.get(own), lab.emmy.post(path, json={}), lab.emmy.delete(own)):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-analysis")
    key = {"share": lab.ada.post(f"{API}/analyses/{id_}/share").json()["key"]}
    assert lab.anonymous.get(own, params=key).json() == document
    assert lab.anonymous.post(path, json={}, params=key).status_code == 401
    assert lab.anonymous.delete(own, params=key).status_code == 401
    assert lab.submit(lab.emmy, TEXT, model="gpt2") == id_
    assert lab.emmy.get(own).json() == document
    answer = lab.emmy.delete(own)
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-effect")
    assert lab.emmy.post(path, json={}).json()["id"] == document["id"]
    assert lab.emmy.delete(own).status_code == 204
    assert lab.ada.get(own).json() == document
    assert lab.emmy.delete(f"{API}/analyses/{id_}").status_code == 204
    assert lab.ada.get(own).json() == document
    lab.ada.delete(f"{API}/analyses/{id_}/share")


def upload(client: httpx.Client, content: bytes, name: str = "lens.safetensors") -> httpx.Response:
    return client.post(
        f"{API}/datasets", params={"name": name}, content=content, headers={"content-type": "application/octet-stream"}
    )


def test_a_jacobian_lens_is_uploaded(server: Server, gpt2: headscope.Model) -> None:
    """What heads write is read through its matrices, as the library does; a lens that does not fit says so."""
    random, method = np.random.default_rng(0), {"name": "contribution", "writes": 2}
    fitted = {
        layer: random.standard_normal((gpt2.width, gpt2.width)).astype(np.float32) for layer in range(gpt2.facts.layers)
    }
    answer = upload(server.client, save({f"J_{layer}": matrix for layer, matrix in fitted.items()}))
    document = answer.json()
    assert (answer.status_code, document["format"], document["rows"]) == (201, "jacobian-lens", len(fitted))
    assert server.get(f"/datasets/{document['id']}").json() == document
    id_ = analysed(server)
    found = computed(server, id_, method=method, jacobian_lens=document["id"])
    expected = headscope.effect(gpt2, TEXT, method=method, jacobian_lens=fitted).to_document()["writes"]
    texts = lambda writes: [[[one["text"] for one in head] for head in layer] for layer in writes]  # noqa: E731
    assert texts(found["result"]["writes"]) == texts(expected)
    assert texts(computed(server, id_, method=method)["result"]["writes"]) != texts(expected)

    narrow = upload(server.client, save({"J_0": np.eye(3, dtype=np.float32)}), "narrow.safetensors").json()["id"]
    ended = computed(server, id_, method=method, jacobian_lens=narrow)
    assert (ended["status"], ended["error"]["detail"]) == ("failed", SHAPE)
    assert ended["error"]["errors"][0]["pointer"] == "/jacobian_lens"
    table = upload(server.client, b"text\nA cat.\n", "a.csv").json()["id"]
    for lens, code in ((table, "unknown-dataset"), ("0" * 32, "unknown-dataset"), ("../lens", "unknown-dataset")):
        problem = server.post({"method": method, "jacobian_lens": lens}, f"/analyses/{id_}/effects").json()
        assert (problem["code"], problem["errors"][0]["pointer"]) == (code, "/jacobian_lens")
    problem = server.post({"jacobian_lens": narrow}, f"/analyses/{id_}/effects").json()
    assert (problem["code"], problem["detail"]) == ("invalid-request", NOTHING_READ)
    problem = server.post({"dataset": narrow, "model": "gpt2", "measures": ["entropy"]}, "/studies").json()
    assert (problem["code"], problem["detail"]) == ("invalid-dataset", NO_ROWS)


@variants(
    "content",
    [
        b"no lens",
        b"\x80\x04]\x94.",
        (2**62).to_bytes(8, "little") + b"{}",
        (2**24).to_bytes(8, "little") + b" " * 2**24,
        save({"weight": np.eye(3, dtype=np.float32)}),
        save({"J_0": np.ones((3, 4), np.float32)}),
        save({"J_0": np.eye(3, dtype=np.float32), "J_1": np.eye(4, dtype=np.float32)}),
    ],
    ids=["text", "pickle", "length", "header", "names", "oblong", "widths"],
)
def test_other_files_are_no_lens(server: Server, content: bytes) -> None:
    problem = upload(server.client, content).json()
    assert (problem["code"], problem["errors"][0]["pointer"]) == ("invalid-dataset", "/dataset")
    assert problem["detail"] in (SHAPE, UNREADABLE)
