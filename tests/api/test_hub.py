"""Models from a hub: downloaded if allowed, rejected clearly if not, and never a file that could run code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.users import users
from tests.support.cluster import Cluster
from tests.support.hub import Hub
from tests.support.models import tiny_model
from tests.support.server import API, Server, environment, eventually
from tests.support.studies import asked, done, ended, submit

# Files beside the weights that must never be downloaded.
UNWANTED = ("pytorch_model.bin", "model.pkl", "evil.py", "README.md")


@pytest.fixture(scope="module")
def module_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with a valid model, one with pickles and code beside it, one with only pickles, and one that requires code."""
    top = tmp_path_factory.mktemp("hub")
    good = tiny_model(top / "org" / "tiny")
    for name in ("mixed", "pickled", "coded", "large", "late", "added", "dropped", "beside"):
        shutil.copytree(good, top / "org" / name)
    for name in ("mixed", "pickled"):
        for file in UNWANTED:
            (top / "org" / name / file).write_bytes(b"never downloaded")
    (top / "org" / "pickled" / "model.safetensors").unlink()
    config = top / "org" / "coded" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "auto_map": {"AutoModel": "evil.Model"}}))
    with Hub(top) as hub:
        yield hub


@pytest.fixture
def hub(module_hub: Hub) -> Hub:
    """The hub, with an empty request log."""
    module_hub.asked.clear()
    return module_hub


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory, module_hub: Hub, models: Path) -> Iterator[Server]:
    """A server that may download any model from the hub."""
    home = tmp_path_factory.mktemp("open") / "home"
    with Server(home, models, hub="any", HF_ENDPOINT=module_hub.url) as server:
        yield server


def test_fetched_once_and_analysed(open_server: Server, hub: Hub) -> None:
    """The first request downloads the model, the whole batch succeeds, later ones send no request; pickles and code are never downloaded."""
    inputs = [{"text": f"Fetched {number}."} for number in range(3)]
    ids = open_server.post({"model": "org/mixed", "inputs": inputs}, "/analyses/batch").json()["ids"]
    documents = [open_server.ended(id_) for id_ in ids]
    assert [document["status"] for document in documents] == ["done"] * 3, documents[-1]["error"]
    assert hub.downloads() == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    asked = sum(hub.asked.values())
    assert open_server.analyse(model="org/mixed", text="Fetched already.")["status"] == "done"
    assert sum(hub.asked.values()) == asked
    assert open_server.get("/models/org/mixed").json()["local"]


def test_it_is_said_how_much_has_come(open_server: Server, hub: Hub) -> None:
    """During the download, the stage is loading, with downloaded and total bytes."""
    with hub.holding():
        id_ = open_server.submit(model="org/large", text="How much?")
        detail = r"org/large, \d+ MB of \d+ MB downloaded"
        event = open_server.until(id_, lambda event: re.fullmatch(detail, event["progress"]["detail"]) is not None)
        assert (event["status"], event["progress"]["stage"], event["progress"]["fraction"]) == ("running", "loading", 0)
    assert open_server.ended(id_)["status"] == "done"


def download(server: Server, model: str) -> dict[str, Any]:
    """What the model's document says about its download, once that has ended; empty if nothing is left to say."""

    def look() -> dict[str, Any] | None:
        said = server.get(f"/models/{model}").json()["download"]
        return None if said and said["status"] in ("queued", "running") else {"ended": said}

    ended: dict[str, Any] = eventually(look, f"the download of {model}")["ended"] or {}
    return ended


def test_added_and_removed(open_server: Server, hub: Hub) -> None:
    """A model is downloaded without an analysis, reports its progress, is listed, and is removed from the cache."""
    model = "org/added"
    with hub.holding():
        answer = open_server.client.post(f"{API}/models", json={"model": model})
        assert (answer.status_code, answer.headers["location"]) == (202, f"{API}/models/{model}")
        detail = r"\d+ MB of \d+ MB downloaded"
        eventually(
            lambda: re.fullmatch(detail, open_server.get(f"/models/{model}").json()["download"]["detail"]), "progress"
        )
    assert download(open_server, model) == {}
    found = open_server.get(f"/models/{model}").json()
    assert (found["local"], found["removable"], found["layers"], found["hub"]) == (True, True, 2, model)
    assert found["parameters"] * 4 < found["bytes"] < found["parameters"] * 4 + 20_000
    assert model in [one["name"] for one in open_server.get("/models").json()["items"]]
    assert open_server.client.post(f"{API}/models", json={"model": model}).status_code == 200

    assert open_server.client.delete(f"{API}/models/{model}").status_code == 204
    assert not open_server.get(f"/models/{model}").json()["local"]
    assert model not in [one["name"] for one in open_server.get("/models").json()["items"]]
    assert open_server.client.delete(f"{API}/models/{model}").json()["code"] == "unknown-model"


