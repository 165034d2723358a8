"""The time that several threads take together."""

from __future__ import annotations

import time
from threading import Lock


class Stopwatch:
    """Counts the seconds during which it is used as a context manager in at least one thread."""

    def __init__(self) -> None:
        self._lock, self._users, self._since, self.seconds = Lock(), 0, 0.0, 0.0

    @property
    def runs(self) -> bool:
        """Whether it is used at the moment."""
        return self._users > 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._since = time.perf_counter()
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self.seconds += time.perf_counter() - self._since
