"""Structured logs: one event per line, as text or JSON, with the ids that follow a request to its worker, and without user input.

Modules log through Python's `logging`, with fields in `extra`. Messages are constant, and values are ids, codes, counts and names of the catalogue. No value may
break a line, move the terminal's cursor or fill the disk, so all are truncated and escaped here. Exceptions whose text may contain user input are logged with
class and traceback only.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable
from io import FileIO, TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import structlog
from structlog.typing import EventDict, Processor

from .errors import HeadscopeError

Style = Literal["text", "json"]
Level = Literal["debug", "info", "warning", "error"]

LONGEST = 256  # most characters of a value
LONGEST_TRACE = 2_500
# Exceptions whose text is about the machine. Others are logged without their text, which may contain user input.
SPEAKING = (HeadscopeError, OSError, MemoryError, RuntimeError, sqlite3.Error)
SPEAKING_PACKAGES = frozenset({"botocore", "celery", "kombu", "redis", "safetensors", "torch"})
PASSWORD = re.compile(r"(?<=:)[^\s/:@]+(?=@)|(?<=Bearer )\S+")
# Messages that clients can trigger at will.
PROVOKED = ("socket.accept() out of system resource", "Invalid HTTP request received.", "Unsupported upgrade request.")
AUDIT = "headscope.audit"
OTHERS = ("uvicorn", "uvicorn.error", "uvicorn.access", "celery", "celery.task", "celery.redirected", "multiprocessing")


def configure(style: Style, level: Level) -> None:
    """Log to standard error: Headscope's events from `level` up, those of the audit log always, and those of other packages from warnings up."""
    handler = logging.StreamHandler()
    handler.setFormatter(_formatter(style))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in OTHERS:
        other = logging.getLogger(name)
        other.handlers.clear()
        other.propagate = True
    for name in ("asyncio", "uvicorn.error"):
        logging.getLogger(name).filters[:] = [_OncePerSecond()]
    logging.getLogger("headscope").setLevel(level.upper())
    logging.getLogger(AUDIT).setLevel(logging.INFO)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    threading.excepthook = lambda found: _uncaught(found.exc_type, found.exc_value, found.exc_traceback)


def write_audit(path: Path) -> None:
    """Append the events of the audit log to a file, as JSON lines, instead of logging them. The file may be moved away: then it is made again. Raises OSError."""
    handler = _OwnFileHandler(path, encoding="utf-8")
    handler.setFormatter(_formatter("json"))
    logger = logging.getLogger(AUDIT)
    for earlier in [*logger.handlers]:
        logger.removeHandler(earlier)
        earlier.close()
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _OwnFileHandler(WatchedFileHandler):
    """A file that only this user can read, also when it is made again."""

    def _open(self) -> TextIOWrapper:
        file = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return TextIOWrapper(FileIO(file, "a"), self.encoding)


def _formatter(style: Style) -> logging.Formatter:
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_common(),
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_last(style)],
    )


class _OncePerSecond(logging.Filter):
    """A filter that passes each of the PROVOKED messages at most once per second, as one line."""

    def __init__(self) -> None:
        super().__init__()
        self._passed: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the event."""
        event = str(record.msg).partition("\n")[0]
        if event not in PROVOKED:
            return True
        if record.created - self._passed.get(event, 0.0) < 1.0:
            return False
        self._passed[event] = record.created
        record.msg, record.args, record.exc_info = event, (), None
        return True


# Adds ids to every event logged in its context, including threads that asyncio starts from it.
bound = structlog.contextvars.bound_contextvars


def request_id() -> str:
    """Return the id of the current request; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def line(style: Style, event: str, **fields: Any) -> str:
    """Format an event as in the log, to be printed elsewhere."""
    values: EventDict = {"event": event, "level": "info", "logger": "headscope", **fields}
    values = structlog.processors.TimeStamper(fmt="iso")(None, "info", values)
    *before, last = _last(style)
    for processor in before:
        values = processor(None, "info", values)
    return str(last(None, "info", values))


def _common() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso"),
    ]


def _last(style: Style) -> list[Callable[[Any, str, EventDict], Any]]:
    return [_trace, _clean, _as_json if style == "json" else _as_text]


def _trace(_: Any, __: str, values: EventDict) -> EventDict:
    """Replace an exception by its formatted traceback."""
    found = values.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        values["exception"] = _shown(error)
    return values


def _shown(error: BaseException) -> str:
    """Format the frames and classes of an exception and of its causes, the root cause first, keeping the end of a long trace."""
    parts: list[str] = []
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        frames = "".join(traceback.StackSummary.extract(traceback.walk_tb(following.__traceback__), limit=-12).format())
        parts.insert(0, f"{frames}{_said(following)}")
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)
    return "\n".join(parts)[-LONGEST_TRACE:]


def _said(error: BaseException) -> str:
    """Return the exception's class, with its text if that cannot contain user input."""
    name = type(error).__name__
    speaks = isinstance(error, SPEAKING) or type(error).__module__.partition(".")[0] in SPEAKING_PACKAGES
    return f"{name}: {str(error)[:LONGEST]}" if speaks else name


def _clean(_: Any, __: str, values: EventDict) -> EventDict:
    """Reduce all values to scalars of bounded length, without passwords."""
    return {name: _bounded(name, value) for name, value in values.items()}


def _bounded(name: str, value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    longest = LONGEST_TRACE if name == "exception" else LONGEST
    return PASSWORD.sub("***", str(value)[: 4 * longest])[:longest]


def _as_json(_: Any, __: str, values: EventDict) -> str:
    first = {name: values.pop(name) for name in ("timestamp", "level", "logger", "event")}
    return json.dumps({**first, **values})


def _as_text(_: Any, __: str, values: EventDict) -> str:
    trace = values.pop("exception", "")
    head = " ".join(_printable(values.pop(name)) for name in ("timestamp", "level", "logger", "event"))
    fields = "".join(f"  {name}={_printable(value)}" for name, value in values.items() if value not in (None, ""))
    return head + fields + "".join(f"\n    {_printable(line)}" for line in trace.splitlines())


def _printable(value: Any) -> str:
    """Return the text with control characters, direction marks and the like escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in str(value))


def _uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Log an uncaught exception."""
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error or kind(), trace)
    elif not issubclass(kind, SystemExit):  # which is how a thread may end
        logging.getLogger("headscope").critical("uncaught", exc_info=error or True)
