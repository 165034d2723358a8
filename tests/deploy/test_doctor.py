"""headscope doctor with misconfigured Redis servers, stores and files: it reports what to change."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

import fsspec
import psycopg
import pytest

from headscope import stores
from headscope.database import Database, schema
from headscope.errors import InvalidSetting
from headscope.jobs import JobDatabase, Worker
from headscope.models.device import NO_DEVICE
from headscope.server import doctor
from headscope.server.accounts import open_accounts
from headscope.settings import Settings
from tests.support.commands import run
from tests.support.compose import ROOT, Stack, database_server
from tests.support.compose import redis_server as new_redis
from tests.support.extent import mostly_long
from tests.support.postgres import Postgres
from tests.support.stores import object_store

UNREACHABLE = "unix:///nowhere/redis.sock"


@pytest.fixture
def redis_server() -> Iterator[Callable[..., str]]:
    """Start a broker or a cache with further options, and return its address."""
    with ExitStack() as stack:
        yield lambda *options, service="broker": stack.enter_context(new_redis(*options, service=service)).url


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL without tables."""
    with database_server() as running:
        yield running


@contextmanager
def users_of_broker(folder: Path, *users: str, policy: str = "noeviction") -> Iterator[str]:
    """Start a broker with other users than start.sh writes, and yield its address."""
    folder.mkdir(exist_ok=True)
    script = folder / "start.sh"
    lines = "".join(f"user {user}\n" for user in users)
    ours = (ROOT / "deploy" / "redis" / "start.sh").read_text("utf-8")
    script.write_text(re.sub(r"(<<EOF\n).*(EOF\n)", rf"\1{lines}\2", ours, flags=re.DOTALL))
    with Stack(folder) as stack:
        broker = stack.redis("broker")
        broker.command = [str(script) if word.endswith("start.sh") else word for word in broker.command]
        yield broker.start("--maxmemory-policy", policy).url


def found(home: Path, **settings: str) -> dict[str, tuple[bool, str]]:
    """Return the findings for these settings, by name."""
    return {one.name: (one.ok, one.message) for one in doctor.check_services(Settings(home=home, **settings))}


def test_nothing_is_looked_for_that_is_not_set(tmp_path: Path) -> None:
    assert found(tmp_path) == {}


def test_what_is_right_is_found_right(tmp_path: Path, redis_server: Callable[..., str], postgres: Postgres) -> None:
    broker, cache, store = redis_server(), redis_server(service="cache"), tmp_path / "store"
    store.mkdir()
    url = postgres.create()
    facts = Database(url)
    schema.prepare(facts)
    database = JobDatabase(facts)
    database.heartbeat(Worker("here"), [])
    database.heartbeat(Worker("there", "cuda:1"), [])
    database.close()
    all_ = found(tmp_path, database_url=url, redis_url=broker, cache_url=cache, store_url=str(store))
    assert list(all_) == [
        "database",
        "workers",
        "broker",
        "clock",
        "cache",
        "broker and cache",
        "store",
    ]
    assert [name for name, (ok, _) in all_.items() if not ok] == []
    assert all_["workers"][1] == "1 on cpu, 1 on cuda:1"
    assert list(store.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--maxmemory-policy", "allkeys-lru"), "Set maxmemory-policy noeviction"),
        (("--maxmemory-policy", "volatile-ttl"), "Set maxmemory-policy noeviction"),
        (("--maxmemory", "1mb"), "Raise maxmemory"),
    ],
)
def test_a_broker_that_may_lose_messages(
    tmp_path: Path, redis_server: Callable[..., str], options: tuple[str, ...], said: str
) -> None:
    ok, message = found(tmp_path, redis_url=redis_server(*options))["broker"]
    assert not ok
    assert said in message
    assert message.count(". ") == 1, "one fault, one sentence about it and one that says what to do"


