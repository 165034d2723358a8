"""Data sets over REST: upload, list, parse with other columns, delete; folders and the hub; each user sees only their own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.test_bad_input import check_problem
from tests.api.users import Users, users
from tests.support.cluster import Cluster
from tests.support.hub import Hub
from tests.support.malformed import CASES, Case
from tests.support.server import API, Server, environment, eventually
from tests.support.variants import variants

DATASETS = f"{API}/datasets"
TABLE = "sentence1,sentence2,label\nOne cat.,Two cats.,0\nThree.,Four.,1\n,Five.,1\n"
OCTETS = {"content-type": "application/octet-stream"}
FOLDER = {"pairs.csv": TABLE, "deep/words.conll": "Cats O\nsleep O\n", "notes.md": "no data set", ".hidden.csv": TABLE}


def send(client: httpx.Client, name: str, content: bytes | str, **query: Any) -> httpx.Response:
    """Upload a file as a data set."""
    return client.post(DATASETS, params={"name": name, **query}, content=content, headers=OCTETS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder offered by the server: files, a nested one, links inside it and out of it."""
    folder = tmp_path_factory.mktemp("offered") / "corpora"
    for name, content in FOLDER.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder.parent / "secret.csv").write_text("text,label\nA secret.,0\n")
    (folder / "inside.csv").symlink_to(folder / "pairs.csv")
    (folder / "outside.csv").symlink_to(folder.parent / "secret.csv")
    (folder / "away").symlink_to(folder.parent, target_is_directory=True)
    os.mkfifo(folder / "pipe.csv")
    (folder / "loop.csv").symlink_to("loop.csv")
    Path(os.fsdecode(os.fsencode(folder) + b"/not-utf8-\xff.csv")).write_text(TABLE)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, models: Path, folder: Path) -> Iterator[Server]:
    """A server that offers the folder and limits data sets to 100,000 bytes."""
    settings = {"data_dirs": [str(folder)], "dataset_bytes": 100_000, "text_bytes": 32_768}
    with Server(tmp_path_factory.mktemp("datasets") / "home", models, **settings) as running:
        yield running


def test_sent_and_read(server: Server) -> None:
    """An upload is parsed at once: columns with reasons, bad rows with numbers, the first rows. The same file has the same id."""
    answer = send(server.client, "pairs.csv", TABLE)
    assert answer.status_code == 201, answer.text
    document = answer.json()
    assert answer.headers["location"] == f"{DATASETS}/{document['id']}"
    assert (document["format"], document["rows"], document["bytes"]) == ("csv", 2, len(TABLE))
    assert document["chosen"] == {"text": "sentence1", "text_pair": "sentence2", "label": "label"}
    assert set(document["reasons"]) == set(document["chosen"])
    assert document["bad_rows"] == [{"row": 4, "problem": "The text is missing."}]
    assert document["sample"][0] == {
        "row": 2,
        "text": "One cat.",
        "text_pair": "Two cats.",
        "label": "0",
        "pos": None,
        "labels": None,
        "target": None,
        "minus": None,
        "against": None,
    }
    assert send(server.client, "pairs.csv", TABLE).json() == document
    assert server.client.get(f"{DATASETS}/{document['id']}").json() == document
    assert send(server.client, "others.csv", TABLE).json()["id"] != document["id"]


def test_read_with_other_columns(server: Server) -> None:
    """Columns and format can be tried before submitting a study."""
    place = f"{DATASETS}/{send(server.client, 'pairs.csv', TABLE).json()['id']}"
    other = server.client.get(place, params={"columns": '{"text": "sentence2"}'}).json()
    assert (other["chosen"], other["bad_count"]) == ({"text": "sentence2", "label": "label"}, 0)
    lines = server.client.get(place, params={"format": "text"}).json()
    assert (lines["rows"], lines["sample"][0]["text"]) == (4, "sentence1,sentence2,label")
    for query in ({"columns": '{"text": "nothing"}'}, {"columns": "text"}, {"columns": '{"body": "label"}'}):
        answer = server.client.get(place, params=query)
        assert answer.status_code == 422
        check_problem(answer)
        assert answer.json()["errors"][0]["pointer"].startswith("/columns")
    assert server.client.get(place, params={"format": "xml"}).json()["code"] == "unknown-format"


