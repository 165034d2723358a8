"""Submitting, following and listing analyses; models and declarations."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import headscope
from headscope.analysis.request import versions
from headscope.effects import EFFECTS
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from headscope.mechanisms import MECHANISMS
from tests.support.cluster import Cluster, cluster_long
from tests.support.server import API, SLOW, Server
from tests.support.variants import variants

pytestmark = cluster_long
ANALYSES = "/api/v1/analyses"


def test_an_analysis_from_request_to_document(server: Server) -> None:
    """202 with a Location, then a document with tokens, shapes, summaries and links that all work."""
    body = {"model": "bert", "text": "The cat sat.", "measures": ["entropy", "null_share"]}
    accepted = server.post(body)
    assert accepted.status_code == 202
    id_ = accepted.json()["id"]
    assert accepted.headers["location"] == f"{ANALYSES}/{id_}"
    document = server.ended(id_)
    assert document["status"] == "done"
    assert document["progress"] == {"fraction": 1.0, "stage": "done", "detail": "", "position": None}
    assert (document["model"], document["mechanism"]) == ("bert", {"name": "softmax"})
    assert (document["lenses"], document["measures"]) == (["weights", "effective"], ["entropy", "null_share"])
    assert (document["layers"], document["heads"], document["head_width"], document["causal"]) == (2, 4, 8, False)
    assert (document["layer_numbers"], document["head_numbers"]) == ([0, 1], [0, 1, 2, 3])
    assert document["error"] is None
    assert document["maps"]["weights"]["shape"] == [2, 4, len(document["tokens"]), len(document["tokens"])]
    assert document["summaries"]["entropy"]["weights"]["unit"] == "nats"
    assert document["timing_ms"]["total"] > 0
    assert document["versions"] == versions()
    for name, link in document["links"].items():
        assert server.client.get(link).status_code == 200, name


def test_tokens_stand_where_they_say(server: Server) -> None:
    """start and end slice the token out of the text; special tokens are empty."""
    text = "Die Katze, 猫 😀 saß."
    for model in ("bert", "gpt2", "llama"):
        for token in server.analyse(model=model, text=text)["tokens"]:
            if token["kind"] != "special" and token["text"] not in ("[UNK]",):
                assert text[token["start"] : token["end"]].strip() == token["text"].strip()


def test_pairs_have_two_segments(server: Server) -> None:
    """A second text is segment 1 and has its own offsets."""
    tokens = server.analyse(model="bert", text="a cat", text_pair="the mat")["tokens"]
    assert {token["segment"] for token in tokens} == {0, 1}
    second = [token for token in tokens if token["segment"] == 1 and token["kind"] != "special"]
    assert all("the mat"[token["start"] : token["end"]] == token["text"] for token in second)


def test_a_conversation(server: Server) -> None:
    """Messages are formatted by the model's template, here of a GGUF file, and tokens tell whose they are; other models refuse at once."""
    messages = [{"role": "user", "content": "The cat<|im_end|>"}, {"role": "assistant", "content": "sat."}]
    document = server.analyse(model="chat", messages=messages)
    assert document["messages"] == messages
    assert document["text"] is None
    assert (
        document["full_text"]
        == "<|im_start|>user\nThe cat<|im_end|><|im_end|>\n<|im_start|>assistant\nsat.<|im_end|>\n"
    )
    assert list(dict.fromkeys(token["role"] for token in document["tokens"])) == [None, "user", "assistant"]
    assert sum(token["kind"] == "special" for token in document["tokens"]) == 4
    assert next(item for item in server.get("/analyses").json()["items"] if item["messages"])["messages"] == messages
    cards = {card["name"]: card["chats"] for card in server.get("/models").json()["items"]}
    assert {name for name, chats in cards.items() if chats} == {"chat"}
    for model, reason in (("gpt2", "no chat template"), ("bert", "Only decoders")):
        refused = server.post({"model": model, "messages": messages})
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/messages")
        assert reason in refused.json()["detail"]
    refused = server.post({"model": "chat", "messages": [{"role": "user", "content": "x" * 300_000}]})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid-text")


