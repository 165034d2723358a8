"""Maintenance of stores while a server runs."""

from __future__ import annotations

import logging
import threading

from ..errors import HeadscopeError
from .entries import EntryStore

logger = logging.getLogger("headscope.store")
# How often (s) a server checks whether it is its turn to tidy.
TIDY_SECONDS = 60.0


class Maintenance:
    """A thread that tidies stores. They are also tidied once at start-up, before anything is written."""

    def __init__(self, *stores: EntryStore) -> None:
        self._stores = stores
        self._stop = threading.Event()

    def start(self) -> None:
        """Tidy now, then start the thread."""
        self._tidy()
        threading.Thread(target=self._run, name="maintenance", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread after its current step, without waiting for it."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(TIDY_SECONDS):
            try:
                self._tidy()
            except HeadscopeError as error:  # the next round retries
                logger.warning("cannot tidy the store: %s", error.detail)
            except Exception:
                logger.exception("cannot tidy the store")

    def _tidy(self) -> None:
        for store in self._stores:
            store.tidy()
