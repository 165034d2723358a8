"""Malformed data sets: damaged, mixed up, mislabelled. Each with the problems to report; no row is dropped silently."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

MIB = 1024 * 1024


@dataclass(frozen=True)
class Case:
    """A file by its name and content. Either it is refused, in a sentence with `error` in it, or `rows` of its rows can be used and those in `bad`
    (number -> part of the sentence) can't; `encoding` is a part of the reported encoding.
    """

    id: str
    file: str
    content: Callable[[], bytes]
    error: str | None = None
    rows: int = 0
    bad: dict[int, str] = field(default_factory=dict)
    encoding: str = ""
    format: str | None = None
    columns: dict[str, str] | None = None


def _bytes(content: bytes | str) -> Callable[[], bytes]:
    return lambda: content.encode() if isinstance(content, str) else content


def _parquet(columns: dict[str, Any], **options: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer, **options)
    return buffer.getvalue()


@cache
def _sound() -> bytes:
    return _parquet({"text": [f"Sentence number {number}." for number in range(1000)]}, compression="none")


def _scrambled() -> bytes:
    """The footer is whole, the data is not."""
    return _sound()[:4] + b"\xff" * (len(_sound()) // 2) + _sound()[4 + len(_sound()) // 2 :]


def case(id_: str, file: str, content: bytes | str | Callable[[], bytes], **expected: Any) -> Case:
    """A case with its content, or what makes it."""
    return Case(id_, file, content if callable(content) else _bytes(content), **expected)


LONG = "word " * (MIB // 5 + 10)
NESTED = "[" * 100_000 + "]" * 100_000
EMPTY_NODE = "1.1\tsits\tsit\tVERB\t_\t_\t_\t_\t_\t_\n"


def _conllu(*lines: str) -> str:
    return "".join(f"{line}\t_\n" for line in lines) + "\n"


WORD = "1\tCats\tcat\tNOUN\tNNS\t_\t2\tnsubj\t_"
VERB = "2\tsleep\tsleep\tVERB\tVBP\t_\t0\troot\t_"

CASES = [
    # Files as a whole
    case("empty", "a.csv", b"", error="file is empty"),
    case("blank", "a.txt", b"\n\n  \n", error="has no rows"),
    case("only-a-mark", "a.txt", codecs.BOM_UTF8, error="has no rows"),
    case("only-a-heading", "a.csv", "text,label\n", error="has no rows"),
    case("binary", "a.txt", bytes(range(256)) * 64, error="None of the first rows"),
    case("nuls", "a.txt", bytes(5000), error="binary"),
    case("gzip", "a.csv", b"\x1f\x8b\x08\x00" + bytes(50), error="gzip"),
    case("zip", "a.csv", b"PK\x03\x04" + bytes(50), error="ZIP"),
    case("excel", "a.tsv", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(50), error="office"),
    case("pdf", "a.txt", b"%PDF-1.7\n%", error="PDF"),
    case("pickle", "a.jsonl", b"\x80\x04\x95\x10", error="pickle"),
    case("web-page", "a.csv", b"<!DOCTYPE html><html>", error="web page"),
    case("arrow", "a.parquet", b"ARROW1\0\0", error="Arrow"),
    case("no-suffix", "a.data", "one thing\nanother\n", error="Set the format: jsonl"),
    case("no-suffix-json", "a", '{"text": "One."}\n', rows=1),
    # Encodings
    case("mark", "a.csv", codecs.BOM_UTF8 + b"text,label\nOne.,0\n", rows=1, encoding="byte order mark"),
    case("utf-16", "a.tsv", "text\tlabel\nOne.\t0\nTwö.\t1\n".encode("utf-16"), rows=2, encoding="UTF-16"),
    case("utf-16-be", "a.txt", codecs.BOM_UTF16_BE + "Zwölf.\n".encode("utf-16-be"), rows=1, encoding="UTF-16"),
    case("utf-32", "a.txt", "Zwölf.\n".encode("utf-32"), rows=1, encoding="UTF-32"),
    case("utf-16-no-mark", "a.txt", ("Zwölf Boxkämpfer.\n" * 9).encode("utf-16-le"), error="UTF-16 without"),
    case("utf-16-cut", "a.txt", "One.\nTwo.\n".encode("utf-16")[:-1], error="after line"),
    case("latin-1", "a.txt", "Zwölf.\nTwo.\n".encode("latin-1"), rows=1, bad={1: "not UTF-8"}),
    case("mixed", "a.txt", "Zwölf.\n".encode() + "Zwölf.\n".encode("latin-1"), rows=1, bad={2: "not UTF-8"}),
    case("heading-latin-1", "a.csv", "text,größe\nOne.,1\n".encode("latin-1"), error="first line cannot be read"),
    case("nul", "a.txt", "One.\nT\0wo.\nThree.\n", rows=2, bad={2: "NUL"}),
    # Line ends and lengths
    case("crlf", "a.csv", "text,label\r\nOne.,0\r\nTwo.,1\r\n", rows=2),
    case("cr", "a.csv", "text,label\rOne.,0\rTwo.,1\r", rows=2),
    case("no-last-line-end", "a.txt", "One.\nTwo.", rows=2),
    case("long-line", "a.txt", f"One.\n{LONG}\nThree.\n", rows=2, bad={2: "longer than 1048576 bytes"}),
    case("one-long-line", "a.txt", lambda: b"x" * (8 * MIB), error="longer than 1048576 bytes"),
    case("long-text", "a.txt", f"One.\n{LONG[: 64 * 1024]}\n", rows=1, bad={2: "longer than 32768 bytes"}),
    # Rows of tables
    case("ragged", "a.csv", "text,label\nOne.,0\nTwo.\nA,B,C\n", rows=1, bad={3: "1 columns", 4: "3 columns"}),
    case("ragged-tabs", "a.tsv", "text\tlabel\nOne.\t0\nTwo.\n", rows=1, bad={3: "1 columns"}),
    case("missing-text", "a.csv", "text,label\nOne.,0\n,1\n", rows=1, bad={3: "missing"}),
    case("blank-text", "a.csv", "text,label\nOne.,0\n  ,1\n", rows=1, bad={3: "blank"}),
    case("quoted", "a.csv", 'text,label\n"One, ""two"".",0\n"Over\ntwo lines.",1\n', rows=2),
    case("stray-quote", "a.csv", 'text,label\n"One" more.,0\nTwo.,1\n', rows=1, bad={2: "quotes"}),
    case("open-quote", "a.csv", 'text,label\n"One.,0\nTwo.,1\nThree.,0\n', rows=2, bad={2: "not closed"}),
    case("quotes-in-tabs", "a.tsv", 'text\tlabel\n"One.\t0\nTwo".\t1\n', rows=2),
    case("semicolons", "a.csv", "text;label\nOne.;0\nTwo.;1\n", rows=2),
    case("same-heading", "a.csv", "text,text\nOne.,Two.\n", rows=1),
    case("no-such-column", "a.csv", "text,label\nOne.,0\n", columns={"text": "body"}, error="no column"),
    case("no-such-role", "a.csv", "text,label\nOne.,0\n", columns={"body": "text"}, error="one of text"),
    case("no-text", "a.jsonl", '{"a": 1}\n{"a": 2}\n', error="No column holds text"),
    case("many-columns", "a.csv", ",".join(f"c{place}" for place in range(1500)), error="1500 columns"),
    case("long-heading", "a.tsv", "text\t" + "x" * 300 + "\nOne.\t0\n", columns={"text": "text"}, error="300"),
    # JSON
    case("not-json", "a.jsonl", '{"text": "One."}\n{"text": "Two."\n', rows=1, bad={2: "not valid JSON"}),
    case(
        "no-object", "a.jsonl", '{"text": "One."}\n[1]\nnull\n', rows=1, bad={2: "not a JSON obj", 3: "not a JSON obj"}
    ),
    case("one-document", "a.json", json.dumps([{"text": "One."}], indent=1), error="one JSON document"),
    case("number-as-text", "a.jsonl", '{"text": "One."}\n{"text": 2}\n', rows=1, bad={2: "holds a number"}),
    case("list-as-text", "a.jsonl", '{"text": "One."}\n{"text": ["a"]}\n', rows=1, bad={2: "holds a list"}),
    case("null-as-text", "a.jsonl", '{"text": "One."}\n{"text": null}\n{}\n', rows=1, bad={2: "missing", 3: "missing"}),
    case("nested", "a.jsonl", f'{{"text": "One."}}\n{NESTED}\n', rows=1, bad={2: "not valid JSON"}),
    case(
        "huge-number",
        "a.jsonl",
        '{"text": "One."}\n{"text": "T", "n": 1' + "0" * 5000 + "}",
        rows=1,
        bad={2: "not valid"},
    ),
    case("twice", "a.jsonl", '{"text": "One."}\n{"text": "T", "text": "U"}\n', rows=1, bad={2: "duplicate key"}),
    case("surrogate", "a.jsonl", '{"text": "One."}\n{"text": "\\ud800"}\n', rows=1, bad={2: "surrogate"}),
    case("surrogate-name", "a.jsonl", '{"text": "One."}\n{"\\ud800": "T"}\n', rows=1, bad={2: "key"}),
    case("escaped-nul", "a.jsonl", '{"text": "One."}\n{"text": "a\\u0000b"}\n', rows=1, bad={2: "NUL"}),
    case(
        "tags-too-few",
        "a.jsonl",
        '{"text": "Cats sleep.", "pos": ["NOUN"]}\n{"text": "One"}',
        rows=1,
        bad={1: "1 tags"},
    ),
    case("words-no-list", "a.jsonl", '{"words": ["Cats"]}\n{"words": [1]}\n', rows=1, bad={2: "list of words"}),
    case(
        "label-a-list",
        "a.jsonl",
        '{"text": "A", "label": 1}\n' * 2 + '{"text": "B", "label": [1]}',
        rows=2,
        bad={3: "label is a list"},
    ),
    # Parquet
    case("parquet", "a.parquet", _sound, rows=1000),
    case("parquet-cut", "a.parquet", lambda: _sound()[: len(_sound()) // 2], error="cut off"),
    case("parquet-scrambled", "a.parquet", _scrambled, error="damaged"),
    case("parquet-encrypted", "a.parquet", b"PARE" + bytes(100) + b"PARE", error="encrypted"),
    case("parquet-by-name", "a.parquet", "text,label\nOne.,0\n", error="not a Parquet file"),
    case("parquet-as-csv", "a.csv", _sound, error="is a Parquet file"),
    case("parquet-empty", "a.parquet", lambda: _parquet({"text": pa.array([], pa.string())}), error="no rows"),
    case("parquet-null", "a.parquet", lambda: _parquet({"text": ["One.", None]}), rows=1, bad={2: "missing"}),
    case("parquet-numbers", "a.parquet", lambda: _parquet({"text": [1, 2]}), error="No column holds text"),
    case("parquet-bytes", "a.parquet", lambda: _parquet({"text": [b"One."]}), error="No column holds text"),
    # Words in columns
    case("conll-ragged", "a.conll", "Cats O\nsleep O\n\nDogs\n\nBirds O\n", rows=2, bad={4: "Line 4 has 1"}),
    case("conll-cell", "a.conll", "Cats\tO\n\n\tO\n", rows=1, bad={3: "Line 3 has 1"}),
    case("conll-documents", "a.conll", "-DOCSTART- -X- O O\n\nCats NNS B-NP O\n", rows=1),
    case("conll-endless", "a.conll", "Cats O\n\n" + "Dogs O\n" * 10_001, rows=1, bad={3: "more than 10000"}),
    case("conllu-columns", "a.conllu", _conllu(WORD, VERB) + "1 Cats NOUN\n\n", rows=1, bad={4: "10"}),
    case("conllu-numbers", "a.conllu", _conllu(WORD, VERB) + _conllu(VERB), rows=1, bad={4: "not numbered"}),
    case(
        "conllu-range",
        "a.conllu",
        _conllu(WORD, VERB) + _conllu("1-9\tx" + "\t_" * 7, WORD),
        rows=1,
        bad={4: "not numb"},
    ),
    case(
        "conllu-empty-word",
        "a.conllu",
        _conllu(WORD, VERB) + _conllu(WORD.replace("Cats", "")),
        rows=1,
        bad={4: "empty"},
    ),
    case("conllu-empty-node", "a.conllu", _conllu(WORD) + WORD + "\t_\n" + EMPTY_NODE + VERB + "\t_\n", rows=2),
]
