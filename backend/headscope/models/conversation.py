"""Conversations as input: formatted by the model's own chat template, with the tokens of every message marked by its role."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from pydantic import Field
from tokenizers import Tokenizer

from ..core.declarations import Params
from ..core.text import Span, check_text
from ..errors import InvalidRequest, Unsupported
from .tokens import Encoded, assemble, cut_after, read_row

Role = Literal["system", "user", "assistant"]
POINTER = "/messages"
NO_TEMPLATE = "This model has no chat template, so it reads no conversations. Give a text."
# Templates that ask for today's date get the one that Llama's fall back to: results must not depend on the day.
DAY = {
    "%d": "26",
    "%m": "07",
    "%b": "Jul",
    "%B": "July",
    "%Y": "2024",
    "%y": "24",
    "%a": "Fri",
    "%A": "Friday",
    "%H": "12",
    "%M": "00",
    "%S": "00",
}
TODAY = (
    "{%- macro strftime_now(format) %}{{ format"
    + "".join(f" | replace('{field}', '{value}')" for field, value in DAY.items())
    + " }}{% endmacro %}\n"  # the line break goes with the block, so that the template begins on a line of its own
)
LOST = (
    "The model's chat template changes the contents of these messages, so Headscope cannot tell which tokens are whose. "
    "Format the conversation yourself, and give it as a text."
)
NAMED = "A message contains the name of a special token, which this model's tokenizer cannot keep apart from its own. Remove it."
# Characters of the private use area.
PRIVATE = tuple(map(chr, range(0xE000, 0xF900)))


class Message(Params):
    """One message of a conversation."""

    role: Role = Field(description="Who writes: system, user or assistant.")
    content: str = Field(description="What is written, as plain text: names of special tokens in it are ordinary text.")


@dataclass(frozen=True)
class ChatTemplate:
    """The chat template of a fast tokenizer of transformers, or of a processor, which has `own`."""

    tokenizer: Any
    own: str | None = None

    @property
    def source(self) -> str:
        """The template itself."""
        return self.own or str(self.tokenizer.get_chat_template())

    def render(self, messages: Sequence[Message], *, answer: bool, pictured: bool = False) -> str:
        """Format a conversation; with `answer` up to where the assistant's next message begins, `pictured` with an image before the user's first message.

        Raises InvalidRequest for messages that the template rejects.
        """
        try:
            text = self.tokenizer.apply_chat_template(
                _with_image(messages) if pictured else [message.model_dump() for message in messages],
                tokenize=False,
                add_generation_prompt=answer,
                chat_template=TODAY + self.source,
            )
        except Exception as error:  # the template is a program of the model's authors
            raise InvalidRequest(
                "The model's chat template rejects these messages. Most templates take at most one system message, at the start, and then user and assistant in turn.",
                pointer=POINTER,
            ) from error
        return str(text)

    @cached_property
    def parser(self) -> Tokenizer:
        """The tokenizer that finds special tokens in a text."""
        copy = Tokenizer.from_str(self.tokenizer.backend_tokenizer.to_str())
        copy.no_truncation()
        copy.no_padding()
        copy.encode_special_tokens = False
        return copy

    @cached_property
    def special(self) -> frozenset[int]:
        """The ids of all special tokens."""
        return frozenset(id_ for id_, token in self.parser.get_added_tokens_decoder().items() if token.special)

    def strip_names(self, text: str) -> str:
        """Remove the names of special tokens from a text."""
        names = [token.content for token in self.parser.get_added_tokens_decoder().values() if token.special]
        while any(name in text for name in names):
            for name in names:
                text = text.replace(name, "")
        return text

    def tokenize(self, text: str) -> list[_Piece]:
        """Tokenize a text in which special tokens are found by their name."""
        found = self.parser.encode(text, add_special_tokens=False)
        return [
            _Piece(id_, span, self._is_special(id_, text[slice(*span)]))
            for id_, span in zip(found.ids, found.offsets, strict=True)
        ]

    def _is_special(self, id_: int, written: str) -> bool:
        """Return whether a token is a special one by its name. Unknown characters give the unknown token without naming it."""
        unknown = id_ == self.tokenizer.unk_token_id and written.strip() != self.tokenizer.unk_token
        return id_ in self.special and not unknown


def _with_image(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages whose contents are lists of parts, with an image as the first part of the user's first message."""
    first = next((place for place, message in enumerate(messages) if message.role == "user"), -1)
    image = [{"type": "image"}]
    return [
        {
            "role": message.role,
            "content": [*(image if place == first else []), {"type": "text", "text": message.content}],
        }
        for place, message in enumerate(messages)
    ]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A token: its id, its span in the formatted text, and whether it is one of the template's special tokens."""

    id: int
    span: Span
    special: bool


@dataclass(frozen=True, slots=True)
class _Formatted:
    """A formatted conversation: the contents of its messages, and the template's text before, between and after them."""

    between: list[str]
    contents: list[str]

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(before + content for before, content in zip(self.between, [*self.contents, ""], strict=True))

    @property
    def spans(self) -> list[Span]:
        """The spans of the contents in the text."""
        found, at = list[Span](), 0
        for before, content in zip(self.between, self.contents, strict=False):
            at += len(before)
            found.append((at, at + len(content)))
            at += len(content)
        return found


def check(messages: Sequence[Message], limit: int | None = None) -> None:
    """Raise InvalidText for messages that no tokenizer accepts. `limit` is in UTF-8 bytes, of all together."""
    for place, message in enumerate(messages):
        check_text(message.content, f"{POINTER}/{place}/content")
    check_text("\n".join(message.content for message in messages), POINTER, limit)


