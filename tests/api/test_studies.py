"""Studies over HTTP: submit, follow, read, cancel, delete; in both deployments, with the same numbers to the last bit."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headscope
from tests.api.test_bad_input import check_problem
from tests.api.users import API, OF_STUDY, UNKNOWN_ID, Users, ask
from tests.support import studies
from tests.support.cluster import Cluster, cluster_long
from tests.support.extent import extent
from tests.support.server import Server, eventually
from tests.support.variants import variants

ASKED = studies.asked(40, figures=["entropy"])


# In a cluster, test_cluster_and_embedded_server_give_the_same_numbers runs one.
@cluster_long
def test_a_study(server: Server) -> None:
    """202 with a Location; once done, it describes its inputs; the same request has the same id and is done at once."""
    answer = server.post(ASKED, "/studies")
    id_ = answer.json()["id"]
    assert answer.status_code in (200, 202)
    assert answer.headers["location"] == f"{API}/studies/{id_}"
    document = studies.ended(server, id_)
    assert document["status"] == "done"
    assert document["progress"] == {
        "fraction": 1.0, "stage": "done", "detail": "", "position": None, "inputs": 40, "of": 40, "seconds_left": None,
    }  # fmt: skip
    assert (document["inputs"], document["failed_count"], document["cut"]) == (40, 0, 0)
    assert [one["headscope"] for one in document["versions"]] == [headscope.__version__]
    assert document["dataset"]["chosen"] == {"text": "sentence", "label": "label"}
    assert document["request"]["dataset"] == document["dataset"]["id"]
    assert [(one["model"], len(one["layers"]), len(one["heads"])) for one in document["variants"]] == [("bert", 2, 4)]
    again = server.post({**ASKED, "dataset": document["dataset"]["id"]}, "/studies")
    assert (again.status_code, again.json()["id"]) == (200, id_)
    (listed,) = [item for item in server.get("/studies").json()["items"] if item["id"] == id_]
    assert listed["variants"] == [{"model": "bert", "mechanism": document["variants"][0]["mechanism"]}]
    assert id_ not in [item["id"] for item in server.get("/analyses").json()["items"]]


@cluster_long
def test_what_it_found(server: Server) -> None:
    """Heads by a query; one head with its distribution, classes, examples and neighbours; figures and tables."""
    id_ = studies.done(server, ASKED)["id"]
    found = server.get(f"/studies/{id_}/heads", params={"where": "entropy > 0 order by entropy"}).json()
    assert (found["of"], len(found["heads"])) == (8, 8)
    values = [head["values"]["entropy"] for head in found["heads"]]
    assert values == sorted(values, reverse=True)
    head = server.get(f"/studies/{id_}/heads/1/3").json()
    entropy = next(number for number in head["numbers"] if number["measure"] == "entropy")
    low, high = entropy["interval"]
    assert low < entropy["input_mean"] < high
    assert sum(entropy["distribution"]["counts"]) == entropy["count"]
    assert sum(one["count"] for one in head["classes"]) == 40
    assert len(head["neighbours"]) == 5
    top = entropy["top"]
    assert [one["value"] for one in top] == sorted((one["value"] for one in top), reverse=True)
    shown = server.get(f"/studies/{id_}/examples", params={"row": [one["row"] for one in top]}).json()["items"]
    assert [one["text"] for one in shown] == [one["text"] for one in top]
    assert len(server.get(f"/studies/{id_}/examples").json()["items"]) == 32


@cluster_long
def test_heads_by_a_measure_that_another_lens_has(server: Server) -> None:
    """Entropy is not defined for the effective map: with that lens, the entropy of the weights is used."""
    id_ = studies.done(server, studies.asked(12, lenses=["weights", "effective"], measures=["entropy"]))["id"]
    query = {"where": "entropy > 0 order by entropy"}
    found, through = (
        server.get(f"/studies/{id_}/heads", params={**query, "lens": lens}) for lens in ("weights", "effective")
    )
    assert (found.status_code, through.status_code) == (200, 200)
    assert through.json() == found.json()
    assert len(found.json()["heads"]) == 8


@cluster_long
def test_figures_and_tables(server: Server) -> None:
    """Every listed figure and table is available in every format."""
    document = studies.done(server, ASKED)
    id_ = document["id"]
    assert {"entropy", "pattern-shares", "special-maps"} <= set(document["figures"])
    for name in document["figures"]:
        answer = server.get(f"/studies/{id_}/figures/{name}")
        assert answer.status_code == 200, answer.text
        assert go.Figure(answer.json()).layout.meta["sentence"]
        lines = server.get(f"/studies/{id_}/figures/{name}", params={"format": "csv"}).text.splitlines()
        rows = pa.ipc.open_stream(server.get(f"/studies/{id_}/figures/{name}", params={"format": "arrow"}).content)
        assert rows.schema.names == lines[0].split(",")
        assert len(lines) > 1
    for name in document["tables"]:
        files = {form: server.get(f"/studies/{id_}/tables/{name}", params={"format": form}) for form in FORMS}
        assert {answer.status_code for answer in files.values()} == {200}
        rows = [FORMS[form](answer.content) for form, answer in files.items()]
        assert len(set(rows)) == 1, (name, rows)
    wrong = server.get(f"/studies/{id_}/figures/entropy", params={"lens": "effective"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "unsupported")


FORMS: dict[str, Callable[[bytes], int]] = {
    "json": lambda data: len(json.loads(data)["rows"]),
    "csv": lambda data: len(list(csv.reader(io.StringIO(data.decode())))) - 1,
    "parquet": lambda data: pq.read_table(io.BytesIO(data)).num_rows,
    "arrow": lambda data: pa.ipc.open_stream(data).read_all().num_rows,
    "latex": lambda data: data.decode().partition("\\midrule")[2].partition("\\bottomrule")[0].count("\\\\"),
}


def test_for_headvis(embedded: Server) -> None:
    """A zip file, for a study with the required measures; for others, the error names the missing ones."""
    id_ = studies.done(embedded, studies.asked(12, figures=["head-metrics"]))["id"]
    answer = embedded.get(f"/studies/{id_}/export", params={"format": "headvis"})
    assert answer.status_code == 200
    assert zipfile.ZipFile(io.BytesIO(answer.content)).testzip() is None
    other = studies.done(embedded, ASKED)["id"]
    assert embedded.get(f"/studies/{other}/export", params={"format": "headvis"}).json()["code"] == "not-ready"


def test_an_analysis_for_headvis(embedded: Server) -> None:
    """The same files as for a study of that one text, of any length; without the measures, the error names them."""
    text = "The boats lay by the river bank all winter, and the bank in town kept the money. " * 8
    asked = {"text": text, "model": "bert", "max_tokens": 120}
    names = ["head_roles", "qk_distance", "entropy", "max_activation"]
    one = files_for_headvis(embedded, f"/analyses/{embedded.analyse(**asked, measures=names)['id']}")
    heads = [one[f"heads/L{layer}H{head}.json"] for layer in range(2) for head in range(4)]
    assert all(head["sequences"][0]["seq_len"] == 120 for head in heads)
    bare = embedded.analyse(**asked, measures=["entropy"])["id"]
    refused = embedded.get(f"/analyses/{bare}/export", params={"format": "headvis"}).json()
    assert refused["code"] == "not-ready"
    assert all(name in refused["detail"] for name in names)

    short = {"text": text[:80], "model": "bert"}
    one = files_for_headvis(embedded, f"/analyses/{embedded.analyse(**short, measures=names)['id']}")
    dataset = {"name": "one.jsonl", "data": json.dumps({"text": text[:80]})}
    body = {"model": "bert", "dataset": dataset, "figures": ["head-metrics"]}
    study = files_for_headvis(embedded, f"/studies/{studies.done(embedded, body)['id']}")
    assert one["scatter_data.json"] == study["scatter_data.json"]
    assert one.keys() == study.keys()
    for name in one:
        if name.startswith("heads/"):
            for files in (one, study):
                del files[name]["sequences"][0]["sequence_id"]
            assert one[name] == study[name]


def files_for_headvis(server: Server, path: str) -> dict[str, Any]:
    """Return the content of the zip file."""
    answer = server.get(f"{path}/export", params={"format": "headvis"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert answer.headers["content-disposition"].endswith('-headvis.zip"')
    with zipfile.ZipFile(io.BytesIO(answer.content)) as file:
        return {name: json.loads(file.read(name)) for name in file.namelist()}


def test_cluster_and_embedded_server_give_the_same_numbers(embedded: Server, cluster: Cluster, tmp_path: Path) -> None:
    """One child process, or two workers that share chunks: the same arrays, bit by bit."""
    body = studies.asked(extent(700, 300), seed=1)
    ids = [studies.done(server, body)["id"] for server in (embedded, cluster)]
    assert ids[0] == ids[1]
    studies.same(*(studies.arrays(server, ids[0], tmp_path) for server in (embedded, cluster)))


@cluster_long
def test_two_variants(server: Server) -> None:
    """Two variants are compared input by input."""
    body = studies.asked(20, against={"mechanism": {"name": "hopfield", "alpha": 0.5}}, figures=["tuning"])
    document = studies.done(server, body)
    assert [one["mechanism"]["name"] for one in document["variants"]] == ["softmax", "hopfield"]
    assert document["not_compared"] is None
    assert "tuning" in document["figures"]
    assert server.get(f"/studies/{document['id']}/figures/tuning").status_code == 200
    assert server.get(f"/studies/{document['id']}/heads", params={"variant": 1}).json()["of"] == 8


@cluster_long
def test_its_progress_can_be_followed(server: Server) -> None:
    """The number of finished inputs only grows, events come in order, and a lost connection can be resumed."""
    id_ = studies.submit(server, studies.asked(900, seed=2))
    events = list(server.events(id_, of="studies"))
    inputs = [event["progress"]["inputs"] for event in events]
    assert inputs == sorted(inputs)
    assert (events[-1]["status"], inputs[-1]) == ("done", 900)
    numbers = [int(event["event_id"]) for event in events]
    assert numbers == sorted(set(numbers))
    assert len(set(inputs)) > 2
    rest = list(server.events(id_, last=events[-1]["event_id"], of="studies"))
    assert [event["status"] for event in rest] == ["done"]


def test_an_analysis_sent_meanwhile_does_not_wait_for_it(embedded: Server) -> None:
    """An analysis runs before the queued chunks of a study."""
    inputs = extent(2_000, 1_400)
    id_ = studies.submit(embedded, studies.asked(inputs, seed=3))
    studies.midway(embedded, id_)
    embedded.analyse(model="bert", text="Who is in a hurry?", lenses=["weights"])
    assert studies.shown(embedded, id_)["status"] == "running"
    assert studies.ended(embedded, id_)["inputs"] == inputs


@cluster_long
def test_cancel(server: Server) -> None:
    """Its chunks are cancelled with it, the running one is stopped; sent again, the study continues."""
    body = studies.asked(600, model="slow", measures=["entropy"], seed=4)
    id_ = studies.submit(server, body)
    eventually(lambda: studies.shown(server, id_)["status"] == "running", "the first chunk")
    answer = server.client.delete(f"{API}/studies/{id_}")
    assert (answer.status_code, answer.json()["status"]) == (202, "cancelled")
    server.idle()
    assert studies.shown(server, id_)["status"] == "cancelled"
    assert server.analyse(model="bert", text="And then?", lenses=["weights"])["status"] == "done"


@cluster_long
def test_forget(server: Server) -> None:
    """A deleted study is gone, with everything that belongs to it."""
    id_ = studies.done(server, studies.asked(10, seed=5))["id"]
    server.idle()  # its result exists a moment before its job has ended
    assert server.client.delete(f"{API}/studies/{id_}").status_code == 204
    assert server.get(f"/studies/{id_}").json()["code"] == "unknown-study"
    assert id_ not in [item["id"] for item in server.get("/studies").json()["items"]]


@cluster_long
def test_it_is_shared(server: Server) -> None:
    """A key and the URL that opens with it, the same each time; an analysis or an unknown id cannot be shared as a study."""
    id_ = studies.done(server, ASKED)["id"]
    made = server.post(None, f"/studies/{id_}/share")
    key = made.json()["key"]
    assert (made.status_code, made.json()["link"]) == (201, f"/?studies#study={id_}&share={key}")
    assert server.post(None, f"/studies/{id_}/share").json()["key"] == key
    for place in ("", "/heads", "/figures/entropy", "/tables/heads", "/examples"):
        assert server.get(f"/studies/{id_}{place}", params={"share": key}).status_code == 200
    assert server.client.delete(f"{API}/studies/{id_}/share").status_code == 204
    assert server.post(None, f"/studies/{id_}/share").json()["key"] != key
    analysis = server.analyse(model="bert", text="No study to share.", lenses=["weights"])["id"]
    for wrong in (analysis, UNKNOWN_ID):
        assert server.post(None, f"/studies/{wrong}/share").json()["code"] == "unknown-study"


def test_nothing_is_left_of_its_chunks(embedded: Server) -> None:
    """The store has one result more, which the index has without a restart, and the job database one job."""

    def counted() -> list[int]:
        numbers = [embedded.settled(name) for name in ("results", 'jobs{status="done"}', "study_inputs_total")]
        return [*numbers, len(list((embedded.home / "results").glob("*/*")))]

    before = counted()
    studies.done(embedded, studies.asked(300, seed=600))
    # Its result exists a moment before its job has ended.
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1, 300, 1]


def test_what_is_wrong_with_a_row_stays_with_that_row(embedded: Server) -> None:
    """A row that cannot be read and an input that is too long are reported, and the others are analysed."""
    data = "sentence\nThe cat sat.\n\x00\n" + "cat " * 300 + "\nA mat.\n"
    body = {**ASKED, "dataset": {"name": "cats.tsv", "data": data}, "figures": []}
    document = studies.done(embedded, body)
    assert (document["inputs"], document["dataset"]["bad_count"]) == (2, 1)
    assert [bad["row"] for bad in document["dataset"]["bad_rows"]] == [3]
    assert [(one["row"], one["code"]) for one in document["failed"]] == [(4, "too-many-tokens")]
    cut = studies.done(embedded, {**body, "max_tokens": 8})
    assert (cut["inputs"], cut["cut"], cut["failed_count"]) == (3, 1, 0)
    answer = embedded.post({**body, "bad_rows": "fail"}, "/studies")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-dataset")


@cluster_long
def test_effects_of_heads(server: Server, models: Path) -> None:
    """The effects that the library finds, with a target per row and reference texts for all; a row that cannot be judged is reported."""
    rows = [{"text": "The cat sat on a", "next": 5}, {"text": "A mat", "next": 9}, {"text": "It was", "next": 10**6}]
    data = {"name": "next.jsonl", "data": "".join(json.dumps(row) + "\n" for row in rows)}
    body = {
        "dataset": data,
        "model": "gpt2",
        "lenses": [],
        "measures": [],
        "effects": [{"name": "ablation", "how": "reference"}],
        "reference": ["Some reference.", [5, 6, 7]],
        "figures": ["effects"],
    }
    document = studies.done(server, {**body, "columns": {"text": "text", "target": "next"}})
    assert (document["inputs"], document["measures"], document["figures"]) == (2, ["ablation"], ["effects"])
    assert [one["row"] for one in document["failed"]] == [3]
    found = server.get(f"/studies/{document['id']}/tables/effects", params={"format": "csv"}).text
    of = headscope.load(models / "gpt2")
    asked = {"method": body["effects"][0], "reference": body["reference"]}
    each = [headscope.effect(of, row["text"], target=row["next"], **asked).effects for row in rows[:2]]
    shown = [float(row["effect"]) for row in csv.DictReader(io.StringIO(found))]
    assert shown == pytest.approx(np.mean(each, 0).ravel().tolist(), abs=1e-6)
    heads = server.get(
        f"/studies/{document['id']}/heads", params={"where": "ablation.raises > 0 order by ablation.effect desc"}
    )
    named = [float(one["values"]["ablation.effect"]) for one in heads.json()["heads"]]
    raising = np.mean([one > 0 for one in each], 0) > 0
    assert named == pytest.approx(sorted(np.mean(each, 0)[raising].tolist(), reverse=True), abs=1e-6)
    figure = server.get(f"/studies/{document['id']}/figures/effects").json()
    assert figure["layout"]["meta"]["sentence"].startswith("Heads with the largest mean effects")


@variants(
    ("more", "status", "code", "pointer"),
    [
        ({"model": "missing"}, 404, "unknown-model", "/model"),
        ({"lenses": ["sight"]}, 404, "unknown-lens", "/lenses"),
        ({"measures": ["joy"]}, 404, "unknown-measure", "/measures"),
        ({"figures": ["smile"]}, 404, "unknown-figure", "/figures"),
        ({"against": {}}, 422, "invalid-request", "/against"),
        ({"against": {"model": "missing"}}, 404, "unknown-model", "/against/model"),
        ({"against": {"mechanism": "magic"}}, 404, "unknown-mechanism", "/against/mechanism"),
        ({"model": "vit"}, 422, "unsupported", "/model"),
        ({"against": {"model": "vit"}}, 422, "unsupported", "/against/model"),
        ({"mechanism": "jump", "model": "gpt2", "kind": "cross"}, 422, "unsupported", "/kind"),
        ({"limit": 0}, 422, "invalid-request", "/limit"),
        ({"columns": {"text": "nothing"}}, 422, "invalid-request", "/columns/text"),
        ({"dataset": {"name": "cats.jsonl", "data": ""}}, 422, "invalid-dataset", "/dataset"),
        ({"dataset": {"name": "cats.jsonl"}}, 422, "invalid-request", "/dataset/data"),
        (
            {"against": {"mechanism": {"name": "hopfield", "alpha": -1}}},
            422,
            "invalid-request",
            "/against/mechanism/alpha",
        ),
        ({"effects": ["magic"]}, 404, "unknown-effect", "/effects"),
        ({"effects": ["contribution"], "mechanism": "hopfield", "model": "gpt2"}, 422, "unsupported", "/effects"),
        ({"effects": ["contribution"], "model": "t5"}, 422, "unsupported", "/kind"),
        ({"target": "cat"}, 422, "invalid-request", "/effects"),
        ({"dataset": "f" * 32}, 404, "unknown-dataset", "/dataset"),
        ({"dataset": "../../etc/passwd"}, 404, "unknown-dataset", "/dataset"),
    ],
)
def test_what_is_refused(embedded: Server, more: dict[str, object], status: int, code: str, pointer: str) -> None:
    """An invalid request is rejected before anything is queued, with the field."""
    answer = embedded.post({**ASKED, **more}, "/studies")
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    check_problem(answer)
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


def test_too_much(new_server: Callable[..., Server]) -> None:
    """Too many inputs for a study or for the queue, or inputs too long for the memory, are rejected."""
    server = new_server(study_inputs=300, job_bytes=1_000_000, max_queue=2)
    answer = server.post(studies.asked(301), "/studies")
    assert (answer.json()["code"], answer.json()["limit"]) == ("attention-budget-exceeded", 300)
    refused = server.post(studies.asked(301, limit=300), "/studies").json()  # two chunks, and the study
    assert (refused["code"], refused["limit"], refused["actual"]) == ("attention-budget-exceeded", 2, 3)
    assert refused["errors"][0]["pointer"] == "/limit"
    assert server.post(studies.asked(301, limit=100), "/studies").status_code == 202
    long = {"name": "long.txt", "data": "cat " * 200 + "\n"}
    answer = server.post({**ASKED, "dataset": long}, "/studies")
    assert (answer.status_code, answer.json()["code"]) == (422, "attention-budget-exceeded")
    assert "max_tokens" in answer.json()["detail"]


def test_the_report_is_that_of_the_file(embedded: Server) -> None:
    """Another file with the same usable rows is another study, with its own name, bad rows and id."""
    data = '{"text": "The cat sat."}\n'
    files = [("one.jsonl", data), ("two.jsonl", f"{data}no row\n"), ("one.jsonl", f" {data}")]
    given = [{"name": name, "data": content} for name, content in files]
    reports = [studies.done(embedded, {**ASKED, "dataset": one})["dataset"] for one in given]
    assert [(report["name"], report["bad_count"]) for report in reports] == [
        ("one.jsonl", 0),
        ("two.jsonl", 1),
        ("one.jsonl", 0),
    ]
    assert len({report["id"] for report in reports}) == len(files)


def test_an_analysis_is_no_study(embedded: Server) -> None:
    """Analyses and studies are only found at their own path."""
    analysis = embedded.analyse(model="bert", text="No study.", lenses=["weights"])["id"]
    study = studies.done(embedded, ASKED)["id"]
    for path, code in ((f"/studies/{analysis}", "unknown-study"), (f"/analyses/{study}", "unknown-analysis")):
        assert embedded.get(path).json()["code"] == code
        assert embedded.client.delete(f"{API}{path}").json()["code"] == code
    assert embedded.get(f"/analyses/{study}/figures/entropy").json()["code"] == "unknown-analysis"
    assert studies.shown(embedded, study)["status"] == "done"


@variants("route", OF_STUDY, ids=" ".join)
def test_another_users_study_looks_unknown(lab: Users, route: tuple[str, str]) -> None:
    """Another user's study is 404 with the same detail as an unknown id."""
    made = lab.ada.post(f"{API}/studies", json=ASKED, headers={"Prefer": "wait=60"})
    assert made.status_code == 200, made.text
    theirs, none = ask(lab.emmy, *route, made.json()["id"]), ask(lab.emmy, *route, UNKNOWN_ID)
    assert (theirs.status_code, theirs.json()["code"]) == (404, "unknown-study")
    assert theirs.json()["detail"] == none.json()["detail"]
    assert lab.emmy.get(f"{API}/studies").json()["items"] == []
    assert lab.ada.get(f"{API}/studies/{made.json()['id']}").json()["status"] == "done"
