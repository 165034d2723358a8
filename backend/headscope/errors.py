"""Every error Headscope raises on purpose.

    HeadscopeError
    ├── InvalidSetting                a HEADSCOPE_ variable has a value that can't be right
    ├── InvalidRequest                what was asked makes no sense; says which field
    │   ├── InvalidText               the text can't be analysed
    │   ├── InvalidImage              the image can't be read, or is too large
    │   ├── InvalidDataset            the data set can't be read; says which row
    │   ├── InvalidQuery              the query for heads can't be read; says where
    │   ├── TooManyTokens             more tokens than the model takes
    │   └── BudgetExceeded            would not fit into memory or onto disk; says what would
    ├── Unknown                       no model, lens, mechanism, measure, head or analysis of that name
    ├── Unsupported                   a combination that can't be right, with the reason
    ├── ModelError
    │   ├── UnsafeModel               the configuration asks for code
    │   ├── UnsafeWeights             only pickled weights
    │   ├── CorruptModel              weights or configuration damaged
    │   ├── ModelUnavailable          neither here nor reachable
    │   └── ModelNotExact             captured attention differs from the model's own
    ├── DatasetUnavailable            the data set could not be fetched from the hub
    ├── NonFinite                     the model computed NaN or infinity
    ├── Unauthorized                  the server wants an access token
    ├── AccountsUnreadable            the file of access tokens is damaged
    ├── NotReady                      the analysis is not finished
    ├── QueueFull                     too many jobs waiting
    ├── RequestTimeout                the request's body arrived too slowly
    ├── TooManyRequests               one user has too many requests or streams open
    ├── ServerBusy                    too many bytes are being received at once
    ├── StorageFull                   no room for the result
    ├── BrokerUnavailable             the Redis that holds the jobs can't be reached
    ├── StoreUnavailable              the store of results can't be reached
    ├── OutOfMemory                   the analysis did not fit into memory
    ├── WorkerLost                    the worker died too often on this job
    ├── TimedOut                      the job took longer than allowed
    ├── FigureNotDrawn                no browser to draw a figure with, or it failed
    └── Cancelled                     somebody cancelled it

Each class has a stable `code`, an HTTP `status` and a `title`; `detail` is one plain sentence of our own words that says what to do. It never
contains what the caller sent.
"""

from __future__ import annotations

from typing import ClassVar


class HeadscopeError(Exception):
    """Base of every error of ours. `pointer` names the field of the request (JSON pointer), `limit` and `actual` the numbers.

    `retry_after` is how long (s) to wait before the same request may go through; None where it never will.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    title: ClassVar[str] = "Something went wrong"
    retry_after: ClassVar[int | None] = None

    def __init__(
        self, detail: str, *, pointer: str | None = None, limit: int | None = None, actual: int | None = None
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer
        self.limit = limit
        self.actual = actual

    def problem(self) -> dict[str, object]:
        """The error as an RFC 9457 problem document, without the request's id."""
        document: dict[str, object] = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "errors": [{"pointer": self.pointer, "message": self.detail}] if self.pointer else [],
        }
        if self.limit is not None:
            document["limit"] = self.limit
        if self.actual is not None:
            document["actual"] = self.actual
        return document


class InvalidSetting(HeadscopeError):
    """A setting has a value that can't be right; nothing starts."""

    code, title = "invalid-setting", "A setting is not valid"


class InvalidRequest(HeadscopeError):
    """A field of the request is missing, of the wrong type or out of range."""

    code, status, title = "invalid-request", 422, "The request is not valid"


class InvalidText(InvalidRequest):
    """The text is empty, too long, or holds characters that are not text."""

    code, title = "invalid-text", "The text can't be analysed"


class InvalidImage(InvalidRequest):
    """The image is damaged, too large, or not an image."""

    code, title = "invalid-image", "The image can't be analysed"


class InvalidDataset(InvalidRequest):
    """The data set can't be read, or holds nothing that can be used."""

    code, title = "invalid-dataset", "The data set can't be read"


class InvalidQuery(InvalidRequest):
    """A query for heads can't be read. `position` is where, in characters from 0."""

    code, title = "invalid-query", "The query can't be read"

    def __init__(self, detail: str, position: int) -> None:
        super().__init__(f"{detail} (At character {position + 1}.)", pointer="/where")
        self.position = position

    def problem(self) -> dict[str, object]:
        return {**super().problem(), "position": self.position}

    def __reduce__(self) -> tuple[object, ...]:
        return (InvalidQuery, (self.detail.rpartition(" (At")[0], self.position))


class TooManyTokens(InvalidRequest):
    """The text has more tokens than the model takes."""

    code, title = "too-many-tokens", "The text is too long for this model"


class BudgetExceeded(InvalidRequest):
    """The analysis would not fit; the detail says what would."""

    code, title = "attention-budget-exceeded", "The analysis does not fit"