def test_stored_is_answered_at_once(server: Server) -> None:
    """A stored result is returned at once: 200 with the whole document."""
    body = {"model": "bert", "text": "Stored already."}
    document = server.analyse(**body)
    again = server.post(body)
    assert (again.status_code, again.json()) == (200, document)


def test_same_request_same_id(server: Server) -> None:
    """The order of lenses, repetitions and explicit defaults do not change the id; other models and texts do."""
    base = {"model": "bert", "text": "Same.", "lenses": ["weights", "effective"], "measures": ["entropy", "leverage"]}
    same = [
        {**base, "lenses": ["effective", "weights"]},
        {**base, "lenses": ["effective", "weights", "effective"]},
        {**base, "measures": ["leverage", "entropy"]},
        {**base, "mechanism": "softmax"},
        {**base, "mechanism": {"name": "softmax"}},
        {**base, "dtype": "float32", "kind": "self", "maps": True, "layers": None},
    ]
    assert {server.submit(**body) for body in same} == {server.submit(**base)}
    different = [
        {**base, "model": "gpt2"},
        {**base, "text": "same."},
        {**base, "lenses": ["weights"]},
        {**base, "layers": [0]},
        {**base, "maps": False},
    ]
    ids = [server.submit(**body) for body in different]
    assert len({*ids, server.submit(**base)}) == len(different) + 1
    assert all(server.ended(id_)["status"] == "done" for id_ in ids)


def test_a_hundred_at_once_are_computed_once(server: Server) -> None:
    """100 concurrent identical requests have one id, one forward pass and 100 responses."""
    passes = server.settled("forward_passes_total")
    body = {"model": "bert", "text": "A hundred people ask the same."}
    with ThreadPoolExecutor(100) as threads:
        answers = list(threads.map(lambda _: server.post(body, headers={"Prefer": "wait=50"}), range(100)))
    assert {(answer.status_code, answer.json()["status"]) for answer in answers} == {(200, "done")}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert server.metric("forward_passes_total") == passes + 1


def test_different_requests_do_not_disturb_each_other(server: Server) -> None:
    """Two concurrent clients each get their own text back, every time."""

    def ask(number: int) -> tuple[str, str]:
        text = f"Client {number % 2} asks for number {number}."
        answer = server.post({"model": "bert", "text": text, "lenses": ["weights"]}, headers={"Prefer": "wait=50"})
        return text, answer.json()["text"]

    with ThreadPoolExecutor(8) as threads:
        assert all(asked == got for asked, got in threads.map(ask, range(24)))


def test_the_library_computes_the_same(server: Server, models: Any) -> None:
    """The service stores what the library computes, under the same id."""
    import numpy as np
    from safetensors.numpy import load

    text = "The cat sat on the mat."
    for name in ("bert", "llama"):
        document = server.analyse(model=name, text=text)
        a = headscope.analyze(headscope.load(models / name), text)
        assert a.id == document["id"]
        for lens in ("weights", "effective"):
            got = load(server.get(f"/analyses/{document['id']}/maps/{lens}").content)["map"]
            assert np.allclose(got, a.maps[lens], atol=1e-5)


@variants("prefer", ["wait=30", "respond-async, wait=30", "wait=30; x=y", "Wait=30"])
def test_prefer_wait(server: Server, prefer: str) -> None:
    """Prefer: wait blocks until the analysis is done, and is confirmed in a header."""
    answer = server.post({"model": "bert", "text": f"Waiting {prefer}."}, headers={"Prefer": prefer})
    assert (answer.status_code, answer.json()["status"]) == (200, "done")
    assert answer.headers["preference-applied"] == "wait=30"


def test_preferences_on_several_lines(server: Server) -> None:
    """Several Prefer headers count as one list (RFC 7240)."""
    lines = [("Prefer", "respond-async"), ("Prefer", "wait=30")]
    answer = server.client.post(f"{API}/analyses", json={"model": "bert", "text": "Two lines."}, headers=lines)
    assert (answer.status_code, answer.json()["status"]) == (200, "done")