def test_a_download_is_cancelled(open_server: Server, hub: Hub) -> None:
    """A cancelled download stops and leaves no model; the next one succeeds."""
    model = "org/dropped"
    with hub.holding():
        open_server.client.post(f"{API}/models", json={"model": model})
        eventually(lambda: open_server.get(f"/models/{model}").json()["download"]["detail"], "progress")
        answer = open_server.client.delete(f"{API}/models/{model}")
        assert (answer.status_code, answer.json()["download"]) == (202, None)
    again = open_server.client.post(f"{API}/models", json={"model": model}, headers={"Prefer": "wait=50"})
    assert (again.status_code, again.json()["local"]) == (200, True)


def test_analyses_run_beside_a_download(open_server: Server, hub: Hub) -> None:
    """A model that takes long to arrive delays no analysis."""
    model = "org/beside"
    with hub.holding():
        open_server.client.post(f"{API}/models", json={"model": model})
        eventually(lambda: open_server.get(f"/models/{model}").json()["download"]["detail"], "progress")
        assert open_server.analyse(model="bert", text="A model is being downloaded.")["status"] == "done"
        assert open_server.get(f"/models/{model}").json()["download"]["status"] == "running"
    assert download(open_server, model) == {}


def test_downloads_of_a_cluster(cluster: Cluster, cluster_hub: Hub) -> None:
    """One worker downloads, with progress on every server, while another one runs analyses; cancelled, it downloads again, and any worker reads the model.

    A user may not remove it.
    """
    model, hub = "org/shared", cluster_hub
    with hub.holding():
        assert cluster.client.post(f"{API}/models", json={"model": model}).status_code == 202
        for server in cluster.servers:
            eventually(lambda server=server: server.get(f"/models/{model}").json()["download"]["detail"], "progress")
        assert cluster.analyse(model="bert", text="A model is being downloaded.")["status"] == "done"
        assert cluster.get(f"/models/{model}").json()["download"]["status"] == "running"
        answer = cluster.client.delete(f"{API}/models/{model}")
        assert (answer.status_code, answer.json()["download"]) == (202, None)
    again = cluster.others[0].client.post(f"{API}/models", json={"model": model}, headers={"Prefer": "wait=50"})
    assert (again.status_code, again.json()["local"], again.json()["removable"]) == (200, True, False)
    asked = sum(hub.asked.values())
    texts = [{"text": f"Read by any worker, {number}."} for number in range(4)]
    ids = cluster.post({"model": model, "inputs": texts}, "/analyses/batch").json()["ids"]
    assert [cluster.ended(id_)["status"] for id_ in ids] == ["done"] * 4
    assert sum(hub.asked.values()) == asked
    assert cluster.client.delete(f"{API}/models/{model}").json()["code"] == "forbidden"


def test_a_download_that_fails(open_server: Server, hub: Hub) -> None:
    """The document says why it failed, until the failure is dismissed; pickles are not added; folders are not removed."""
    for model, code in (("org/pickled", "unsafe-weights"), ("org/missing", "model-unavailable")):
        open_server.client.post(f"{API}/models", json={"model": model})
        assert download(open_server, model)["error"]["code"] == code
        assert open_server.client.delete(f"{API}/models/{model}").json()["download"] is None
    folder = open_server.client.delete(f"{API}/models/bert")
    assert (folder.status_code, folder.json()["code"]) == (403, "forbidden")


