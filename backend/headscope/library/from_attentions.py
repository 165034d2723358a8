"""Attention that was computed elsewhere: given as arrays, checked, and read like any other."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from ..analysis import memory
from ..analysis.reader import Reader
from ..analysis.request import check_capabilities
from ..analysis.result import MemorySink
from ..analysis.warnings import find_warnings
from ..core.attention import BLOCK_BYTES, Keys, Kind, Layer, ResultWarning
from ..core.tokens import Axes, Token, TokenKind
from ..errors import InvalidRequest
from ..models.tokens import is_punctuation
from .analysis import Analysis
from .arguments import Method, request_of

# How far above 1 a row may sum, for rounding. Half precision may be off by its own epsilon.
TOLERANCE = 1e-3
MISSING = {
    "capture": "They were given as they are.",
    "scores": "Given weights come without query and key vectors.",
    "projection": "Given weights come without the projection after the heads.",
    "residual": "Given weights come without the residual stream.",
    "hidden": "Given weights come without hidden states.",
    "replay": "Given weights come without a model to run again.",
    "bilinear": "Given weights come without query and key projections.",
    "padding": "Given weights come without a model to run on the padded input.",
}
# Tokens that stand for no text, by how they are written; those for unknown or masked words do stand for text.
SPECIAL = re.compile(r"\[(?!UNK|MASK)[A-Za-z0-9_]+\]|<(?!unk|mask)[^<>\s]+>")
JOINED = "##"
OPENING = ("Ġ", "▁")


@dataclass(frozen=True)
class _AttentionArrays:
    """Checked arrays: weights of every layer [H, Q, K], values [G, K, D] or None, and the tokens along the axes."""

    weights: list[Tensor]
    values: list[Tensor] | None
    axes: Axes
    kind: Kind

    epsilon: float

    def digest(self) -> str:
        """SHA-256 of everything given."""
        sides = [[asdict(token) for token in side] for side in (self.axes.queries, self.axes.keys)]
        sha = hashlib.sha256(json.dumps([sides, self.epsilon]).encode())
        for part in [*self.weights, *(self.values or [])]:
            sha.update(f"{part.dtype}{list(part.shape)}".encode())
            sha.update(part.contiguous().numpy().data)
        return sha.hexdigest()


def from_attentions(
    attentions: Iterable[Any],
    tokens: Sequence[str | Token],
    values: Iterable[Any] | None = None,
    *,
    key_tokens: Sequence[str | Token] | None = None,
    causal: bool | None = None,
    lenses: Sequence[Method] | None = None,
    measures: Sequence[Method] = ("entropy",),
) -> Analysis:
    """An analysis of attention weights that any model returned. Cut padding off first; keys at the ends that no query attends to give a warning.

    `attentions` holds one array or tensor per layer, [H, Q, K] or [1, H, Q, K], as `output_attentions=True` gives them. `tokens` names the queries and, unless
    `key_tokens` does, the keys: strings as the tokenizer has them, or Token. `values` holds [G, K, D] or [1, G, K, D] per layer; with them lenses such as
    `effective` can be had, and are by default. `causal` says whether queries see themselves and earlier tokens only; by default it is told from the zeros: what
    lies farther away than any head of a layer looks counts as hidden.

    Raises InvalidRequest for arrays that are no attention weights, Unsupported for methods that need more than was given.

    >>> import headscope
    >>> a = headscope.from_attentions([[[[0.5, 0.5], [0.25, 0.75]]]], ["Hello", "world"])
    >>> a.maps["weights"].shape
    (1, 1, 2, 2)
    """
    started = time.perf_counter()
    given = _validate(attentions, tokens, values, key_tokens)
    rules = [_keys(weights, causal) for weights in given.weights]
    chosen = lenses if lenses is not None else ("weights", "effective") if values is not None else ("weights",)
    request = request_of(
        mechanism="softmax",
        model="attentions",
        token_ids=[token.id for token in given.axes.queries],
        kind=given.kind,
        lenses=chosen,
        measures=measures,
    )
    missing = _find_missing(given, rules)
    check_capabilities(request.methods, missing)
    heads, queries, keys = given.weights[0].shape
    planned = memory.plan(request, dict.fromkeys(range(len(given.weights)), heads), queries, keys)
    memory.check(planned, int(psutil.virtual_memory().available * 0.9))
    sink = MemorySink()
    reader = Reader(request, planned, [(sink, lambda fraction, stage, detail: None, request.maps)])
    for index, rule in enumerate(rules):
        _feed(_layer(given, index, rule), reader)
    width = given.values[0].shape[-1] if given.values else 0
    result = reader.result(request, given.kind, given.axes.queries, given.axes.keys, width)
    result.warnings = [*_warn_of_padding(given), *find_warnings(result, missing)]
    result.timing_ms = {"total": round((time.perf_counter() - started) * 1e3, 1)}
    digest = f"{given.digest()} {causal}"
    return Analysis(result, sink.maps, lambda: digest)


def _validate(
    attentions: Iterable[Any],
    tokens: Sequence[str | Token],
    values: Iterable[Any] | None,
    key_tokens: Sequence[str | Token] | None,
) -> _AttentionArrays:
    weights, epsilons = _arrays(attentions, "attention")
    shape = weights[0].shape
    for layer, one in enumerate(weights):
        if one.shape != shape:
            raise InvalidRequest(
                f"Layer {layer} has another number of heads or tokens than layer 0. Give layers of one shape, for example those with the same heads."
            )
        _check_rows(one, layer, epsilons[layer])
    queries = _named(tokens, shape[1], "tokens")
    keys = queries if key_tokens is None else _named(key_tokens, shape[2], "key_tokens")
    if key_tokens is None and shape[1] != shape[2]:
        raise InvalidRequest("Queries and keys differ in number. Name the keys by key_tokens.")
    kind: Kind = "self" if keys == queries else "cross"
    if values is None:
        return _AttentionArrays(weights, None, Axes(queries, keys), kind, max(epsilons))
    vectors, more = _arrays(values, "values")
    if len(vectors) != len(weights):
        raise InvalidRequest(f"There are {len(weights)} layers of attention and {len(vectors)} of values.")
    for layer, one in enumerate(vectors):
        if one.shape[1] != shape[2] or shape[0] % one.shape[0] or one.shape[2] != vectors[0].shape[2]:
            raise InvalidRequest(
                f"The values of layer {layer} do not fit: they need {shape[2]} tokens, a number of heads that divides {shape[0]}, and one width."
            )
    return _AttentionArrays(weights, vectors, Axes(queries, keys), kind, max(*epsilons, *more))


def _arrays(layers: Iterable[Any], what: str) -> tuple[list[Tensor], list[float]]:
    """One tensor [a, b, c] per layer, float32 or wider, and the machine epsilon each came with."""
    try:
        listed = list(layers)
    except TypeError:
        raise InvalidRequest(f"Give the {what} as a list with one array per layer.") from None
    if not listed:
        raise InvalidRequest(f"The {what} holds no layer. Give one array per layer.")
    found = [_tensor(one, f"Layer {layer} of the {what}") for layer, one in enumerate(listed)]
    return [one for one, _ in found], [epsilon for _, epsilon in found]


def _tensor(array: Any, name: str) -> tuple[Tensor, float]:
    if array is None:
        raise InvalidRequest(
            f'{name} is missing. Load the model with attn_implementation="eager", so that it returns its attention.'
        )
    try:
        tensor = array.detach().cpu() if isinstance(array, Tensor) else torch.from_numpy(np.array(array))
    except (TypeError, ValueError):
        raise InvalidRequest(f"{name} is no array of numbers.") from None
    if tensor.dim() == 4 and tensor.shape[0] == 1:
        tensor = tensor[0]
    if tensor.dim() != 3 or not tensor.numel():
        raise InvalidRequest(
            f"{name} needs three axes, none of them empty: heads, tokens, and tokens or width. Give one input at a time."
        )
    if tensor.is_complex():
        raise InvalidRequest(f"{name} is no array of real numbers.")
    tensor = tensor if tensor.is_floating_point() else tensor.float()
    if not bool(tensor.isfinite().all()):
        raise InvalidRequest(f"{name} holds NaN or infinity.")
    return tensor if tensor.dtype == torch.float64 else tensor.float(), torch.finfo(tensor.dtype).eps


def _check_rows(weights: Tensor, layer: int, epsilon: float) -> None:
    if bool((weights < 0).any()):
        raise InvalidRequest(
            f"Layer {layer} of the attention holds negative numbers. Give weights after the softmax, not scores."
        )
    sums = weights.sum(-1, dtype=torch.float64)
    if bool((sums > 1 + max(TOLERANCE, epsilon)).any()):
        raise InvalidRequest(
            f"Rows of layer {layer} of the attention sum to more than 1. Give weights after the softmax, from a model in evaluation mode (without dropout)."
        )
    if bool((sums == 0).any()):
        raise InvalidRequest(f"A query of layer {layer} of the attention attends to nothing. Cut padding off first.")


def _keys(weights: Tensor, causal: bool | None) -> Keys:
    """Which keys a layer's queries may see, told from the zeros of all its heads [H, Q, K]: all, the prefix, or a window. Other zeros are just small weights."""
    queries, keys = weights.shape[1:]
    if queries != keys and causal:
        raise InvalidRequest("Causal attention needs as many keys as queries.")
    if queries != keys or causal is False:
        return Keys("all")
    seen = (weights > 0).any(0)
    if causal and bool(seen.triu(1).any()):
        raise InvalidRequest("With causal=True no query may attend to a later token, and some do.")
    places = torch.arange(queries)
    distance = places[:, None] - places  # of the key before the query
    before, after = int(distance[seen].max()), -int(distance[seen].min())
    window = (distance <= before) & (distance >= -after)
    if bool(window.all()):
        return Keys("all")
    prefix = after <= 0
    if torch.equal(window, seen) and not torch.equal(window, window.new_ones(window.shape).tril()):
        return Keys("mask", window)
    return Keys("prefix" if prefix else "all")


