"""Queueing jobs on a server, unless their results are stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import logs, stores
from ..jobs import LOCAL, JobDatabase, JobKind, Limits, Work
from ..settings import Settings
from ..store import Blobs, Results
from ..store.map_file import Corrupt


@dataclass(frozen=True, slots=True)
class JobQueue:
    """Queues jobs unless their results are stored. `wake` tells that there is work. Methods block; the API calls them in threads."""

    settings: Settings
    results: Results
    inputs: Blobs
    database: JobDatabase
    wake: Callable[[], None]

    def submit(
        self,
        kind: JobKind,
        id_: str,
        payload: Mapping[str, Any],
        model: str,
        owner: str | None,
        batch: str | None = None,
    ) -> tuple[str, bool]:
        """Queue a job for `owner`, and return its id and whether its result was stored. `model` is the digest of the model's files. Raises QueueFull."""
        if self.results.has(id_):
            if owner:
                self.database.grant(owner, id_)
            return id_, True
        work = Work(id_, json.dumps(payload), model, owner=owner or LOCAL, request_id=logs.request_id(), kind=kind)
        self.enqueue([work], owner, batch)
        return id_, False

    def enqueue(self, work: Iterable[Work], owner: str | None, batch: str | None = None, priority: int = 0) -> None:
        """Queue work within the limits of `owner`, and have it run. Raises QueueFull, or StorageFull if its inputs, just stored, were evicted for others."""
        work = list(work)
        # Those of an effect are of an earlier request.
        named = {name for one in work if one.kind != "effect" for name in stores.inputs_of(one.kind, one.payload)}
        limits = Limits(self.settings.max_queue, self.settings.user_queue if owner else None)
        check = partial(self.inputs.require, ids=named)
        self.database.enqueue(work, batch=batch, priority=priority, limits=limits, check=check, wake=self.wake)

    def find_field(self, id_: str, kind: JobKind, name: str) -> str | None:
        """Return a field of a job's payload, or of its result: what it is about. None for an id of any other kind."""
        job = self.database.get(id_)
        if job is not None:
            return str(json.loads(job.payload)[name]) if job.kind == kind else None
        with suppress(Corrupt):  # without its job it cannot be computed again
            stored = self.results.get(id_)
            return stored.document.get(name) if stored and stored.document.get("kind_of") == kind else None
        return None
