"""Models from a hub: fetched when that is allowed, refused clearly when it is not, and never a file that could run code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.hub import Hub
from tests.models import tiny_model
from tests.server import Server, environment

Start = Callable[..., Server]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub with a good model, one that has pickles and code beside it, one with pickles only, and one that wants code."""
    top = tmp_path / "hub"
    good = tiny_model(top / "org" / "tiny")
    for name in ("mixed", "pickled", "coded"):
        shutil.copytree(good, top / "org" / name)
    for name in ("mixed", "pickled"):
        for file in ("pytorch_model.bin", "model.pkl", "evil.py", "README.md"):
            (top / "org" / name / file).write_bytes(b"never downloaded")
    (top / "org" / "pickled" / "model.safetensors").unlink()
    config = top / "org" / "coded" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "auto_map": {"AutoModel": "evil.Model"}}))
    with Hub(top) as running:
        yield running


@pytest.fixture
def start(new_server: Start, hub: Hub) -> Start:
    """Starts servers that know this hub."""
    return lambda **settings: new_server(**{"hub": "any", "HF_ENDPOINT": hub.url, **settings})


def test_fetched_once_and_analysed(start: Start, hub: Hub) -> None:
    """The first request fetches the model, all of a batch are done, later ones ask the hub nothing; pickles and code stay there."""
    server = start()
    inputs = [{"text": f"Fetched {number}."} for number in range(3)]
    ids = server.post({"model": "org/mixed", "inputs": inputs}, "/analyses/batch").json()["ids"]
    documents = [server.ended(id_) for id_ in ids]
    assert [document["status"] for document in documents] == ["done"] * 3, documents[-1]["error"]
    assert hub.downloads() == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    asked = sum(hub.asked.values())
    assert server.analyse(model="org/mixed", text="Fetched already.")["status"] == "done"
    assert sum(hub.asked.values()) == asked
    assert server.get("/models/org/mixed").json()["local"]


def test_what_is_not_safe_or_not_there(start: Start, hub: Hub) -> None:
    """A hub model is checked like any other; one that does not exist is unavailable."""
    server = start()
    for name, code in (("pickled", "unsafe-weights"), ("coded", "unsafe-model"), ("absent", "model-unavailable")):
        error = server.ended(server.submit(model=f"org/{name}", text="Hello."))["error"]
        assert error["code"] == code, (name, error["detail"])
    assert not [file for file in hub.downloads() if file.endswith((".bin", ".pkl", ".py"))]


def test_hub_down_and_up_again(start: Start, hub: Hub) -> None:
    """A hub that fails, or breaks off in a file, is model-unavailable; once it is well the same request is done."""
    server = start()
    hub.down = True
    body = {"model": "org/tiny", "text": "Down and up."}
    assert server.ended(server.submit(**body))["error"]["code"] == "model-unavailable"
    hub.down = False
    hub.broken = "tokenizer.json"  # the weights may be here by then; a model without its tokenizer is not
    assert server.ended(server.submit(**body))["error"]["code"] == "model-unavailable"
    hub.broken = None
    document = server.ended(server.submit(**body))
    assert document["status"] == "done", document["error"]


def test_hub_unreachable(new_server: Start) -> None:
    """Nobody listens there: model-unavailable, and local models go on."""
    server = new_server(hub="any", HF_ENDPOINT="http://127.0.0.1:9")
    assert server.ended(server.submit(model="org/tiny", text="Hello."))["error"]["code"] == "model-unavailable"
    assert server.analyse(model="bert", text="Local.")["status"] == "done"


@pytest.mark.parametrize(
    ("setting", "status", "code"), [("off", 404, "unknown-model"), ("catalog", 404, "unknown-model")]
)
def test_hub_ids_are_refused_where_not_allowed(start: Start, hub: Hub, setting: str, status: int, code: str) -> None:
    """Without HEADSCOPE_HUB=any a hub id is refused at once, in a sentence that names the setting; the hub is not asked."""
    answer = start(hub=setting).post({"model": "org/tiny", "text": "Hello."})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "HEADSCOPE_HUB" in answer.json()["detail"]
    assert not hub.asked


def test_catalogue_models_are_refused_with_the_hub_off(start: Start, hub: Hub) -> None:
    """A catalogue model that is not here is model-unavailable at once."""
    answer = start(hub="off").post({"model": "distilbert", "text": "Hello."})
    assert (answer.status_code, answer.json()["code"]) == (424, "model-unavailable")
    assert not hub.asked


def test_odd_hub_ids(start: Start, hub: Hub) -> None:
    """Names that the hub does not allow are refused, not a failure."""
    server = start()
    for name in (
        "org--x/name",
        "org/name.git",
        "org/na--me",
        "org/name-",
        "org/-name",
        "org/.",
        "a/b/c",
        "org/" + "a" * 97,
    ):
        answer = server.post({"model": name, "text": "Hello."})
        assert answer.status_code in (404, 422), (name, answer.text)
        assert server.get(f"/models/{name}").status_code in (404, 422), name
    assert not hub.asked


def test_the_library_fetches_too(hub: Hub, tmp_path: Path) -> None:
    """headscope.load takes a hub id, fetches safetensors only, and needs the hub once."""
    code = (
        "import headscope; print(headscope.analyze(headscope.load('org/mixed'), 'The cat sat.').maps['weights'].shape)"
    )
    command = [sys.executable, "-c", code]
    variables = environment(tmp_path / "home", HF_ENDPOINT=hub.url)
    first = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert first.stdout.strip() == "(2, 4, 6, 6)", first.stderr
    assert not hub.downloads() & {"pytorch_model.bin", "model.pkl", "evil.py", "README.md"}
    hub.down = True
    again = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120)
    assert again.stdout == first.stdout, again.stderr
