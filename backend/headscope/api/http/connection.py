"""HTTP/1.1 connections that have to make progress, and no more of them than the process has descriptors for."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# A request's head has to arrive within so many seconds of its first byte, that of the first request within so many of the connection.
HEAD_SECONDS = 10.0
# Within so many seconds a reader has to take this many bytes of what waits for it, or all of them.
READ_SECONDS, READ_BYTES = 20.0, 64 * 1024
# A client that still sends a body that was not read is listened to for so many seconds, so that it can read the answer.
LINGER_SECONDS = 5.0
# An idle connection with an incomplete head takes up to 50 KiB.
MOST_CONNECTIONS = 4096
# Descriptors that connections leave to files and databases: a quarter, and at least this many.
SPARE_DESCRIPTORS = 96


def most_connections() -> int:
    """Return how many connections may be open at once with the process's limit on descriptors."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return max(1, min(MOST_CONNECTIONS, limit - max(SPARE_DESCRIPTORS, limit // 4)))


class Connection(H11Protocol):
    """A connection with deadlines for the request's head and for reading the answer.

    Beyond `most` connections the one whose client has been silent longest is closed: one that is idle, or owes a head or a body.
    """

    def __init__(self, *args: Any, most: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._most = most
        self.heard = 0.0
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for the first head, and make room if there are too many connections."""
        super().connection_made(transport)
        self.heard = self.loop.time()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)
        if len(self.connections) > self._most:
            silent = [one for one in cast("set[Connection]", self.connections) if one.silent]
            min(silent, key=lambda one: one.heard).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all deadlines."""
        _cancel(self._head_timer)
        _cancel(self._read_timer)
        super().connection_lost(exc)

    @property
    def silent(self) -> bool:
        """Whether the server waits for the client to send something."""
        owes = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        return owes and not self.flow.read_paused and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        """Start the deadline with the first byte of a head, and stop it with the last one."""
        self.heard = self.loop.time()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            _cancel(self._head_timer)
            self._head_timer = None
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        """Close the connection soon if the request's body has not been read to its end."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self.loop.call_later(LINGER_SECONDS, self._end_linger)

    def _end_linger(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the deadline for the reader."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Stop the deadline for the reader."""
        _cancel(self._read_timer)
        super().resume_writing()

    def _expect_reading(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(READ_SECONDS, self._check_reading, waiting)

    def _check_reading(self, before: int) -> None:
        if self.transport.get_write_buffer_size() > before - READ_BYTES:
            self.transport.abort()
        else:
            self._expect_reading()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
