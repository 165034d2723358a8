"""The command line: options, output and errors. A few commands run in their own process, as a user starts them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import headscope
from headscope.cli.main import COMMANDS, main
from headscope.server.accounts import MARKER, open_accounts
from headscope.settings import Settings
from tests.support.commands import run
from tests.support.extent import mostly_long
from tests.support.server import Server, environment
from tests.support.variants import variants


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory for the commands."""
    return tmp_path_factory.mktemp("cli") / "home"


def process(home: Path, *arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "headscope", *arguments],
        env=environment(home, **settings),
        capture_output=True,
        text=True,
        timeout=120,
    )


def refusal(ended: subprocess.CompletedProcess[str], code: str) -> str:
    """The single line on standard error of a failed command."""
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert ended.stderr.startswith("headscope: ")
    assert ended.stderr.endswith(f"[{code}]\n")
    return ended.stderr


@variants("arguments", [["--help"], ["-h"], *([command, "--help"] for command in COMMANDS)], ids=" ".join)
def test_help(home: Path, arguments: list[str]) -> None:
    """Every command has help; that of headscope lists all commands."""
    ended = run(home, *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Usage: headscope" in ended.stdout
    if len(arguments) == 1:
        assert all(command in ended.stdout for command in COMMANDS)


def test_summaries_of_commands() -> None:
    """The lines of `headscope --help`, which imports no command, are the commands' own."""
    context = click.Context(main)
    for name, (_, text) in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(limit=200).rstrip(".") == text.rstrip(".")


@pytest.mark.parametrize("command", mostly_long([[], ["analyze"], ["effect"], ["study"]], [], ["study"]), ids=" ".join)
def test_help_is_quick_to_load(home: Path, command: list[str]) -> None:
    """Help loads neither torch nor transformers."""
    command = [sys.executable, "-X", "importtime", "-m", "headscope", *command, "--help"]
    loaded = subprocess.run(command, env=environment(home), capture_output=True, text=True).stderr
    names = {line.rpartition("|")[2].strip() for line in loaded.splitlines()}
    assert "headscope.cli" in names
    assert not names & {"torch", "transformers"}


def test_version(home: Path) -> None:
    """The version, and nothing else needed."""
    assert headscope.__version__ in run(home, "--version").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        pytest.param(["analyze", "The cat sat.", "-m", "bert"], marks=pytest.mark.long),
        ["analyze", " "],
        ["models", "x"],
    ],
)
def test_in_a_process_of_its_own(home: Path, models: Path, arguments: list[str]) -> None:
    """As a user starts it: the same output and exit status, and nothing else on either stream."""
    shown = [
        (ended.returncode, re.sub(r"\d+ ms", "", ended.stdout), ended.stderr)
        for ended in (process(home, *arguments, models=models), run(home, *arguments, models=models))
    ]
    assert shown[0] == shown[1]


def test_analyze_prints_every_head(home: Path, models: Path) -> None:
    """One line per head, with a column per measure."""
    ended = run(home, "analyze", "The cat sat.", "-m", "bert", models=models)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("bert: 6 tokens, 2 layers × 4 heads")
    assert [line.split()[0] for line in lines[-8:]] == [f"{layer}.{head}" for layer in (0, 1) for head in range(4)]
    assert all(len(line.split()) == 3 for line in lines[-8:])


def test_analyze_as_json_and_to_a_file(home: Path, models: Path, tmp_path: Path) -> None:
    """A folder can be a model; --json prints one document; -o writes a complete file, with the id that the library computes."""
    out = tmp_path / "cat.safetensors"
    ended = run(home, "analyze", "-", "-m", str(models / "gpt2"), "--json", "-l", "weights", "-x", "entropy", "-o", str(out), models=models, text="The cat sat.")  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    opened = headscope.open(out)
    again = headscope.analyze(headscope.load(models / "gpt2"), "The cat sat.", lenses=["weights"], measures=["entropy"])
    assert document["id"] == opened.id == again.id
    assert (document["lenses"], list(document["measures"])) == (["weights"], ["entropy"])
    assert np.allclose(opened.maps["weights"], again.maps["weights"], atol=1e-6)
    assert [token.text for token in opened.tokens] == [token["text"] for token in document["tokens"]]


