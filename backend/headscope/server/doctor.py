"""What a server has around it: broker, cache, store and workers; and what is wrong with them, in one sentence that says what to change."""

from __future__ import annotations

import stat
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .. import stores
from ..errors import HeadscopeError, InvalidSetting
from ..settings import Settings
from .accounts import FILE

OLDEST_REDIS = (7, 0)
# Clocks further apart than this (s) make times on the page wrong, and object stores refuse what is signed with them.
SKEW_SECONDS = 5.0
# Of a broker's memory; with less room left it is about to refuse jobs.
FULL = 0.9
DROPS = (
    "The broker drops all jobs when it restarts, because it replays its append-only file as the user default, which may not write. "
    "Put user default off resetpass ~* &* +@all into its ACL file, as deploy/redis/start.sh does, and restart it."
)
UNCHECKED = (
    "Headscope cannot check whether the broker keeps its jobs when it restarts. "
    "Allow +acl|dryrun to its user, as deploy/redis/start.sh does, and restart it."
)
EVICTS = "The broker may throw away jobs when its memory is full. Set maxmemory-policy noeviction in its configuration, and restart it."

# What a Redis says of itself, by the names of INFO and CONFIG.
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, whether it is as it should be, and what it is, or what to change."""

    name: str
    ok: bool
    message: str


def check_services(settings: Settings) -> Iterator[Finding]:
    """Everything around a server that there is by its settings. Takes seconds where something does not answer."""
    if (settings.home / FILE).exists():
        yield _tokens(settings)
    broker = cache = None
    if settings.redis_url:
        broker = yield from _redis("broker", "HEADSCOPE_REDIS_URL", settings.redis_url, _about_broker)
    if broker:
        yield _clock(broker)
        yield _workers(settings)
    if settings.cache_url:
        cache = yield from _redis("cache", "HEADSCOPE_CACHE_URL", settings.cache_url, _about_cache)
    if broker and cache:
        yield _apart(broker, cache)
    if settings.store_url:
        yield _store(settings.store_url)


def refuse_evicting_broker(settings: Settings) -> None:
    """Raise InvalidSetting where the broker would forget jobs. One that does not answer may be on its way: that is for later."""
    if settings.redis_url is None:
        return
    try:
        facts = _ask("broker", "HEADSCOPE_REDIS_URL", settings.redis_url)
    except HeadscopeError:
        return
    if _evicts(facts):
        raise InvalidSetting(EVICTS)


def _redis(
    name: str, setting: str, url: str, about: Callable[[Facts], Iterator[str]]
) -> Generator[Finding, None, Facts | None]:
    """What is to be said of a Redis, and what it says of itself; None if it says nothing."""
    try:
        facts = _ask(name, setting, url)
    except HeadscopeError as error:
        yield Finding(name, False, error.detail)
        return None
    wrong = [*_about_any(name, facts), *about(facts)]
    yield Finding(
        name, not wrong, " ".join(wrong) or f"Redis {facts['redis_version']}, {facts['used_memory_human']} used"
    )
    return facts


def _ask(name: str, setting: str, url: str) -> Facts:
    """What the Redis at that address says of itself. Raises HeadscopeError."""
    from redis import Redis
    from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

    try:
        with Redis.from_url(
            url, socket_connect_timeout=2, socket_timeout=5, decode_responses=True, retry=None
        ) as client:
            facts = dict(client.info())
            seconds, microseconds = client.time()
            facts["time"] = seconds + microseconds / 1e6
            facts |= _settings(client)
            return facts
    except (AuthenticationError, NoPermissionError):
        raise HeadscopeError(f"The {name} refuses the user or the password. Correct them in {setting}.") from None
    except RedisError:
        raise HeadscopeError(f"The {name} can't be reached. Start it, or correct {setting}.") from None


def _settings(client: Any) -> Facts:
    """Return `appendfsync`, and as `replay` whether the user default may write: OK, the reason why not, or None if that is not told.

    Redis replays its append-only file as that user and drops every transaction that it may not run; every change of a job is one.
    """
    from redis.exceptions import ResponseError

    try:
        shown = client.config_get("appendfsync")
    except ResponseError:  # hosted ones keep both to themselves
        return {"appendfsync": "always", "replay": "OK"}
    try:
        return {**shown, "replay": client.acl_dryrun("default", "HSET", "headscope:job:0", "status", "queued")}
    except ResponseError:
        return {**shown, "replay": None}


def _about_any(name: str, facts: Facts) -> Iterator[str]:
    version = str(facts["redis_version"])
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        yield f"The {name} is Redis {version}, which is too old. Install version 7."


def _about_broker(facts: Facts) -> Iterator[str]:
    if _evicts(facts):
        yield EVICTS
    if not facts["aof_enabled"]:
        yield "The broker forgets all jobs when it restarts. Set appendonly yes in its configuration, and restart it."
    elif facts["replay"] is None:
        yield UNCHECKED
    elif facts["replay"] != "OK":
        yield DROPS
    elif facts["appendfsync"] != "always":
        yield "The broker may forget the last second's jobs when it crashes. Set appendfsync always in its configuration, and restart it."
    most = int(facts["maxmemory"])
    if most and int(facts["used_memory"]) > FULL * most:
        yield "The broker's memory is nearly full, and then it accepts no more jobs. Raise maxmemory in its configuration, and restart it."


def _evicts(facts: Facts) -> bool:
    return str(facts["maxmemory_policy"]) != "noeviction"


def _about_cache(facts: Facts) -> Iterator[str]:
    if not int(facts["maxmemory"]):
        yield "The cache may take all memory. Set maxmemory in its configuration, for example maxmemory 256mb, and restart it."
    if not str(facts["maxmemory_policy"]).startswith("allkeys-"):
        yield "The cache does not make room for what is new. Set maxmemory-policy allkeys-lru in its configuration, and restart it."


def _apart(broker: Facts, cache: Facts) -> Finding:
    apart = broker["run_id"] != cache["run_id"]
    same = "The cache is the same Redis as the broker, and can't forget without forgetting jobs. Start a second Redis, and set HEADSCOPE_CACHE_URL to it."
    return Finding("broker and cache", apart, "two servers" if apart else same)


def _clock(broker: Facts) -> Finding:
    skew = abs(broker["time"] - time.time())
    wrong = f"This machine's clock and the broker's are {skew:.0f} s apart. Set both by a time server."
    return Finding("clock", skew <= SKEW_SECONDS, wrong if skew > SKEW_SECONDS else "as the broker's")


def _workers(settings: Settings) -> Finding:
    database = stores.job_database(settings)
    try:
        devices = Counter(state.worker.device for state in database.workers())
    except HeadscopeError as error:
        return Finding("workers", False, error.detail)
    finally:
        database.close()
    shown = ", ".join(f"{number} on {device}" for device, number in sorted(devices.items()))
    return Finding(
        "workers", bool(devices), shown or "No worker has been heard of in the last minute. Start one: headscope worker"
    )


def _store(url: str) -> Finding:
    try:
        _write_and_read(url)
    except HeadscopeError as error:
        return Finding("store", False, error.detail)
    return Finding("store", True, "can be written and read")


def _write_and_read(url: str) -> None:
    """Put a small file there, read it, and take it away. Raises HeadscopeError."""
    from fsspec.core import url_to_fs

    content = uuid.uuid4().hex
    try:
        files, root = url_to_fs(url)
        path = f"{root.rstrip('/')}/doctor-{content}"
        files.pipe_file(path, content.encode())
        read = files.cat_file(path)
        files.rm(path)
    except Exception as error:  # each kind of store raises its own
        raise HeadscopeError(
            f"Results can't be written to the store ({type(error).__name__}). Correct HEADSCOPE_STORE_URL, or what its user may do there."
        ) from error
    if read != content.encode():
        raise HeadscopeError(
            "The store does not give back what is written to it. Set HEADSCOPE_STORE_URL to another one."
        )


def _tokens(settings: Settings) -> Finding:
    mode = (settings.home / FILE).stat().st_mode
    private = not mode & (stat.S_IRWXG | stat.S_IRWXO)
    wrong = f"Other users of this machine can read the hashes of access tokens. Take that from them: chmod 600 {settings.home / FILE}"
    return Finding("access tokens", private, "can be read by nobody else" if private else wrong)
