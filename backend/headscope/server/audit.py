"""The audit log: who did what and when, as events of the logger `headscope.audit`. It has names, ids and counts: no texts, tokens or keys."""

from __future__ import annotations

import logging

from .. import logs
from ..errors import InvalidSetting
from ..settings import Settings

logger = logging.getLogger(logs.AUDIT)


def record(event: str, **about: str | int | None) -> None:
    """Record an event. `about` has who (`user`, or `uid` for a command), what (`resource`, by its path), and how it ended (`status`)."""
    logger.info(event, extra=about)


def open_audit(settings: Settings) -> bool:
    """Open the file of the settings, if there is one, and return whether there is. Raises InvalidSetting."""
    if settings.audit_file is None:
        return False
    try:
        logs.write_audit(settings.audit_file)
    except OSError:
        raise InvalidSetting(
            "The file HEADSCOPE_AUDIT_FILE cannot be written. Choose another one, or correct its permissions."
        ) from None
    return True