def test_head_scores_of_batteries(home: Path, models: Path) -> None:
    """As the library computes them, best heads first; and as JSON."""
    given = ["head-scores", "-m", str(models / "gpt2"), "--prompts", "2", "-b", "induction", "-b", "previous-token"]
    ended = run(home, *given, "--top", "2", models=models)
    assert ended.returncode == 0, ended.stderr
    found = headscope.head_scores(models / "gpt2", ["induction", "previous-token"], prompts=2)
    head, *lines = ended.stdout.splitlines()
    assert head.split() == ["battery", "head", "score", "control"]
    expected = [[name, *one[:1], *(f"{x:.3f}" for x in one[1:])] for name in found.scores for one in found.top(name, 2)]
    assert [line.split() for line in lines] == expected
    document = json.loads(run(home, *given, "--json", models=models).stdout)
    assert np.allclose(document["scores"]["induction"], found.scores["induction"], atol=1e-6)
    refusal(run(home, "head-scores", "-m", "minilm"), "unsupported")


def test_effect_prints_heads_and_what_they_sum_to(home: Path, models: Path) -> None:
    """Largest first, as the library computes them; by token, and without each head."""
    given = ["effect", "The cat sat.", "-m", str(models / "gpt2"), "--target", " cat", "--minus", " mat"]
    ended = run(home, *given, "--top", "3", "--method", "contribution:sources=true", models=models)
    assert ended.returncode == 0, ended.stderr
    target = (" cat", " mat")
    e = headscope.effect(headscope.load(models / "gpt2"), "The cat sat.", target=target)
    first, _, head, *lines = ended.stdout.splitlines()
    named = f"the target, ' cat' - ' mat' at token {len(e.tokens) - 1}, is {e.target.value:.3f} logits"
    assert first.endswith(f"contribution of every head; {named}")
    assert head.split() == ["head", "logits", "through"]
    assert [line.split()[0] for line in lines[:3]] == [name for name, _ in e.top(3)]
    assert lines[-1].split() == ["sum", f"{e.target.value:.3f}"]
    document = json.loads(run(home, *given, "--method", "ablation:how=zero", "--json", models=models).stdout)
    again = headscope.effect(models / "gpt2", "The cat sat.", target=target, method={"name": "ablation", "how": "zero"})
    assert np.allclose(document["effects"], again.effects, atol=1e-5)
    assert document["target"]["texts"] == list(target)
    patched = run(home, *given, "--method", "patching", "--against", "The cat sat,", "--json", models=models)
    assert json.loads(patched.stdout)["baseline"] != document["target"]["value"]
    _, _, head, first, *_ = run(home, *given, "--method", "gradient-attention", models=models).stdout.splitlines()
    assert head.split() == ["head", "logits", "through"]
    assert " → " in first
    *_, last = run(home, *given, "--method", "integrated-gradients:steps=2", models=models).stdout.splitlines()
    assert last.startswith("largest completeness error: ")
    assert last[:-1].endswith("logits, in layer ")
    _, _, head, first, *_ = run(home, *given, "--method", "contribution:writes=2", models=models).stdout.splitlines()
    assert head.split() == ["head", "logits", "raises", "lowers"]
    assert first.count("+") >= 2
    several = ["--method", '{"name": "ablation", "heads": ["0.1", "1.2"]}']
    lines = run(home, *given, *several, models=models).stdout.splitlines()
    assert any(line.startswith("0.1, 1.2 together: ") for line in lines)
    assert [line.split()[0] for line in lines if line.startswith(("0.", "1."))][:2] in (["0.1", "1.2"], ["1.2", "0.1"])
    together = json.loads(run(home, *given, *several, "--json", models=models).stdout)["together"]
    assert together["heads"] == ["0.1", "1.2"]
    assert len(together["after"]) == 10
    assert together["after"][0].keys() == {"id", "text", "logit", "probability"}
    cell = ["-m", str(models / "gpt2"), "--method", "score:head=1.3,query=-1,key=0"]
    lines = run(home, "effect", "The cat sat.", *cell, models=models).stdout.splitlines()
    terms = dict(line.split() for line in lines if line.startswith(("content", "score", "weight")))
    assert terms["content"] == terms["score"]
    assert lines[0].endswith(f"is {terms['score']} logits")
    refusal(run(home, "effect", "The cat sat.", "-m", "bert", models=models), "unsupported")


