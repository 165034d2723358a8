"""Answers given lately, kept in this process so that they need not be put together again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

# Room for all of them, in bytes.
ROOM = 32 * 1024 * 1024


class RecentAnswers:
    """Answers by a key that names all they depend on; the least used go first. Safe for threads."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def get(self, key: Hashable) -> Any | None:
        """The answer, if it is still here."""
        with self._lock:
            found, _ = self._answers.get(key, (None, 0))
            if found is not None:
                self._answers.move_to_end(key)
            return found

    def put(self, key: Hashable, answer: Any, size: int) -> None:
        """Keep an answer of `size` bytes; one larger than all the room there is goes at once."""
        with self._lock:
            self._room += self._answers.pop(key, (None, 0))[1] - size
            self._answers[key] = answer, size
            while self._room < 0:
                self._room += self._answers.popitem(last=False)[1][1]
