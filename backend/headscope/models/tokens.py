"""Text to tokens: exact character offsets, words, segments and kinds, independent of the kind of tokenizer."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from threading import Lock
from typing import Any

from tokenizers import Tokenizer

from ..core.attention import Kind, ResultWarning
from ..core.tokens import Axes, Token, TokenKind
from ..errors import InvalidRequest, InvalidText, TooManyTokens

Span = tuple[int, int]
# Kinds of tokens that are no part of the text.
UNWRITTEN = ("special", "image")
# Truncation is a setting of the tokenizer, which threads may share.
_TRUNCATING = Lock()


@dataclass(frozen=True, slots=True)
class Grid:
    """How an image was cut into tokens: rows and columns of patches, and the sizes (width, height) of a patch and of the model's image in pixels."""

    rows: int
    columns: int
    patch: tuple[int, int]
    size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One input, encoded for a model.

    tokens     of the text, of the encoder's text, or the patches of the image
    type_ids   the segment id of each token, for models that take one
    target     tokens of the decoder of an encoder-decoder; None if only the encoder is analysed
    text       the text that offsets of `tokens` refer to, including generated text; `target_text` is the same for `target`
    pixels     [1, channels, height, width] (a tensor), the `grid` it is cut into, and the same as a `picture`, uint8 [height, width, 3]
    pictured   what the processor of a vision-language model returned beside the ids: argument of the forward pass -> tensor
    heard      [1, K, d], the output of an audio encoder
    author     the role of what the model generates, in a conversation
    generated  number of tokens at the end (of `target`, if there is one) that the model generated
    """

    tokens: list[Token]
    type_ids: list[int]
    target: list[Token] | None = None
    text: str | None = None
    target_text: str | None = None
    pixels: Any | None = None
    grid: Grid | None = None
    picture: Any | None = None
    pictured: dict[str, Any] | None = None
    heard: Any | None = None
    author: str | None = None
    generated: int = 0
    warnings: tuple[ResultWarning, ...] = ()

    def axes(self, kind: Kind) -> Axes:
        """Return the tokens along the axes of a map of this kind. Raises InvalidRequest if the decoder has none."""
        source, target = tuple(self.tokens), tuple(self.target or ())
        if kind in ("decoder", "cross") and not target:
            raise InvalidRequest("There is no text for the decoder. Give a second text.", pointer="/text_pair")
        return {"decoder": Axes(target, target), "cross": Axes(target, source)}.get(kind, Axes(source, source))


def check_text(text: str, pointer: str = "/text", limit: int | None = None) -> None:
    """Raise InvalidText for a text that no tokenizer accepts. `limit` is in UTF-8 bytes."""
    if not text.strip():
        raise InvalidText("The text is empty. Type at least one character that is not a space.", pointer=pointer)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidText(
            "The text contains half of a surrogate pair, which is not a character. Remove it.", pointer=pointer
        ) from None
    if limit is not None and size > limit:
        raise InvalidText(
            f"The text is longer than {limit} bytes. Shorten it.", pointer=pointer, limit=limit, actual=size
        )
    if "\0" in text:
        raise InvalidText("The text contains a NUL character. Remove it.", pointer=pointer)


def prepare(tokenizer: Tokenizer) -> Tokenizer:
    """Copy a tokenizer without truncation and padding, and with special tokens in a text treated as ordinary text."""
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

    `max_tokens` truncates the input to that many tokens, including special tokens, from the longer text first.
    """
    with _TRUNCATING:
        if max_tokens is not None:
            tokenizer.enable_truncation(max_tokens)
        try:
            encoding = tokenizer.encode(text) if text_pair is None else tokenizer.encode(text, text_pair)
        finally:
            tokenizer.no_truncation()
    # Truncation does nothing if the special tokens alone are more.
    if max_tokens is not None and len(encoding.ids) > max_tokens:
        raise InvalidRequest(
            "max_tokens is less than the model's number of special tokens. Raise max_tokens.", pointer="/max_tokens"
        )
    segments = _segments(encoding.sequence_ids)
    rows = [
        TokenRow(piece, id_, segment, None if special else span)
        for piece, id_, segment, special, span in zip(
            encoding.tokens, encoding.ids, segments, encoding.special_tokens_mask, encoding.offsets, strict=True
        )
    ]
    tokens = assemble(rows, (text, text_pair or ""), unknown)
    cut = f"Truncated to the first {len(encoding.ids)} tokens, as requested; the rest was not read."
    warnings = (ResultWarning("cut", cut),) if encoding.overflowing else ()
    return Encoded(tokens, list(encoding.type_ids), text=text, warnings=warnings)


