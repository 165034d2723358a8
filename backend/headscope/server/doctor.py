"""Checks of the services around a server: database, broker, cache, store and workers. Every problem comes with what to change."""

from __future__ import annotations

import stat
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import stores
from ..core.lazy import fsspec, redis
from ..database import schema
from ..errors import HeadscopeError, InvalidSetting
from ..jobs import JobDatabase
from ..models.device import resolve
from ..settings import Settings

OLDEST_REDIS = (7, 0)
# A larger clock skew (s) makes times on the page wrong, and object stores reject requests signed with it.
SKEW_SECONDS = 5.0
# Share of the broker's memory above which it is about to reject messages.
FULL = 0.9
EVICTS = "The broker may evict messages when its memory is full. Set maxmemory-policy noeviction in its configuration, and restart it."

# Settings of PostgreSQL without which it may lose what it has confirmed.
DURABLE = ("fsync", "full_page_writes", "synchronous_commit")

# What INFO of a Redis reports, by its names.
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its name, whether it passed, and the state found or what to change."""

    name: str
    ok: bool
    message: str


def check_services(settings: Settings) -> Iterator[Finding]:
    """Check every service that the settings name. Takes seconds if one does not answer."""
    file = settings.home / stores.FILE
    if settings.database_url is None and file.exists():
        yield _check_permissions(file)
    if settings.device not in ("auto", "cpu"):
        yield _run("device", lambda: resolve(settings.device))
    broker = cache = None
    if settings.database_url or settings.redis_url:
        database = _run("database", lambda: _check_database(settings))
        yield database
        if database.ok:
            yield _run("workers", lambda: _check_workers(settings))
    if settings.redis_url:
        broker = yield from _check_redis("broker", "HEADSCOPE_REDIS_URL", settings.redis_url, _check_broker)
    if broker:
        yield _check_clock(broker)
    if settings.cache_url:
        cache = yield from _check_redis("cache", "HEADSCOPE_CACHE_URL", settings.cache_url, _check_cache)
    if broker and cache:
        yield _check_separate(broker, cache)
    url = settings.store_url
    if url:
        yield _run("store", lambda: _check_store(url))


def _run(name: str, check: Callable[[], str]) -> Finding:
    """Return the result of a check that returns the state, or raises HeadscopeError."""
    try:
        return Finding(name, True, check())
    except HeadscopeError as error:
        return Finding(name, False, error.detail)


def refuse_evicting_broker(settings: Settings) -> None:
    """Raise InvalidSetting if the broker may evict messages. A broker that does not answer is ignored: it may still be starting."""
    if settings.redis_url is None:
        return
    try:
        facts = _ask("broker", "HEADSCOPE_REDIS_URL", settings.redis_url)
    except HeadscopeError:
        return
    if _evicts(facts):
        raise InvalidSetting(EVICTS)


def _check_redis(
    name: str, setting: str, url: str, check: Callable[[Facts], Iterator[str]]
) -> Generator[Finding, None, Facts | None]:
    """Yield the result of checking a Redis, and return what it reports; None if it does not answer."""
    try:
        facts = _ask(name, setting, url)
    except HeadscopeError as error:
        yield Finding(name, False, error.detail)
        return None
    wrong = [*_check_version(name, facts), *check(facts)]
    yield Finding(
        name, not wrong, " ".join(wrong) or f"Redis {facts['redis_version']}, {facts['used_memory_human']} used"
    )
    return facts


def _ask(name: str, setting: str, url: str) -> Facts:
    """Return what the Redis at that address reports. Raises HeadscopeError."""
    try:
        with redis.Redis.from_url(
            url, socket_connect_timeout=2, socket_timeout=5, decode_responses=True, retry=None
        ) as client:
            facts = dict(client.info())
            seconds, microseconds = client.time()
            facts["time"] = seconds + microseconds / 1e6
            return facts
    except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
        raise HeadscopeError(f"The {name} rejects the user or the password. Correct them in {setting}.") from None
    except redis.RedisError:
        raise HeadscopeError(f"The {name} cannot be reached. Start it, or correct {setting}.") from None


def _check_version(name: str, facts: Facts) -> Iterator[str]:
    version = str(facts["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        yield f"The {name} is Redis {version}, which is too old. Install version 7."


def _check_broker(facts: Facts) -> Iterator[str]:
    if _evicts(facts):
        yield EVICTS
    most = int(facts["maxmemory"])
    if most and int(facts["used_memory"]) > FULL * most:
        yield "The broker's memory is nearly full; once it is full, the broker rejects messages, and jobs keep waiting. Raise maxmemory in its configuration, and restart it."


def _evicts(facts: Facts) -> bool:
    return str(facts["maxmemory_policy"]) != "noeviction"


def _check_cache(facts: Facts) -> Iterator[str]:
    if not int(facts["maxmemory"]):
        yield "The cache may use all memory of its machine. Set maxmemory in its configuration, for example maxmemory 256mb, and restart it."
    if not str(facts["maxmemory_policy"]).startswith("allkeys-"):
        yield "The cache does not evict old entries. Set maxmemory-policy allkeys-lru in its configuration, and restart it."


def _check_separate(broker: Facts, cache: Facts) -> Finding:
    apart = broker["run_id"] != cache["run_id"]
    problem = "The cache is the same Redis as the broker, so evicting entries would evict messages. Start a second Redis, and set HEADSCOPE_CACHE_URL to it."
    return Finding("broker and cache", apart, "two servers" if apart else problem)


def _check_clock(broker: Facts) -> Finding:
    skew = abs(broker["time"] - time.time())
    wrong = f"This machine's clock and the broker's are {skew:.0f} s apart. Synchronise both with a time server."
    return Finding("clock", skew <= SKEW_SECONDS, wrong if skew > SKEW_SECONDS else "synchronised with the broker's")


def _check_database(settings: Settings) -> str:
    database = stores.open_database(settings)
    try:
        schema.check(database)
        with database.read() as connection:
            shown = {
                name: str(connection.exec_driver_sql(f"SHOW {name}").scalar_one())
                for name in ("server_version", *DURABLE)
            }
    finally:
        database.close()
    wrong = [name for name in DURABLE if shown[name] == "off"]
    if wrong:
        raise HeadscopeError(
            f"The database may lose accepted jobs when it crashes. Set {wrong[0]} = on in its configuration, and restart it."
        )
    return f"PostgreSQL {shown['server_version'].split()[0]}"


def _check_workers(settings: Settings) -> str:
    database = JobDatabase(stores.open_database(settings))
    try:
        devices = Counter(worker.device for worker in database.workers())
    finally:
        database.close()
    if not devices:
        raise HeadscopeError("No worker has sent a heartbeat in the last minute. Start one: headscope worker")
    return ", ".join(f"{number} on {device}" for device, number in sorted(devices.items()))


def _check_store(url: str) -> str:
    """Write, read and delete a small file."""
    content = uuid.uuid4().hex
    try:
        files, root = fsspec.url_to_fs(url)
        path = f"{root.rstrip('/')}/doctor-{content}"
        files.pipe_file(path, content.encode())
        read = files.cat_file(path)
        files.rm(path)
    except Exception as error:  # every kind of store has its own exceptions
        raise HeadscopeError(
            f"Results cannot be written to the store ({type(error).__name__}). Correct HEADSCOPE_STORE_URL, or the permissions of its user."
        ) from error
    if read != content.encode():
        raise HeadscopeError(
            "The store does not return what is written to it. Set HEADSCOPE_STORE_URL to another store."
        )
    return "readable and writable"


def _check_permissions(file: Path) -> Finding:
    private = not file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    wrong = f"Other users of this machine can read the database, with hashes of access tokens and all texts. Restrict access: chmod 600 {file}*"
    return Finding("database file", private, "readable by its owner only" if private else wrong)