def test_effect_on_a_masked_token(home: Path) -> None:
    """A special token written in a text is read as text, so a token is masked by its number."""
    given = ["effect", "The cat sat.", "-m", "twin-bert-softmax", "--method", "ablation", "--json"]
    document = json.loads(run(home, *given, "--mask", "2").stdout)
    e = headscope.effect("twin-bert-softmax", "The cat sat.", mask=[2], method="ablation")
    assert document["target"]["position"] == 2
    assert np.allclose(document["effects"], e.effects, atol=1e-5)
    refusal(run(home, *given), "invalid-request")


def test_effect_reads_reference_texts(home: Path, models: Path, tmp_path: Path) -> None:
    """One per line, without blank lines, from a file of UTF-8."""
    file = tmp_path / "reference.txt"
    file.write_text("A dog.\n\nThe cat sat on the mat.\n")
    given = ["effect", "The cat sat.", "-m", str(models / "gpt2"), "--target", " cat", "--reference", str(file)]
    given += ["--method", "ablation:how=reference", "--json"]
    document = json.loads(run(home, *given, models=models).stdout)
    method, texts = {"name": "ablation", "how": "reference"}, ["A dog.", "The cat sat on the mat."]
    e = headscope.effect(models / "gpt2", "The cat sat.", target=" cat", method=method, reference=texts)
    assert np.allclose(document["effects"], e.effects, atol=1e-5)
    file.write_bytes(b"\xff")
    refusal(run(home, *given, models=models), "invalid-request")


def test_analyze_with_parameters(home: Path, models: Path) -> None:
    """Mechanism, lenses and measures with parameters, in every notation; measures of layers have their own table."""
    arguments = [
        "analyze",
        "The cat sat.",
        "-m",
        "bert",
        "--mechanism",
        "hopfield",
        "-p",
        "alpha=0.25",
        "-p",
        "initial=first",
    ]
    arguments += ["-l", "rollout:residual=0.25", "-l", '{"name": "max-entropy", "iterations": 7}']
    arguments += ["-x", "rank:of=output", "-x", "residual_ratio"]
    ended = run(home, *arguments, "--json", models=models)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["mechanism"] == {"name": "hopfield", "alpha": 0.25, "initial": "first"}
    lenses = [{"name": "rollout", "residual": 0.25}, {"name": "max-entropy", "iterations": 7}]
    asked = {
        "mechanism": document["mechanism"],
        "lenses": lenses,
        "measures": [{"name": "rank", "of": "output"}, "residual_ratio"],
    }
    again = headscope.analyze(models / "bert", "The cat sat.", **asked, maps=False)
    assert document["id"] == again.id
    lines = run(home, *arguments, models=models).stdout.splitlines()
    assert any(line.split()[:1] == ["layer"] and "residual_ratio" in line for line in lines)
    assert any(line.split()[:1] == ["head"] and "rank" in line for line in lines)
    ended = run(home, "analyze", "a", "-m", "bert", "--mechanism", "hopfield", "-p", "alpha=7", models=models)
    assert "alpha" in refusal(ended, "invalid-request")


def test_analyze_images_pairs_and_continuations(home: Path, models: Path, tmp_path: Path) -> None:
    """An image by its path, a text pair, a text that the model continues, and words."""
    from PIL import Image

    Image.new("RGB", (40, 40), (200, 30, 60)).save(tmp_path / "red.png")
    ended = run(home, "analyze", "--image", str(tmp_path / "red.png"), "-m", "vit", models=models)
    assert ended.stdout.startswith("vit: 17 tokens"), ended.stderr
    ended = run(
        home,
        "analyze",
        "A cat sat.",
        "--pair",
        "A dog.",
        "--kind",
        "cross",
        "-m",
        "t5",
        "--json",
        "--words",
        models=models,
    )
    document = json.loads(ended.stdout)
    assert (document["kind"], document["words"]["keys"][:2]) == ("cross", ["A", "cat"])
    assert np.array(document["maps"]["weights"]).shape[2:] == tuple(
        len(document["words"][side]) for side in ("queries", "keys")
    )
    ended = run(home, "analyze", "The cat", "--generate", "3", "-m", "gpt2", "--words", models=models)
    assert "→" in ended.stdout.splitlines()[-1], ended.stderr
    assert run(home, "analyze", "-m", "bert", models=models).returncode == 2


