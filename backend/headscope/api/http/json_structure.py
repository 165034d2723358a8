"""Limits on the structure of a JSON body, checked on its bytes before it is parsed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from ...errors import InvalidRequest

# The largest valid request has 400,000 values; a batch of 1,000 inputs has 8,000 keys.
MAX_VALUES, MAX_KEYS, MAX_LEVELS = 500_000, 10_000, 64
# Bytes outside strings, mostly numbers.
MAX_BARE = 4 * 1024 * 1024

PIECE = 1024 * 1024
QUOTE = ord('"')
NO_MARKS = bytes(set(range(256)) - set(b",:[]{}"))
LEVELS = np.zeros(256, np.int8)
LEVELS[list(b"[{")], LEVELS[list(b"]}")] = 1, -1


def check_structure(body: bytes) -> None:
    """Raise InvalidRequest if a JSON document has too many values, keys or levels. Time and memory are linear in its length.

    Invalid JSON passes; the parser rejects it.
    """
    bare = bytearray()
    for piece in _outside_strings(body):
        bare += piece
        _check("bytes outside strings", len(bare), MAX_BARE)
    marks = bytes(bare).translate(None, NO_MARKS)
    _check("values", len(marks), MAX_VALUES)
    _check("keys", marks.count(b":"), MAX_KEYS)
    levels = np.cumsum(LEVELS[np.frombuffer(marks, np.uint8)], dtype=np.int32)
    _check("levels", int(levels.max(initial=0)), MAX_LEVELS)


def _check(what: str, actual: int, limit: int) -> None:
    if actual > limit:
        raise InvalidRequest(
            f"The request body has too many {what} (at most {limit:,}). Split it into several requests.",
            limit=limit,
            actual=actual,
        )


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """Yield the bytes of a JSON document that are outside strings, in pieces."""
    # Without escapes every quote begins or ends a string.
    plain = _to_utf8(body).replace(rb"\\", b"").replace(rb"\"", b"")
    inside = np.zeros(1, bool)
    for start in range(0, len(plain), PIECE):
        piece = np.frombuffer(plain[start : start + PIECE], np.uint8)
        inside = np.logical_xor.accumulate(piece == QUOTE) ^ inside[-1]
        yield piece[~inside].tobytes()


def _to_utf8(body: bytes) -> bytes:
    """Convert the body to UTF-8: JSON may also be UTF-16 or UTF-32."""
    encoding = json.detect_encoding(body)
    return body if encoding.startswith("utf-8") else body.decode(encoding, "ignore").encode(errors="ignore")
