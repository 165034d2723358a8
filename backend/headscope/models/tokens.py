"""Text to tokens: exact character offsets, words, segments and kinds, independent of the kind of tokenizer."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tokenizers import Tokenizer

from ..core.attention import Kind, ResultWarning
from ..core.text import Span, find_words
from ..core.tokens import Axes, Token, TokenKind
from ..errors import InvalidRequest, InvalidText, TooManyTokens
from .decoding import decode_after

# Kinds of tokens that are no part of the text.
UNWRITTEN = ("special", "image")
SPACE = "▁"  # in names of SentencePiece's tokens


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
    encoding, texts = tokenizer.encode(text, text_pair), (text, text_pair or "")
    ids, spans, special, types = encoding.ids, encoding.offsets, encoding.special_tokens_mask, encoding.type_ids
    segments = _segments(encoding.sequence_ids)
    kept = range(len(ids)) if max_tokens is None else _first(segments, special, max_tokens)
    rows = [read_row(tokenizer, texts, ids[i], segments[i], None if special[i] else spans[i]) for i in kept]
    warnings = (cut_after(len(kept)),) if len(kept) < len(ids) else ()
    return Encoded(assemble(rows, texts, unknown), [types[i] for i in kept], text=text, warnings=warnings)


def _first(segments: Sequence[int], special: Sequence[int], most: int) -> Sequence[int]:
    """Return the places of at most so many tokens: all special ones, and the first ones of each text, of the longer one fewer.

    As tokenizers truncates, which also makes inputs of all that is left over, as many as pairs of parts of the two texts.
    """
    if len(segments) <= most:
        return range(len(segments))
    texts = [[i for i, text in enumerate(segments) if text == number and not special[i]] for number in (0, 1)]
    room = most - sum(special)
    if room < 0:
        raise InvalidRequest(
            "max_tokens is less than the model's number of special tokens. Raise max_tokens.", pointer="/max_tokens"
        )
    short, long = sorted(texts, key=len)
    half = min(len(short), room // 2)
    left = {*short[:half], *long[: room - half]}
    return [i for i in range(len(segments)) if special[i] or i in left]


def cut_after(count: int) -> ResultWarning:
    """Return the warning about an input of which only the first tokens were read."""
    return ResultWarning("cut", f"Truncated to the first {count} tokens, as requested; the rest was not read.")


def extend(
    tokenizer: Tokenizer, encoded: Encoded, added: Sequence[int], special: frozenset[int], unknown: str | None = None
) -> Encoded:
    """Append ids to an input, with exact offsets in the extended text: the part of the input's text that was read, and the new one."""
    continuation, spans = decode_after(
        tokenizer, [token.id for token in encoded.tokens if token.kind not in UNWRITTEN], added, special
    )
    read = _read_text(encoded)
    text, length = read + continuation, len(read)
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


def _read_text(encoded: Encoded) -> str:
    """Return the text up to the last token that was read."""
    text = encoded.text or ""
    if any(warning.code == "cut" for warning in encoded.warnings):
        return text[: max((token.end for token in encoded.tokens), default=0)]
    return text


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


def read_row(tokenizer: Tokenizer, texts: tuple[str, str], id_: int, segment: int, span: Span | None) -> TokenRow:
    """Return a token without its word; `texts` are those of the segments.

    Its name is that of its id: an encoding has unknown tokens of a Unigram model by their characters. A space that SentencePiece adds has the span of the character
    after it, and gets an empty one.
    """
    name = tokenizer.id_to_token(id_) or str(id_)
    if span is not None and name == SPACE:
        written = texts[segment][slice(*span)]
        if not written.isspace() and SPACE not in written:
            return TokenRow(" ", id_, segment, (span[0], span[0]))
    return TokenRow(name, id_, segment, span)


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
    pieces = [str(id_) for id_ in ids] if tokenizer is None else piece_texts(tokenizer, ids)
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
    opens = [(tokenizer.id_to_token(one) or "")[:1] == SPACE for one in ids]
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