def extend(
    tokenizer: Tokenizer, encoded: Encoded, added: Sequence[int], special: frozenset[int], unknown: str | None = None
) -> Encoded:
    """Append ids to an input, with exact offsets in the extended text."""
    continuation, spans = _decode(
        tokenizer, [token.id for token in encoded.tokens if token.kind not in UNWRITTEN], added, special
    )
    text, length = (encoded.text or "") + continuation, len(encoded.text or "")
    rows = [
        TokenRow(token.text, token.id, 0, None if token.kind in UNWRITTEN else (token.start, token.end))
        for token in encoded.tokens
    ]
    roles = [token.role for token in encoded.tokens] + [encoded.author] * len(added)
    rows += [
        TokenRow(tokenizer.id_to_token(id_) or str(id_), id_, 0, span and (span[0] + length, span[1] + length))
        for id_, span in zip(added, spans, strict=True)
    ]
    tokens = [
        replace(token, role=None if token.kind == "special" else role)
        for token, role in zip(
            assemble(rows, (text, ""), unknown, covered=encoded.author is not None), roles, strict=True
        )
    ]
    for place, token in enumerate(encoded.tokens):
        if token.kind == "image":
            tokens[place] = token
    return replace(encoded, tokens=tokens, type_ids=[0] * len(tokens), text=text, generated=len(added))


def as_target(found: list[Token], source: list[Token]) -> list[Token]:
    """Return tokens as those of the decoder: in segment 1, with words numbered after those of the encoder."""
    first = max((token.word for token in source if token.word is not None), default=-1) + 1
    return [replace(t, segment=1, word=None if t.word is None else t.word + first) for t in found]


def annotate(encoded: Encoded, pos: Sequence[str] | None, labels: Sequence[str] | None) -> Encoded:
    """Add parts of speech and labels to the tokens, given one per word (of both texts) or one per token. Raises InvalidRequest.

    The words may also be all words of the text, even if the tokenizer joins some of them or the input was truncated.
    """
    encoded = encoded if pos is None else _annotate(encoded, "pos", pos, "pos")
    return encoded if labels is None else _annotate(encoded, "label", labels, "labels")


def _annotate(encoded: Encoded, name: str, values: Sequence[str], field: str) -> Encoded:
    every = [*encoded.tokens, *(encoded.target or ())]
    given = every[: len(every) - encoded.generated]
    numbers = sorted({token.word for token in given if token.word is not None})
    written = [] if any(token.segment for token in every) else find_words(encoded.text or "")
    if len(values) == len(numbers):
        by_word = dict(zip(numbers, values, strict=True))
        marked = [t if t.word is None else replace(t, **{name: by_word.get(t.word)}) for t in every]
    elif len(values) == len(written):  # some share a token, or were truncated
        places = _places(written, len(encoded.text or ""))
        marked = [t if t.word is None else replace(t, **{name: values[places[t.start]]}) for t in every]
    elif len(values) == len(given):
        marked = [replace(t, **{name: value}) for t, value in zip(given, values, strict=True)]
        marked += every[len(given) :]
    else:
        raise InvalidRequest(
            f"{field} has {len(values)} entries; the input has {len(numbers)} words and {len(given)} tokens. Give one per word, or one per token.",
            pointer=f"/{field}",
            actual=len(values),
        )
    count = len(encoded.tokens)
    return replace(encoded, tokens=marked[:count], target=None if encoded.target is None else marked[count:])


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its word: the tokenizer's name for it, and its span in the text; None for a special token."""

    piece: str
    id: int
    segment: int
    span: Span | None


