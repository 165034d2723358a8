"""HTTP/1.1 connections with deadlines, and a limit on their number."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# A request's head must arrive within this time from its first byte, or from the connection for the first request.
HEAD_SECONDS = 10.0
# A client must read this many bytes of the response (or all of it) in each such interval.
READ_SECONDS, READ_BYTES = 20.0, 64 * 1024
# How long a connection stays open after a response to a partly read body, so that the client can read the response.
LINGER_SECONDS = 5.0
# An idle connection with an incomplete head takes up to 50 KiB.
MAX_CONNECTIONS = 4096
# File descriptors reserved for files and databases: a quarter of the limit, and at least this many.
SPARE_DESCRIPTORS = 96


def max_connections() -> int:
    """Return how many connections the process's limit on file descriptors allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    return max(1, min(MAX_CONNECTIONS, limit - max(SPARE_DESCRIPTORS, limit // 4)))


class Connection(H11Protocol):
    """A connection with deadlines for the request's head and for reading the response.

    Above `limit` connections, the one that has been waiting for its client longest is closed: idle, or with an incomplete head or body.
    """

    def __init__(self, *args: Any, limit: int, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limit = limit
        self.last_received = 0.0
        self._head_timer: asyncio.TimerHandle | None = None
        self._read_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for the first head, and close another connection if there are too many."""
        super().connection_made(transport)
        self.last_received = self.loop.time()
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)
        if len(self.connections) > self._limit:
            waiting = [other for other in cast("set[Connection]", self.connections) if other.waits_for_client]
            min(waiting, key=lambda other: other.last_received).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop all deadlines."""
        _cancel(self._head_timer)
        _cancel(self._read_timer)
        super().connection_lost(exc)

    @property
    def waits_for_client(self) -> bool:
        """Whether the client has to send something next."""
        their_turn = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        return their_turn and not self.flow.read_paused and not self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        """Start the deadline at the first byte of a head, and stop it at the last."""
        self.last_received = self.loop.time()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            _cancel(self._head_timer)
            self._head_timer = None
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        """Schedule closing the connection if the request's body has not been read completely."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self.loop.call_later(LINGER_SECONDS, self._end_linger)

    def _end_linger(self) -> None:
        if self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            self.transport.close()

    def pause_writing(self) -> None:
        """Start the deadline for reading the response."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """Stop the deadline for reading the response."""
        _cancel(self._read_timer)
        super().resume_writing()

    def _expect_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._read_timer = self.loop.call_later(READ_SECONDS, self._check_reading, unread)

    def _check_reading(self, unread_before: int) -> None:
        if self.transport.get_write_buffer_size() > unread_before - READ_BYTES:
            self.transport.abort()
        else:
            self._expect_reading()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
