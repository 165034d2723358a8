"""Metrics: what they count, that clients cannot add series, and that the dashboard and the alerts only use existing ones."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from headscope.jobs.metrics import BUCKETS, COUNTERS, HISTOGRAMS
from headscope.lenses import LENSES
from tests.support.cluster import Cluster
from tests.support.extent import extent
from tests.support.server import Server, eventually

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
Labels = frozenset[tuple[str, str]]


def samples(server: Server) -> dict[tuple[str, Labels], float]:
    """Return every sample of /metrics by name and labels."""
    return parsed(server.client.get("/metrics").text)


def parsed(text: str) -> dict[tuple[str, Labels], float]:
    """Return the samples of a text."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by_name(server: Server, name: str, **labels: str) -> float:
    """Return the sum of the samples with this name and these labels."""
    return total(samples(server), name, **labels)


def total(found: dict[tuple[str, Labels], float], name: str, **labels: str) -> float:
    """Return the sum of those of these samples."""
    return sum(value for (other, has), value in found.items() if other == name and labels.items() <= has)


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory, models: Path):
    """A server that has analysed three texts, the last of which was stored."""
    with Server(tmp_path_factory.mktemp("metrics") / "home", models) as server:
        for text, lens in (("The cat sat.", "weights"), ("The dog sat.", "effective"), ("The dog sat.", "effective")):
            server.analyse(model="bert", text=text, lenses=[lens])
        yield server


def test_what_was_done(used: Server) -> None:
    assert by_name(used, "headscope_forward_passes_total") == 2
    assert by_name(used, "headscope_model_loads_total") == 1
    assert by_name(used, "headscope_jobs", status="done") == 2
    assert by_name(used, "headscope_results") == 2
    assert by_name(used, "headscope_written_bytes_total") == by_name(used, "headscope_result_bytes") > 1000
    assert by_name(used, "headscope_oldest_wait_seconds") == 0
    assert by_name(used, "headscope_record_up") == 1
    assert by_name(used, "process_resident_memory_bytes") > 1e7


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_where_the_time_went(used: Server, name: str) -> None:
    """Each computed analysis is observed once, under its model and its first lens."""
    for lens in ("weights", "effective"):
        assert by_name(used, f"headscope_{name}_count", model="bert", lens=lens) == 1
        assert 0 <= by_name(used, f"headscope_{name}_sum", model="bert", lens=lens) < 60
    counts = [
        by_name(used, f"headscope_{name}_bucket", le=f"{bound:g}" if bound % 1 else str(bound)) for bound in BUCKETS
    ]
    assert counts == sorted(counts)
    assert by_name(used, f"headscope_{name}_bucket", le="+Inf") == 2


def test_workers_of_a_cluster_count_their_work_on_a_port_of_their_own(cluster: Cluster) -> None:
    """A worker reports the passes, loads, bytes and times of its process that runs models; a server of the cluster reports none of these, but jobs and requests."""

    def of_workers() -> dict[tuple[str, Labels], float]:
        found = Counter[tuple[str, Labels]]()
        for worker in cluster.workers:
            answer = httpx.get(f"http://127.0.0.1:{worker.port}/metrics", trust_env=False)
            assert answer.headers["content-type"].startswith("text/plain")
            found.update(parsed(answer.text))
        return found

    names = ("headscope_forward_passes_total", "headscope_written_bytes_total", "headscope_run_seconds_count")
    cluster.idle()
    before = of_workers()
    cluster.analyse(model="bert", text="Counted where it is computed.")
    after, of_server = of_workers(), samples(cluster)
    passes, written, runs = (total(after, name) - total(before, name) for name in names)
    assert (passes, runs) == (1, 1)
    assert written > 1000
    assert total(after, "headscope_model_loads_total") >= 1
    assert [total(of_server, name) for name in names] == [0, 0, 0]
    assert total(of_server, "headscope_jobs", status="done") >= 1
    assert not {"headscope_jobs", "headscope_results", "headscope_http_requests_total"} & {name for name, _ in after}


def test_a_cluster_has_a_queue_for_each_class_of_device(cluster: Cluster) -> None:
    """The queue of a cluster is as long as the number of waiting jobs, and empty in the end."""

    def depth() -> float | None:
        return samples(cluster).get(("headscope_queue_depth", frozenset({("device", "cpu")})))

    cluster.idle()
    for worker in cluster.workers:
        worker.pause()
    try:
        ids = [cluster.submit(model="bert", text=f"Waits in the queue, number {number}.") for number in range(4)]
        eventually(lambda: depth() == len(ids), "messages in the queue")
    finally:
        for worker in cluster.workers:
            worker.resume()
    for id_ in ids:
        assert cluster.ended(id_)["status"] == "done"
    eventually(lambda: depth() == 0, "an empty queue")