def _warn_of_padding(given: _AttentionArrays) -> Iterator[ResultWarning]:
    """A warning of keys at either end that no query attends to, in any layer and head.

    Queries that spread their attention evenly over all keys do not count: that is what is left of a query whose keys are all masked.
    """
    shape = given.weights[0].shape[1:]
    attended, even = torch.zeros(shape, dtype=torch.bool), torch.full(shape[:1], shape[1] > 1)
    for one in given.weights:
        attended |= (one > 0).any(0)
        even &= (one == one[..., :1]).all(-1).all(0)
    places = attended[~even].any(0).nonzero().flatten().tolist()
    first, last = (places[0], places[-1]) if places else (0, shape[1] - 1)
    unseen = first + shape[1] - 1 - last
    if unseen:
        yield ResultWarning(
            "padding",
            f"No query attends to {unseen} of {shape[1]} keys, at the ends of the text: they look like padding, which enters "
            f"every number. Cut the arrays and the tokens to {first}:{last + 1}.",
        )


def _find_missing(given: _AttentionArrays, rules: Sequence[Keys]) -> dict[str, str]:
    """Need -> why it can't be met, as for a model."""
    missing = dict(MISSING)
    if given.values is None:
        missing["values"] = "Only weights were given. Give the values of every layer, too."
    if not given.axes.same:
        missing["same-tokens"] = "Queries and keys are different tokens."
    queries, keys = given.weights[0].shape[1:]
    causal = [queries == keys > 1 and not bool(rule.allowed(queries, keys).triu(1).any()) for rule in rules]
    if any(causal):
        missing["bidirectional"] = "Some layers hide later tokens, and this method would look at them."
    if not all(causal):
        missing["causal"] = "Some tokens see later ones."
    if any(bool((one.sum(-1, dtype=torch.float64) < 1 - max(TOLERANCE, given.epsilon)).any()) for one in given.weights):
        missing["distribution"] = "Some rows sum to less than 1."
    return missing


