"""Analyses of attention weights that were computed elsewhere and are given as arrays."""

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
from ..analysis.reader import AnalysisTask, Reader
from ..analysis.request import check_capabilities
from ..analysis.result import MemorySink
from ..analysis.warnings import find_warnings
from ..core.arrays import Array
from ..core.attention import BLOCK_BYTES, Keys, Kind, Layer, ResultWarning
from ..core.tokens import Axes, Token, TokenKind
from ..errors import InvalidRequest, Unsupported
from ..lenses.base import is_precise
from ..models.tokens import is_punctuation
from .analysis import Analysis
from .arguments import Method, numbers, request_of

# Largest excess of a row sum over 1, for rounding. In half precision its epsilon, if that is larger.
TOLERANCE = 1e-3
MISSING = {
    "capture": "They were given as arrays.",
    "scores": "Given weights come without query and key vectors.",
    "projection": "Given weights come without the projection after the heads.",
    "residual": "Given weights come without the residual stream.",
    "hidden": "Given weights come without hidden states.",
    "replay": "Given weights come without a model to run again.",
    "bilinear": "Given weights come without query and key projections.",
    "additive": "Given weights come without query and key projections.",
    "unembedding": "Given weights come without an output matrix.",
    "padding": "Given weights come without a model to run on the padded input.",
}
# Special tokens by their spelling, except those for unknown or masked words, which represent text.
SPECIAL = re.compile(r"\[(?!UNK|MASK)[A-Za-z0-9_]+\]|<(?!unk|mask)[^<>\s]+>")
JOINED = "##"
OPENING = ("Ġ", "▁")


@dataclass(frozen=True)
class _AttentionArrays:
    """Validated arrays: weights [H, Q, K] and values [G, K, D] (or None) of every layer, and the tokens along the axes."""

    weights: list[Tensor]
    values: list[Tensor] | None
    axes: Axes
    kind: Kind
    epsilon: float  # the largest machine epsilon of the arrays

    def digest(self) -> str:
        """Return the SHA-256 of all arrays and tokens."""
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
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    causal: bool | None = None,
    lenses: Sequence[Method] | None = None,
    measures: Sequence[Method] = ("entropy",),
) -> Analysis:
    """Analyse attention weights of any model. Remove padding first; keys at either end that no query attends to produce a warning.

    `attentions` has one array or tensor per layer, [H, Q, K] or [1, H, Q, K], as returned with `output_attentions=True`. `tokens` are the queries, and the keys
    too unless `key_tokens` is given: strings of the tokenizer, or Token. `values` has [G, K, D] or [1, G, K, D] per layer, and enables lenses such as
    `effective`, which is then used by default. `layers` and `heads` are the numbers of the given ones, in ascending order, if they are not all of the model's.
    `causal` states whether queries see only themselves and earlier tokens. By default this is inferred from the zeros: keys farther away than any head of a
    layer attends count as masked.

    Raises InvalidRequest for arrays that are not attention weights, and Unsupported for methods that need data that is not given.

    >>> import headscope
    >>> a = headscope.from_attentions([[[[0.5, 0.5], [0.25, 0.75]]]], ["Hello", "world"])
    >>> a.maps["weights"].shape
    (1, 1, 2, 2)
    """
    started = time.perf_counter()
    if not isinstance(causal, bool | np.bool_ | None):
        raise InvalidRequest("causal must be True, False or None.", pointer="/causal")
    causal = None if causal is None else bool(causal)
    given = _validate(attentions, tokens, values, key_tokens)
    rules = [_keys(weights, causal) for weights in given.weights]
    count, queries, keys = given.weights[0].shape
    chosen_layers = _check_numbers(layers, len(given.weights), "layers")
    chosen_heads = _check_numbers(heads, count, "heads")
    chosen = lenses if lenses is not None else ("weights", "effective") if values is not None else ("weights",)
    request = request_of(
        mechanism="softmax",
        model="attentions",
        token_ids=[token.id for token in given.axes.queries],
        kind=given.kind,
        layers=chosen_layers if layers is not None else None,
        heads=chosen_heads if heads is not None else None,
        lenses=chosen,
        measures=measures,
    )
    missing = _find_missing(given, rules)
    check_capabilities(request.methods, missing)
    planned = memory.plan(request, dict.fromkeys(chosen_layers, chosen_heads[-1] + 1), queries, keys)
    if planned.whole and (heads is not None or chosen_layers != list(range(len(chosen_layers)))):
        raise Unsupported("A lens that joins heads or layers needs all of them. Give every head of the first layers.")
    memory.check(planned, int(psutil.virtual_memory().available * 0.9))
    sink = MemorySink()
    reader = Reader(planned, [AnalysisTask(request, sink)])
    for index, (layer, rule) in enumerate(zip(chosen_layers, rules, strict=True)):
        _feed(_layer(given, index, layer, tuple(chosen_heads), rule), reader)
    width = given.values[0].shape[-1] if given.values else 0
    result = reader.result(request, given.kind, given.axes.queries, given.axes.keys, width)
    warnings = [*_warn_of_padding(given), *find_warnings(result, missing)]
    timing = {"total": round((time.perf_counter() - started) * 1e3, 1)}
    result = replace(result, warnings=warnings, timing_ms=timing)
    id_ = result.request.key(f"{given.digest()} {causal}")
    return Analysis(**vars(result), maps=sink.maps, compute_id=lambda: id_)


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
                f"Layer {layer} has another number of heads or tokens than layer 0. Give layers of the same shape, for example those with the same heads."
            )
        _check_rows(one, layer, epsilons[layer])
    queries = _name_axis(tokens, shape[1], "tokens")
    keys = queries if key_tokens is None else _name_axis(key_tokens, shape[2], "key_tokens")
    if key_tokens is None and shape[1] != shape[2]:
        raise InvalidRequest("The numbers of queries and keys differ. Give the keys as key_tokens.")
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


