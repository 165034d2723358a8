"""The composition root: settings become the objects that the API and the command line work with."""

from __future__ import annotations

import fcntl
import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import IO, Any, TypeVar

from tokenizers import Tokenizer

from . import budget
from .errors import CorruptModel, HeadscopeError, NotReady, Unknown
from .jobs import Embedded, Job, Limits, Line, Record, SqliteRecord, Watcher, Work
from .models import safety, support, tokens
from .models.catalog import Catalog, Located, file_digest
from .models.facts import Facts
from .request import AnalysisRequest, check_needs
from .settings import Settings
from .store import Results, Stored
from .store.mapfile import Corrupt

logger = logging.getLogger("headscope")
T = TypeVar("T")
# The fields of a request that every input of a batch has for itself.
INPUT = ("text", "text_pair", "token_ids", "target_ids", "image", "pos", "labels")


class Service:
    """Everything one server has: the catalogue, the jobs and the results. Its methods block; the API calls them in threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.catalog = Catalog(settings)
        self.results = Results.local(settings.home, settings.quota_bytes)
        self.record: Record = SqliteRecord(settings.home / "jobs.db")
        self.watcher = Watcher(self.record)
        self._tokenizers: dict[str, Tokenizer] = {}  # by digest of the file
        self._repairing = threading.Lock()
        self._repairs: set[str] = set()
        self._lock: IO[str] | None = None
        self.jobs = Embedded(
            self.record,
            _work,
            _start_child,
            (settings,),
            job_seconds=settings.job_seconds,
            cancel_seconds=settings.cancel_seconds,
            on_change=self.watcher.poke,
        )

    def take_home(self) -> None:
        """Make this the only server of its home. Raises HeadscopeError if another one has it."""
        if self._lock is not None:
            return
        lock = (self.settings.home / "server.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise HeadscopeError(
                "Another Headscope server uses this home. Stop it, or set HEADSCOPE_HOME to another folder."
            ) from None
        self._lock = lock

    def start(self) -> None:
        """Take up the jobs of an earlier run and begin. Raises HeadscopeError if another server has this home."""
        self.take_home()
        self.results.tidy()
        self.jobs.start(_warm if self.settings.prewarm else None)

    def stop(self) -> None:
        """Stop at once; unfinished jobs go on at the next start."""
        self.jobs.stop()
        if self._lock:
            self._lock.close()
            self._lock = None

    def submit(self, requests: Sequence[AnalysisRequest], *, batch: bool = False) -> tuple[str | None, list[str]]:
        """Check and accept requests; the batch's id (None for one request) and their ids. All of them are accepted, or none.

        In a batch, errors point to the input that is wrong.

        Raises InvalidRequest, Unknown, Unsupported, ModelError, BudgetExceeded or QueueFull before anything is queued.
        """
        work = [(self._checked(request, place if batch else None), request) for place, request in enumerate(requests)]
        missing = [Work(id_, request.model_dump_json()) for id_, request in work if not self.results.has(id_)]
        named = uuid.uuid4().hex if len(requests) > 1 else None
        if missing:
            limits = Limits(total=self.settings.max_queue)
            self.record.enqueue(missing, batch=named, priority=1 if named else 0, limits=limits)
            self.jobs.wake()
        return named, [id_ for id_, _ in work]

    def cancel(self, id_: str) -> bool:
        """Cancel a job that has not ended (True), or forget an ended one and its result (False). Raises Unknown."""
        if self.record.cancel(id_):
            self.watcher.poke()
            return True
        forgotten = self.record.forget(id_)
        if not self.results.delete(id_) and not forgotten:
            raise unknown_analysis()
        return False

    def find(self, id_: str) -> tuple[Job | None, Stored | None]:
        """The job and the result of an analysis, whichever there is. Raises Unknown, or Corrupt."""
        job, stored = self._look(id_)
        if stored is None and (job is None or job.status == "done"):
            with self._repairing:  # whoever is just putting it aside queues it again before letting go
                job, stored = self._look(id_)
            if stored is None and (job is None or job.status == "done"):
                raise unknown_analysis()
        return job, stored

    def _look(self, id_: str) -> tuple[Job | None, Stored | None]:
        job = self.record.get(id_)
        looks = job is None or job.status in ("done", "queued", "running")
        return job, self.results.get(id_) if looks else None

    def stored(self, id_: str) -> Stored:
        """The result of a finished analysis. Raises Unknown, NotReady or Corrupt."""
        job, stored = self.find(id_)
        if stored is None:
            status = job.status if job else "gone"
            raise NotReady(
                f"The analysis is {status}; there is nothing to read yet."
                if status in ("queued", "running")
                else f"The analysis is {status}; send the request again."
            )
        return stored

    def recompute(self, id_: str) -> None:
        """Put a corrupt result aside and compute it again. Raises Unknown if it is not known what was asked."""
        with self._repairing:  # of many readers who find it corrupt, one has it computed again
            if not self.results.quarantine(id_):
                return
            logger.warning("analysis %s is corrupt on disk: put aside, computed again", id_)
            self.record.count("corrupt_results")
            job = self.record.get(id_)
            if job is None:
                raise unknown_analysis()
            self.record.enqueue([job.work])
            self._repairs.add(id_)
        self.jobs.wake()

    def under_repair(self, id_: str) -> bool:
        """Whether a result that was there before is being computed again."""
        with self._repairing:
            job = self.record.get(id_)
            if job is None or job.terminal:
                self._repairs.discard(id_)
            return id_ in self._repairs

    def _checked(self, request: AnalysisRequest, place: int | None) -> str:
        """_check, with errors that point into the inputs of a batch where that is where they come from."""
        try:
            return self._check(request)
        except HeadscopeError as error:
            if place is not None and error.pointer is not None and error.pointer[1:] in INPUT:
                error.pointer = f"/inputs/{place}{error.pointer}"
            raise

    def _check(self, request: AnalysisRequest) -> str:
        """The request's id, once everything that can be known without the model has been checked."""
        limit = self.settings.text_bytes
        for text, pointer in ((request.text, "/text"), (request.text_pair, "/text_pair")):
            if text is not None:
                tokens.check_text(text, pointer, limit)
        located = self.catalog.locate(request.model)
        self.catalog.check(located)
        facts = self.catalog.facts(located)
        if facts is not None:
            lacks = support.lacks(facts, request.kind)
            support.check_input(facts, request)
            check_needs(request.methods, lacks)
            self._check_size(located, facts, request)
        return request.key(located.digest())

    def _check_size(self, located: Located, facts: Facts, request: AnalysisRequest) -> None:
        """Raise TooManyTokens or BudgetExceeded where the tokens along both axes are known already."""
        tower = facts.tower(request.kind)
        first = self._count(located, facts, request)
        queries, keys = first, first
        if facts.kind == "encoder-decoder" and request.kind in ("decoder", "cross"):
            queries = len(request.target_ids) if request.target_ids is not None else None
            keys = first if request.kind == "cross" else queries
        if queries is None or keys is None:
            return
        most = request.max_tokens
        if most is not None:
            queries, keys = min(queries, most), min(keys, most)
        tokens.check_length(queries, tower.max_tokens)
        planned = budget.plan(request, dict.fromkeys(range(tower.layers), tower.heads), queries, keys)
        budget.check(planned, min(self.settings.job_bytes, self.settings.quota_bytes))

    def _count(self, located: Located, facts: Facts, request: AnalysisRequest) -> int | None:
        """Number of tokens of the (first) text, if the tokenizer's file is here; the worker counts again."""
        if facts.patches is not None:
            return facts.patches.tokens
        if request.token_ids is not None:
            return len(request.token_ids)
        path = located.folder / "tokenizer.json" if located.folder else None
        if path is None or not path.is_file() or request.text is None:
            return None
        digest = file_digest(path)
        if digest not in self._tokenizers:
            safety.read_json(path, safety.LARGEST_TOKENIZER)
            try:
                self._tokenizers[digest] = tokens.prepare(Tokenizer.from_file(str(path)))
            except Exception as error:  # tokenizers raises nothing more precise
                raise CorruptModel("The model's tokenizer can't be read.") from error
        tokenizer = self._tokenizers[digest]
        return len(
            tokenizer.encode(request.text)
            if request.text_pair is None or facts.kind == "encoder-decoder"
            else tokenizer.encode(request.text, request.text_pair)
        )


def unknown_analysis() -> Unknown:
    """There is no such analysis, or not any more."""
    return Unknown(
        "analysis", "There is no analysis of that id, or it made room for newer ones. Send its request again."
    )


def read_or_recompute(service: Service, id_: str, read: Callable[[Stored], T]) -> T | None:
    """`read` applied to a finished analysis; None while one that was found corrupt is computed again."""
    try:
        return read(service.stored(id_))
    except Corrupt:
        service.recompute(id_)
    except NotReady:
        if not service.under_repair(id_):
            raise
    return None


# The child imports torch and transformers; this process never does. So its functions are reached by name.
def _start_child(*arguments: Any) -> None:
    from . import worker

    worker.start(*arguments)


def _work(id_: str, payload: str, line: Line) -> dict[str, Any] | None:
    from . import worker

    return worker.run(id_, payload, line)


def _warm(line: Line) -> None:
    from . import worker

    worker.warm(line)