def assemble(
    rows: list[TokenRow], texts: tuple[str, str], unknown: str | None, *, covered: bool = False
) -> list[Token]:
    """Return the tokens of one or two texts, with words and kinds; `unknown` is the name of the unknown token.

    With `covered`, only characters of ordinary tokens are parts of words, and not the names of special tokens in a text.
    """
    spans = [(0, 0) if row.span is None else _trim(texts[row.segment], row.span) for row in rows]
    words = [find_words(_only(part, spans) if covered else part) for part in texts]
    places = [_places(*both) for both in zip(words, map(len, texts), strict=True)]
    ordinary = [(row.segment, span) for row, span in zip(rows, spans, strict=True) if row.span is not None]
    owners = [
        _owners(len(words[segment]), places[segment], [span for at, span in ordinary if at == segment])
        for segment in (0, 1)
    ]
    first = [0, max(owners[0], default=-1) + 1]
    tokens = []
    for row, span in zip(rows, spans, strict=True):
        segment = row.segment
        if row.span is None:
            tokens.append(Token(row.piece, row.id, 0, 0, None, segment, "special"))
            continue
        source, place = texts[segment][span[0] : span[1]], places[segment][span[0]]
        word = None if place < 0 else owners[segment][place] + first[segment]
        shown = row.piece if row.piece == unknown else source or row.piece
        kind = _kind(source, span, None if place < 0 else words[segment][place])
        tokens.append(Token(shown, row.id, *span, word, segment, kind))
    return _mark_pieces(tokens)


def _only(text: str, spans: list[Span]) -> str:
    """Return the text with spaces in place of all characters outside of spans in ascending order."""
    parts, at = list[str](), 0
    for start, end in spans:
        if end > at:
            parts += [" " * (start - at), text[max(start, at) : end]]
            at = end
    return "".join([*parts, " " * (len(text) - at)])


# Ids decoded together with a new one, so that spaces and characters of several tokens are as in the whole text.
CONTEXT = 8
# Bytes of the longest UTF-8 character: a longer run without a complete character never becomes one.
LONGEST_CHARACTER = 4


def _decode(
    tokenizer: Tokenizer, before: list[int], added: Sequence[int], special: frozenset[int]
) -> tuple[str, list[Span | None]]:
    """Decode ids that follow others -> their text, and each one's span in it (None for special ones). Tokens of one character share its span."""
    text = ""
    spans: list[Span | None] = [None] * len(added)
    window = before[-CONTEXT:]
    known = tokenizer.decode(window, skip_special_tokens=False)
    ordinary = [index for index, id_ in enumerate(added) if id_ not in special]
    waiting: list[tuple[int, str]] = []  # tokens that end inside a character, and the window's text up to each
    for index in ordinary:
        window.append(added[index])
        whole = tokenizer.decode(window, skip_special_tokens=False)
        waiting.append((index, whole))
        if whole.endswith("\ufffd") and len(waiting) < LONGEST_CHARACTER and index != ordinary[-1]:
            continue
        if not whole.startswith(known):  # some decoders change the preceding text at punctuation
            known, whole = "", " " + tokenizer.decode([added[place] for place, _ in waiting], skip_special_tokens=False)
            waiting = [(place, whole) for place, _ in waiting]
        _place(spans, waiting, whole, len(known), len(text))
        text += whole[len(known) :]
        waiting, window = [], window[-CONTEXT:]
        known = tokenizer.decode(window, skip_special_tokens=False)
    return text, spans


def _place(spans: list[Span | None], waiting: list[tuple[int, str]], whole: str, known: int, start: int) -> None:
    """Set the span of each waiting token: up to the end of the text decoded so far, unless later tokens changed it."""
    group: list[int] = []
    low = known
    last = next((spans[place] for place in range(waiting[0][0] - 1, -1, -1) if spans[place]), None)
    for index, reached in waiting:
        group.append(index)
        if not whole.startswith(reached):
            continue
        if len(reached) > low or last is None:
            last = (start + low - known, start + len(reached) - known)
        for place in group:
            spans[place] = last
        group, low = [], len(reached)


