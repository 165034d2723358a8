"""Models from a hub: fetched when that is allowed, refused clearly when it is not, and never a file that could run code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.hub import Hub
from tests.support.models import tiny_model
from tests.support.server import Server, environment
from tests.support.studies import asked, done, ended, submit

# Files beside the weights that nobody may fetch.
UNWANTED = ("pytorch_model.bin", "model.pkl", "evil.py", "README.md")


@pytest.fixture(scope="module")
def module_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub with a good model, one that has pickles and code beside it, one with pickles only, and one that wants code."""
    top = tmp_path_factory.mktemp("hub")
    good = tiny_model(top / "org" / "tiny")
    for name in ("mixed", "pickled", "coded", "large", "late"):
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
    """The hub, which has been asked nothing yet."""
    module_hub.asked.clear()
    return module_hub


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory, module_hub: Hub, models: Path) -> Iterator[Server]:
    """A server that may fetch any model from the hub."""
    home = tmp_path_factory.mktemp("open") / "home"
    with Server(home, models, hub="any", HF_ENDPOINT=module_hub.url) as server:
        yield server


def test_fetched_once_and_analysed(open_server: Server, hub: Hub) -> None:
    """The first request fetches the model, all of a batch are done, later ones ask the hub nothing; pickles and code stay there."""
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
    """While the model is fetched, its progress is loading, with the bytes that have come and the bytes that there are."""
    hub.held = "model.safetensors"
    try:
        id_ = open_server.submit(model="org/large", text="How much?")
        detail = r"org/large, \d+ MB of \d+ MB fetched"
        event = open_server.until(id_, lambda event: re.fullmatch(detail, event["progress"]["detail"]) is not None)
        assert (event["status"], event["progress"]["stage"], event["progress"]["fraction"]) == ("running", "loading", 0)
    finally:
        hub.released.set()
    assert open_server.ended(id_)["status"] == "done"


def test_what_is_not_safe_or_not_there(open_server: Server, hub: Hub) -> None:
    """A hub model is checked like any other; one that does not exist is unavailable."""
    for name, code in (("pickled", "unsafe-weights"), ("coded", "unsafe-model"), ("absent", "model-unavailable")):
        error = open_server.ended(open_server.submit(model=f"org/{name}", text="Hello."))["error"]
        assert error["code"] == code, (name, error["detail"])
    assert not [file for file in hub.downloads() if file.endswith((".bin", ".pkl", ".py"))]


def test_hub_down_and_up_again(open_server: Server, hub: Hub) -> None:
    """Nobody listens, an answer 503, a file cut off: model-unavailable each time, and the same request is done once all is well."""
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
    hub.broken = "tokenizer.json"  # the weights may be here by then; a model without its tokenizer is not
    assert outcome() == "model-unavailable"
    hub.broken = None
    assert outcome() == "done"


def test_a_study_waits_once_for_a_hub_that_is_down(open_server: Server, hub: Hub) -> None:
    """Its first chunk does, whatever their number, and the study fails with that reason; sent again, it is done once all is well."""
    body = asked(600, model="org/late", measures=["entropy"])
    before, hub.down = open_server.settled("model_loads_total"), True
    document = ended(open_server, submit(open_server, body))
    hub.down = False
    assert document["error"]["code"] == "model-unavailable"
    assert open_server.settled("model_loads_total") == before + 1
    assert done(open_server, body)["inputs"] == 600


@pytest.mark.parametrize(
    ("setting", "model", "status", "code"),
    [
        ("off", "org/tiny", 404, "unknown-model"),
        ("catalog", "org/tiny", 404, "unknown-model"),
        ("off", "distilbert", 424, "model-unavailable"),
    ],
)
def test_refused_where_not_allowed(
    new_server: Callable[..., Server], hub: Hub, setting: str, model: str, status: int, code: str
) -> None:
    """What may not be fetched is refused at once, in a sentence that names the setting; the hub is not asked."""
    server = new_server(hub=setting, HF_ENDPOINT=hub.url)
    answer = server.post({"model": model, "text": "Hello."})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "HEADSCOPE_HUB" in answer.json()["detail"]
    assert not hub.asked


ODD = ["org--x/name", "org/name.git", "org/na--me", "org/name-", "org/-name", "org/.", "a/b/c", "org/" + "a" * 97]


@pytest.mark.parametrize("name", ODD)
def test_odd_hub_ids(open_server: Server, hub: Hub, name: str) -> None:
    """Names that the hub does not allow are refused, not a failure; the hub is not asked."""
    answer = open_server.post({"model": name, "text": "Hello."})
    assert answer.status_code in (404, 422)
    assert open_server.get(f"/models/{name}").status_code in (404, 422)
    assert not hub.asked


def test_the_library_fetches_too(hub: Hub, tmp_path: Path) -> None:
    """headscope.load takes a hub id and fetches safetensors only."""
    code = (
        "import headscope; print(headscope.analyze(headscope.load('org/mixed'), 'The cat sat.').maps['weights'].shape)"
    )
    variables = environment(tmp_path / "home", HF_ENDPOINT=hub.url)
    ended = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "(2, 4, 6, 6)", ended.stderr
    assert hub.downloads()
    assert not hub.downloads() & set(UNWANTED)