def test_prefer_wait_is_bounded(server: Server) -> None:
    """After the timeout the response is 202, with the progress so far."""
    answer = server.post({**SLOW, "max_tokens": 277}, headers={"Prefer": "wait=0.2"})
    assert (answer.status_code, answer.json()["status"] in ("queued", "running")) == (202, True)
    server.client.delete(answer.headers["location"])


@variants("prefer", ["wait=0", "wait=-1", "wait=abc", "wait", "respond-async", "", "wait=1e9x"])
def test_other_preferences_are_ignored(server: Server, prefer: str) -> None:
    """An invalid preference is ignored."""
    answer = server.post({"model": "bert", "text": "The cat sat."}, headers={"Prefer": prefer})
    assert answer.status_code in (200, 202)


def test_events_tell_the_whole_story(server: Server) -> None:
    """Progress and event ids only grow; the single terminal event comes last and agrees with the document."""
    id_ = server.submit(**{**SLOW, "max_tokens": 275})
    events = list(server.events(id_))
    fractions = [event["progress"]["fraction"] for event in events]
    numbers = [int(event["event_id"]) for event in events]
    assert fractions == sorted(fractions)
    assert numbers == sorted(set(numbers))
    assert [event["status"] for event in events[:-1]].count("done") == 0
    assert (events[-1]["status"], events[-1]["progress"]["fraction"], events[-1]["error"]) == ("done", 1.0, None)
    assert server.get(f"/analyses/{id_}").json()["status"] == "done"


def test_events_resume(server: Server) -> None:
    """Last-Event-ID resumes after that event; with the last id, the terminal event is sent again."""
    id_ = server.submit(**{**SLOW, "max_tokens": 276})
    first = list(itertools.islice(server.events(id_), 2))
    rest = list(server.events(id_, last=first[-1]["event_id"]))
    assert int(rest[0]["event_id"]) > int(first[-1]["event_id"])
    assert rest[-1]["status"] == "done"
    for late in (rest[-1]["event_id"], "999999999999999999", None):
        assert list(server.events(id_, last=late))[-1]["status"] == "done"


def test_fifty_listeners_all_see_the_end(server: Server) -> None:
    """Every one of many event streams ends with the terminal event."""
    id_ = server.submit(**{**SLOW, "max_tokens": 170})
    with ThreadPoolExecutor(50) as threads:
        ends = list(threads.map(lambda _: list(server.events(id_))[-1]["status"], range(50)))
    assert ends == ["done"] * 50


def test_batch(server: Server) -> None:
    """A batch returns ids in the order of its inputs, identical inputs have the same id, and each matches a single request."""
    inputs = [{"text": f"Batch number {number}."} for number in (1, 2, 3, 1)]
    answer = server.post({"model": "bert", "lenses": ["weights"], "inputs": inputs}, "/analyses/batch")
    assert answer.status_code == 202
    ids = answer.json()["ids"]
    assert ids[0] == ids[3]
    assert len(set(ids)) == 3
    documents = [server.ended(id_) for id_ in ids]
    assert [document["text"] for document in documents] == [entry["text"] for entry in inputs]
    assert {document["batch"] for document in documents} == {answer.json()["batch"]}
    assert server.submit(model="bert", lenses=["weights"], **inputs[0]) == ids[0]


def test_a_batch_is_accepted_whole_or_not_at_all(server: Server) -> None:
    """One invalid input rejects the batch; none of it is queued."""
    good = {"text": "Never queued by a refused batch."}
    answer = server.post({"model": "bert", "inputs": [good, {"text": "   "}]}, "/analyses/batch")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-text")
    texts = [item["text"] for item in server.get("/analyses", params={"limit": 200}).json()["items"]]
    assert good["text"] not in texts