@pytest.mark.parametrize("what", ["mechanisms", "lenses", "measures"])
def test_lists_of_methods(home: Path, what: str) -> None:
    """Every method with its parameters, as text and as JSON."""
    known = getattr(headscope, what.upper())
    items = json.loads(run(home, what, "--json").stdout)
    assert [item["name"] for item in items] == list(known)
    text = run(home, what).stdout
    assert all(name in text for name in known)


def test_models(home: Path, models: Path) -> None:
    """The available models, as a table and as JSON."""
    cards = json.loads(run(home, "models", "--json", models=models).stdout)
    assert {"minilm", "bert", "gpt2"} <= {card["name"] for card in cards}
    table = run(home, "models", models=models).stdout.splitlines()
    assert table[0].split() == ["model", "layers", "heads", "kind", "state"]
    assert [line.split()[0] for line in table[1:]] == [card["name"] for card in cards]
    (twin,) = [line for line in table if line.startswith("twin-bert-hopfield ")]
    assert "attends by hopfield; beside twin-bert-softmax" in twin


def test_analyze_with_a_model_that_has_a_mechanism(home: Path, models: Path) -> None:
    """Without --mechanism, the model's own mechanism is used, and -p changes its parameters."""
    arguments = ["analyze", "The cat sat.", "-m", "twin-bert-hopfield", "--json"]
    for given, alpha in (([], 0.5), (["-p", "alpha=0.25"], 0.25)):
        ended = run(home, *arguments, *given, models=models)
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout)["mechanism"] == {"name": "hopfield", "alpha": alpha, "initial": "zero"}


def test_doctor(home: Path) -> None:
    """Every check has a message; all pass here, except for the page, which may not be built."""
    checks = json.loads(run(home, "doctor", "--json", quota_bytes="1000000").stdout)
    assert {check["name"]: check["ok"] for check in checks if check["name"] != "page"} == {
        "versions": True, "kernels": True, "home": True, "default model": True,
    }  # fmt: skip
    assert all(check["message"] for check in checks)


def test_doctor_finds_a_home_that_can_not_be_written(tmp_path: Path) -> None:
    """A data directory that is a file is reported in one line, with exit status 1."""
    home = tmp_path / "home"
    home.write_text("")
    ended = run(home, "doctor")
    assert ended.returncode == 1
    assert "BAD  home:" in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "::", "example.org", ""])
def test_nothing_is_open_to_others_without_users(home: Path, host: str) -> None:
    """Without users, an address that other machines can reach is rejected before the server listens."""
    assert "headscope token create" in refusal(run(home, "serve", "--host", host, "--no-open"), "internal")


def test_open_to_others_with_users(tmp_path: Path, models: Path) -> None:
    """With users it listens there, accepts the configured host names, and requires tokens even after the mark that closes a server is removed."""
    home = tmp_path / "home"
    with open_accounts(Settings(home=home)) as accounts:
        token = accounts.create("ada")
    with Server(home, models, host="0.0.0.0", token=token, allowed_hosts=["lab.example"]) as server:
        for name, status in (("lab.example", 200), ("other.example", 421), ("0.0.0.0", 421)):
            assert server.get("/lenses", headers={"Host": name}).status_code == status
        server.revoke_user("ada")
        (home / MARKER).unlink()
        assert server.get("/lenses").status_code == 401


def test_port_in_use(home: Path, server: Server) -> None:
    """A port that is in use is reported in one line."""
    port = server.url.split(":")[1]
    assert port in refusal(run(home, "serve", "--port", port, "--no-open"), "internal")


