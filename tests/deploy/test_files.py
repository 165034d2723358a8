"""The files of the containers have the intended content, and linters accept them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import redis
import yaml

from tests.support.compose import PASSWORDS, ROOT, Stack, image, read
from tests.support.extent import mostly_long
from tests.support.variants import variants

FILE = read(**PASSWORDS)
SERVICES = FILE["services"]
COMPOSE = (ROOT / "docker-compose.yml").read_text("utf-8")
EXAMPLE = (ROOT / ".env.example").read_text("utf-8")


def test_services() -> None:
    assert set(SERVICES) == {"api", "worker", "gpu", "db", "broker", "cache"}
    assert [name for name, service in SERVICES.items() if "profiles" in service] == ["gpu"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_contained(name: str) -> None:
    """No root, no capabilities, only volumes and memory are writable; limited, restarted, with a health check."""
    service = SERVICES[name]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    assert service["restart"] == "unless-stopped"
    assert service["pids_limit"] > 0
    assert service["mem_limit"]
    assert service["healthcheck"]["retries"] >= 3
    assert service["logging"]["options"]["max-size"]
    # Compose 2 refuses limits in both places, even where only one of them has a value.
    assert "limits" not in service.get("deploy", {}).get("resources", {})


def test_only_the_service_is_reached_from_outside() -> None:
    for name in ("db", "broker", "cache"):
        assert SERVICES[name]["ports"] == []
        assert list(SERVICES[name]["networks"]) == ["back"]
    assert FILE["networks"]["back"]["internal"] is True
    assert [name for name, service in SERVICES.items() if service["ports"]] == ["api"]


def test_the_service_is_published_on_a_loopback_address_unless_told_otherwise() -> None:
    assert SERVICES["api"]["ports"] == ["127.0.0.1:8000:8000/tcp"]
    other = read(**PASSWORDS, ADDRESS="10.0.0.7", PORT="80")
    assert other["services"]["api"]["ports"] == ["10.0.0.7:80:8000/tcp"]


def test_a_worker_of_another_machine_finds_database_and_broker() -> None:
    away = {"DATABASE": "10.0.0.1:5432", "BROKER": "10.0.0.1:6379"}
    here, there = (read(**PASSWORDS, **more)["services"]["worker"]["environment"] for more in ({}, away))
    for setting, scheme, secret, name, path in (
        ("DATABASE_URL", "postgresql", "DATABASE", "db:5432", "headscope"),
        ("REDIS_URL", "redis", "BROKER", "broker:6379", "0"),
    ):
        user = f"{scheme}://headscope:{PASSWORDS[f'{secret}_PASSWORD']}"
        assert here[f"HEADSCOPE_{setting}"] == f"{user}@{name}/{path}"
        assert there[f"HEADSCOPE_{setting}"] == f"{user}@{away[secret]}/{path}"


@pytest.mark.parametrize("missing", mostly_long(PASSWORDS, next(iter(PASSWORDS))))
def test_nothing_starts_without_passwords(missing: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refused:
        read(**{**PASSWORDS, missing: ""})
    assert missing in refused.value.stderr
    assert "set it in .env" in refused.value.stderr


def test_prometheus_finds_servers_and_workers() -> None:
    """By their names on a network of the file, and at the port that the file sets for workers."""
    servers, workers = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    ((target,),) = [config["targets"] for config in servers["static_configs"]]
    (found,) = workers["dns_sd_configs"]
    assert target == f"api:{SERVICES['api']['ports'][0].split(':')[2].removesuffix('/tcp')}"
    serving = {name for name, service in SERVICES.items() if "HEADSCOPE_METRICS_ADDRESS" in service["environment"]}
    assert set(found["names"]) == serving == {"worker", "gpu"}
    assert {SERVICES[name]["environment"]["HEADSCOPE_METRICS_ADDRESS"] for name in serving} == {
        f"0.0.0.0:{found['port']}"
    }
    assert all("front" in SERVICES[name]["networks"] for name in ("api", *serving))


def test_no_secret_is_in_the_files() -> None:
    for name in ("PASSWORD", "SECRET", "KEY"):
        for line in re.findall(rf"^#?(\w*{name}\w*)=(.+)$", EXAMPLE, re.MULTILINE):
            pytest.fail(f".env.example has a value for {line[0]}")
    ignored = subprocess.run(["git", "check-ignore", ".env"], cwd=ROOT, capture_output=True, check=False)
    assert ignored.returncode == 0


def test_every_variable_on_offer_is_read() -> None:
    """.env.example has exactly the variables that docker-compose.yml reads."""
    offered = set(re.findall(r"^#?([A-Z_]+)=", EXAMPLE, re.MULTILINE))
    read_ = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE)) | {
        name for service in SERVICES.values() for name, value in service["environment"].items() if value is None
    }
    read_ |= set(re.findall(r"^    ((?:HEADSCOPE|AWS|OTEL)_\w+):$", COMPOSE, re.MULTILINE))
    assert offered == read_


def test_images_and_file_agree() -> None:
    """User, folder and command of the images match docker-compose.yml."""
    for name, dockerfile in (("api", "Dockerfile"), ("gpu", "Dockerfile.gpu")):
        built, service = image(dockerfile), SERVICES[name]
        assert built["user"] == service["user"]
        assert built["cmd"] == service["command"]
        assert f"home:{built['env']['HEADSCOPE_HOME']}:rw" in service["volumes"]
        assert built["env"]["HF_HOME"].startswith(built["env"]["HEADSCOPE_HOME"])


def test_both_images_hold_the_same_packages() -> None:
    """The stages that make the wheel and install it are the same in both."""

    def stages(name: str) -> list[str]:
        text = re.sub(r"^#.*\n", "", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE)
        return ["FROM " + stage.strip() for stage in re.split(r"^FROM ", text, flags=re.MULTILINE)[1:3]]

    assert stages("Dockerfile") == stages("Dockerfile.gpu")
    assert "RUN make wheel" in stages("Dockerfile")[0]


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="lists packages of Debian")
def test_an_image_lists_its_packages() -> None:
    """The script lists every installed package once, with a version and a package URL."""
    made = subprocess.run([sys.executable, "deploy/sbom.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    document = json.loads(made.stdout)
    assert document["metadata"]["component"]["purl"].startswith("pkg:pypi/headscope@")
    listed = [part["purl"] for part in document["components"]]
    assert len(set(listed)) == len(listed)
    assert any(purl.startswith("pkg:pypi/torch@") for purl in listed)
    for name in ("Dockerfile", "Dockerfile.gpu"):
        assert "python /sbom.py > /usr/share/headscope/sbom.cdx.json" in (ROOT / name).read_text("utf-8")


@pytest.mark.parametrize(
    "command",
    [
        ["hadolint", "--config", "deploy/hadolint.yaml", "Dockerfile", "Dockerfile.gpu"],
        ["shellcheck", "deploy/workers.sh", "deploy/redis/start.sh"],
    ],
    ids=lambda command: command[0],
)
def test_files_have_no_lint(command: list[str]) -> None:
    program, *arguments = command
    found = [Path(sys.executable).parent / program, *arguments]
    shown = subprocess.run(found, cwd=ROOT, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout


@pytest.mark.parametrize("script", ["deploy/workers.sh", "deploy/redis/start.sh"])
def test_scripts_can_be_started(script: str) -> None:
    assert (ROOT / script).stat().st_mode & 0o111


def test_the_context_of_the_build_is_small() -> None:
    """The context excludes everything that is not listed, so that no secret of a checkout gets into an image."""
    rules = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    assert rules[0] == "*"
    for rule in rules[1:]:
        if rule.startswith("!"):
            assert (ROOT / rule[1:]).exists()


@pytest.fixture(scope="module")
def redises(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """Broker and cache, started as in docker-compose.yml."""
    folder = tmp_path_factory.mktemp("redis")
    with Stack(folder, folder) as stack:
        for name in ("broker", "cache"):
            stack.redis(name).start()
            stack.wait(name)
        yield stack


def _client(stack: Stack, name: str, user: str = "headscope", password: str | None = None) -> redis.Redis:
    password = password or PASSWORDS[f"{name.upper()}_PASSWORD"]
    return redis.Redis(port=stack.ports[name], username=user, password=password, decode_responses=True, retry=None)


def test_the_broker_keeps_and_the_cache_evicts(redises: Stack) -> None:
    with _client(redises, "broker") as broker, _client(redises, "cache") as cache:
        assert broker.config_get("appendonly", "appendfsync", "maxmemory-policy") == {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        kept = cache.config_get("appendonly", "save", "maxmemory", "maxmemory-policy")
        assert kept == {"appendonly": "no", "save": "", "maxmemory": str(256 << 20), "maxmemory-policy": "allkeys-lru"}


@pytest.mark.parametrize("name", ["broker", "cache"])
def test_redis_asks_for_the_password(redises: Stack, name: str) -> None:
    with redis.Redis(port=redises.ports[name], retry=None) as anonymous, pytest.raises(redis.AuthenticationError):
        anonymous.ping()
    for user in ("default", "headscope"):
        with _client(redises, name, user, "wrong") as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
    password = PASSWORDS[f"{name.upper()}_PASSWORD"]
    written = [
        path for path in redises.folder.rglob("*") if path.is_file() and password in path.read_text(errors="replace")
    ]
    assert written == []


@variants(
    "command",
    [
        "FLUSHALL",
        "CONFIG SET maxmemory-policy allkeys-lru",
        "SHUTDOWN",
        "KEYS *",
        "ACL LIST",
        "SCRIPT FLUSH",
        "SCRIPT KILL",
        "FUNCTION FLUSH",
        "FUNCTION LOAD #!lua",
        "FCALL f 0",
    ],
)
def test_whoever_has_the_password_can_not_undo_the_settings(redises: Stack, command: str) -> None:
    with _client(redises, "broker") as broker, pytest.raises(redis.ResponseError, match="no permissions"):
        broker.execute_command(*command.split())


def test_a_health_check_fails_where_nothing_answers(redises: Stack, tmp_path: Path) -> None:
    with Stack(tmp_path, tmp_path) as other:
        for name in ("api", "worker", "db", "broker", "cache"):
            assert not other.healthy(name)
    assert redises.healthy("broker")
