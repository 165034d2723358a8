"""The bounds on the structure of JSON bodies: what is in a string does not count, whatever the encoding, and no escape hides anything."""

from __future__ import annotations

import json

import pytest

from headscope.api.http.json_structure import MAX_BARE, MAX_KEYS, MAX_LEVELS, MAX_VALUES, check_structure
from headscope.errors import InvalidRequest
from tests.support.variants import variants

FULL = {
    "token_ids": [99_999] * 100_000,
    "target_ids": [1] * 100_000,
    "pos": ["NN"] * 100_000,
    "labels": ["O"] * 100_000,
}
BATCH = {"model": "bert", "inputs": [{"text": ",:[]{}" * 100, "pos": ["NN"] * 100}] * 1000}
# A string that looks like structure, and one that ends later than it seems.
TRICKY = {"text": "[" * 1000 + '"' * 1000 + "\\" * 1001 + "{" * 1000 + '\\"', "name": "\\"}


@variants("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@variants("document", [FULL, BATCH, TRICKY, [], {}, 1, "\U0001f600"])
def test_what_requests_need(document: object, encoding: str) -> None:
    """The largest requests that the schemas allow are taken."""
    check_structure(json.dumps(document, ensure_ascii=False).encode(encoding))


@variants(
    ("body", "limit"),
    [
        (b"[" + b"1," * MAX_VALUES + b"1]", MAX_VALUES),
        (b"[" + b"[]," * (MAX_VALUES // 2) + b"1]", MAX_VALUES),
        (b"{" + b",".join(b'"%d":0' % key for key in range(MAX_KEYS + 1)) + b"}", MAX_KEYS),
        (b'{"a":' * (MAX_LEVELS + 1) + b"1" + b"}" * (MAX_LEVELS + 1), MAX_LEVELS),
        (b"[" + b"9" * MAX_BARE + b"]", MAX_BARE),
        (b'["\\\\",' + b"[" * (MAX_LEVELS + 1), MAX_LEVELS),
        (b'["\\\\\\"",' + b"[" * (MAX_LEVELS + 1), MAX_LEVELS),
        (('["\\"",' + "[" * (MAX_LEVELS + 1)).encode("utf-16"), MAX_LEVELS),
    ],
    ids=["values", "lists", "keys", "levels", "numbers", "escaped backslash", "escaped quote", "utf-16"],
)
def test_what_no_request_needs(body: bytes, limit: int) -> None:
    """Too many of anything is an error that names the limit."""
    with pytest.raises(InvalidRequest) as error:
        check_structure(body)
    assert error.value.limit == limit
    assert (error.value.actual or 0) > limit


@variants("body", [b"", b'"', b"\\", b'{"a"', b"\xff\xfe\x00", b"\x00" * 9, b"nonsense"])
def test_what_is_not_json(body: bytes) -> None:
    """It is left to the parser."""
    check_structure(body)
