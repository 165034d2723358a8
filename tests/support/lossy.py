"""A proxy for Redis that can drop a connection after a command has arrived, so that its response is lost."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from urllib.parse import urlsplit


class Lossy:
    """A port that forwards connections to the Redis at `url`."""

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
        """Drop the next connection that sends these bytes, after the response; return an event that is set then."""
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
        """Forward data from one end; return whether the connection stays open."""
        (end, *_), _, _ = select.select([client, server], [], [])
        data = end.recv(65536)
        cut = bool(self._word) and end is client and self._word in data
        (server if end is client else client).sendall(data)
        if cut:
            self._word = b""
            server.recv(65536)
            self._lost.set()
        return bool(data) and not cut
