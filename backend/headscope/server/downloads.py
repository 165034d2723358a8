"""Models of the hub on a server: downloaded by a job, cancelled, and removed from the hub's cache."""

from __future__ import annotations

import hashlib
import json

from .. import logs
from ..errors import Forbidden, StoreUnavailable, Unknown
from ..jobs import LOCAL, Job, Watcher, Work
from ..models import hub_cache
from ..models.catalog import Catalog
from ..models.located import Located
from .job_queue import JobQueue

# Behind single analyses.
PRIORITY = 1
IN_FOLDER = "This model is in a folder of the server and is not removed from here. Delete the folder instead."


class Downloads:
    """Downloads of models. Methods block; the API calls them in threads."""

    def __init__(self, catalog: Catalog, jobs: JobQueue, watcher: Watcher) -> None:
        self._catalog, self._jobs, self._database, self._watcher = catalog, jobs, jobs.database, watcher

    def submit(self, model: str, owner: str | None = None) -> str | None:
        """Queue the download of a model for `owner`, and return the job's id; None if the model is on this machine already.

        Raises InvalidRequest, Unknown, Unsupported, ModelUnavailable or QueueFull.
        """
        located = self._catalog.locate(model)
        self._catalog.check(located)
        if located.local:
            return None
        id_ = job_id(located)
        payload = json.dumps({"model": model})
        work = Work(id_, payload, owner=owner or LOCAL, request_id=logs.request_id(), kind="download")
        self._jobs.enqueue([work], owner, priority=PRIORITY)
        self._watcher.poke()
        return id_

    async def ended(self, id_: str, seconds: float) -> None:
        """Wait until the job has ended, for `seconds` at most."""
        await self._watcher.ended(id_, seconds)

    def find(self, located: Located) -> Job | None:
        """Return the unfinished or failed download of a model, None if there is none."""
        job = self._database.get(job_id(located)) if located.hub and not located.local else None
        return job if job and job.status in ("queued", "running", "failed") else None

    def cancel(self, model: str, owner: str | None = None) -> bool:
        """Cancel the download of a model, or forget that it failed; return False if there is neither, or only other users asked for it."""
        job = self.find(self._catalog.locate(model, pointer=None))
        if job is None or (owner is not None and not self._database.may_read(job.id, owner)):
            return False
        if self._database.cancel(job.id, owner):
            self._watcher.poke()
            return True
        if job.terminal:
            self._database.forget(job.id, owner)
        return job.terminal

    def remove(self, model: str) -> None:
        """Remove a model from the hub's cache. Raises Unknown, Forbidden or StoreUnavailable."""
        located = self._catalog.locate(model, pointer=None)
        if not located.local:
            raise Unknown("model", "This model is not on the server, so there is nothing to remove.")
        if not located.in_cache or located.hub is None:
            raise Forbidden(IN_FOLDER)
        try:
            hub_cache.remove(located.hub)
        except OSError:
            raise StoreUnavailable(
                "The model's files could not be deleted. Check the permissions of the hub's cache."
            ) from None


def job_id(located: Located) -> str:
    """Return the id of the job that downloads a model: the same for everyone who asks for it."""
    return hashlib.sha256(f"download:{located.hub}@{located.revision}".encode()).hexdigest()[:32]