def test_targets_are_texts_or_numbers(server: Server) -> None:
    """The first rows have what effects of heads are judged by."""
    body = '{"text": "A mat", "good": 5, "bad": " dog", "other": "A cat"}\n'
    place = f"{DATASETS}/{send(server.client, 'targets.jsonl', body.encode()).json()['id']}"
    columns = {"text": "text", "target": "good", "minus": "bad", "against": "other"}
    [row] = server.client.get(place, params={"columns": json.dumps(columns)}).json()["sample"]
    assert (row["target"], row["minus"], row["against"]) == (5, " dog", "A cat")


@variants("case", CASES[::4], ids=lambda case: case.id, short=6)
def test_files_as_people_have_them(server: Server, case: Case) -> None:
    """Every malformed file is rejected with an explanation, or parsed except for the rows that are reported; the server stays up."""
    content = case.content()
    query = {"format": case.format} if case.format else {}
    answer = send(server.client, case.file, content, **query)
    if len(content) > 100_000:
        assert answer.status_code == 413
    elif case.error is not None and case.columns is None:
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-dataset"), answer.text
        check_problem(answer)
        assert case.error in answer.json()["detail"]
    elif case.columns is None:
        assert answer.status_code == 201, answer.text
        found = {bad["row"]: bad["problem"] for bad in answer.json()["bad_rows"]}
        assert (answer.json()["rows"], set(found)) == (case.rows, set(case.bad))


def test_what_unpacks_to_too_much(server: Server) -> None:
    """A small Parquet file with large rows is rejected, and so is one that exceeds the memory or time limit."""
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 5000, pa.int32()), pa.array(["word " * 1000]))
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": repeated}), buffer)
    assert len(buffer.getvalue()) < 20_000
    answer = send(server.client, "a.parquet", buffer.getvalue())
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-dataset")
    assert "more than 100000 bytes" in answer.json()["detail"]
    assert server.client.get("/readyz").status_code == 200


