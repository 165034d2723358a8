"""How much structure a JSON body may have, checked on its bytes before anything is built from them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from ...errors import InvalidRequest

# A request whose lists are all full has 400,000 values, a batch of 1,000 inputs has 8,000 keys.
MOST_VALUES, MOST_KEYS, MOST_LEVELS = 500_000, 10_000, 64
# Bytes outside of strings, most of which are numbers.
MOST_BARE = 4 * 1024 * 1024

PIECE = 1024 * 1024
QUOTE = ord('"')
NO_MARKS = bytes(set(range(256)) - set(b",:[]{}"))
LEVELS = np.zeros(256, np.int8)
LEVELS[list(b"[{")], LEVELS[list(b"]}")] = 1, -1


def check_structure(body: bytes) -> None:
    """Raise InvalidRequest if a JSON document has too many values, keys or levels. Time and memory grow with its length only.

    A body that is not valid JSON is left to the parser.
    """
    bare = bytearray()
    for piece in _outside_strings(body):
        bare += piece
        _check("bytes outside of strings", len(bare), MOST_BARE)
    marks = bytes(bare).translate(None, NO_MARKS)
    _check("values", len(marks), MOST_VALUES)
    _check("keys", marks.count(b":"), MOST_KEYS)
    levels = np.cumsum(LEVELS[np.frombuffer(marks, np.uint8)], dtype=np.int32)
    _check("levels", int(levels.max(initial=0)), MOST_LEVELS)


def _check(what: str, actual: int, limit: int) -> None:
    if actual > limit:
        raise InvalidRequest(
            f"The body has too many {what}: {limit:,} at most. Send less in one request.", limit=limit, actual=actual
        )


def _outside_strings(body: bytes) -> Iterator[bytes]:
    """The bytes of a JSON document that are not within strings, piece by piece."""
    # Without escapes every quote begins or ends a string.
    plain = _utf8(body).replace(rb"\\", b"").replace(rb"\"", b"")
    inside = np.zeros(1, bool)
    for start in range(0, len(plain), PIECE):
        piece = np.frombuffer(plain[start : start + PIECE], np.uint8)
        inside = np.logical_xor.accumulate(piece == QUOTE) ^ inside[-1]
        yield piece[~inside].tobytes()


def _utf8(body: bytes) -> bytes:
    """The body in UTF-8: JSON may come in UTF-16 and UTF-32, too."""
    encoding = json.detect_encoding(body)
    return body if encoding.startswith("utf-8") else body.decode(encoding, "ignore").encode(errors="ignore")
