"""A way to Redis that can be cut just after a command has arrived there, so that its answer is never heard."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from pathlib import Path


class Lossy:
    """A socket in front of another one; whoever connects here talks with whoever listens there."""

    def __init__(self, there: Path) -> None:
        self._there, here = there, there.with_name("lossy")
        self.url = f"unix://{here}"
        self._word = b""
        self._lost = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(here))
        self._listener.listen()

    def __enter__(self) -> Lossy:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def lose(self, word: bytes) -> threading.Event:
        """Cut the connection of whoever next sends that word, once it is answered; set when that has happened."""
        self._lost.clear()
        self._word = word
        return self._lost

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            server.connect(str(self._there))
            while self._passed(client, server):
                pass

    def _passed(self, client: socket.socket, server: socket.socket) -> bool:
        """Hand on what one of them says; whether they go on talking."""
        (end, *_), _, _ = select.select([client, server], [], [])
        data = end.recv(65536)
        cut = bool(self._word) and end is client and self._word in data
        (server if end is client else client).sendall(data)
        if cut:
            self._word = b""
            server.recv(65536)
            self._lost.set()
        return bool(data) and not cut
