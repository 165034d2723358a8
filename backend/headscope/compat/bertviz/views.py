"""`head_view` and `model_view` of BertViz: attention weights that a model has returned, in Headscope's viewer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...core.lazy import Tensor
from ...core.tokens import Token
from ...errors import InvalidRequest
from ...library.arguments import count, items, numbers
from ...library.from_attentions import from_attentions, parse_pieces, to_tensor
from ...library.notebook import NotebookView
from ..views import AttentionView, check_choice, deliver, fit

END_OF_WORD = "</w>"
NO_ATTENTION = 'The model returned no attention. Load it with attn_implementation="eager" and output_attentions=True, and pass outputs.attentions.'


@dataclass(frozen=True)
class _AttentionInput:
    """One kind of attention: its name, one array [1, H, Q, K] per layer, and the tokens along both axes."""

    name: str
    attention: Sequence[Any]
    tokens: list[Token]
    key_tokens: list[Token] | None = None


@dataclass(frozen=True)
class _HeadChoice:
    """Which layers and heads a view includes (None: all), which it opens, and its theme (light, dark, or None for the notebook's)."""

    include_layers: Sequence[int] | None = None
    include_heads: Sequence[int] | None = None
    layer: int | None = None
    heads: Sequence[int] | None = None
    theme: str | None = None


def head_view(
    attention: Any = None,
    tokens: Any = None,
    sentence_b_start: int | None = None,
    prettify_tokens: bool = True,
    layer: int | None = None,
    heads: Sequence[int] | None = None,
    encoder_attention: Any = None,
    decoder_attention: Any = None,
    cross_attention: Any = None,
    encoder_tokens: Any = None,
    decoder_tokens: Any = None,
    include_layers: Sequence[int] | None = None,
    html_action: str = "view",
) -> AttentionView | None:
    """Show attention weights, with the heads of one layer opened.

    `attention` has one array per layer, [1, H, Q, K], or the encoder's, decoder's and cross-attention are given with the tokens of both. Opened are `heads` of
    `layer`, as one merged map; by default the first head. Long inputs keep fewer heads, which a note says. In a notebook the view is displayed unless
    `html_action` is "return". Raises InvalidRequest for arguments that do not fit together.
    """
    inputs = _read_inputs(
        (attention, tokens, sentence_b_start),
        (encoder_attention, decoder_attention, cross_attention),
        (encoder_tokens, decoder_tokens),
        prettify_tokens,
    )
    return deliver(_view(inputs, _HeadChoice(include_layers, None, layer, heads)), html_action)


def model_view(
    attention: Any = None,
    tokens: Any = None,
    sentence_b_start: int | None = None,
    prettify_tokens: bool = True,
    display_mode: str = "dark",
    encoder_attention: Any = None,
    decoder_attention: Any = None,
    cross_attention: Any = None,
    encoder_tokens: Any = None,
    decoder_tokens: Any = None,
    include_layers: Sequence[int] | None = None,
    include_heads: Sequence[int] | None = None,
    html_action: str = "view",
) -> AttentionView | None:
    """Show attention weights as a grid of all layers and heads, or of those that are included. The other arguments are those of head_view."""
    check_choice(display_mode, ("dark", "light"), "display_mode")
    inputs = _read_inputs(
        (attention, tokens, sentence_b_start),
        (encoder_attention, decoder_attention, cross_attention),
        (encoder_tokens, decoder_tokens),
        prettify_tokens,
    )
    return deliver(_view(inputs, _HeadChoice(include_layers, include_heads, theme=display_mode)), html_action)


def _read_inputs(
    own: tuple[Any, Any, int | None], pair: tuple[Any, Any, Any], texts: tuple[Any, Any], prettify: bool
) -> list[_AttentionInput]:
    """Return the given kinds of attention. Raises InvalidRequest if tokens are missing, or both forms are mixed."""
    attention, tokens, second = own
    if attention is not None:
        if any(given is not None for given in (*pair, *texts)):
            raise InvalidRequest("Give attention and tokens, or those of encoder and decoder, not both.")
        return [_AttentionInput("Attention", attention, _split(_read_tokens(tokens, "tokens", prettify), second))]
    return list(_read_pair(pair, texts, prettify))


def _read_pair(pair: tuple[Any, Any, Any], texts: tuple[Any, Any], prettify: bool) -> Iterator[_AttentionInput]:
    encoder, decoder, cross = pair
    if all(given is None for given in pair):
        raise InvalidRequest("Give attention, or one of encoder_attention, decoder_attention and cross_attention.")
    if encoder is not None:
        yield _AttentionInput("Encoder", encoder, _read_tokens(texts[0], "encoder_tokens", prettify))
    if decoder is not None:
        yield _AttentionInput("Decoder", decoder, _read_tokens(texts[1], "decoder_tokens", prettify))
    if cross is not None:
        queries = _read_tokens(texts[1], "decoder_tokens", prettify)
        yield _AttentionInput("Cross", cross, queries, _read_tokens(texts[0], "encoder_tokens", prettify))


def _read_tokens(pieces: Any, name: str, prettify: bool) -> list[Token]:
    if pieces is None:
        raise InvalidRequest(f"{name} must be a list with one string per token.")
    written = [str(piece) for piece in items(pieces, name) or []]
    if prettify:
        return list(parse_pieces([piece.removesuffix(END_OF_WORD) or piece for piece in written]))
    return [replace(token, text=piece) for token, piece in zip(parse_pieces(written), written, strict=True)]


def _split(tokens: list[Token], second: int | None) -> list[Token]:
    """Return the tokens with those from the start of the second sentence in a segment of their own."""
    if second is None:
        return tokens
    if not 0 < count(second, "sentence_b_start") < len(tokens):
        raise InvalidRequest("sentence_b_start must be the index of a token after the first one.")
    return [replace(token, segment=int(place >= second)) for place, token in enumerate(tokens)]


def _view(inputs: Sequence[_AttentionInput], choice: _HeadChoice) -> AttentionView:
    viewers, notes = {}, []
    for one in inputs:
        viewer, note = _viewer(one, choice)
        viewers[one.name] = viewer
        notes += [note] if note else []
    return AttentionView(viewers, notes)


def _viewer(given: _AttentionInput, choice: _HeadChoice) -> tuple[NotebookView, str]:
    """Return the viewer of one kind of attention, and what it leaves out, if anything."""
    listed = _listed(given.attention)
    layers = _included(choice.include_layers, len(listed), "include_layers")
    attention = {layer: _tensor(listed[layer], layer) for layer in layers}
    shape = attention[layers[0]].shape
    if len(shape) != 4 or shape[0] != 1:
        raise InvalidRequest(
            "Each layer needs an array [1, heads, queries, keys]. Give one input at a time, from a model with output_attentions=True."
        )
    if any(one.shape != shape for one in attention.values()):
        raise InvalidRequest(
            "The layers have different numbers of heads or tokens. Give layers of the same shape, for example those of include_layers."
        )
    heads = _included(choice.include_heads, shape[1], "include_heads")
    first = layers[0] if choice.layer is None else choice.layer
    opened = numbers(choice.heads, "heads") or heads[:1]
    if first not in layers or not set(opened) <= set(heads):
        raise InvalidRequest("layer and heads must be among those that the view includes.")
    kept_layers, kept_heads = _keep(layers, heads, first, opened, fit(len(layers) * len(heads), *shape[2:]))
    chosen = [attention[layer][:, kept_heads] for layer in kept_layers]
    a = from_attentions(chosen, given.tokens, key_tokens=given.key_tokens, layers=kept_layers, heads=kept_heads)
    shown = [head for head in opened if head in kept_heads]
    fields = {"head": f"{first}.{shown[0]}"}
    if len(shown) > 1:
        fields["heads"] = " ".join(f"{first}.{head}" for head in shown)
    if choice.theme:
        fields["theme"] = choice.theme
    left = len(layers) * len(heads) - len(kept_layers) * len(kept_heads)
    return NotebookView(a.id, a.source, fields), _note(given.name, left, kept_layers, kept_heads)


def _listed(attention: Any) -> list[Any]:
    layers = [] if isinstance(attention, str) or not isinstance(attention, Iterable) else list(attention)
    if not layers:
        raise InvalidRequest(NO_ATTENTION)
    return layers


def _tensor(weights: Any, layer: int) -> Tensor:
    if weights is None:
        raise InvalidRequest(NO_ATTENTION)
    return to_tensor(weights, f"Layer {layer} of the attention")


def _included(given: Sequence[int] | None, count: int, name: str) -> list[int]:
    found = numbers(given, name)
    if found is None:
        return list(range(count))
    if not found or not set(found) <= set(range(count)):
        raise InvalidRequest(f"{name} must be some of the numbers 0 to {count - 1}.")
    return sorted(set(found))


def _keep(layers: list[int], heads: list[int], first: int, opened: list[int], most: int) -> tuple[list[int], list[int]]:
    """Return which layers and heads are kept: whole layers from `first` on, then those before; or `opened` and others of one layer."""
    if most >= len(heads):
        start = layers.index(first)
        return sorted((layers[start:] + layers[:start])[: most // len(heads)]), heads
    others = [head for head in heads if head not in opened]
    return [first], sorted([*dict.fromkeys(opened), *others][:most])


def _note(name: str, left: int, layers: list[int], heads: list[int]) -> str:
    """Return what a view of a long input leaves out; empty if it has everything."""
    if not left:
        return ""
    kept = f"layers {_spans(layers)} with heads {_spans(heads)}"
    return f"{name}: the maps of {left} more heads would be too large for a notebook. Shown are {kept}. Choose others with include_layers."


def _spans(found: list[int]) -> str:
    return ", ".join(str(one) for one in found)