def test_batch_takes_what_single_requests_take(server: Server) -> None:
    """A bare mechanism name, token ids, and up to 1,000 inputs, but not 1,001."""
    body = {"model": "bert", "mechanism": "softmax", "inputs": [{"token_ids": [1, 2, 3]}]}
    assert server.post(body, "/analyses/batch").status_code == 202
    too_many = {"model": "bert", "inputs": [{"text": "a"}] * 1001}
    assert server.post(too_many, "/analyses/batch").status_code == 422


def test_queue_is_bounded(server: Server, models: Any, tmp_path: Any) -> None:
    """More than max_queue queued analyses are 429 with Retry-After; stored results are still returned."""
    with Server(tmp_path / "home", models, max_queue=2) as small:
        inputs = [{"text": f"Number {number}."} for number in range(3)]
        answer = small.post({"model": "bert", "inputs": inputs}, "/analyses/batch")
        assert (answer.status_code, answer.json()["code"], answer.json()["limit"]) == (429, "queue-full", 2)
        assert "Send at most 2 at once" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) > 0
        assert small.post({"model": "bert", "inputs": inputs[:2]}, "/analyses/batch").status_code == 202


def test_a_page_of_long_texts_is_short(server: Server, models: Any, tmp_path: Any) -> None:
    """However many analyses are asked for, a page has two megabytes of text; the next one goes on."""
    with Server(tmp_path / "home", models) as own:
        inputs = [{"text": f"{number} {'x' * 250_000}"} for number in range(10)]
        answer = own.post({"model": "bert", "lenses": ["weights"], "inputs": inputs}, "/analyses/batch")
        page = own.get("/analyses", params={"limit": 10}).json()
        assert len(page["items"]) == 8
        rest = own.get("/analyses", params={"limit": 10, "cursor": page["next"]}).json()
        assert {item["id"] for item in page["items"] + rest["items"]} == set(answer.json()["ids"])
        assert rest["next"] is None