def _check_numbers(given: Sequence[int] | None, count: int, what: str) -> list[int]:
    """Return the numbers of the layers or heads: 0, 1, ... unless they are given."""
    found = numbers(given, what)
    if found is None:
        return list(range(count))
    if len(found) != count or found != sorted(set(found)) or found[0] < 0:
        raise InvalidRequest(
            f"{what} must be {count} different numbers in ascending order, one for each in the arrays."
        )
    return found


def _arrays(layers: Iterable[Any], what: str) -> tuple[list[Tensor], list[float]]:
    """Return one tensor [a, b, c] per layer, float32 or float64, and the machine epsilon of each original array."""
    try:
        listed = list(layers)
    except TypeError:
        raise InvalidRequest(f"Give the {what} as a list with one array per layer.") from None
    if not listed:
        raise InvalidRequest(f"The {what} has no layers. Give one array per layer.")
    found = [_tensor(one, f"Layer {layer} of the {what}") for layer, one in enumerate(listed)]
    return [one for one, _ in found], [epsilon for _, epsilon in found]


def _tensor(array: Any, name: str) -> tuple[Tensor, float]:
    if array is None:
        raise InvalidRequest(
            f'{name} is missing. Load the model with attn_implementation="eager", so that it returns its attention.'
        )
    tensor = to_tensor(array, name)
    epsilon = torch.finfo(tensor.dtype if tensor.is_floating_point() else torch.float32).eps
    tensor = tensor if tensor.is_complex() or tensor.dtype == torch.float64 else tensor.float()
    if tensor.dim() == 4 and tensor.shape[0] == 1:
        tensor = tensor[0]
    if tensor.dim() != 3 or not tensor.numel():
        raise InvalidRequest(
            f"{name} needs three axes, none of them empty: heads, tokens, and tokens or width. Give one input at a time."
        )
    if tensor.is_complex():
        raise InvalidRequest(f"{name} is not an array of real numbers.")
    if not bool(tensor.isfinite().all()):
        raise InvalidRequest(f"{name} contains NaN or infinity.")
    return tensor, epsilon


def to_tensor(array: Any, name: str) -> Tensor:
    """Return an array, a tensor or nested lists of numbers as a tensor on the processor. Raises InvalidRequest for anything else; `name` is its subject."""
    try:
        return array.detach().cpu().to_dense() if isinstance(array, Tensor) else torch.from_numpy(_native(array))
    except (TypeError, ValueError, RuntimeError):
        raise InvalidRequest(f"{name} is not an array of numbers.") from None


def _native(array: Any) -> Array:
    """Return an array that torch takes: in this machine's byte order, and at most 64 bits wide."""
    found = np.array(array)
    return found.astype(np.float64 if found.dtype.kind == "f" and found.itemsize > 8 else found.dtype.newbyteorder("="))


def _check_rows(weights: Tensor, layer: int, epsilon: float) -> None:
    if bool((weights < 0).any()):
        raise InvalidRequest(
            f"Layer {layer} of the attention contains negative numbers. Give weights after the softmax, not scores."
        )
    sums = weights.sum(-1, dtype=torch.float64)
    if bool((sums > 1 + max(TOLERANCE, epsilon)).any()):
        raise InvalidRequest(
            f"Rows of layer {layer} of the attention sum to more than 1. Give weights after the softmax, from a model in evaluation mode (without dropout)."
        )
    if bool((sums == 0).any()):
        raise InvalidRequest(f"A query of layer {layer} of the attention attends to nothing. Remove padding first.")


