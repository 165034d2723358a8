"""Maintenance of stores while a server runs."""

from __future__ import annotations

import logging
import threading
import time

from ..errors import HeadscopeError
from .entries import EntryStore
from .results import Results

logger = logging.getLogger("headscope.store")
# How often (s) a server notes which results were used, and checks whether it is its turn to tidy.
NOTE_SECONDS = 1.0
TIDY_SECONDS = 60.0


class Maintenance:
    """A thread that notes the uses of results and tidies stores. They are also tidied once at start-up, before anything is written."""

    def __init__(self, results: Results, *others: EntryStore) -> None:
        self._results, self._stores = results, (results, *others)
        self._stop = threading.Event()

    def start(self) -> None:
        """Tidy now, then start the thread."""
        self._stop.clear()
        self._tidy()
        threading.Thread(target=self._run, name="maintenance", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread after its current step, without waiting for it."""
        self._stop.set()

    def _run(self) -> None:
        tidied = time.monotonic()
        while not self._stop.wait(NOTE_SECONDS):
            try:
                self._results.note_uses()
                if time.monotonic() - tidied > TIDY_SECONDS:
                    tidied = time.monotonic()
                    self._tidy()
            except HeadscopeError as error:  # the next round retries
                logger.warning("cannot tidy the store: %s", error.detail)
            except Exception:
                logger.exception("cannot tidy the store")

    def _tidy(self) -> None:
        for store in self._stores:
            store.tidy()