def _layer(given: _AttentionArrays, index: int, keys: Keys) -> Layer:
    weights, empty = given.weights[index], torch.empty(0)
    values = output = empty
    if given.values is not None:
        values = given.values[index]
        shared = values.repeat_interleave(weights.shape[0] // values.shape[0], dim=0)
        output = (weights.double() @ shared.double()).to(values.dtype)
    heads = tuple(range(weights.shape[0]))
    return Layer(index, heads, weights, values, output, keys, given.epsilon, given.axes, empty, empty)


def _feed(layer: Layer, reader: Reader) -> None:
    """Blocks of heads as the capture would give them, then the whole layer."""
    heads, queries, keys = layer.weights.shape
    group = heads // layer.values.shape[0] if layer.values.numel() else 1
    size = max(1, BLOCK_BYTES // (4 * queries * keys) // group) * group
    for low in range(0, heads, size):
        block = layer.select(frozenset(layer.heads[low : low + size]))
        if block is not None:
            reader.add_heads(block)
    if reader.wanted().on_layer is not None:
        reader.add_layer(layer)


def _named(tokens: Sequence[str | Token], count: int, what: str) -> tuple[Token, ...]:
    if isinstance(tokens, str) or not all(isinstance(token, (str, Token)) for token in tokens):
        raise InvalidRequest(f"{what} needs a list with one string or Token per token.")
    if len(tokens) != count:
        raise InvalidRequest(f"There are {len(tokens)} {what} for an axis of {count}.")
    if all(isinstance(token, Token) for token in tokens):
        return tuple(token for token in tokens if isinstance(token, Token))
    return _read([token if isinstance(token, str) else token.text for token in tokens])


def _read(pieces: Sequence[str]) -> tuple[Token, ...]:
    """Tokens from what a tokenizer calls them: ## joins a piece to the word before, Ġ and ▁ open a word; where neither is used every piece is a word."""
    marked = any(piece.startswith(OPENING) for piece in pieces)
    ids: dict[str, int] = {}
    found: list[Token] = []
    word, start, opens = -1, 0, True
    for piece in pieces:
        text = piece.removeprefix(JOINED).lstrip("".join(OPENING)) or piece
        special, punctuation = SPECIAL.fullmatch(piece) is not None, is_punctuation(text)
        joined = (
            not opens
            and not punctuation
            and (piece.startswith(JOINED) if not marked else not piece.startswith(OPENING))
        )
        word += not special and not joined
        start += start > 0 and not joined and not special
        kind: TokenKind = "special" if special else "punct" if punctuation else "word"
        id_ = ids.setdefault(piece, len(ids))
        span = (0, 0) if special else (start, start + len(text))
        found.append(Token(text, id_, *span, None if special else word, 0, kind))
        start += span[1] - span[0]
        opens = special or punctuation
    sizes = Counter(token.word for token in found if token.kind == "word")
    return tuple(
        replace(token, kind="subword") if token.kind == "word" and sizes[token.word] > 1 else token for token in found
    )