class Unknown(HeadscopeError):
    """There is nothing of that name. `what` becomes part of the code: unknown-model, unknown-lens, ..."""

    status = 404

    def __init__(self, what: str, detail: str, *, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.code = f"unknown-{what}"  # type: ignore[misc]
        self.title = f"Unknown {what}"  # type: ignore[misc]

    def __reduce__(self) -> tuple[object, ...]:
        return (_unknown, (self.code.removeprefix("unknown-"), self.detail, self.pointer))


def _unknown(what: str, detail: str, pointer: str | None) -> Unknown:
    return Unknown(what, detail, pointer=pointer)


class Unsupported(HeadscopeError):
    """What was asked can't be right for this model or input."""

    code, status, title = "unsupported", 422, "Not supported"


class ModelError(HeadscopeError):
    """The model can't be used."""

    code, status, title = "model-error", 422, "The model can't be used"


class UnsafeModel(ModelError):
    """The model's files ask to run code or name something this version does not know."""

    code, title = "unsafe-model", "The model is not safe to load"


class UnsafeWeights(ModelError):
    """The model has no safetensors weights."""

    code, title = "unsafe-weights", "The weights are not safe to load"


class CorruptModel(ModelError):
    """A file of the model is damaged or missing."""

    code, title = "model-corrupt", "The model's files are damaged"


class ModelUnavailable(ModelError):
    """The model is not on this machine and could not be fetched."""

    code, status, title = "model-unavailable", 424, "The model is not available"


class ModelNotExact(ModelError):
    """What was captured is not what the model itself computes."""

    code, title = "model-not-exact", "The model's attention can't be captured exactly"


class DatasetUnavailable(HeadscopeError):
    """The data set is on the hub and could not be fetched."""

    code, status, title = "dataset-unavailable", 424, "The data set is not available"


class NonFinite(HeadscopeError):
    """The model computed NaN or infinity."""

    code, status, title = "non-finite", 422, "The model computed NaN or infinity"


class Unauthorized(HeadscopeError):
    """No access token was sent, or one that is not known, or not any more."""

    code, status, title = "unauthorized", 401, "An access token is needed"


class AccountsUnreadable(HeadscopeError):
    """It can't be known who may use the server, so nobody may."""

    code, status, title = "accounts-unreadable", 503, "The access tokens can't be read"


class NotReady(HeadscopeError):
    """The analysis is not finished, or did not keep what is asked for."""

    code, status, title = "not-ready", 409, "Not ready"


class QueueFull(HeadscopeError):
    """Too many jobs wait already."""

    code, status, title = "queue-full", 429, "Too many jobs are waiting"
    retry_after = 30


class RequestTimeout(HeadscopeError):
    """The request's body did not arrive in time."""

    code, status, title = "request-timeout", 408, "The request took too long to arrive"


class TooManyRequests(HeadscopeError):
    """One user has too many requests or event streams open."""

    code, status, title = "too-many-requests", 429, "Too many requests at once"
    retry_after = 5


class ServerBusy(HeadscopeError):
    """All users together send more than fits into the server's memory."""

    code, status, title = "server-busy", 503, "The server is busy"
    retry_after = 5


class StorageFull(HeadscopeError):
    """The result could not be written."""

    code, status, title = "storage-full", 507, "No room for the result"


class BrokerUnavailable(HeadscopeError):
    """The Redis that holds a cluster's jobs can't be reached, or takes nothing new. What was accepted is not lost."""

    code, status, title = "broker-unavailable", 503, "The queue of jobs can't be reached"
    retry_after = 5


class StoreUnavailable(HeadscopeError):
    """The store of results can't be reached now; the result may well be there."""

    code, status, title = "store-unavailable", 503, "The store can't be reached"
    retry_after = 5


class DatabaseDamaged(HeadscopeError):
    """A database file of the server is damaged. The next start puts it aside."""

    code, status, title = "database-damaged", 503, "A database file is damaged"


class OutOfMemory(HeadscopeError):
    """The process that ran the analysis got no more memory, also with this analysis alone."""

    code, status, title = "out-of-memory", 500, "Out of memory"


class WorkerLost(HeadscopeError):
    """The worker process died each time it ran this job."""

    code, status, title = "worker-lost", 500, "The worker died"


class TimedOut(HeadscopeError):
    """The job took longer than the server allows."""

    code, status, title = "timed-out", 504, "The job took too long"


class FigureNotDrawn(HeadscopeError):
    """The figure can't be made a picture on this machine. Its data and its numbers can be had all the same."""

    code, status, title = "figure-not-drawn", 503, "The figure can't be drawn here"


class Cancelled(HeadscopeError):
    """The job was cancelled."""

    code, status, title = "cancelled", 409, "Cancelled"