def test_list_is_paginated(server: Server) -> None:
    """Pages have no gaps or repetitions, newest first."""
    for number in range(5):
        server.analyse(model="bert", text=f"Page {number}.", lenses=["weights"])
    items, cursor = [], None
    for _ in range(100):
        page = server.get("/analyses", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        assert len(page["items"]) <= 2
        items += page["items"]
        cursor = page["next"]
        if cursor is None:
            break
    created = [item["created"] for item in items]
    assert created == sorted(created, reverse=True)
    assert len({item["id"] for item in items}) == len(items) >= 5
    assert items == server.get("/analyses", params={"limit": 200}).json()["items"][: len(items)]


@variants("cursor", ["nan", "inf", "-inf", "1e999", "-1", "1_0", "\u0663", " 1", "9" * 40, ""])
@variants("list_", ["analyses", "studies", "datasets"])
def test_a_cursor_is_a_plain_number(server: Server, list_: str, cursor: str) -> None:
    """Values that only float() and int() accept never reach a database."""
    assert server.get(f"/{list_}", params={"cursor": cursor}).status_code == 422


@variants("list_", ["models", "lenses", "mechanisms", "measures", "effects", "figures"])
def test_what_there_is_is_paginated(server: Server, list_: str) -> None:
    """Paging returns the same items in the same order."""
    whole = server.get(f"/{list_}").json()
    assert whole["next"] is None
    items, cursor = [], "0"
    while cursor is not None:
        page = server.get(f"/{list_}", params={"limit": 3, "cursor": cursor}).json()
        assert 0 < len(page["items"]) <= 3
        items, cursor = items + page["items"], page["next"]
    assert items == whole["items"]


@variants("id_", ["nope", "0" * 32, "F" * 32, "0" * 31, "0" * 33])
def test_what_is_no_id_is_unknown(server: Server, id_: str) -> None:
    """A malformed or unknown id is 404 with the same code."""
    for of, code in (("analyses", "unknown-analysis"), ("studies", "unknown-study")):
        answer = server.get(f"/{of}/{id_}")
        assert (answer.status_code, answer.json()["code"]) == (404, code)


def test_models_are_described(server: Server) -> None:
    """Catalogue and local models are listed with their dimensions; unavailable ones have a reason."""
    cards = {card["name"]: card for card in server.get("/models").json()["items"]}
    assert {"minilm", "bert", "gpt2", "llama", "slow", "t5-small"} <= set(cards)
    assert (cards["bert"]["layers"], cards["bert"]["heads"], cards["bert"]["head_width"]) == (2, 4, 8)
    assert (cards["bert"]["kind"], cards["gpt2"]["kind"], cards["llama"]["family"]) == ("encoder", "decoder", "llama")
    assert all(card["available"] or card["reason"] for card in cards.values())
    assert cards["t5-small"]["available"] is isinstance(server, Cluster)  # which may ask a hub for it
    one = server.get("/models/bert").json()
    assert one["available"]
    assert {lens["name"] for lens in one["lenses"]} == set(LENSES)
    assert {mechanism["name"] for mechanism in one["mechanisms"]} == set(MECHANISMS)


def test_models_are_paginated(server: Server) -> None:
    """The pages of models together are the list of models."""
    whole = server.get("/models").json()["items"]
    names, cursor = [], "0"
    while cursor is not None:
        page = server.get("/models", params={"limit": 3, "cursor": cursor}).json()
        names += [card["name"] for card in page["items"]]
        cursor = page["next"]
    assert names == [card["name"] for card in whole]


@variants(
    ("path", "registry"),
    [("lenses", LENSES), ("mechanisms", MECHANISMS), ("measures", MEASURES), ("effects", EFFECTS)],
    ids=lambda p: str(p)[:10],
)
def test_declarations_are_those_of_the_registry(server: Server, path: str, registry: dict[str, Any]) -> None:
    """Every lens, mechanism, measure and method for effects declares what it is, what it is not, and the schema of its parameters."""
    items = server.get(f"/{path}").json()["items"]
    assert [item["name"] for item in items] == list(registry)
    for item in items:
        assert item == {**registry[item["name"]].describe(), "range": item["range"]}
        assert item["doc"]
        assert item["not"]
        assert item["citation"]
        assert item["params"]["type"] == "object"


def test_the_interface_describes_itself(server: Server) -> None:
    """The OpenAPI document names every route of version 1."""
    paths = server.get("/openapi.json").json()["paths"]
    for path in ("", "/batch", "/{id}", "/{id}/events", "/{id}/maps/{lens}", "/{id}/export"):
        assert f"{ANALYSES}{path}" in paths


def test_health(server: Server) -> None:
    """Liveness, readiness, and metrics that Prometheus can parse."""
    assert server.client.get("/healthz").json() == {"status": "ok"}
    ready = server.client.get("/readyz").json()
    assert (ready["status"], ready["version"]) == ("ok", headscope.__version__)
    text = server.client.get("/metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4")
    for name in (
        "forward_passes_total",
        "model_loads_total",
        "worker_losses_total",
        "corrupt_results_total",
        "results",
    ):
        assert server.metric(name) >= 0


def test_minilm_end_to_end(server: Server) -> None:
    """The default model that comes with the installation."""
    document = server.analyse(model="minilm", text="The cat sat on the mat.", measures=["entropy", "null_share"])
    assert (document["layers"], document["heads"], document["head_width"]) == (6, 12, 32)
    assert [token["text"] for token in document["tokens"]][:3] == ["[CLS]", "The", "cat"]
    assert [warning["code"] for warning in document["warnings"]] == ["identical-to-weights"]
    assert document["summaries"]["null_share"]["weights"]["max"] < 1e-6


def test_every_link_of_a_result_can_be_read(server: Server) -> None:
    """Also those of measures that are not about the weights."""
    lenses, measures = ["weights", "effective", "norm"], ["entropy", "negative_share", "token_norms", "residual_ratio"]
    document = server.analyse(model="bert", text="Links.", lenses=lenses, measures=measures)
    assert {f"measures.{name}" for name in measures} < set(document["links"])
    for name, link in document["links"].items():
        assert server.client.get(link).status_code == 200, name
