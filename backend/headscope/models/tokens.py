"""Text to tokens: exact character offsets, words, segments and kinds, the same way for every kind of tokenizer."""

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
# Truncation is a setting of the tokenizer, which several threads may share.
_TRUNCATING = Lock()


@dataclass(frozen=True, slots=True)
class Grid:
    """How an image became tokens: rows and columns of patches, and the sizes in pixels, as (width, height), of a patch and of the image the model sees."""

    rows: int
    columns: int
    patch: tuple[int, int]
    size: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Encoded:
    """One input as the model takes it.

    tokens     those of the text, of the encoder's text, or the patches of the image
    type_ids   the segment id of each, for models that take one
    target     tokens that a decoder reads beside an encoder; None where only the encoder is looked at
    text       what the offsets of `tokens` count in, with what was generated; `target_text` the same for `target`
    pixels     [1, channels, height, width] (a tensor), the `grid` it is cut into, and the same as a `picture`, uint8 [height, width, 3]
    heard      [1, K, d], what the encoder of a model that listens made of its input
    generated  how many tokens at the end (of `target`, if there is one) the model wrote itself
    """

    tokens: list[Token]
    type_ids: list[int]
    target: list[Token] | None = None
    text: str | None = None
    target_text: str | None = None
    pixels: Any | None = None
    grid: Grid | None = None
    picture: Any | None = None
    heard: Any | None = None
    generated: int = 0
    warnings: tuple[ResultWarning, ...] = ()

    def axes(self, kind: Kind) -> Axes:
        """The tokens along the axes of a map of this kind. Raises InvalidRequest where there are none for it."""
        source, target = tuple(self.tokens), tuple(self.target or ())
        if kind in ("decoder", "cross") and not target:
            raise InvalidRequest("There is no text for the decoder. Give a second text.", pointer="/text_pair")
        return {"decoder": Axes(target, target), "cross": Axes(target, source)}.get(kind, Axes(source, source))


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
    with _TRUNCATING:
        if max_tokens is not None:
            tokenizer.enable_truncation(max_tokens)
        try:
            encoding = tokenizer.encode(text) if text_pair is None else tokenizer.encode(text, text_pair)
        finally:
            tokenizer.no_truncation()
    if (
        max_tokens is not None and len(encoding.ids) > max_tokens
    ):  # which cuts nothing where the special tokens alone are more
        raise InvalidRequest(
            "The special tokens of the model alone are more than max_tokens. Raise max_tokens.", pointer="/max_tokens"
        )
    segments = _segments(encoding.sequence_ids)
    rows = [
        _Row(piece, id_, segment, None if special else span)
        for piece, id_, segment, special, span in zip(
            encoding.tokens, encoding.ids, segments, encoding.special_tokens_mask, encoding.offsets, strict=True
        )
    ]
    return Encoded(
        _assemble(rows, (text, text_pair or ""), unknown), list(encoding.type_ids), text=text, warnings=_cut(encoding)
    )


def _cut(encoding: Any) -> tuple[ResultWarning, ...]:
    if not encoding.overflowing:
        return ()
    return (
        ResultWarning(
            "cut", f"Cut to the first {len(encoding.ids)} tokens, as asked: what follows was not read.", None
        ),
    )


def extend(
    tokenizer: Tokenizer, encoded: Encoded, added: Sequence[int], special: frozenset[int], unknown: str | None = None
) -> Encoded:
    """The input with ids that continue it; their offsets are exact in the text that grows by what they say."""
    said, spans = _spell(tokenizer, [token.id for token in encoded.tokens if token.kind != "special"], added, special)
    text, length = (encoded.text or "") + said, len(encoded.text or "")
    rows = [
        _Row(token.text, token.id, 0, None if token.kind == "special" else (token.start, token.end))
        for token in encoded.tokens
    ]
    rows += [
        _Row(tokenizer.id_to_token(id_) or str(id_), id_, 0, span and (span[0] + length, span[1] + length))
        for id_, span in zip(added, spans, strict=True)
    ]
    tokens = _assemble(rows, (text, ""), unknown)
    return replace(encoded, tokens=tokens, type_ids=[0] * len(tokens), text=text, generated=len(added))


def as_target(found: list[Token], source: list[Token]) -> list[Token]:
    """Tokens of the decoder: in segment 1, with words that count on from those of the encoder."""
    first = max((token.word for token in source if token.word is not None), default=-1) + 1
    return [replace(t, segment=1, word=None if t.word is None else t.word + first) for t in found]


def annotate(encoded: Encoded, pos: Sequence[str] | None, labels: Sequence[str] | None) -> Encoded:
    """With a part of speech and a label on every token, given one per word (of both texts) or one per token. Raises InvalidRequest.

    The words may also be all those of the text, where the tokenizer joins some or the input was cut.
    """
    for name, values in (("pos", pos), ("label", labels)):
        if values is not None:
            encoded = _annotate(encoded, name, values)
    return encoded


