"""A proxy for a database that can drop a connection after a command has arrived, so that its response is lost."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from urllib.parse import urlsplit


class Lossy:
    """A port that forwards connections to the database at `url`."""

    def __init__(self, url: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = int(urlsplit(url).port or 0)
        self.url = url.replace(f":{self._port}/", f":{self._listener.getsockname()[1]}/")
        self._words: list[bytes] = []
        self._lost = threading.Event()

    def __enter__(self) -> Lossy:
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def lose(self, *words: bytes) -> threading.Event:
        """Drop the next connection that sends these words, one after another, after the response to the last; return an event that is set then."""
        self._lost.clear()
        self._words = list(words)
        return self._lost

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port)) as server:
            left = list[bytes]()
            while self._passed(client, server, left):
                pass

    def _passed(self, client: socket.socket, server: socket.socket, left: list[bytes]) -> bool:
        """Forward data from one end; return whether the connection stays open."""
        (end, *_), _, _ = select.select([client, server], [], [])
        data = end.recv(65536)
        cut = end is client and self._heard(data, left)
        (server if end is client else client).sendall(data)
        if cut:
            server.recv(65536)
            self._lost.set()
        return bool(data) and not cut

    def _heard(self, data: bytes, left: list[bytes]) -> bool:
        """Return whether the last of the words has come; `left` are those that this connection has yet to send."""
        if not left and self._words and self._words[0] in data:
            left += self._words
            self._words = []
        while left and left[0] in data:
            data = data.partition(left.pop(0))[2]
            if not left:
                return True
        return False
