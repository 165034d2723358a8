"""Read untrusted files in a separate process with limits on memory, time and output, so that a malicious file cannot harm the server."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ...errors import HeadscopeError, InvalidDataset, InvalidRequest, StorageFull, Unknown
from .dataset import BadRow, BadRows, Dataset, Row
from .formats import read

# Errors that the process reports; any other failure is attributed to the file as well.
REPORTED: tuple[type[HeadscopeError], ...] = (InvalidDataset, InvalidRequest, StorageFull)
CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Limits on reading a file: memory (bytes), time (s), output (bytes), and the longest text of a row (`text_bytes`)."""

    memory_bytes: int
    seconds: float
    out_bytes: int
    text_bytes: int | None


class RowSpool:
    """Rows in an unnamed temporary file, which is deleted with the last reference to it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def __iter__(self) -> Iterator[Row]:
        place, rest = 0, b""
        while piece := os.pread(self._descriptor, CHUNK, place):
            place += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from (Row.from_dict(json.loads(line)) for line in whole)


def read_sandboxed(
    path: Path,
    name: str,
    limits: ReadLimits,
    *,
    folder: Path,
    max_rows: int | None = None,
    format: str | None = None,  # noqa: A002 - the usual name
    columns: Mapping[str, str] | None = None,
    bad_rows: BadRows = "skip",
) -> Dataset:
    """Read a whole file like formats.read, but in another process. The report is complete, and the rows outlive the file.

    The first `max_rows` rows (by default all) are stored in an unnamed file in `folder`, which should be on a disk. Raises what formats.read raises,
    InvalidDataset for a file that exceeds a limit, and StorageFull.
    """
    task = {
        "path": str(path),
        "name": name,
        "format": format,
        "columns": dict(columns or {}),
        "bad_rows": bad_rows,
        "text_bytes": limits.text_bytes,
    }
    with _storing(), tempfile.TemporaryFile(dir=folder) as rows:
        report = _report(_run(task, rows, limits, max_rows), limits)
        spool = RowSpool(rows)
    return Dataset(
        **{part: report[part] for part in ("name", "format", "encoding", "chosen", "reasons", "guessed", "bad_count")},
        columns=tuple(report["columns"]),
        rows=spool,
        bad=[BadRow(bad["row"], bad["problem"]) for bad in report["bad_rows"]],
        total=report["rows"] + report["bad_count"],
    )


def _run(
    task: dict[str, Any], rows: IO[bytes], limits: ReadLimits, max_rows: int | None
) -> subprocess.CompletedProcess[bytes] | None:
    """Run the process that reads the file, and return it once it has ended; None if it timed out."""
    with _lifeline() as lifeline:
        arguments = json.dumps([lifeline, limits.memory_bytes, limits.out_bytes, max_rows])
        try:
            return subprocess.run(  # noqa: S603 - our own module
                [sys.executable, "-m", "headscope.studies.data.sandbox", arguments],
                input=json.dumps(task).encode(),
                stdout=rows,
                stderr=subprocess.PIPE,
                timeout=limits.seconds,
                pass_fds=[lifeline],
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None


@contextmanager
def _storing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageFull(
            "The rows of the data set could not be written to disk. Free some space, then try again."
        ) from error


@contextmanager
def _lifeline() -> Iterator[int]:
    """Yield the read end of a pipe whose write end closes when this process ends, however it ends."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _report(ended: subprocess.CompletedProcess[bytes] | None, limits: ReadLimits) -> dict[str, Any]:
    """Return the report of the process. Raises the error that it reported, or InvalidDataset if it was killed or timed out."""
    if ended is None:
        raise InvalidDataset(
            f"Reading the data set took longer than {limits.seconds:g} s. Choose a smaller file.", pointer="/dataset"
        )
    if ended.returncode == 0:
        answer: dict[str, Any] = json.loads(ended.stderr.splitlines()[-1])
        if "report" in answer:
            return dict(answer["report"])
        raise _error(answer)
    raise InvalidDataset(
        f"Reading the data set took more than {limits.memory_bytes} bytes of memory, or the file is damaged. Choose a smaller or different file.",
        pointer="/dataset",
    )


def _error(answer: dict[str, Any]) -> HeadscopeError:
    if answer["code"].startswith("unknown-"):
        return Unknown(answer["code"].removeprefix("unknown-"), answer["detail"], pointer=answer["pointer"])
    kind = next(kind for kind in REPORTED if kind.code == answer["code"])
    return kind(answer["detail"], pointer=answer["pointer"], limit=answer["limit"], actual=answer["actual"])


def _limit_process(lifeline: int, memory_bytes: int, out_bytes: int) -> None:
    """Limit memory and output of this process, let it end with its parent, and make it the first to be killed when memory runs out."""
    threading.Thread(target=_exit_with_parent, args=[lifeline], daemon=True).start()
    with suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (out_bytes, out_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _exit_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def _write(rows: Iterable[Row], out_bytes: int, max_rows: int | None) -> None:
    """Write the first `max_rows` rows to standard output. All rows count towards `out_bytes`. Raises InvalidDataset or StorageFull."""
    size = 0
    with open(sys.stdout.fileno(), "wb", closefd=False) as file:
        for number, row in enumerate(rows):
            line = json.dumps(row.as_dict()).encode() + b"\n"
            size += len(line)
            if size > out_bytes:
                raise InvalidDataset(
                    f"The rows of the data set have more than {out_bytes} bytes. Choose a smaller file, or fewer columns.",
                    pointer="/dataset",
                    limit=out_bytes,
                )
            if max_rows is None or number < max_rows:
                with _storing():
                    file.write(line)


def _answer(task: dict[str, Any], out_bytes: int, max_rows: int | None) -> dict[str, Any]:
    try:
        dataset = read(Path(task.pop("path")), **task)
        _write(dataset.rows, out_bytes, max_rows)
    except HeadscopeError as error:
        parts = ("code", "detail", "pointer", "limit", "actual")
        return {part: getattr(error, part) for part in parts}
    return {"report": dataset.report()}


def main() -> None:
    """Run the task on standard input: write rows to standard output, and the report or an error to standard error."""
    lifeline, memory_bytes, out_bytes, max_rows = json.loads(sys.argv[1])
    _limit_process(lifeline, memory_bytes, out_bytes)
    print(json.dumps(_answer(json.load(sys.stdin), out_bytes, max_rows)), file=sys.stderr)  # noqa: T201 - its protocol


if __name__ == "__main__":
    main()