def test_an_evicting_broker_is_refused(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    evicting = Settings(home=tmp_path, redis_url=redis_server("--maxmemory-policy", "allkeys-lru"))
    with pytest.raises(InvalidSetting, match="Set maxmemory-policy noeviction"):
        doctor.refuse_evicting_broker(evicting)
    for url in (redis_server(), UNREACHABLE, None):
        doctor.refuse_evicting_broker(Settings(home=tmp_path, redis_url=url))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--maxmemory", "0"), "Set maxmemory in"),
        (("--maxmemory-policy", "noeviction"), "Set maxmemory-policy allkeys-lru"),
        (("--maxmemory-policy", "volatile-lru"), "Set maxmemory-policy allkeys-lru"),
    ],
)
def test_a_cache_that_does_not_make_room(
    tmp_path: Path, redis_server: Callable[..., str], options: tuple[str, ...], said: str
) -> None:
    ok, message = found(tmp_path, cache_url=redis_server(*options, service="cache"))["cache"]
    assert not ok
    assert said in message


def test_broker_and_cache_are_not_one(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    broker = redis_server()
    ok, message = found(tmp_path, redis_url=broker, cache_url=f"{broker}?db=1")["broker and cache"]
    assert not ok
    assert "Start a second Redis" in message


def test_redis_is_away(tmp_path: Path) -> None:
    all_ = found(tmp_path, redis_url=UNREACHABLE, cache_url="redis://127.0.0.1:1")
    assert {name: all_[name] for name in ("broker", "cache")} == {
        "broker": (False, "The broker cannot be reached. Start it, or correct HEADSCOPE_REDIS_URL."),
        "cache": (False, "The cache cannot be reached. Start it, or correct HEADSCOPE_CACHE_URL."),
    }


def test_redis_refuses_the_password_and_it_is_not_shown(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    right = urlsplit(redis_server())
    assert found(tmp_path, redis_url=right.geturl())["broker"][0]
    for who in ("", "headscope:wrong7@", f"stranger:{right.password}@"):
        told = found(tmp_path, redis_url=f"redis://{who}127.0.0.1:{right.port}/0")["broker"]
        assert told == (False, "The broker rejects the user or the password. Correct them in HEADSCOPE_REDIS_URL.")


def test_a_redis_that_keeps_its_settings_to_itself(tmp_path: Path) -> None:
    """Hosted brokers reject CONFIG; the rest of what they report has to be enough."""
    rights = "headscope on #$digest ~* &* +@all -@dangerous +info"
    for policy, fine in (("noeviction", True), ("allkeys-lru", False)):
        with users_of_broker(tmp_path / policy, "default off", rights, policy=policy) as url:
            assert found(tmp_path, redis_url=url)["broker"][0] is fine


def test_a_database_that_may_lose_jobs(tmp_path: Path, postgres: Postgres) -> None:
    """Settings with which a crash loses what was confirmed, and tables that are missing or of another version."""
    url = postgres.create()
    settings = {"database_url": url, "redis_url": UNREACHABLE}
    assert found(tmp_path, **settings)["database"] == (
        False,
        "The database has no tables yet. Start a server: it creates them.",
    )
    facts = Database(url)
    schema.prepare(facts)
    facts.close()
    ok, message = found(tmp_path, **settings)["database"]
    assert (ok, message.split()[0]) == (True, "PostgreSQL")
    ok, message = found(tmp_path, **settings)["workers"]
    assert (ok, message.endswith("Start one: headscope worker")) == (False, True)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = off")
        assert "Set synchronous_commit = on" in found(tmp_path, **settings)["database"][1]
        connection.execute(f"ALTER DATABASE {url.rpartition('/')[2]} RESET ALL")
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
    assert "headscope database upgrade" in found(tmp_path, **settings)["database"][1]


def test_a_cluster_needs_both(tmp_path: Path) -> None:
    """Without one of the two addresses nothing starts."""
    for settings in ({"redis_url": UNREACHABLE}, {"database_url": "postgresql://127.0.0.1:1/headscope"}):
        with pytest.raises(InvalidSetting, match="Set both HEADSCOPE_DATABASE_URL and HEADSCOPE_REDIS_URL"):
            stores.open_database(Settings(home=tmp_path, **settings))


def test_a_store_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url in (str(tmp_path / "file" / "below"), "nosuchstore://bucket"):
        ok, message = found(tmp_path, store_url=url)["store"]
        assert not ok
        assert "HEADSCOPE_STORE_URL" in message


def test_an_object_store(tmp_path: Path) -> None:
    """An existing bucket is written to and left unchanged; a missing one is reported."""
    with object_store(tmp_path):
        fsspec.filesystem("s3").mkdir("there")
        assert found(tmp_path, store_url="s3://there/prefix")["store"] == (True, "readable and writable")
        assert fsspec.filesystem("s3").find("there") == []
        ok, message = found(tmp_path, store_url="s3://nowhere/prefix")["store"]
        assert not ok
        assert "HEADSCOPE_STORE_URL" in message


def test_a_database_that_others_can_read(tmp_path: Path) -> None:
    with open_accounts(Settings(home=tmp_path)) as accounts:
        accounts.create("ada")
    assert found(tmp_path)["database file"] == (True, "readable by its owner only")
    (tmp_path / stores.FILE).chmod(0o644)
    ok, message = found(tmp_path)["database file"]
    assert not ok
    assert message.endswith(f"chmod 600 {tmp_path / stores.FILE}*")


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    """The embedded server does not start, since every analysis would fail."""
    ok, message = next(
        (one.ok, one.message) for one in doctor.check_services(Settings(home=tmp_path, device="cuda:99"))
    )
    assert (ok, message) == (False, NO_DEVICE.format(device="cuda:99"))
    command = [sys.executable, "-m", "headscope", "serve", "--no-open", "--port", "0"]
    environment = {**os.environ, "HEADSCOPE_HOME": str(tmp_path), "HEADSCOPE_DEVICE": "cuda:99"}
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (shown.returncode, shown.stderr) == (1, f"headscope: {message} [invalid-setting]\n")


@pytest.mark.parametrize(
    "command",
    mostly_long([["serve", "--no-open", "--port", "0"], ["worker", "--device", "cpu"]], ["worker", "--device", "cpu"]),
)
def test_nothing_starts_with_an_evicting_broker(
    tmp_path: Path, redis_server: Callable[..., str], command: list[str]
) -> None:
    url = redis_server("--maxmemory-policy", "allkeys-lru")
    environment = {
        **os.environ,
        "HEADSCOPE_HOME": str(tmp_path),
        "HEADSCOPE_DATABASE_URL": "postgresql://127.0.0.1:1/x",
        "HEADSCOPE_REDIS_URL": url,
    }
    shown = subprocess.run(
        [sys.executable, "-m", "headscope", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (shown.returncode, shown.stderr) == (1, f"headscope: {doctor.EVICTS} [invalid-setting]\n")


def test_the_command_says_it_and_fails(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HEADSCOPE_HOME": str(tmp_path),
        "HEADSCOPE_DATABASE_URL": "postgresql://127.0.0.1:1/headscope",
        "HEADSCOPE_REDIS_URL": UNREACHABLE,
        "HEADSCOPE_QUOTA_BYTES": "1000000",
    }
    command = [sys.executable, "-m", "headscope", "doctor"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert "BAD  broker: The broker cannot be reached." in shown.stdout
    assert "BAD  database: The server cannot reach its database." in shown.stdout


def test_it_needs_no_packages_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> str:
        if name in ("celery", "kombu", "redis"):
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("headscope.cli.doctor.version", find)
    versions = json.loads(run(tmp_path / "home", "doctor", "--json").stdout)[0]
    assert versions["ok"]
    assert "torch" in versions["message"]
    assert "celery" not in versions["message"]
