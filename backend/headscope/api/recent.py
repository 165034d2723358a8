"""Answers given lately, kept in this process so that they need not be put together again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

# Room for all of them, in bytes.
ROOM = 16 * 1024 * 1024


class Recent:
    """Bytes by a key that names all they depend on; the least used go first. Safe for threads."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()

    def get(self, key: Hashable) -> bytes | None:
        """The answer, if it is still here."""
        with self._lock:
            found = self._answers.get(key)
            if found is not None:
                self._answers.move_to_end(key)
            return found

    def put(self, key: Hashable, answer: bytes) -> None:
        """Keep an answer; one larger than all the room there is goes at once."""
        with self._lock:
            self._room -= len(answer) - len(self._answers.pop(key, b""))
            self._answers[key] = answer
            while self._room < 0:
                self._room += len(self._answers.popitem(last=False)[1])
