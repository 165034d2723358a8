"""A way to Redis that can be cut just after a command has arrived there, so that its answer is never heard."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from urllib.parse import urlsplit


class Lossy:
    """A port in front of the Redis at `url`; whoever connects here talks with whoever listens there."""

    def __init__(self, url: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = int(urlsplit(url).port or 0)
        self.url = url.replace(f":{self._port}/", f":{self._listener.getsockname()[1]}/")
        self._word = b""
        self._lost = threading.Event()

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
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as server:
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
