"""Keeps stores tidy while a server runs."""

from __future__ import annotations

import logging
import threading
import time
from typing import Protocol

from ..errors import HeadscopeError
from .results import Results

logger = logging.getLogger("headscope.store")
# So often (s) each server says what was used, and asks whether it is its turn to tidy.
NOTE_SECONDS = 1.0
TIDY_SECONDS = 60.0


class Tidied(Protocol):
    """Something that may be tidied at any time."""

    def tidy(self) -> None:
        """See Results.tidy."""


class Maintenance:
    """Notes the uses of results, and tidies stores once before anything is written, and then in a thread of its own whenever it is this server's turn."""

    def __init__(self, results: Results, *others: Tidied) -> None:
        self._results, self._stores = results, (results, *others)
        self._stop = threading.Event()

    def start(self) -> None:
        """Tidy now, and go on until stop()."""
        self._stop.clear()
        self._tidy()
        threading.Thread(target=self._run, name="housekeeper", daemon=True).start()

    def stop(self) -> None:
        """Let go; what is being tidied is tidied by another turn."""
        self._stop.set()

    def _run(self) -> None:
        tidied = time.monotonic()
        while not self._stop.wait(NOTE_SECONDS):
            try:
                self._results.note_uses()
                if time.monotonic() - tidied > TIDY_SECONDS:
                    tidied = time.monotonic()
                    self._tidy()
            except HeadscopeError as error:  # the next turn comes
                logger.warning("the store could not be tidied: %s", error.detail)
            except Exception:
                logger.exception("the store could not be tidied")

    def _tidy(self) -> None:
        for store in self._stores:
            store.tidy()
