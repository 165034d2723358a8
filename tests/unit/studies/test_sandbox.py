"""Files read in a process of their own: the same rows and the same refusals as in this one, and nothing that a file can do to this one."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headscope.errors import HeadscopeError, InvalidDataset, InvalidRequest, Unknown
from headscope.studies.data.formats import read
from headscope.studies.data.sandbox import ReadLimits, read_sandboxed
from tests.support.extent import extent, mostly_long
from tests.support.malformed import CASES, Case

MIB = 1024**2
LIMITS = ReadLimits(memory_bytes=512 * MIB, seconds=60, out_bytes=64 * MIB, text_bytes=32 * 1024)
SOME = [
    case for case in CASES if case.id in ("ragged", "conllu-empty-node", "utf-16", "surrogate", "mixed", "parquet-null")
]


@pytest.mark.parametrize("case", mostly_long(SOME, *SOME[::2]), ids=[case.id for case in SOME])
def test_the_same_as_here(case: Case, tmp_path: Path) -> None:
    """Rows, bad rows and report are those of a reading in this process, and outlive the file."""
    path = tmp_path / case.file
    path.write_bytes(case.content())
    here = read(path, text_bytes=LIMITS.text_bytes)
    rows = list(here.rows)
    apart = read_sandboxed(path, path.name, LIMITS, folder=tmp_path)
    path.unlink()
    assert list(apart.rows) == list(apart.rows) == rows
    assert apart.report() == here.report()
    assert (apart.total, apart.bad) == (here.total, here.bad)


def test_many_rows(tmp_path: Path) -> None:
    """More rows than are read at once from the spool, with all that a row may have."""
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{'wörd ' * 40}{number}\t{number % 3}\n" for number in range(10_000)))
    assert list(read_sandboxed(path, path.name, LIMITS, folder=tmp_path).rows) == list(read(path).rows)


@pytest.mark.parametrize(
    ("wanted", "kind"),
    [
        ({"format": "xml"}, Unknown),
        ({"columns": {"text": "nothing"}}, InvalidRequest),
        ({"bad_rows": "fail"}, InvalidDataset),
    ],
    ids=str,
)
def test_refusals_come_back(tmp_path: Path, wanted: dict[str, object], kind: type[HeadscopeError]) -> None:
    """With code, sentence, pointer and numbers."""
    path = tmp_path / "a.csv"
    path.write_text("text,label\nOne.,0\n,1\n")
    with pytest.raises(kind) as here:
        list(read(path, **wanted).rows)
    with pytest.raises(kind) as apart:
        read_sandboxed(path, path.name, LIMITS, folder=tmp_path, **wanted)
    for part in ("code", "detail", "pointer", "limit", "actual"):
        assert getattr(apart.value, part) == getattr(here.value, part)


def test_only_the_first_rows_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A description takes no room on the disk, however large the rows, and nothing is written to the machine's temporary folder, which may be memory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    path, count = tmp_path / "repeated.parquet", extent(10_000, 2_000)
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array(["word " * 1000]))
    pq.write_table(pa.table({"text": texts}), path)
    found = read_sandboxed(path, path.name, LIMITS, folder=tmp_path, max_rows=5)
    assert (len(list(found.rows)), found.total) == (5, count)
    assert not list(read_sandboxed(path, path.name, LIMITS, folder=tmp_path, max_rows=0).rows)
    with pytest.raises(InvalidDataset, match="more than 1048576 bytes"):
        read_sandboxed(path, path.name, replace(LIMITS, out_bytes=MIB), folder=tmp_path, max_rows=5)


def test_bounds(tmp_path: Path) -> None:
    """A file that unpacks to more memory, to more rows, or takes longer than allowed is refused; this process does not grow, and no other is left."""
    large, repeated = tmp_path / "large.parquet", tmp_path / "repeated.parquet"
    pq.write_table(
        pa.table({"text": ["x" * 64 * MIB]}), large, compression="zstd", use_dictionary=False, write_statistics=False
    )
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["word " * 1000]))
    pq.write_table(pa.table({"text": texts}), repeated)
    assert large.stat().st_size + repeated.stat().st_size < MIB
    before = psutil.Process().memory_info().rss
    for path, bounds, problem in (
        (large, replace(LIMITS, memory_bytes=160 * MIB), "more than 167772160 bytes of memory"),
        (repeated, LIMITS, "more than 67108864 bytes"),
        (repeated, replace(LIMITS, seconds=0.01), "longer than 0.01 s"),
    ):
        with pytest.raises(InvalidDataset) as raised:
            read_sandboxed(path, path.name, bounds, folder=tmp_path)
        assert problem in raised.value.detail
    assert psutil.Process().memory_info().rss - before < 64 * MIB
    left = [
        child.cmdline() for child in psutil.Process().children() if "headscope.studies.data.sandbox" in child.cmdline()
    ]
    assert left == []
