"""headscope doctor looks at real Redis servers, stores and files that are set up wrongly, and says what to change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import pytest
import redis

from headscope import outside
from headscope.accounts import FILE, Accounts
from headscope.errors import InvalidSetting
from headscope.jobs import Claimant
from headscope.jobs.redis import RedisRecord
from headscope.settings import Settings
from tests.broker import Broker
from tests.stores import object_store

FORGETFUL = ("--appendonly", "no", "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")
NOBODY = "unix:///nowhere/redis.sock"


@pytest.fixture
def redis_server() -> Iterator[Callable[..., str]]:
    """Starts a redis-server with options of its own; its address."""
    folder, started = Path(tempfile.mkdtemp(prefix="headscope-")), []  # the path of a socket is short

    def start(*options: str) -> str:
        started.append(Broker(folder / str(len(started)), *options).start())
        return started[-1].url

    yield start
    for broker in started:
        broker.kill()
    shutil.rmtree(folder)


def found(home: Path, **settings: str) -> dict[str, tuple[bool, str]]:
    """What is found around a server with these settings, by name."""
    return {one.name: (one.ok, one.message) for one in outside.findings(Settings(home=home, **settings))}


def test_nothing_is_looked_for_that_is_not_set(tmp_path: Path) -> None:
    assert found(tmp_path) == {}


def test_what_is_right_is_found_right(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    broker, cache, store = redis_server(), redis_server(*FORGETFUL), tmp_path / "store"
    store.mkdir()
    Accounts(tmp_path / FILE).create("ada")
    record = RedisRecord(broker)
    record.beat(Claimant("here"), [])
    record.beat(Claimant("there", "cuda:1"), [])
    record.close()
    all_ = found(tmp_path, redis_url=broker, cache_url=cache, store_url=str(store))
    assert list(all_) == ["access tokens", "broker", "clock", "workers", "cache", "broker and cache", "store"]
    assert [name for name, (ok, _) in all_.items() if not ok] == []
    assert all_["workers"][1] == "1 on cpu, 1 on cuda:1"
    assert list(store.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--maxmemory-policy", "allkeys-lru"), "Set maxmemory-policy noeviction"),
        (("--maxmemory-policy", "volatile-ttl"), "Set maxmemory-policy noeviction"),
        (("--appendonly", "no"), "Set appendonly yes"),
        (("--appendfsync", "everysec"), "Set appendfsync always"),
        (("--maxmemory", "1mb"), "Raise maxmemory"),
    ],
)
def test_a_broker_that_may_lose_jobs(
    tmp_path: Path, redis_server: Callable[..., str], options: tuple[str, ...], said: str
) -> None:
    ok, message = found(tmp_path, redis_url=redis_server(*options))["broker"]
    assert not ok
    assert said in message
    assert message.count(". ") == 1, "one fault, one sentence about it and one that says what to do"


def test_an_evicting_broker_is_refused(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    evicting = Settings(home=tmp_path, redis_url=redis_server("--maxmemory-policy", "allkeys-lru"))
    with pytest.raises(InvalidSetting, match="Set maxmemory-policy noeviction"):
        outside.refuse_evicting_broker(evicting)
    for url in (redis_server(), NOBODY, None):
        outside.refuse_evicting_broker(Settings(home=tmp_path, redis_url=url))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*FORGETFUL, "--maxmemory", "0"), "Set maxmemory in"),
        ((*FORGETFUL, "--maxmemory-policy", "noeviction"), "Set maxmemory-policy allkeys-lru"),
        ((*FORGETFUL, "--maxmemory-policy", "volatile-lru"), "Set maxmemory-policy allkeys-lru"),
    ],
)
def test_a_cache_that_does_not_make_room(
    tmp_path: Path, redis_server: Callable[..., str], options: tuple[str, ...], said: str
) -> None:
    ok, message = found(tmp_path, cache_url=redis_server(*options))["cache"]
    assert not ok
    assert said in message


def test_broker_and_cache_are_not_one(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    broker = redis_server()
    ok, message = found(tmp_path, redis_url=broker, cache_url=f"{broker}?db=1")["broker and cache"]
    assert not ok
    assert "Start a second Redis" in message


def test_redis_is_away(tmp_path: Path) -> None:
    all_ = found(tmp_path, redis_url=NOBODY, cache_url="redis://127.0.0.1:1")
    assert all_ == {
        "broker": (False, "The broker can't be reached. Start it, or correct HEADSCOPE_REDIS_URL."),
        "cache": (False, "The cache can't be reached. Start it, or correct HEADSCOPE_CACHE_URL."),
    }


def test_redis_refuses_the_password_and_it_is_not_shown(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    url = redis_server()
    with redis.Redis.from_url(url) as client:
        client.config_set("requirepass", "right")
    for wrong in (url, f"{url}?password=wrong7"):
        ok, message = found(tmp_path, redis_url=wrong)["broker"]
        assert (ok, message) == (
            False,
            "The broker refuses the user or the password. Correct them in HEADSCOPE_REDIS_URL.",
        )
    assert found(tmp_path, redis_url=f"{url}?password=right")["broker"][0]


def test_a_redis_that_keeps_its_settings_to_itself(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    """As hosted ones do: what it says anyhow is enough to see that it evicts."""
    for policy, fine in (("noeviction", True), ("allkeys-lru", False)):
        url = redis_server("--maxmemory-policy", policy)
        with redis.Redis.from_url(url) as client:
            client.acl_setuser(
                "lab",
                enabled=True,
                passwords=["+x"],
                keys=["*"],
                channels=["*"],
                categories=["+@all", "-@dangerous"],
                commands=["+info"],
            )
        assert found(tmp_path, redis_url=f"{url}?username=lab&password=x")["broker"][0] is fine


def test_nobody_works(tmp_path: Path, redis_server: Callable[..., str]) -> None:
    ok, message = found(tmp_path, redis_url=redis_server())["workers"]
    assert not ok
    assert message.endswith("Start one: headscope worker")


def test_a_store_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for url in (str(tmp_path / "file" / "below"), "nosuchstore://bucket"):
        ok, message = found(tmp_path, store_url=url)["store"]
        assert not ok
        assert "HEADSCOPE_STORE_URL" in message


def test_an_object_store(tmp_path: Path) -> None:
    """A bucket that is there is written to and left as it was; one that is not is a problem, in words of our own."""
    with object_store(tmp_path):
        fsspec.filesystem("s3").mkdir("there")
        assert found(tmp_path, store_url="s3://there/prefix")["store"] == (True, "can be written and read")
        assert fsspec.filesystem("s3").find("there") == []
        ok, message = found(tmp_path, store_url="s3://nowhere/prefix")["store"]
        assert not ok
        assert "HEADSCOPE_STORE_URL" in message


def test_tokens_that_others_can_read(tmp_path: Path) -> None:
    Accounts(tmp_path / FILE).create("ada")
    (tmp_path / FILE).chmod(0o644)
    ok, message = found(tmp_path)["access tokens"]
    assert not ok
    assert message.endswith(f"chmod 600 {tmp_path / FILE}")


@pytest.mark.parametrize("command", [["serve", "--no-open", "--port", "0"], ["worker", "--device", "cpu"]])
def test_nothing_starts_with_an_evicting_broker(
    tmp_path: Path, redis_server: Callable[..., str], command: list[str]
) -> None:
    url = redis_server("--maxmemory-policy", "allkeys-lru")
    environment = {**os.environ, "HEADSCOPE_HOME": str(tmp_path), "HEADSCOPE_REDIS_URL": url}
    shown = subprocess.run(
        [sys.executable, "-m", "headscope", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (shown.returncode, shown.stderr) == (1, f"headscope: {outside.EVICTS} [invalid-setting]\n")


def test_the_command_says_it_and_fails(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "HEADSCOPE_HOME": str(tmp_path),
        "HEADSCOPE_REDIS_URL": NOBODY,
        "HEADSCOPE_QUOTA_BYTES": "1000000",
    }
    command = [sys.executable, "-m", "headscope", "doctor"]
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert "BAD  broker: The broker can't be reached." in shown.stdout
