"""The log under hostile requests: every line is one event and contains no input, and one request id leads from the response to the worker. So does a trace."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.corpus import CASES, HOSTILE_TEXTS, MARK
from tests.api.test_bad_input import send
from tests.support.collector import Collector
from tests.support.extent import extent
from tests.support.server import Program, Server, eventually

JSON_LOG = {"log_format": "json", "log_level": "debug"}


def events(program: Program) -> list[dict[str, Any]]:
    """Return the events of the log, one per line."""
    lines = program.log().split("\n")
    assert lines.pop() == ""
    assert all(line.isascii() and line.isprintable() for line in lines)
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def logging(tmp_path_factory: pytest.TempPathFactory, models: Path, collector: Collector) -> Iterator[Server]:
    """A server that logs everything as JSON, and sends traces."""
    with Server(tmp_path_factory.mktemp("log") / "home", models, **JSON_LOG, **collector.environment) as server:
        yield server


def test_bad_input_leaves_one_line_each_and_nothing_of_itself(logging: Server) -> None:
    server = logging
    ids: Counter[str] = Counter()
    server.client.event_hooks["response"] = [lambda answer: ids.update([answer.headers.get("x-request-id", "")])]
    for case in CASES[:: extent(1, 12)]:
        send(server, case)
    for text in list(HOSTILE_TEXTS.values())[:: extent(1, 8)]:
        server.post({"model": "bert", "text": text, "text_pair": MARK, "lenses": []})
        server.ended(server.submit(model="bert", text=text, lenses=["weights"], maps=False))
    del ids[""]  # what the HTTP parser rejects never reaches the application
    assert ids.total() > len(CASES[:: extent(1, 12)])
    logged = events(server)
    answered = Counter(event["request_id"] for event in logged if event["event"] == "answered")
    asked_at_start = {event["request_id"] for event in logged if event.get("route") == "/readyz"}
    assert {id_: number for id_, number in answered.items() if id_ not in asked_at_start} == ids
    assert not [event for event in logged if event["level"] in ("error", "critical")]
    shown = server.log()
    for text in (MARK, MARK.upper(), "onerror", "DROP TABLE", "HYPERLINK", "\\u202e", "etc/passwd", "cat sat"):
        assert text not in shown


@pytest.mark.parametrize("home", ["logging", "cluster"])
def test_one_id_leads_from_the_answer_to_the_worker(home: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(home)
    answer = server.post({"model": "bert", "text": "Followed."}, headers={"X-Request-ID": "trace-me-1"})
    assert answer.headers["x-request-id"] == "trace-me-1"
    id_ = answer.json()["id"]
    server.ended(id_)
    programs = [server, *getattr(server, "workers", [])]

    def found() -> list[dict[str, Any]]:
        all_ = [event for program in programs for event in events(program)]
        mine = [event for event in all_ if event.get("request_id") == "trace-me-1"]
        return [event for event in mine if event["logger"] != "headscope.audit"]  # the cluster has users

    eventually(lambda: len(found()) == 4, "four events")
    said = {event["event"]: event for event in found()}
    assert set(said) == {"accepted", "answered", "analysis begins", "analysis ends"}
    assert said["accepted"]["first"] == said["analysis begins"]["job"] == said["analysis ends"]["job"] == id_
    assert said["analysis ends"]["end"] == "done"


def test_a_trace_leads_from_the_request_to_the_run(logging: Server, collector: Collector) -> None:
    """Without a cluster, the server sends the span of the request, and its process that runs models those of the job; see test_tracing.py for a cluster."""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    text = "A text that no span has."
    answer = logging.post({"model": "bert", "text": text}, headers={"traceparent": f"00-{trace}-{span}-01"})
    names = {"POST /api/v1/analyses", "queue analysis", "run analysis"}
    eventually(lambda: collector.of(trace).keys() >= names, "the spans of the request and its job")
    request, queue, run = (collector.of(trace)[name] for name in sorted(names))
    assert request.parent == span
    assert queue.parent == run.parent == request.id
    assert run.attributes["headscope.job.id"] == answer.json()["id"]
    assert not run.failed
    assert text not in str(collector.of(trace))


def test_cached_responses_are_counted_and_logged(logging: Server) -> None:
    """They count under the route that answered first."""
    analysis = logging.analyse(model="bert", text="Counted.", lenses=["weights"], measures=["entropy"])["id"]
    route = "/api/v1/analyses/{id}/grid/{lens}"
    counted = f'http_request_seconds_count{{route="{route}"}}'
    logging.get(f"/analyses/{analysis}/grid/weights")
    before = logging.metric(counted)
    for number in range(3):
        logging.get(f"/analyses/{analysis}/grid/weights", headers={"X-Request-ID": f"again-{number}"})
    assert logging.metric(counted) == before + 3
    again = [event for event in events(logging) if str(event.get("request_id")).startswith("again-")]
    assert [event["route"] for event in again] == [route] * 3


def test_every_process_logs_as_text_unless_told_otherwise(server: Server) -> None:
    server.analyse(model="bert", text="A line of text for people.")
    lines = [line for line in server.log().splitlines() if "analysis ends" in line]
    assert all(line.isprintable() and "end=" in line for line in lines)
    assert "end=done" in lines[-1]
    assert "for people" not in server.log()