@pytest.mark.long
def test_users_add_and_do_not_remove(hub: Hub, tmp_path: Path, models: Path) -> None:
    """On a server with users each may add a model; removing is left to the administrator."""
    with users(tmp_path / "home", models, hub="any", HF_ENDPOINT=hub.url) as lab:
        added = lab.ada.post(f"{API}/models", json={"model": "org/tiny"}, headers={"Prefer": "wait=50"})
        assert (added.status_code, added.json()["removable"]) == (200, False)
        removed = lab.emmy.delete(f"{API}/models/org/tiny")
        assert (removed.status_code, removed.json()["code"]) == (403, "forbidden")


def test_what_is_not_safe_or_not_there(open_server: Server, hub: Hub) -> None:
    """A hub model is checked like any other; a missing one is unavailable."""
    for name, code in (("pickled", "unsafe-weights"), ("coded", "unsafe-model"), ("absent", "model-unavailable")):
        error = open_server.ended(open_server.submit(model=f"org/{name}", text="Hello."))["error"]
        assert error["code"] == code, (name, error["detail"])
    assert not [file for file in hub.downloads() if file.endswith((".bin", ".pkl", ".py"))]


def test_hub_down_and_up_again(open_server: Server, hub: Hub) -> None:
    """No listener, a 503, a truncated file: each is model-unavailable, and the same request succeeds once the hub works again."""
    body = {"model": "org/tiny", "text": "Down and up."}

    def outcome() -> str:
        document = open_server.ended(open_server.submit(**body))
        return str(document["error"]["code"] if document["error"] else document["status"])

    hub.close()
    assert outcome() == "model-unavailable"
    hub.listen(hub.port)
    hub.down = True
    assert outcome() == "model-unavailable"
    hub.down = False
    hub.broken = "tokenizer.json"  # the weights may have been downloaded by then, but not the tokenizer
    assert outcome() == "model-unavailable"
    hub.broken = None
    assert outcome() == "done"


def test_a_study_waits_once_for_a_hub_that_is_down(open_server: Server, hub: Hub) -> None:
    """The first chunk downloads the model, and its failure fails the study with that reason; sent again, it succeeds once the hub works."""
    body = asked(600, model="org/late", measures=["entropy"])
    before, hub.down = open_server.settled("model_loads_total"), True
    document = ended(open_server, submit(open_server, body))
    hub.down = False
    assert document["error"]["code"] == "model-unavailable"
    assert open_server.settled("model_loads_total") == before + 1
    assert done(open_server, body)["inputs"] == 600


@pytest.mark.parametrize(
    ("setting", "refused"),
    [
        ("off", {"org/tiny": (404, "unknown-model"), "distilbert": (424, "model-unavailable")}),
        ("catalog", {"org/tiny": (404, "unknown-model")}),
    ],
)
def test_refused_where_not_allowed(
    new_server: Callable[..., Server], hub: Hub, setting: str, refused: dict[str, tuple[int, str]]
) -> None:
    """What must not be downloaded is rejected at once, and the error names the setting; the hub gets no request."""
    server = new_server(hub=setting, HF_ENDPOINT=hub.url)
    for model, expected in refused.items():
        answer = server.post({"model": model, "text": "Hello."})
        assert (answer.status_code, answer.json()["code"]) == expected
        assert "HEADSCOPE_HUB" in answer.json()["detail"]
    assert not hub.asked


ODD = ["org--x/name", "org/name.git", "org/na--me", "org/name-", "org/-name", "org/.", "a/b/c", "org/" + "a" * 97]


@pytest.mark.parametrize("name", ODD)
def test_odd_hub_ids(open_server: Server, hub: Hub, name: str) -> None:
    """Names that the hub does not allow are rejected without a server error; the hub gets no request."""
    answer = open_server.post({"model": name, "text": "Hello."})
    assert answer.status_code in (404, 422)
    assert open_server.get(f"/models/{name}").status_code in (404, 422)
    assert not hub.asked


@pytest.mark.long
def test_the_library_fetches_too(hub: Hub, tmp_path: Path) -> None:
    """headscope.load accepts a hub id and downloads only safetensors."""
    code = (
        "import headscope; print(headscope.analyze(headscope.load('org/mixed'), 'The cat sat.').maps['weights'].shape)"
    )
    variables = environment(tmp_path / "home", HF_ENDPOINT=hub.url)
    ended = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "(2, 4, 6, 6)", ended.stderr
    assert hub.downloads()
    assert not hub.downloads() & set(UNWANTED)
