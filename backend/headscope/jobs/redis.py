"""The job database of a cluster: a persistent Redis (appendonly yes, appendfsync always, maxmemory-policy noeviction).

With appendfsync always, a command, and so an accepted job, is on disk before the response; concurrent commands share one write.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import OutOfMemoryError, ReadOnlyError
from redis.exceptions import TimeoutError as Timeout
from redis.retry import Retry

from ..errors import BrokerUnavailable
from . import scheduling
from .job import (
    GONE_SECONDS,
    KEEP_JOBS,
    KEEP_SECONDS,
    NO_LIMITS,
    TRIM_JOBS,
    ChunkState,
    Job,
    JobKind,
    Limits,
    Problem,
    Run,
    Status,
    Work,
    Worker,
    WorkerState,
    from_json,
    queue_full,
    to_json,
)

# How Redis runs each command of the script: READS only read; GROWS are rejected, before any change, if its memory is full; all others are allowed then,
# because they end or remove jobs.
READS = "get_many front expired unreleased waiting oldest position newest_version changed_since statuses page chunks workers may_read shared now"
GROWS = "enqueue grant share"
# Commands that are not idempotent. They are not retried if the response is lost.
ONCE = "take"
# After a timeout, commands fail at once for this long (s): otherwise every request would wait for its own timeout, and for the others'.
PAUSE_SECONDS = 0.5
# The timeout of a command that a request waits for (s): such a request fails within two seconds.
TIMEOUT_SECONDS = 1.5
# Parsers of the fields of a job that are not text.
PARSERS: dict[str, Any] = {
    **dict.fromkeys(("fraction", "created", "started", "finished"), float),
    **dict.fromkeys(("attempts", "version", "priority", "tokens", "run"), int),
    "error": json.loads,
}
ABSENT: dict[str, Any] = dict.fromkeys(("batch", "error", "started", "finished", "tokens"))


class RedisJobDatabase:
    """A JobDatabase in Redis 7.0 or newer, with a timeout of `seconds`. Safe for threads, and for processes forked later."""

    def __init__(self, url: str, *, prefix: str = "headscope:", seconds: float = TIMEOUT_SECONDS) -> None:
        # One retry for a connection that Redis has closed; a timeout is not retried.
        self._redis, self._once = (_client(url, seconds, tries) for tries in (1, 0))
        self._prefix, self._paused_until = prefix, 0.0
        body = Path(__file__).with_name("jobs.lua").read_text("utf-8")
        self._any, self._read, self._grow = (
            self._redis.register_script(f"#!lua flags={flags}\n{body}") for flags in ("allow-oom", "no-writes", "")
        )

    def close(self) -> None:
        self._redis.close()
        self._once.close()

    def _run(self, command: str, *arguments: Any) -> Any:
        """Run a command of the script and return its response. Raises BrokerUnavailable."""
        if time.monotonic() < self._paused_until:
            raise _unavailable()
        try:
            client = self._once if command in ONCE.split() else self._redis
            return self._script(command)(keys=[self._prefix], args=[command, *arguments], client=client)
        except Timeout as error:
            self._paused_until = time.monotonic() + PAUSE_SECONDS
            raise _unavailable() from error
        except (Disconnected, OSError) as error:
            raise _unavailable() from error
        except (OutOfMemoryError, ReadOnlyError) as error:
            raise BrokerUnavailable(
                "The server's Redis rejects writes. Try again in a moment; if this persists, give it more memory."
            ) from error

    def _script(self, command: str) -> Script:
        return self._read if command in READS.split() else self._grow if command in GROWS.split() else self._any

    def enqueue(
        self, work: Iterable[Work], *, batch: str | None = None, priority: int = 0, limits: Limits = NO_LIMITS
    ) -> None:
        accepted = [{name: value for name, value in asdict(item).items() if value is not None} for item in work]
        most = ("" if limit is None else limit for limit in (limits.total, limits.per_owner))
        refused = self._run("enqueue", json.dumps(accepted), batch or "", priority, *most)
        if refused == "total" and limits.total is not None:
            raise queue_full(limits.total)
        if refused == "owner" and limits.per_owner is not None:
            raise queue_full(limits.per_owner, own=True)

    def grant(self, id_: str, owner: str) -> None:
        self._run("grant", id_, owner)

    def get(self, id_: str) -> Job | None:
        return self.get_many((id_,)).get(id_)

    def get_many(self, ids: Collection[str]) -> dict[str, Job]:
        return {job.id: job for job in _jobs(self._run("get_many", json.dumps(list(ids))))}

    def claim(self, worker: Worker) -> list[Job]:
        while True:
            passed, seconds, queues = json.loads(self._run("front", scheduling.WINDOW, scheduling.DEEPEST))
            if not queues:
                return []
            waiting = scheduling.merge(_queue(owner, int(turn), jobs) for owner, turn, jobs in queues)
            head = waiting[0]
            preferred = scheduling.prefer_warm(waiting, worker.warm, seconds if passed == head.id else 0.0)
            choices = [
                (job.id, scheduling.count_companions(job, worker.most_tokens))
                for job in preferred[: scheduling.DEEPEST]
            ]
            taken = _jobs(self._run("take", worker.name, to_json(worker), head.id, head.turn, json.dumps(choices)))
            if taken:  # otherwise other workers have taken all of these in the meantime
                return taken

    def heartbeat(self, worker: Worker, runs: Collection[int]) -> None:
        self._run("heartbeat", worker.name, to_json(worker), json.dumps([str(run) for run in runs]))

    def deregister(self, name: str) -> None:
        self._run("deregister", name)

    def progress(self, id_: str, run: int, fraction: float, stage: str, detail: str) -> bool:
        return bool(self._run("progress", id_, run, fraction, stage, detail))

    def finish(self, id_: str, run: int, status: Status, error: Problem | None = None) -> bool:
        return bool(self._run("finish", id_, run, status, json.dumps(error) if error else ""))

    def requeue(self, id_: str, run: int, detail: str, *, counted: bool = True) -> bool:
        return bool(self._run("requeue", id_, run, detail, 0 if counted else 1))

    def cancel(self, id_: str, owner: str | None = None) -> bool:
        return bool(self._run("cancel", id_, owner or ""))

    def forget(self, id_: str, owner: str | None = None) -> bool:
        return bool(self._run("forget", id_, owner or ""))

    def expired(self, seconds: float | None = None, name: str | None = None) -> list[Job]:
        return _jobs(self._run("expired", "" if seconds is None else seconds, name or ""))

    def unreleased(self, seconds: float) -> list[Run]:
        found = json.loads(self._run("unreleased", seconds, GONE_SECONDS))
        return [Run(id_, int(run), worker) for id_, run, worker in found]

    def waiting(self, owner: str | None = None) -> int:
        return int(self._run("waiting", owner or ""))

    def oldest(self) -> float | None:
        found = self._run("oldest")
        return None if found is None else float(found)

    def position(self, job: Job) -> int | None:
        found = self._run("position", job.id) if job.status == "queued" else None
        return None if found is None else int(found)

    def newest_version(self) -> int:
        return int(self._run("newest_version") or 0)

    def changed_since(self, version: int) -> tuple[int, list[str] | None]:
        newest, ids = json.loads(self._run("changed_since", version))
        return int(newest), None if ids is False else ids

    def statuses(self) -> dict[str, int]:
        counts = {status: int(number) for status, number in _pairs(self._run("statuses")).items()}
        return {status: number for status, number in counts.items() if number}

    def page(self, limit: int, before: float, owner: str | None = None, kind: JobKind = "analysis") -> list[Job]:
        return _jobs(self._run("page", limit, repr(before), owner or "", kind))

    def chunks(self, id_: str) -> list[ChunkState]:
        return [_chunk(id_, values) for id_, *values in json.loads(self._run("chunks", id_, *ChunkState._fields[1:]))]

    def workers(self) -> list[WorkerState]:
        states = [
            WorkerState(from_json(worker), float(seen), tuple(ids))
            for worker, seen, ids in json.loads(self._run("workers", GONE_SECONDS))
        ]
        return sorted(states, key=lambda state: state.worker.name)

    def may_read(self, id_: str, owner: str) -> bool:
        return bool(self._run("may_read", id_, owner))

    def share(self, id_: str, owner: str) -> str:
        return str(self._run("share", id_, owner, secrets.token_hex(16)))

    def unshare(self, id_: str, owner: str) -> bool:
        return bool(self._run("unshare", id_, owner))

    def shared(self, key: str) -> str | None:
        found: str | None = self._run("shared", key)
        return found

    def trim(self, older_than: float = KEEP_SECONDS, most: int = KEEP_JOBS) -> int:
        return int(self._run("trim", older_than, most, TRIM_JOBS))

    def now(self) -> float:
        return float(self._run("now"))


def _client(url: str, seconds: float, tries: int) -> Redis:
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_connect_timeout=seconds,
        socket_timeout=seconds,
        health_check_interval=10,
        retry=Retry(NoBackoff(), tries, supported_errors=(Disconnected,)),
    )


def _unavailable() -> BrokerUnavailable:
    return BrokerUnavailable("The server cannot reach its Redis. Try again in a few seconds.")


def _pairs(response: str) -> dict[str, str]:
    flat = json.loads(response)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _jobs(response: str) -> list[Job]:
    return [_job(values) for values in json.loads(response)]


def _job(values: dict[str, str]) -> Job:
    del values["number"]
    return Job(**{**ABSENT, **{name: PARSERS.get(name, str)(value) for name, value in values.items()}})


def _chunk(id_: str, values: list[Any]) -> ChunkState:
    named = zip(ChunkState._fields[1:], values, strict=True)
    read: dict[str, Any] = {name: None if value is False else PARSERS.get(name, str)(value) for name, value in named}
    return ChunkState(id_, **read)


def _queue(owner: str, turn: int, jobs: list[list[Any]]) -> list[scheduling.Waiting]:
    return [
        scheduling.Waiting(
            id_,
            owner,
            turn + place,
            int(priority),
            int(number),
            model,
            bool(recipe),
            None if tokens is False else int(tokens),
            int(attempts),
        )
        for place, (id_, priority, number, model, recipe, tokens, attempts) in enumerate(jobs)
    ]