def _keys(weights: Tensor, causal: bool | None) -> Keys:
    """Infer from the zeros of all heads [H, Q, K] which keys a layer's queries may attend to: all, the prefix, or a window. Other zeros are just small weights."""
    queries, keys = weights.shape[1:]
    if queries != keys and causal:
        raise InvalidRequest("Causal attention needs as many keys as queries.")
    if queries != keys or causal is False:
        return Keys("all")
    seen = (weights > 0).any(0)
    if causal and bool(seen.triu(1).any()):
        raise InvalidRequest("With causal=True no query may attend to a later token, but some do.")
    places = torch.arange(queries)
    distance = places[:, None] - places  # of the key before the query
    before, after = int(distance[seen].max()), -int(distance[seen].min())
    window = (distance <= before) & (distance >= -after)
    if bool(window.all()):
        return Keys("all")
    prefix = after <= 0
    if torch.equal(window, seen) and not torch.equal(window, window.new_ones(window.shape).tril()):
        return Keys.of(window)
    return Keys("prefix" if prefix else "all")


def _warn_of_padding(given: _AttentionArrays) -> Iterator[ResultWarning]:
    """Yield a warning if there are keys at either end that no query attends to, in any layer and head.

    Queries that attend uniformly to all keys are ignored: softmax over fully masked keys is uniform.
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
            f"No query attends to {unseen} of {shape[1]} keys at the ends of the text. They look like padding, which affects "
            f"every number. Slice the arrays and the tokens to {first}:{last + 1}.",
        )


def _find_missing(given: _AttentionArrays, rules: Sequence[Keys]) -> dict[str, str]:
    """Return why each missing capability is missing, like the sites of a model."""
    missing = dict(MISSING)
    if given.values is None:
        missing["values"] = "Only weights were given. Give the values of every layer as well."
    elif not is_precise(given.values[0], given.epsilon):
        missing["values"] = (
            "Half precision is too coarse for it. Give weights and values that were computed in float32."
        )
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


def _layer(given: _AttentionArrays, index: int, number: int, heads: tuple[int, ...], keys: Keys) -> Layer:
    weights, empty = given.weights[index], torch.empty(0)
    values = output = empty
    if given.values is not None:
        values = given.values[index]
        shared = values.repeat_interleave(weights.shape[0] // values.shape[0], dim=0)
        output = (weights.double() @ shared.double()).to(values.dtype)
    return Layer(number, heads, weights, values, output, keys, given.epsilon, given.axes, empty, empty)


def _feed(layer: Layer, reader: Reader) -> None:
    """Feed blocks of heads, then the whole layer, as capture does."""
    heads, queries, keys = layer.weights.shape
    group = heads // layer.values.shape[0] if layer.values.numel() else 1
    size = max(1, BLOCK_BYTES // (4 * queries * keys) // group) * group
    for low in range(0, heads, size):
        block = layer.select(frozenset(layer.heads[low : low + size]))
        if block is not None:
            reader.read_heads(block)
    if reader.spec().on_layer is not None:
        reader.read_layer(layer)


def _name_axis(tokens: Sequence[str | Token], count: int, what: str) -> tuple[Token, ...]:
    given = None if isinstance(tokens, str) or not isinstance(tokens, Iterable) else list(tokens)
    if given is None or not all(isinstance(token, (str, Token)) for token in given):
        raise InvalidRequest(f"{what} must be a list with one string or Token per token.")
    if len(given) != count:
        raise InvalidRequest(f"There are {len(given)} {what} for an axis of length {count}.")
    if all(isinstance(token, Token) for token in given):
        return tuple(token for token in given if isinstance(token, Token))
    return parse_pieces([token if isinstance(token, str) else token.text for token in given])


def parse_pieces(pieces: Sequence[str]) -> tuple[Token, ...]:
    """Parse a tokenizer's strings: ## continues a word, Ġ and ▁ start one; without such marks, every piece is a word."""
    marked = any(piece.startswith(OPENING) for piece in pieces)
    ids: dict[str, int] = {}
    found: list[Token] = []
    word, start, opens = -1, 0, True
    for piece in pieces:
        text = piece.removeprefix(JOINED).lstrip("".join(OPENING)) or piece
        special, punctuation = SPECIAL.fullmatch(piece) is not None, is_punctuation(text)
        continues = not piece.startswith(OPENING) if marked else piece.startswith(JOINED)
        joined = continues and not opens and not punctuation
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