def encode(
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    messages: Sequence[Message],
    *,
    unknown: str | None = None,
    max_tokens: int | None = None,
) -> Encoded:
    """Format and tokenize a conversation with a prepared tokenizer. Special tokens are only those of the template.

    Unless the last message is the assistant's, the beginning of its answer is added.
    The text is the whole formatted conversation. Tokens of a message's content have its role; those of the template have none.

    Raises InvalidRequest, InvalidText or Unsupported.
    """
    if template is None:
        raise Unsupported(NO_TEMPLATE, pointer=POINTER)
    check(messages)
    formatted = _format(template, messages, answer=messages[-1].role != "assistant")
    pieces = _tokenize(tokenizer, template, formatted)
    texts = (formatted.text, "")
    rows = [
        read_row(tokenizer, texts, piece.id, 0, None if piece.special else piece.span) for piece in pieces[:max_tokens]
    ]
    roles = [_role(piece, messages, formatted.spans) for piece in pieces[:max_tokens]]
    tokens = [
        replace(token, role=role)
        for token, role in zip(assemble(rows, texts, unknown, covered=True), roles, strict=True)
    ]
    warnings = (cut_after(len(rows)),) if len(rows) < len(pieces) else ()
    return Encoded(tokens, [0] * len(tokens), text=formatted.text, author="assistant", warnings=warnings)


def format_pictured(
    template: ChatTemplate | None, messages: Sequence[Message]
) -> tuple[str, list[int], list[Role | None]]:
    """Format a conversation with an image before the user's first message: the text, and the ids and roles of its tokens.

    Raises InvalidRequest, InvalidText or Unsupported.
    """
    if template is None:
        raise Unsupported(NO_TEMPLATE, pointer=POINTER)
    check(messages)
    formatted = _format(template, messages, answer=messages[-1].role != "assistant", pictured=True)
    pieces = template.tokenize(formatted.text)
    own = [piece.id for part in formatted.between for piece in template.tokenize(part) if piece.special]
    if [piece.id for piece in pieces if piece.special] != own:
        raise Unsupported(NAMED, pointer=POINTER)
    return formatted.text, [piece.id for piece in pieces], [_role(piece, messages, formatted.spans) for piece in pieces]


def _format(template: ChatTemplate, messages: Sequence[Message], *, answer: bool, pictured: bool = False) -> _Formatted:
    """Format a conversation, and find the contents by formatting placeholders in the same way. Raises InvalidRequest or Unsupported."""
    text = template.render(messages, answer=answer, pictured=pictured)
    every = "".join(message.content for message in messages)
    mark = next(char for char in PRIVATE if char not in every)
    held = [Message(role=each.role, content=f"{mark}{place}{mark}") for place, each in enumerate(messages)]
    rest, between = template.render(held, answer=answer, pictured=pictured), list[str]()
    for placeholder in held:
        before, found, rest = rest.partition(placeholder.content)
        between.append(before)
        if not found:
            raise Unsupported(LOST, pointer=POINTER)
    between.append(rest)
    contents, at = list[str](), len(between[0])
    for message, after in zip(messages, between[1:], strict=True):
        written = (message.content, message.content.strip(), message.content.rstrip(), message.content.lstrip())
        contents.append(next((form for form in written if text.startswith(form + after, at)), ""))
        at += len(contents[-1]) + len(after)
    formatted = _Formatted(between, contents)
    if formatted.text != text or mark in text:
        raise Unsupported(LOST, pointer=POINTER)
    return formatted


def _tokenize(tokenizer: Tokenizer, template: ChatTemplate, formatted: _Formatted) -> list[_Piece]:
    """Tokenize a formatted conversation. Raises Unsupported if the tokenizer cannot keep special tokens named in a message apart from those of the template."""
    whole = template.tokenize(formatted.text)
    own = [piece.id for part in formatted.between for piece in template.tokenize(part) if piece.special]
    if [piece.id for piece in whole if piece.special] == own:
        return whole
    harmless = replace(formatted, contents=[template.strip_names(content) for content in formatted.contents])
    if _tokenize_apart(tokenizer, template, harmless) != template.tokenize(harmless.text):
        raise Unsupported(NAMED, pointer=POINTER)
    return _tokenize_apart(tokenizer, template, formatted)


def _tokenize_apart(tokenizer: Tokenizer, template: ChatTemplate, formatted: _Formatted) -> list[_Piece]:
    """Tokenize the text between the template's special tokens piece by piece, as tokenizers do, but without finding special tokens in it."""
    special, at = list[_Piece](), 0
    for part, (_, end) in zip(formatted.between, [*formatted.spans, (0, 0)], strict=True):
        special += [_shifted(piece, at) for piece in template.tokenize(part) if piece.special]
        at = end
    found, at, text = list[_Piece](), 0, formatted.text
    for piece in (*special, None):
        end = piece.span[0] if piece else len(text)
        between = tokenizer.encode(text[at:end], add_special_tokens=False)
        listed = zip(between.ids, between.offsets, strict=True)
        found += [_shifted(_Piece(id_, span, special=False), at) for id_, span in listed]
        if piece:
            found.append(piece)
            at = piece.span[1]
    return found


def _shifted(piece: _Piece, by: int) -> _Piece:
    return replace(piece, span=(piece.span[0] + by, piece.span[1] + by))


def _role(piece: _Piece, messages: Sequence[Message], contents: list[Span]) -> Role | None:
    """Return the role of the message that a token is in; None for one of the template."""
    start, end = piece.span
    inside = (
        message.role for message, span in zip(messages, contents, strict=True) if start < span[1] and end > span[0]
    )
    return None if piece.special else next(inside, None)