def from_ids(
    tokenizer: Tokenizer | None,
    ids: Sequence[int],
    special: frozenset[int],
    vocabulary: int,
    pointer: str = "/token_ids",
) -> Encoded:
    """Return tokens for given ids, with offsets in their joined text. Without a tokenizer, the text of an id is its number."""
    if any(not 0 <= id_ < vocabulary for id_ in ids):
        raise InvalidRequest(f"A token id is outside the model's vocabulary of {vocabulary}.", pointer=pointer)
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
            kind: TokenKind = "punct" if is_punctuation(piece.strip()) else "word"
            tokens.append(Token(text[slice(*span)] or piece, id_, *span, index, 0, kind))
    return Encoded(tokens, [0] * len(tokens), text=text)


def piece_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return each token as text, with its leading space, which SentencePiece's decoders remove."""
    texts = tokenizer.decode_batch([[one] for one in ids], skip_special_tokens=False)
    opens = [(tokenizer.id_to_token(one) or "")[:1] == "▁" for one in ids]
    return [f" {text}" if first and text[:1] != " " else text for text, first in zip(texts, opens, strict=True)]


def check_length(count: int, most: int | None, pointer: str = "/text") -> None:
    """Raise TooManyTokens above the limit, InvalidText if there are no tokens."""
    if count == 0:
        raise InvalidText("The text gives no tokens. Type at least one letter.", pointer=pointer)
    if most is not None and count > most:
        raise TooManyTokens(
            f"The text has {count} tokens and the model takes {most}. Shorten it, or set max_tokens to cut it.",
            pointer=pointer,
            limit=most,
            actual=count,
        )


def find_words(text: str) -> list[Span]:
    """Return words as [start, end): runs without spaces; every punctuation mark, CJK ideograph and emoji is a word of its own."""
    words: list[list[int]] = []
    open_kind = ""  # what may extend the last word: letters, emoji, a flag's second half
    for index, char in enumerate(text):
        kind = _char_kind(char)
        if kind == open_kind == "letter":
            words[-1][1] = index + 1
            continue
        joins = kind == "join" or (kind == open_kind == "flag") or open_kind == "joiner"
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
    """Return the segment of each token. Special tokens belong to the segment before them; leading ones to the first."""
    segments, current = [], 0
    for sequence in sequence_ids:
        current = current if sequence is None else sequence
        segments.append(current)
    return segments


def _trim(text: str, span: Span) -> Span:
    """Remove the surrounding spaces that byte-level and SentencePiece tokens include; a token of spaces only keeps them."""
    start, end = span
    inner = text[start:end]
    if not inner.strip():
        return span
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())


def _places(words: list[Span], length: int) -> list[int]:
    """Return for every position of a text, including its end, the index of the word there, or else the next, or else the last; -1 if there are no words."""
    places: list[int] = []
    for index, (_, end) in enumerate(words):
        places += [index] * (end - len(places))
    return places + [len(words) - 1] * (length + 1 - len(places))


def _owners(words: int, places: list[int], spans: list[Span]) -> list[int]:
    """Return the number of every word after joining words that share a token: a word is never finer than a token."""
    joined: set[int] = set()
    for start, end in spans:
        if words and end > start:
            joined.update(range(places[start], places[end - 1]))  # word i is joined with word i + 1
    numbers = accumulate((index not in joined for index in range(words - 1)), initial=0)
    return [*numbers][:words]


def is_punctuation(text: str) -> bool:
    """Return whether all characters of a text are in Unicode categories P*; symbols such as $ and + are words."""
    return bool(text) and all(unicodedata.category(char).startswith("P") for char in text)


def _kind(source: str, span: Span, word: Span | None) -> TokenKind:
    """Return the kind of a token with text `source` at `span`, which begins in `word`."""
    text = source.strip()
    if is_punctuation(text):
        return "punct"
    if word is None or not text:
        return "word"
    return "word" if span[0] <= word[0] and span[1] >= word[1] else "subword"


def _mark_pieces(tokens: list[Token]) -> list[Token]:
    """Mark tokens that share one span (bytes of one character) as subwords."""
    spans = Counter((token.segment, token.start, token.end) for token in tokens if token.kind != "special")
    return [
        replace(t, kind="subword") if t.end > t.start and spans[t.segment, t.start, t.end] > 1 else t for t in tokens
    ]
