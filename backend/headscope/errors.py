"""Every error that Headscope raises on purpose.

Each class has a stable `code`, an HTTP `status` and a `title`. `detail` says what is wrong and what to do about it; it never contains input.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from typing import Any, ClassVar


class HeadscopeError(Exception):
    """The base class. `pointer` names the invalid field (JSON pointer); `limit` and `actual` are the numbers that were compared.

    `retry_after` is the time (s) after which the same request may succeed; None if retrying does not help.
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy the attributes to another process, without a call of `__init__`, whose arguments differ between classes."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    def problem(self) -> dict[str, object]:
        """Return the error as an RFC 9457 problem document, without the request id."""
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
    """A setting is invalid. The server does not start."""

    code, title = "invalid-setting", "Invalid setting"


class InvalidRequest(HeadscopeError):
    """A field of the request is missing, of the wrong type or out of range."""

    code, status, title = "invalid-request", 422, "Invalid request"


class InvalidText(InvalidRequest):
    """The text is empty, too long, or contains invalid characters."""

    code, title = "invalid-text", "The text cannot be analysed"


class InvalidImage(InvalidRequest):
    """The image is damaged, too large, or not an image."""

    code, title = "invalid-image", "The image cannot be analysed"


class InvalidDataset(InvalidRequest):
    """The data set cannot be parsed, or contains no usable rows."""

    code, title = "invalid-dataset", "The data set cannot be read"


class InvalidQuery(InvalidRequest):
    """A query for heads cannot be parsed. `position` is the offset of the error in characters."""

    code, title = "invalid-query", "The query cannot be parsed"

    def __init__(self, detail: str, position: int) -> None:
        super().__init__(f"{detail} (At character {position + 1}.)", pointer="/where")
        self.position = position

    def problem(self) -> dict[str, object]:
        return {**super().problem(), "position": self.position}


class TooManyTokens(InvalidRequest):
    """The text has more tokens than the model accepts."""

    code, title = "too-many-tokens", "The text is too long for this model"


class BudgetExceeded(InvalidRequest):
    """The analysis would not fit into memory or onto disk. The detail says what would."""

    code, title = "attention-budget-exceeded", "The analysis does not fit"


class Unknown(HeadscopeError):
    """A name that does not exist. `what` becomes part of the code: unknown-model, unknown-lens, ..."""

    status = 404

    def __init__(self, what: str, detail: str, *, pointer: str | None = None) -> None:
        super().__init__(detail, pointer=pointer)
        self.code = f"unknown-{what}"  # type: ignore[misc]
        self.title = f"Unknown {what}"  # type: ignore[misc]


class Unsupported(HeadscopeError):
    """The request cannot be computed correctly for this model or input."""

    code, status, title = "unsupported", 422, "Not supported"


class ModelError(HeadscopeError):
    """The model cannot be used."""

    code, status, title = "model-error", 422, "The model cannot be used"


class UnsafeModel(ModelError):
    """The model's files ask to run code, or require something that this version does not have."""

    code, title = "unsafe-model", "The model is not safe to load"


class UnsafeWeights(ModelError):
    """The model has no safetensors weights."""

    code, title = "unsafe-weights", "The weights are not safe to load"


class CorruptModel(ModelError):
    """A file of the model is damaged or missing."""

    code, title = "model-corrupt", "The model's files are damaged"


class ModelUnavailable(ModelError):
    """The model is not on this machine and cannot be downloaded."""

    code, status, title = "model-unavailable", 424, "The model is not available"


class ModelNotExact(ModelError):
    """The captured attention differs from what the model computes."""

    code, title = "model-not-exact", "The model's attention cannot be captured exactly"


class DatasetUnavailable(HeadscopeError):
    """The data set cannot be downloaded from the hub."""

    code, status, title = "dataset-unavailable", 424, "The data set is not available"


class NonFinite(HeadscopeError):
    """The model computed NaN or infinity."""

    code, status, title = "non-finite", 422, "The model computed NaN or infinity"


class Unauthorized(HeadscopeError):
    """The request has no access token, or an invalid or revoked one."""

    code, status, title = "unauthorized", 401, "Access token required"


class Forbidden(HeadscopeError):
    """The visitor is not allowed to do this on this server, or it is not allowed over REST."""

    code, status, title = "forbidden", 403, "Not allowed"


class SignInRefused(HeadscopeError):
    """The identity provider did not identify the visitor, or its user has no access to this server."""

    code, status, title = "sign-in-refused", 403, "Signing in was refused"


class ProviderUnavailable(HeadscopeError):
    """The identity provider is unreachable, or does not answer as OpenID Connect requires."""

    code, status, title = "provider-unavailable", 503, "The identity provider is unavailable"
    retry_after = 5


class NotReady(HeadscopeError):
    """The analysis is not finished, or did not keep the requested data."""

    code, status, title = "not-ready", 409, "Not ready"


class QueueFull(HeadscopeError):
    """Too many jobs are queued."""

    code, status, title = "queue-full", 429, "The job queue is full"
    retry_after = 30


class RequestTimeout(HeadscopeError):
    """The request body did not arrive in time."""

    code, status, title = "request-timeout", 408, "The request took too long to arrive"


class TooManyRequests(HeadscopeError):
    """One user has too many open requests or event streams."""

    code, status, title = "too-many-requests", 429, "Too many requests at once"
    retry_after = 5


class ServerBusy(HeadscopeError):
    """The request bodies, or the large responses, of all users exceed the server's memory limit."""

    code, status, title = "server-busy", 503, "The server is busy"
    retry_after = 5


class StorageFull(HeadscopeError):
    """There is no space to write the result."""

    code, status, title = "storage-full", 507, "Storage is full"


class DatabaseUnavailable(HeadscopeError):
    """The database of a cluster is unreachable or accepts no writes. Accepted jobs are not lost."""

    code, status, title = "database-unavailable", 503, "The database is unreachable"
    retry_after = 5


class StoreUnavailable(HeadscopeError):
    """The result store is unreachable. The result may still exist."""

    code, status, title = "store-unavailable", 503, "The result store is unreachable"
    retry_after = 5


class DatabaseDamaged(HeadscopeError):
    """A database file of the server is damaged. The next start quarantines it."""

    code, status, title = "database-damaged", 503, "A database file is damaged"


class OutOfMemory(HeadscopeError):
    """The worker ran out of memory, even with this analysis alone."""

    code, status, title = "out-of-memory", 500, "Out of memory"


class WorkerLost(HeadscopeError):
    """The worker process died on every attempt at this job."""

    code, status, title = "worker-lost", 500, "The worker died"


class TimedOut(HeadscopeError):
    """The job exceeded the server's time limit."""

    code, status, title = "timed-out", 504, "The job took too long"


class FigureNotDrawn(HeadscopeError):
    """The figure cannot be rendered as an image on this machine. Its JSON and CSV are available."""

    code, status, title = "figure-not-drawn", 503, "The figure cannot be drawn on this server"


class Cancelled(HeadscopeError):
    """The job was cancelled."""

    code, status, title = "cancelled", 409, "Cancelled"


class ApiError(HeadscopeError):
    """A server rejected a request of its client, or its job failed. `status`, `code` and `title` are those of the problem that it sent; `errors` are its invalid fields."""

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(problem["detail"], limit=problem.get("limit"), actual=problem.get("actual"))
        self.code, self.status, self.title = problem["code"], problem["status"], problem["title"]  # type: ignore[misc]
        self.errors: list[dict[str, str]] = problem.get("errors", [])
        self.request_id: str | None = problem.get("request_id")