def test_requests_are_counted_by_template(used: Server) -> None:
    def counted(route: str, status: str, method: str = "GET") -> float:
        return by_name(used, "headscope_http_requests_total", route=route, status=status, method=method)

    before = (
        counted("/api/v1/models/{model}", "2xx"),
        counted("/api/v1/analyses", "4xx", "POST"),
        counted("other", "4xx"),
    )
    used.get("/models/bert")
    used.get("/models/bert?x=1")
    used.post({"model": "bert"})
    used.client.post(
        "/api/v1/analyses", content=b"x", headers={"Origin": "https://elsewhere.example"}
    )  # rejected by the security middleware
    used.client.get("/nothing/here")
    after = (
        counted("/api/v1/models/{model}", "2xx"),
        counted("/api/v1/analyses", "4xx", "POST"),
        counted("other", "4xx"),
    )
    assert [new - old for new, old in zip(after, before, strict=True)] == [2, 1, 1]
    assert counted("other", "4xx", "POST") == 1
    assert by_name(used, "headscope_http_request_seconds_count", route="/api/v1/models/{model}") >= 2


def test_odd_requests_add_no_series(used: Server) -> None:
    """After one request of each kind, random paths, methods, models, lenses and hosts add no series."""

    def odd(number: int) -> None:
        kinds: list[Callable[[], httpx.Response]] = [
            lambda: used.client.request(f"M{number}", f"/api/v1/models/m{number}"),
            lambda: used.client.get(f"/random-{number}/{'x' * (number % 700)}"),
            lambda: used.post({"model": f"random-{number}", "text": "x"}),
            lambda: used.get(f"/analyses/{number:032x}/maps/lens{number}"),
            lambda: used.client.get(f"/assets/{number}.js"),
            lambda: used.client.get("/", headers={"Host": f"h{number}.example"}),
            lambda: used.client.request("PROPFIND", "/metrics"),
            lambda: used.get(f"/analyses?limit={number}x"),
        ]
        assert kinds[number % len(kinds)]().status_code >= 400

    for number in range(8):
        odd(number)
    before = set(samples(used))
    for number in range(8, extent(2008, 208)):
        odd(number)
    assert {key for key in samples(used) if key not in before} == set()
    routes = {dict(labels)["route"] for name, labels in before if name == "headscope_http_requests_total"}
    known = set(used.get("/openapi.json").json()["paths"]) | {"/", "/assets/{name}", "/api/v1/openapi.json", "other"}
    assert routes <= known


def test_labels_of_analyses_are_names_of_the_catalogue(used: Server) -> None:
    """Histograms have a series per catalogue model and lens, and one for all other models."""
    names = {model["name"] for model in used.get("/models").json()["items"]} | {"other"}
    found = [dict(labels) for name, labels in samples(used) if name == "headscope_run_seconds_count"]
    assert found
    assert all(labels["model"] in names and labels["lens"] in LENSES for labels in found)


def _asked() -> list[str]:
    """Return every expression of the dashboard and the alerts."""
    panels = json.loads((DEPLOY / "grafana" / "headscope.json").read_text("utf-8"))["panels"]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text("utf-8"))["groups"]
    targets = [target["expr"] for panel in panels for target in panel.get("targets", [])]
    return targets + [rule["expr"] for group in rules for rule in group["rules"]]


def test_dashboard_and_alerts_ask_for_what_there_is(used: Server) -> None:
    there: dict[str, set[str]] = {"headscope_workers": {"device"}, "headscope_queue_depth": {"device"}}  # of a cluster
    for name, labels in samples(used):
        there.setdefault(name, set()).update(label for label, _ in labels)
    asked = {name for expression in _asked() for name in re.findall(r"\b(?:headscope|process)_\w+", expression)}
    assert asked - set(there) == set()
    for expression in _asked():
        known = {label for name in re.findall(r"\b(?:headscope|process)_\w+", expression) for label in there[name]}
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert set(re.split(r",\s*", group)) <= known, expression
        for label in re.findall(r"[{,]\s*(\w+)\s*=", expression):
            assert label in known | {"job", "instance"}, expression


def test_everything_that_is_told_is_asked_for() -> None:
    """Every metric is shown in a panel."""
    asked = " ".join(_asked())
    for name in COUNTERS:
        assert f"headscope_{name}_total" in asked
    for name in HISTOGRAMS:
        assert f"headscope_{name}_bucket" in asked


def test_every_metric_is_described(used: Server) -> None:
    described = set(
        re.findall(r"`(headscope_\w+)", (DEPLOY.parent / "docs" / "how-to" / "deploy.md").read_text("utf-8"))
    )
    there = {re.sub(r"_(bucket|sum|count)$", "", name) for name, _ in samples(used) if name.startswith("headscope_")}
    assert described == there | {"headscope_workers", "headscope_queue_depth"}


def test_panels_have_places_of_their_own() -> None:
    panels = json.loads((DEPLOY / "grafana" / "headscope.json").read_text("utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
