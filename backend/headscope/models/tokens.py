"""Text to tokens: exact character offsets, words, segments and kinds, the same way for every kind of tokenizer."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from tokenizers import Tokenizer

from ..errors import InvalidRequest, InvalidText, TooManyTokens
from ..types import Token, TokenKind

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """Tokens, and the segment id of each for models that take one."""

    tokens: list[Token]
    type_ids: list[int]


def check_text(text: str, pointer: str = "/text", limit: int | None = None) -> None:
    """Raise InvalidText for what no tokenizer can take. `limit` is in UTF-8 bytes."""
    if not text.strip():
        raise InvalidText("The text is empty. Type at least one character that is not a space.", pointer=pointer)
    if limit is not None and len(text) > limit:
        raise InvalidText(f"The text is longer than {limit} bytes. Shorten it.", pointer=pointer, limit=limit)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidText(
            "The text holds half of a surrogate pair, which is not a character. Take it out.", pointer=pointer
        ) from None
    if limit is not None and size > limit:
        raise InvalidText(
            f"The text is longer than {limit} bytes. Shorten it.", pointer=pointer, limit=limit, actual=size
        )
    if "\0" in text:
        raise InvalidText("The text holds a NUL character. Take it out.", pointer=pointer)


def prepare(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that neither cuts nor pads, and for which special tokens typed in a text are ordinary text."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    copy.encode_special_tokens = True
    return copy


def encode(
    tokenizer: Tokenizer,
    text: str,
    text_pair: str | None = None,
    *,
    unknown: str | None = None,
    max_tokens: int | None = None,
) -> Encoded:
    """Tokenize with a prepared tokenizer; `unknown` is the name of its unknown token.

    With `max_tokens` the input is cut to that many tokens, special tokens included (the longer text loses first).
    """
    if max_tokens is not None:
        tokenizer.enable_truncation(max_tokens)
    try:
        encoding = tokenizer.encode(text) if text_pair is None else tokenizer.encode(text, text_pair)
    finally:
        tokenizer.no_truncation()
    texts = (text, text_pair or "")
    segments = _segments(encoding.sequence_ids)
    special = [bool(mask) for mask in encoding.special_tokens_mask]
    spans = [
        (0, 0) if s else _trim(texts[seg], span)
        for s, seg, span in zip(special, segments, encoding.offsets, strict=True)
    ]
    words = [find_words(part) for part in texts]
    owners = [
        _owners(
            words[segment],
            [span for span, s, seg in zip(spans, special, segments, strict=True) if not s and seg == segment],
        )
        for segment in (0, 1)
    ]
    first = [0, max(owners[0].values(), default=-1) + 1]
    tokens = []
    for piece, id_, span, segment, is_special in zip(
        encoding.tokens, encoding.ids, spans, segments, special, strict=True
    ):
        if is_special:
            tokens.append(Token(piece, id_, 0, 0, None, segment, "special"))
            continue
        source = texts[segment][span[0] : span[1]]
        owner = owners[segment].get(_word_at(words[segment], span[0]))
        word = None if owner is None else owner + first[segment]
        shown = piece if piece == unknown else source or piece
        tokens.append(Token(shown, id_, *span, word, segment, _kind(source, span, words[segment])))
    return Encoded(_mark_pieces(tokens), list(encoding.type_ids))


def from_ids(tokenizer: Tokenizer | None, ids: Sequence[int], special: frozenset[int], vocabulary: int) -> Encoded:
    """Tokens for given ids; their offsets are those in the joined text of all of them. Without a tokenizer an id is its own text."""
    if any(not 0 <= id_ < vocabulary for id_ in ids):
        raise InvalidRequest(f"A token id is outside the model's vocabulary of {vocabulary}.", pointer="/token_ids")
    pieces = [str(id_) if tokenizer is None else tokenizer.decode([id_], skip_special_tokens=False) for id_ in ids]
    joiner = " " if tokenizer is None else ""
    text, tokens = "", []
    for index, (piece, id_) in enumerate(zip(pieces, ids, strict=True)):
        text += joiner if index else ""
        start = len(text)
        text += piece
        if id_ in special:
            tokens.append(Token(piece, id_, 0, 0, None, 0, "special"))
        else:
            span = _trim(text, (start, len(text)))
            tokens.append(
                Token(
                    text[slice(*span)] or piece,
                    id_,
                    *span,
                    index,
                    0,
                    "punct" if _is_punctuation(piece.strip()) else "word",
                )
            )
    return Encoded(tokens, [0] * len(tokens))


def check_length(count: int, most: int | None) -> None:
    """Raise TooManyTokens, or InvalidText where there is nothing."""
    if count == 0:
        raise InvalidText("The text gives no tokens. Type at least one letter.", pointer="/text")
    if most is not None and count > most:
        raise TooManyTokens(
            f"The text has {count} tokens and the model takes {most}. Shorten it, or set max_tokens to cut it.",
            pointer="/text",
            limit=most,
            actual=count,
        )


def find_words(text: str) -> list[Span]:
    """Words as [start, end): runs without spaces, where every punctuation mark and every CJK ideograph stands alone and an emoji is one word."""
    words: list[list[int]] = []
    open_kind = ""  # what the last word can still take: letters, emoji, a flag's second half
    for index, char in enumerate(text):
        kind = _char_kind(char)
        joins = (
            kind == "join" or (kind == open_kind == "letter") or (kind == open_kind == "flag") or open_kind == "joiner"
        )
        if kind == "space":
            open_kind = ""
        elif joins and words and words[-1][1] == index and open_kind:
            words[-1][1] = index + 1
            open_kind = {"flag": "emoji", "joiner": "emoji"}.get(open_kind, open_kind)
            if char == "\u200d" and open_kind == "emoji":
                open_kind = "joiner"
        else:
            words.append([index, index + 1])
            open_kind = "letter" if kind == "join" else kind
    return [(start, end) for start, end in words]


@cache
def _char_kind(char: str) -> str:
    category = unicodedata.category(char)
    if char.isspace() or category in ("Cc", "Zs", "Zl", "Zp"):
        return "space"
    if category in ("Mn", "Mc", "Me", "Cf") or 0x1F3FB <= ord(char) <= 0x1F3FF:
        return "join"
    if 0x1F1E6 <= ord(char) <= 0x1F1FF:
        return "flag"
    if category == "So":
        return "emoji"
    if category[0] in "PS":
        return "punct"
    code = ord(char)
    if 0x3400 <= code <= 0x9FFF or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF:
        return "ideograph"
    return "letter"


def _segments(sequence_ids: Sequence[int | None]) -> list[int]:
    """Special tokens belong to the segment they close; the first ones to the first segment."""
    segments, current = [], 0
    for sequence in sequence_ids:
        current = current if sequence is None else sequence
        segments.append(current)
    return segments


def _trim(text: str, span: Span) -> Span:
    """Without the spaces that byte-level and SentencePiece tokens carry in front; a token of spaces only keeps them."""
    start, end = span
    inner = text[start:end]
    if not inner.strip():
        return span
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def _word_at(words: list[Span], position: int) -> int:
    """Index of the word that holds the position, else of the next one, else of the last."""
    return min(bisect_right(words, position, key=lambda word: word[1]), len(words) - 1)


def _owners(words: list[Span], spans: list[Span]) -> dict[int, int]:
    """Word index -> number of the word after joining those that share a token: a word is never finer than a token."""
    joined: set[int] = set()
    for start, end in spans:
        if words and end > start:
            joined.update(range(_word_at(words, start), _word_at(words, end - 1)))  # word i is joined with word i + 1
    owners, number = {}, 0
    for index in range(len(words)):
        owners[index] = number
        number += index not in joined
    return owners


def _is_punctuation(text: str) -> bool:
    return bool(text) and all(_char_kind(char) == "punct" for char in text)


def _kind(source: str, span: Span, words: list[Span]) -> TokenKind:
    if _is_punctuation(source.strip()):
        return "punct"
    if not words or not source.strip():
        return "word"
    start, end = words[_word_at(words, span[0])]
    return "word" if span[0] <= start and span[1] >= end else "subword"


def _mark_pieces(tokens: list[Token]) -> list[Token]:
    """Several tokens for one and the same stretch of text (bytes of one character) are pieces of it."""
    spans = Counter((token.segment, token.start, token.end) for token in tokens if token.kind != "special")
    return [
        replace(t, kind="subword") if t.end > t.start and spans[t.segment, t.start, t.end] > 1 else t for t in tokens
    ]