def test_only_files_are_taken(server: Server) -> None:
    """The body is the unchanged file: no form, no text/plain of another site, nothing larger than declared, nothing without a name."""
    for kind in ("text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "application/json"):
        answer = server.client.post(DATASETS, params={"name": "a.txt"}, content="One.", headers={"content-type": kind})
        assert answer.status_code == 415
        assert "application/octet-stream" in answer.json()["detail"]
    large = send(server.client, "a.txt", b"x" * 100_001)
    assert large.status_code == 413
    unsaid = send(server.client, "a.txt", iter([b"x" * 60_000] * 2))
    assert unsaid.status_code == 413
    assert server.client.post(DATASETS, content="One.", headers=OCTETS).status_code == 422
    assert send(server.client, "a.txt", b"").json()["detail"] == "The file is empty."
    left = {path.name for path in (server.home / "files").rglob("*")} & {"upload", "sent"}
    assert not left, "nothing is left behind"


def test_folders_of_the_operator(server: Server) -> None:
    """Files in the folder are listed by name and can be read; links and paths that leave it do not exist."""
    items = {item["id"] for item in server.client.get(DATASETS, params={"limit": 200}).json()["items"]}
    assert {one for one in items if "/" in one} == {
        "corpora/deep/words.conll",
        "corpora/inside.csv",
        "corpora/pairs.csv",
    }
    assert server.client.get(f"{DATASETS}/corpora/pairs.csv").json()["rows"] == 2
    assert server.client.get(f"{DATASETS}/corpora%2Fdeep%2Fwords.conll").json()["sample"][0]["labels"] == ["O", "O"]
    escapes = ("corpora/outside.csv", "corpora/away/secret.csv", "corpora/../secret.csv", "corpora/pipe.csv", "corpora")
    for name in (*escapes, "corpora/%2e%2e/secret.csv", "%2Fetc%2Fpasswd", "corpora/a%00b", "other/pairs.csv"):
        answer = server.client.get(f"{DATASETS}/{name.replace('../', '%2e%2e%2f')}")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-dataset"), name
    assert server.client.delete(f"{DATASETS}/corpora/pairs.csv").status_code == 404


@variants("name", ["loop.csv", "a" * 300, "a/" * 400, "deep", "pairs.csv/a", "not-utf8-%FF.csv", "%ED%A0%80", "a%00b"])
def test_what_is_no_file_is_unknown(server: Server, name: str) -> None:
    """A symlink loop, a name that is too long, not UTF-8 or a folder is 404, also in a study, and logs nothing."""
    wanted = f"corpora/{unquote(name)}"
    study = server.post({"model": "bert", "dataset": wanted}, "/studies")
    for answer in (server.client.get(f"{DATASETS}/corpora/{name}"), study):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-dataset")
    assert "Traceback" not in server.log()


def test_pages(server: Server) -> None:
    """The list is paged: newest upload first, then the folder's files; what is uploaded or deleted between two pages moves nothing."""
    sent = [send(server.client, f"page-{number}.txt", f"Page {number}.\n").json()["id"] for number in range(4)]
    items, cursor = list[dict[str, str]](), None
    while True:
        query = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = server.client.get(DATASETS, params=query).json()
        items += page["items"]
        cursor = page["next"]
        if len(items) == 2:
            send(server.client, "page-4.txt", "Page 4.\n")
            assert server.client.delete(f"{DATASETS}/{sent[3]}").status_code == 204
        if cursor is None:
            break
    names = [item["name"] for item in items]
    assert names[:4] == ["page-3.txt", "page-2.txt", "page-1.txt", "page-0.txt"]
    assert names[-3:] == ["corpora/inside.csv", "corpora/pairs.csv", "corpora/deep/words.conll"]
    assert len({item["id"] for item in items}) == len(items)


def test_forgotten(server: Server) -> None:
    """A deleted data set is gone at once and permanently."""
    id_ = send(server.client, "gone.txt", "Gone.\n").json()["id"]
    assert server.client.delete(f"{DATASETS}/{id_}").status_code == 204
    for answer in (server.client.get(f"{DATASETS}/{id_}"), server.client.delete(f"{DATASETS}/{id_}")):
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-dataset")


def test_kept_over_a_restart(new_server: Callable[..., Server]) -> None:
    """A data set of several pieces survives a kill, to the last byte; one damaged on disk is gone."""
    server = new_server()
    content = "".join(f"{'word ' * 200}{number}.\n" for number in range(6000))
    assert len(content) > 4 * 1024**2
    document = send(server.client, "long.txt", content).json()
    assert (document["rows"], document["bytes"]) == (6000, len(content))
    server.restart()
    place = f"{DATASETS}/{document['id']}"
    assert server.client.get(place, params={"format": "tsv", "columns": '{"text": "column 1"}'}).json()["rows"] == 6000
    (file,) = (server.home / "files" / "results").rglob("data")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    answer = server.client.get(place, params={"format": "tsv"})
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-dataset")


def test_users_see_their_own(tmp_path: Path, models: Path) -> None:
    """Users do not see each other's data sets; one who uploaded the same file keeps it when the other deletes it."""
    with users(tmp_path / "home", models) as lab:
        _users_see_their_own(lab)


def _users_see_their_own(lab: Users) -> None:
    id_ = send(lab.ada, "ada.txt", "Ada's.\n").json()["id"]
    assert lab.emmy.get(f"{DATASETS}/{id_}").json()["code"] == "unknown-dataset"
    assert lab.emmy.delete(f"{DATASETS}/{id_}").status_code == 404
    assert lab.emmy.get(DATASETS).json()["items"] == []
    assert lab.anonymous.get(DATASETS).status_code == send(lab.anonymous, "a.txt", "One.\n").status_code == 401
    assert send(lab.emmy, "ada.txt", "Ada's.\n").json()["id"] == id_
    assert lab.ada.delete(f"{DATASETS}/{id_}").status_code == 204
    assert lab.ada.get(f"{DATASETS}/{id_}").status_code == 404
    assert [item["id"] for item in lab.emmy.get(DATASETS).json()["items"]] == [id_]
    assert lab.emmy.delete(f"{DATASETS}/{id_}").status_code == 204
    assert lab.emmy.get(DATASETS).json()["items"] == []


def test_every_server_of_a_cluster_has_it(cluster: Cluster) -> None:
    """What is uploaded to one server is listed and read by the other."""
    one, other = cluster.servers
    document = send(one.client, "shared.csv", TABLE).json()
    assert other.client.get(f"{DATASETS}/{document['id']}").json() == document
    assert document["id"] in {item["id"] for item in other.client.get(DATASETS).json()["items"]}
    changed = other.client.get(f"{DATASETS}/{document['id']}", params={"columns": '{"text": "sentence2"}'})
    assert changed.json()["rows"] == 3
    assert other.client.delete(f"{DATASETS}/{document['id']}").status_code == 204
    eventually(lambda: one.client.get(f"{DATASETS}/{document['id']}").status_code == 404, "the end of it")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with a data set of one file and one of several."""
    top = tmp_path_factory.mktemp("hub")
    for name, files in {"one": ["data/pairs.csv", "README.md"], "many": ["a.csv", "b.csv"]}.items():
        for file in files:
            path = top / "datasets" / "org" / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(TABLE)
    with Hub(top) as running:
        yield running


def test_from_the_hub(new_server: Callable[..., Server], hub: Hub) -> None:
    """If any hub id is allowed, a data set is downloaded once, by name; missing and unavailable ones are reported."""
    server = new_server(hub="any", HF_ENDPOINT=hub.url)
    for name in ("org/one", "org/one/data/pairs.csv", "org/many/b.csv"):
        answer = server.client.get(f"{DATASETS}/hub:{name}")
        assert (answer.status_code, answer.json().get("rows")) == (200, 2), answer.text
    assert "README.md" not in hub.downloads()
    several = server.client.get(f"{DATASETS}/hub:org/many")
    assert (several.status_code, several.json()["code"]) == (422, "invalid-request")
    assert "a.csv, b.csv" in several.json()["detail"]
    for name in ("org/absent", "org/one/none.csv", "org/one/../secret"):
        answer = server.client.get(f"{DATASETS}/hub:{name.replace('../', '%2e%2e%2f')}")
        assert (answer.status_code, answer.json()["code"]) == (404, "unknown-dataset"), name
    hub.down = True
    try:
        answer = server.client.get(f"{DATASETS}/hub:org/many/a.csv")
    finally:
        hub.down = False
    assert (answer.status_code, answer.json()["code"]) == (424, "dataset-unavailable")


def test_the_library_fetches_too(hub: Hub, tmp_path: Path) -> None:
    """The library accepts a hub data set in place of a file."""
    code = (
        "from headscope.library.study import read_dataset\n"
        "print([row.text for row in read_dataset('hub:org/one', {'text': 'sentence2'}, 'skip').rows])"
    )
    variables = environment(tmp_path / "home", HF_ENDPOINT=hub.url)
    ended = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "['Two cats.', 'Four.', 'Five.']", ended.stderr


def test_the_hub_is_not_asked_where_it_may_not(server: Server) -> None:
    """With the hub off, a hub data set is rejected, and the error names the setting."""
    answer = server.client.get(f"{DATASETS}/hub:org/one")
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-dataset")
    assert "HEADSCOPE_HUB" in answer.json()["detail"]