def _annotate(encoded: Encoded, name: str, values: Sequence[str]) -> Encoded:
    every = [*encoded.tokens, *(encoded.target or ())]
    given = every[: len(every) - encoded.generated]
    words = len({token.word for token in given if token.word is not None})
    written = [] if any(token.segment for token in every) else find_words(encoded.text or "")
    if len(values) == words:
        numbers = sorted({token.word for token in given if token.word is not None})
        by_word = dict(zip(numbers, values, strict=True))
        marked = [t if t.word is None else replace(t, **{name: by_word.get(t.word)}) for t in every]
    elif len(values) == len(written):  # of which some share a token, or were cut off
        places = _places(written, len(encoded.text or ""))
        marked = [t if t.word is None else replace(t, **{name: values[places[t.start]]}) for t in every]
    elif len(values) == len(given):
        marked = [replace(t, **{name: value}) for t, value in zip(given, values, strict=True)]
        marked += every[len(given) :]
    else:
        field = {"pos": "pos", "label": "labels"}[name]
        raise InvalidRequest(
            f"{field} has {len(values)} entries; the input has {words} words and {len(given)} tokens. Give one per word, or one per token.",
            pointer=f"/{field}",
            actual=len(values),
        )
    count = len(encoded.tokens)
    return replace(encoded, tokens=marked[:count], target=None if encoded.target is None else marked[count:])


@dataclass(frozen=True, slots=True)
class _Row:
    """A token before its words are known: what the tokenizer calls it, and where it stands; None for a special one."""

    piece: str
    id: int
    segment: int
    span: Span | None


def _assemble(rows: list[_Row], texts: tuple[str, str], unknown: str | None) -> list[Token]:
    spans = [(0, 0) if row.span is None else _trim(texts[row.segment], row.span) for row in rows]
    words = [find_words(part) for part in texts]
    places = [_places(*both) for both in zip(words, map(len, texts), strict=True)]
    owners = [
        _owners(
            len(words[segment]),
            places[segment],
            [s for s, row in zip(spans, rows, strict=True) if row.span is not None and row.segment == segment],
        )
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


# Ids decoded together with a new one, so that spaces and characters of several tokens come out as in the whole text.
CONTEXT = 8
# No character has more bytes, so a longer run without a whole character never becomes one.
LONGEST_CHARACTER = 4


def _spell(
    tokenizer: Tokenizer, before: list[int], added: Sequence[int], special: frozenset[int]
) -> tuple[str, list[Span | None]]:
    """What ids say after others, and where each stands in it (None for special ones). Tokens that make one character together share its place."""
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
        if not whole.startswith(known):  # a decoder that changes what stands before, as some do at punctuation
            known, whole = "", " " + tokenizer.decode([added[place] for place, _ in waiting], skip_special_tokens=False)
            waiting = [(place, whole) for place, _ in waiting]
        _place(spans, waiting, whole, len(known), len(text))
        text += whole[len(known) :]
        waiting, window = [], window[-CONTEXT:]
        known = tokenizer.decode(window, skip_special_tokens=False)
    return text, spans


def _place(spans: list[Span | None], waiting: list[tuple[int, str]], whole: str, known: int, start: int) -> None:
    """Give each waiting token its place: up to where the text was so far, if the later tokens left that as it was."""
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
    """Tokens for given ids; their offsets are those in the joined text of all of them. Without a tokenizer an id is its own text."""
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
            tokens.append(
                Token(
                    text[slice(*span)] or piece,
                    id_,
                    *span,
                    index,
                    0,
                    "punct" if is_punctuation(piece.strip()) else "word",
                )
            )
    return Encoded(tokens, [0] * len(tokens), text=text)


def check_length(count: int, most: int | None, pointer: str = "/text") -> None:
    """Raise TooManyTokens, or InvalidText where there is nothing."""
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
    """Words as [start, end): runs without spaces, where every punctuation mark and every CJK ideograph stands alone and an emoji is one word."""
    words: list[list[int]] = []
    open_kind = ""  # what the last word can still take: letters, emoji, a flag's second half
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


def _places(words: list[Span], length: int) -> list[int]:
    """Of every position of a text, its end included: index of the word that holds it, else of the next one, else of the last; -1 where there is none."""
    places: list[int] = []
    for index, (_, end) in enumerate(words):
        places += [index] * (end - len(places))
    return places + [len(words) - 1] * (length + 1 - len(places))


def _owners(words: int, places: list[int], spans: list[Span]) -> list[int]:
    """Of every word its number after joining those that share a token: a word is never finer than a token."""
    joined: set[int] = set()
    for start, end in spans:
        if words and end > start:
            joined.update(range(places[start], places[end - 1]))  # word i is joined with word i + 1
    numbers = accumulate((index not in joined for index in range(words - 1)), initial=0)
    return [*numbers][:words]


def is_punctuation(text: str) -> bool:
    """Whether a text is made of characters of Unicode's categories P*; signs such as $ and + are words."""
    return bool(text) and all(unicodedata.category(char).startswith("P") for char in text)


def _kind(source: str, span: Span, word: Span | None) -> TokenKind:
    """What a token is that says `source` at `span` and begins in `word`."""
    said = source.strip()
    if is_punctuation(said):
        return "punct"
    if word is None or not said:
        return "word"
    return "word" if span[0] <= word[0] and span[1] >= word[1] else "subword"


def _mark_pieces(tokens: list[Token]) -> list[Token]:
    """Several tokens for one and the same stretch of text (bytes of one character) are pieces of it."""
    spans = Counter((token.segment, token.start, token.end) for token in tokens if token.kind != "special")
    return [
        replace(t, kind="subword") if t.end > t.start and spans[t.segment, t.start, t.end] > 1 else t for t in tokens
    ]
