"""A file from outside is read in a process of its own, with bounds on memory, time and what comes out: whatever it does there, it takes nobody along."""

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

# What the process may raise; whatever else ends it is a fault of the file, too.
RAISED: tuple[type[HeadscopeError], ...] = (InvalidDataset, InvalidRequest, StorageFull)
CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Bounds:
    """What reading may take: memory (bytes), time (s), and how much may come out (bytes). `text_bytes` is the longest text of a row."""

    memory_bytes: int
    seconds: float
    out_bytes: int
    text_bytes: int | None


class Spool:
    """Rows in a file without a name, which is gone when nobody reads it any more."""

    def __init__(self, file: IO[bytes]) -> None:
        self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)

    def __iter__(self) -> Iterator[Row]:
        place, rest = 0, b""
        while piece := os.pread(self._descriptor, CHUNK, place):
            place += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            yield from (Row.from_dict(json.loads(line)) for line in whole)


def read_apart(
    path: Path,
    name: str,
    bounds: Bounds,
    *,
    folder: Path,
    most_rows: int | None = None,
    format: str | None = None,  # noqa: A002 - as it is called everywhere
    columns: Mapping[str, str] | None = None,
    bad_rows: BadRows = "skip",
) -> Dataset:
    """As formats.read, but all of it now and in another process. Its report is complete, and its rows outlive the file.

    Rows are written to an unnamed file in `folder`, which should be on a disk: the first `most_rows`, or all of them. Raises InvalidDataset, InvalidRequest or
    Unknown as formats.read does, InvalidDataset for a file that breaks the bounds, and StorageFull.
    """
    asked = {
        "path": str(path),
        "name": name,
        "format": format,
        "columns": dict(columns or {}),
        "bad_rows": bad_rows,
        "text_bytes": bounds.text_bytes,
    }
    with _storing(), tempfile.TemporaryFile(dir=folder) as rows:
        report = _report(_run(asked, rows, bounds, most_rows), bounds)
        spool = Spool(rows)
    return Dataset(
        **{part: report[part] for part in ("name", "format", "encoding", "chosen", "reasons", "guessed", "bad_count")},
        columns=tuple(report["columns"]),
        rows=spool,
        bad=[BadRow(bad["row"], bad["problem"]) for bad in report["bad_rows"]],
        total=report["rows"] + report["bad_count"],
    )


def _run(
    asked: dict[str, Any], rows: IO[bytes], bounds: Bounds, most_rows: int | None
) -> subprocess.CompletedProcess[bytes] | None:
    """The process that has read the file; None for one that took too long."""
    with _lifeline() as lifeline:
        limits = json.dumps([lifeline, bounds.memory_bytes, bounds.out_bytes, most_rows])
        try:
            return subprocess.run(  # noqa: S603 - our own module
                [sys.executable, "-m", "headscope.studies.data.reading", limits],
                input=json.dumps(asked).encode(),
                stdout=rows,
                stderr=subprocess.PIPE,
                timeout=bounds.seconds,
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
            "The rows of the data set could not be written to disk. Free some room there, then try again."
        ) from error


@contextmanager
def _lifeline() -> Iterator[int]:
    """The reading end of a pipe that is closed when this process ends, in whatever way."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _report(ended: subprocess.CompletedProcess[bytes] | None, bounds: Bounds) -> dict[str, Any]:
    """What the process says of the data set. Raises what it raised, or InvalidDataset for what ended it."""
    if ended is None:
        raise InvalidDataset(
            f"Reading the data set took longer than {bounds.seconds:g} s. Give a smaller file.", pointer="/dataset"
        )
    if ended.returncode == 0:
        answer: dict[str, Any] = json.loads(ended.stderr.splitlines()[-1])
        if "report" in answer:
            return dict(answer["report"])
        raise _raised(answer)
    raise InvalidDataset(
        f"Reading the data set took more than {bounds.memory_bytes} bytes of memory, or the file is damaged. Give a smaller or another one.",
        pointer="/dataset",
    )


def _raised(answer: dict[str, Any]) -> HeadscopeError:
    if answer["code"].startswith("unknown-"):
        return Unknown(answer["code"].removeprefix("unknown-"), answer["detail"], pointer=answer["pointer"])
    kind = next(kind for kind in RAISED if kind.code == answer["code"])
    return kind(answer["detail"], pointer=answer["pointer"], limit=answer["limit"], actual=answer["actual"])


def _bound(lifeline: int, memory_bytes: int, out_bytes: int) -> None:
    """Bound this process for good: it ends with its parent, what is too much ends it or is a MemoryError, and it is the first to go if memory runs out."""
    threading.Thread(target=_end_with, args=[lifeline], daemon=True).start()
    with suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (out_bytes, out_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _end_with(lifeline: int) -> None:
    os.read(lifeline, 1)
    os._exit(1)


def _write(rows: Iterable[Row], out_bytes: int, most_rows: int | None) -> None:
    """Write rows, the first `most_rows` of them. All count, before they are written. Raises InvalidDataset or StorageFull."""
    size = 0
    with open(sys.stdout.fileno(), "wb", closefd=False) as file:
        for number, row in enumerate(rows):
            line = json.dumps(row.as_dict()).encode() + b"\n"
            size += len(line)
            if size > out_bytes:
                raise InvalidDataset(
                    f"The rows of the data set have more than {out_bytes} bytes. Give a smaller file, or fewer columns.",
                    pointer="/dataset",
                    limit=out_bytes,
                )
            if most_rows is None or number < most_rows:
                with _storing():
                    file.write(line)


def _answer(asked: dict[str, Any], out_bytes: int, most_rows: int | None) -> dict[str, Any]:
    from .formats import read

    try:
        dataset = read(Path(asked.pop("path")), **asked)
        _write(dataset.rows, out_bytes, most_rows)
    except HeadscopeError as error:
        parts = ("code", "detail", "pointer", "limit", "actual")
        return {part: getattr(error, part) for part in parts}
    return {"report": dataset.report()}


def main() -> None:
    """Read what standard input asks for: rows to standard output, and the report, or what is wrong, to standard error."""
    lifeline, memory_bytes, out_bytes, most_rows = json.loads(sys.argv[1])
    _bound(lifeline, memory_bytes, out_bytes)
    print(json.dumps(_answer(json.load(sys.stdin), out_bytes, most_rows)), file=sys.stderr)  # noqa: T201 - that is how it answers


if __name__ == "__main__":
    main()
