"""The record of a cluster: a Redis that keeps what it accepts (appendonly yes, appendfsync always, maxmemory-policy noeviction).

With appendfsync always a command is on disk before it is answered, and so is an accepted job; commands that come together share one write.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.commands.core import Script
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import OutOfMemoryError, ReadOnlyError
from redis.exceptions import TimeoutError as Silent
from redis.retry import Retry

from ..errors import BrokerUnavailable
from . import histogram, scheduling
from .job import (
    GONE_SECONDS,
    KEEP_JOBS,
    KEEP_SECONDS,
    NO_LIMITS,
    TRIM_JOBS,
    ChunkState,
    Histogram,
    Job,
    JobKind,
    Limits,
    Problem,
    ReportId,
    Run,
    Status,
    Work,
    Worker,
    WorkerState,
    packed,
    queue_full,
    unpacked,
)

# How Redis is to run each command of the script: those that only read, those that may also run while its memory is full because they let work
# end and go, and those that bring more, which are refused then before they change anything.
READS = "get_many front expired unreleased waiting oldest position newest_version changed_since statuses page chunks workers may_read shared all now"
GROWS = "enqueue grant share"
# Those that do more when they are asked twice. One whose answer is lost is not asked again here, for it may have been heard.
ONCE = "take add"
# While Redis does not answer nobody asks for so long (s): every request would wait for its own timeout, and for each other's.
PAUSE_SECONDS = 0.5
# How long an answer may take where a request waits for it (s), which is told within two seconds that there is none.
TIMEOUT_SECONDS = 1.5
# How to read the fields of a job that are no text.
KINDS: dict[str, Any] = {
    **dict.fromkeys(("fraction", "created", "started", "finished"), float),
    **dict.fromkeys(("attempts", "version", "priority", "tokens", "run"), int),
    "error": json.loads,
}
ABSENT: dict[str, Any] = dict.fromkeys(("batch", "error", "started", "finished", "tokens"))


class RedisJobDatabase:
    """A Record in Redis 7.0 or newer. `seconds` is how long an answer may take. Safe for threads, and for children forked later."""

    def __init__(self, url: str, *, prefix: str = "headscope:", seconds: float = TIMEOUT_SECONDS) -> None:
        # One more try for a connection that was closed meanwhile; a Redis that does not answer is not asked twice.
        self._redis, self._once = (_client(url, seconds, tries) for tries in (1, 0))
        self._prefix, self._away_until = prefix, 0.0
        body = Path(__file__).with_name("jobs.lua").read_text("utf-8")
        self._any, self._read, self._grow = (
            self._redis.register_script(f"#!lua flags={flags}\n{body}") for flags in ("allow-oom", "no-writes", "")
        )

    def close(self) -> None:
        self._redis.close()
        self._once.close()

    def _ask(self, command: str, *arguments: Any) -> Any:
        """The answer of the script. Raises BrokerUnavailable."""
        if time.monotonic() < self._away_until:
            raise _unavailable()
        try:
            client = self._once if command in ONCE.split() else self._redis
            return self._script(command)(keys=[self._prefix], args=[command, *arguments], client=client)
        except Silent as error:
            self._away_until = time.monotonic() + PAUSE_SECONDS
            raise _unavailable() from error
        except (Disconnected, OSError) as error:
            raise _unavailable() from error
        except (OutOfMemoryError, ReadOnlyError) as error:
            raise BrokerUnavailable(
                "The server's Redis takes nothing new now. Try again in a moment; if it stays so, give it more memory."
            ) from error

    def _script(self, command: str) -> Script:
        return self._read if command in READS.split() else self._grow if command in GROWS.split() else self._any

    def enqueue(
        self, work: Iterable[Work], *, batch: str | None = None, priority: int = 0, limits: Limits = NO_LIMITS
    ) -> None:
        accepted = [{name: value for name, value in asdict(one).items() if value is not None} for one in work]
        most = ("" if limit is None else limit for limit in (limits.total, limits.per_owner))
        refused = self._ask("enqueue", json.dumps(accepted), batch or "", priority, *most)
        if refused == "total" and limits.total is not None:
            raise queue_full(limits.total)
        if refused == "owner" and limits.per_owner is not None:
            raise queue_full(limits.per_owner, own=True)

    def grant(self, id_: str, owner: str) -> None:
        self._ask("grant", id_, owner)

    def get(self, id_: str) -> Job | None:
        return self.get_many((id_,)).get(id_)

    def get_many(self, ids: Collection[str]) -> dict[str, Job]:
        return {job.id: job for job in _jobs(self._ask("get_many", json.dumps(list(ids))))}

    def claim(self, worker: Worker) -> list[Job]:
        while True:
            passed, seconds, queues = json.loads(self._ask("front", scheduling.WINDOW, scheduling.DEEPEST))
            if not queues:
                return []
            line = scheduling.merge(_queue(owner, int(turn), jobs) for owner, turn, jobs in queues)
            head = line[0]
            preferred = scheduling.prefer_warm(line, worker.warm, seconds if passed == head.id else 0.0)
            choices = [
                (job.id, scheduling.count_companions(job, worker.most_tokens))
                for job in preferred[: scheduling.DEEPEST]
            ]
            taken = _jobs(self._ask("take", worker.name, packed(worker), head.id, head.turn, json.dumps(choices)))
            if taken:  # or else others have taken all of these meanwhile
                return taken

    def heartbeat(self, worker: Worker, runs: Collection[int]) -> None:
        self._ask("heartbeat", worker.name, packed(worker), json.dumps([str(run) for run in runs]))

    def deregister(self, name: str) -> None:
        self._ask("deregister", name)

    def progress(self, id_: str, run: int, fraction: float, stage: str, detail: str) -> bool:
        return bool(self._ask("progress", id_, run, fraction, stage, detail))

    def finish(self, id_: str, run: int, status: Status, error: Problem | None = None) -> bool:
        return bool(self._ask("finish", id_, run, status, json.dumps(error) if error else ""))

    def requeue(self, id_: str, run: int, detail: str, *, counted: bool = True) -> bool:
        return bool(self._ask("requeue", id_, run, detail, 0 if counted else 1))

    def cancel(self, id_: str, owner: str | None = None) -> bool:
        return bool(self._ask("cancel", id_, owner or ""))

    def forget(self, id_: str, owner: str | None = None) -> bool:
        return bool(self._ask("forget", id_, owner or ""))

    def expired(self, seconds: float | None = None, name: str | None = None) -> list[Job]:
        return _jobs(self._ask("expired", "" if seconds is None else seconds, name or ""))

    def unreleased(self, seconds: float) -> list[Run]:
        found = json.loads(self._ask("unreleased", seconds, GONE_SECONDS))
        return [Run(id_, int(run), worker) for id_, run, worker in found]

    def waiting(self, owner: str | None = None) -> int:
        return int(self._ask("waiting", owner or ""))

    def oldest(self) -> float | None:
        found = self._ask("oldest")
        return None if found is None else float(found)

    def position(self, job: Job) -> int | None:
        found = self._ask("position", job.id) if job.status == "queued" else None
        return None if found is None else int(found)

    def newest_version(self) -> int:
        return int(self._ask("newest_version") or 0)

    def changed_since(self, version: int) -> tuple[int, list[str] | None]:
        newest, ids = json.loads(self._ask("changed_since", version))
        return int(newest), None if ids is False else ids

    def statuses(self) -> dict[str, int]:
        counts = {status: int(number) for status, number in _pairs(self._ask("statuses")).items()}
        return {status: number for status, number in counts.items() if number}

    def page(self, limit: int, before: float, owner: str | None = None, kind: JobKind = "analysis") -> list[Job]:
        return _jobs(self._ask("page", limit, repr(before), owner or "", kind))

    def chunks(self, id_: str) -> list[ChunkState]:
        return [_part(id_, values) for id_, *values in json.loads(self._ask("chunks", id_, *ChunkState._fields[1:]))]

    def workers(self) -> list[WorkerState]:
        states = [
            WorkerState(unpacked(worker), float(seen), tuple(ids))
            for worker, seen, ids in json.loads(self._ask("workers", GONE_SECONDS))
        ]
        return sorted(states, key=lambda state: state.worker.name)

    def may_read(self, id_: str, owner: str) -> bool:
        return bool(self._ask("may_read", id_, owner))

    def share(self, id_: str, owner: str) -> str:
        return str(self._ask("share", id_, owner, secrets.token_hex(16)))

    def unshare(self, id_: str, owner: str) -> bool:
        return bool(self._ask("unshare", id_, owner))

    def shared(self, key: str) -> str | None:
        found: str | None = self._ask("shared", key)
        return found

    def count(self, name: str, number: int = 1, *, report: ReportId | None = None) -> None:
        self._add("counters", {name: number}, report)

    def _add(self, index: str, increments: Mapping[str, float], report: ReportId | None) -> None:
        self._ask("add", index, json.dumps(increments), *(report or ("", 0)))

    def counters(self) -> dict[str, int]:
        return {name: int(value) for name, value in _pairs(self._ask("all", "counters")).items()}

    def observe(self, name: str, labels: Mapping[str, str], value: float, *, report: ReportId | None = None) -> None:
        self._add("observations", histogram.increments(name, labels, value), report)

    def histograms(self) -> list[Histogram]:
        counters = _pairs(self._ask("all", "observations"))
        return histogram.histograms({name: float(value) for name, value in counters.items()})

    def trim(self, older_than: float = KEEP_SECONDS, most: int = KEEP_JOBS) -> int:
        return int(self._ask("trim", older_than, most, TRIM_JOBS))

    def now(self) -> float:
        return float(self._ask("now"))


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
    return BrokerUnavailable("The server can't reach its Redis now. Try again in a few seconds.")


def _pairs(answer: str) -> dict[str, str]:
    flat = json.loads(answer)
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _jobs(answer: str) -> list[Job]:
    return [_job(values) for values in json.loads(answer)]


def _job(values: dict[str, str]) -> Job:
    del values["number"]
    return Job(**{**ABSENT, **{name: KINDS.get(name, str)(value) for name, value in values.items()}})


def _part(id_: str, values: list[Any]) -> ChunkState:
    named = zip(ChunkState._fields[1:], values, strict=True)
    read: dict[str, Any] = {name: None if value is False else KINDS.get(name, str)(value) for name, value in named}
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
