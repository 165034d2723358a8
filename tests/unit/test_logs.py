"""The log: one line per event, whatever it contains; no user input; ids that follow a request."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headscope import logs

# What breaks lines, moves cursors, pretends to be an event, or is only long.
ODD = [
    "two\nlines", "carriage\r\nreturn", "\x1b[31mred\x1b[0m\x1b]0;title\x07", "nul\x00", '{"event": "fake", "level": "error"}', "x" * 1_000_000,
    "\u2028\u2029\x85", "\u202eright to left\u202c", "\ud800 half a pair", "\x7f\x9b2J", '"quotes" and \\', "é 漢字 🙂", "", "%s %d %(name)s {} {0}",
]  # fmt: skip

SCRIPT = """
import json, logging, sys, threading, warnings
from headscope import logs
style, odd = sys.argv[1], json.loads(sys.stdin.read())
logs.configure(style, "debug")
logger = logging.getLogger("headscope.test")
events = 0
for text in odd:
    logger.info("said", extra={"value": text, "nested": {"deep": [text]}})
    logger.warning("said %s", text)
    logging.getLogger("uvicorn.error").error(text)
    logging.getLogger("celery.worker").error("%r", text)
    warnings.warn(text or "empty", stacklevel=1)
    events += 5
    for kind in (ValueError, KeyError, UserWarning):
        try:
            try:
                raise kind("secret " + text)
            except kind as error:
                raise TypeError("secret " + text) from error
        except TypeError:
            logger.exception("failed")
            events += 1
    with logs.bound(request_id=text):
        logger.debug("bound")
        events += 1
def fail():
    raise LookupError("secret in a thread")
thread = threading.Thread(target=fail)
thread.start()
thread.join()
print(events + 2)
raise LookupError("secret at the end")
"""


def _logged(style: str) -> tuple[int, str]:
    """Return the number of events that were logged, and what was printed."""
    ran = subprocess.run(
        [sys.executable, "-W", "always", "-c", SCRIPT, style],
        input=json.dumps(ODD).encode(),
        capture_output=True,
        check=False,
    )
    assert ran.returncode == 1, "an uncaught exception still ends the process"
    return int(ran.stdout), ran.stderr.decode("utf-8")


def test_every_line_of_json_is_one_event():
    events, printed = _logged("json")
    lines = printed.split("\n")
    assert lines.pop() == ""
    assert len(lines) == events
    assert all(character.isascii() and character.isprintable() for line in lines for character in line)
    for line in lines:
        event = json.loads(line)
        assert list(event)[:4] == ["timestamp", "level", "logger", "event"]
        assert len(line) < 20_000
        assert all(
            len(value) <= logs.LONGEST
            for name, value in event.items()
            if isinstance(value, str) and name != "exception"
        )
    assert "secret" not in printed
    failed = [json.loads(line) for line in lines if '"failed"' in line]
    assert len(failed) == 3 * len(ODD)
    # Classes and places are there, the first cause first.
    assert all(
        event["exception"].index("Error\n") < event["exception"].index("TypeError")
        for event in failed
        if "ValueError" in event["exception"]
    )
    assert [json.loads(line)["exception"].splitlines()[-1] for line in lines if '"uncaught"' in line] == [
        "LookupError"
    ] * 2


def test_text_is_one_line_per_event_and_indented_traces():
    events, printed = _logged("text")
    assert len([line for line in printed.split("\n") if line and not line.startswith("    ")]) == events
    assert all(character.isprintable() or character == "\n" for character in printed)
    assert "secret" not in printed


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("redis://headscope:hunter2@broker:6379/0", "redis://headscope:***@broker:6379/0"),
        ("redis://:hunter2@broker", "redis://:***@broker"),
        ("Authorization: Bearer hunter2", "Authorization: Bearer ***"),
        ("at http://127.0.0.1:8000/", "at http://127.0.0.1:8000/"),
    ],
)
def test_passwords_and_tokens_are_not_shown(said, shown):
    assert json.loads(logs.line("json", "said", url=said))["url"] == shown


def test_a_password_is_not_shown_where_a_value_is_cut():
    said = "x" * (logs.LONGEST - 20) + " redis://headscope:" + "hunter2" * 40 + "@broker"
    assert "hunter2" not in logs.line("json", "said", url=said)


def test_text_of_errors_about_the_machine_is_shown():
    try:
        raise OSError(28, "No space left on device")
    except OSError as error:
        shown = logs.line("json", "full", exc_info=error)
    assert json.loads(shown)["exception"].endswith("OSError: [Errno 28] No space left on device")


def test_ids_go_into_threads_of_asyncio_and_are_gone_afterwards():
    import asyncio

    async def answer() -> str:
        return await asyncio.to_thread(logs.request_id)

    with logs.bound(request_id="r1"):
        assert asyncio.run(answer()) == "r1"
    assert logs.request_id() == ""


AUDIT_SCRIPT = """
import logging, os, pathlib, sys
from headscope import logs
path = pathlib.Path(sys.argv[1])
logs.write_audit(path)
audit = logging.getLogger(logs.AUDIT)
audit.info("first")
path.rename(path.with_suffix(".old"))
audit.info("second")
"""


def test_the_audit_log_is_its_users_only_also_after_a_rotation(tmp_path):
    path = tmp_path / "audit.log"
    subprocess.run([sys.executable, "-c", AUDIT_SCRIPT, str(path)], check=True, umask=0o022)
    for file, said in ((path.with_suffix(".old"), "first"), (path, "second")):
        assert file.stat().st_mode & 0o777 == 0o600
        assert [json.loads(line)["event"] for line in file.read_text().splitlines()] == [said]
