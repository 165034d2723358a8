"""The audit log of commands."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from headscope import logs
from tests.support.commands import run


def test_what_is_done_to_tokens_is_recorded(tmp_path: Path) -> None:
    """In the file of the audit log, with names only."""
    home = tmp_path / "home"
    file, logger = tmp_path / "audit.jsonl", logging.getLogger(logs.AUDIT)
    try:
        made = run(home, "token", "create", "ada", audit_file=file)
        for ask in ("create", "revoke"):
            run(home, "token", ask, "ada", audit_file=file)
    finally:  # as at the end of a process
        logger.propagate = True
        for handler in [*logger.handlers]:
            logger.removeHandler(handler)
            handler.close()
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(event["event"], event["of"]) for event in events] == [("token created", "ada"), ("access revoked", "ada")]
    assert made.stdout.strip() not in file.read_text()
    nowhere = run(home, "token", "create", "emmy", audit_file=tmp_path / "none" / "audit.jsonl")
    assert (nowhere.returncode, "HEADSCOPE_AUDIT_FILE" in nowhere.stderr) == (1, True)
    assert json.loads(run(home, "token", "list", "--json").stdout) == []