@pytest.mark.parametrize("command", [["serve", "--no-open"], ["models"], ["doctor"], ["analyze", "Cat.", "-m", "bert"]])
def test_setting_that_is_not_valid(home: Path, command: list[str]) -> None:
    """An invalid value is reported in one line, by every command that reads settings."""
    for name, value in {
        "quota_bytes": "much",
        "model_dirs": "not/json",
        "hub": "maybe",
        "redis_url": "some-host",
        "database_url": "mysql://some-host",
        "allowed_hosts": '["some-host:8000"]',
        "dataset_seconds": "inf",
    }.items():
        if name == "hub" and command[0] == "analyze":
            continue  # it decides that for itself
        told = refusal(run(home, *command, **{name: value}), "invalid-setting")
        assert f"HEADSCOPE_{name.upper()}" in told
        assert value not in told


def test_worker_needs_a_cluster(home: Path) -> None:
    """A database and a Redis that are not set, or not reachable, are reported in one line."""
    assert "HEADSCOPE_REDIS_URL" in refusal(run(home, "worker"), "internal")
    refusal(run(home, "worker", redis_url=NOWHERE["redis_url"]), "invalid-setting")
    refusal(run(home, "worker", **NOWHERE), "database-unavailable")


@variants(
    "arguments",
    [
        "nonsense",
        "serve --port x",
        "analyze",
        "analyze a -l nonsense",
        "analyze a -p alpha",
        "analyze a -l {",
        'analyze a -l {"name":["x"]}',
        "effect",
        "effect a --minus b",
        "effect a --method nonsense",
        "models x",
    ],
)
def test_wrong_usage(home: Path, arguments: str) -> None:
    """Usage errors have exit status 2 and a hint."""
    ended = run(home, *arguments.split())
    assert ended.returncode == 2
    assert "Usage:" in ended.stderr


def test_tokens(home: Path) -> None:
    """Only the token is on standard output, once; lists show names; errors are one line."""
    made = run(home, "token", "create", "ada")
    assert (made.returncode, len(made.stdout.split())) == (0, 1)
    assert len(made.stdout.strip()) == 43
    assert "ada" in made.stderr
    again = run(home, "token", "create", "ada")
    assert "user of that name" in refusal(again, "invalid-request")
    assert json.loads(run(home, "token", "list", "--json").stdout)[0]["name"] == "ada"
    listed = run(home, "token", "list").stdout
    assert listed.startswith("ada ")
    assert made.stdout.strip() not in listed
    assert run(home, "token", "revoke", "ada").returncode == 0
    assert "no user" in refusal(run(home, "token", "revoke", "ada"), "unknown-user")
    assert run(home, "token", "list").stdout == ""


SERVE, WORKER = ("serve", "--port", "0", "--no-open"), ("worker", "--device", "cpu")
NOWHERE = {"redis_url": "redis://127.0.0.1:1/0", "database_url": "postgresql://127.0.0.1:1/headscope"}
# What keeps a command from starting; folders are refused to every user, root too.
REFUSED = {
    "below-a-file": (SERVE, {"home": "/dev/null/home"}, "invalid-setting"),
    "worker-not-writable": (WORKER, {"home": "/proc", **NOWHERE}, "invalid-setting"),
    "store-not-writable": (SERVE, {"store_url": "/proc", **NOWHERE}, "invalid-setting"),
    "token-not-writable": (("token", "create", "ada"), {"home": "/proc"}, "invalid-setting"),
    "address-of-broker": (("doctor",), {"redis_url": "redis://127.0.0.1:port/0"}, "invalid-setting"),
    "address-of-database": (("doctor",), {"database_url": "postgresql://127.0.0.1:port/x"}, "invalid-setting"),
    "model-folder": (("models",), {"model_dirs": ["m" * 5000]}, "invalid-setting"),
    "no-such-gpu": (WORKER[:1], {"device": "cuda:99", **NOWHERE}, "invalid-setting"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_to_start(tmp_path: Path, case: str) -> None:
    """One line that names the setting, and no stack trace."""
    arguments, settings, code = REFUSED[case]
    others = {name: value for name, value in settings.items() if name != "home"}
    told = refusal(run(Path(settings.get("home", tmp_path)), *arguments, **others), code)
    assert code != "invalid-setting" or f"HEADSCOPE_{next(iter(settings)).upper()}" in told


def test_refuses_to_start_on_a_full_disk(tmp_path: Path) -> None:
    full = subprocess.run(
        ["prlimit", "--fsize=0", sys.executable, "-m", "headscope", *SERVE],
        env=environment(tmp_path / "home"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "is full" in refusal(full, "storage-full")
