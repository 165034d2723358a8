"""`headscope.effect`: what heads do to a prediction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any, Literal

from ..analysis.effect import Effect, compute
from ..analysis.effect_request import NOTHING_READ, EffectRequest
from ..analysis.target import Target
from ..errors import InvalidRequest
from ..models.images import pack
from ..models.jacobian_lens import read_jacobian_lens
from ..models.loading import Model
from .analysis import load
from .arguments import (
    Method,
    Output,
    check_choice,
    choice,
    count,
    number,
    numbers,
    outputs,
    request_of,
    text_or_ids,
    texts,
    validating,
)


def effect(
    model: Any,
    text: str | None = None,
    text_pair: str | None = None,
    *,
    target: Output | tuple[Output, Output] | None = None,
    position: int | None = None,
    against: str | Sequence[int] | None = None,
    reference: Sequence[str | Sequence[int]] | None = None,
    method: Method = "contribution",
    predictions: int = 5,
    token_ids: Sequence[int] | None = None,
    image: Any = None,
    target_ids: Sequence[int] | None = None,
    mask: Sequence[int] | None = None,
    max_tokens: int | None = None,
    jacobian_lens: str | PathLike[str] | Mapping[int, Any] | None = None,
    kind: Literal["self", "encoder", "decoder", "cross"] = "self",
    dtype: Literal["float32", "float64"] = "float32",
) -> Effect:
    """Return what every head does to a prediction of the model, or to the score of another head.

    `target` is a token or a class, by its text (" Paris", with its space) or its number; a pair of them, for the difference of their logits; by default the model's own choice.
    `position` is the token at which the model predicts, counted from 0, or from the end if negative: by default the last one of a causal model or a decoder, and the masked token
    of a masked one. `against` is the other text of methods that compare two, or its token ids, with as many tokens. `reference` are 1 to 1,000 texts, or their token ids, for
    ablation with `how="reference"`; the first 512 tokens of each are read. `predictions` is the number of most likely tokens to return. `kind` chooses the heads of an
    encoder-decoder, those of its decoder by default; other arguments are those of `analyze`.

    `method` is a name, or a dict of a name and parameters. "contribution" is what a head writes on the direct path: `sources` splits it by token, and `writes` names the logits
    that the head raises and lowers most, with `jacobian_lens` after its output went through the matrix of its layer: a safetensors file, or a matrix [d, d] by layer.
    "ablation" is by how much the target falls without the head, whose output is replaced by its "mean", by "zero", or by its mean over the texts of `reference` (`how`).
    "patching" is how much of the target's difference to another text the head carries, in either `direction`, "denoise" or "noise"; "path-patching" is how much of it goes
    straight from the head to what one `receiver` reads as query, key or value (`reads`). "attribution-patching" estimates patching or ablation from a gradient (`of`).

    "gradient-attention" has a map for every head, each attention weight times the gradient of the target there, with the `sign` "keep", "clamp" or "drop";
    "integrated-gradients" takes the mean gradient at `steps` places on the path from no attention in a layer to all of it; "dual-path" hands the target on through every part,
    with equal shares for the factors of a product. "alti-logit" splits contributions by token of the input. "score" is about no prediction, but about why one `head`, such as
    "4.5", looks from `query` to `key`: what every earlier head brings to that score through the query or the key (`side`), and which `pairs` of parts bring most.

    Raises a HeadscopeError; Unsupported for models without an output head, and where the sum of all parts is not the target.

    >>> import headscope
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> small = headscope.load(GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=100)))
    >>> e = headscope.effect(small, token_ids=[5, 17, 5, 42], target=(17, 5))
    >>> e.effects.shape
    (2, 4)
    """
    check_choice(dtype, ("float32", "float64"), "dtype")
    model = load(model, dtype=dtype)
    with validating():
        request = EffectRequest(
            target=outputs(target),
            position=number(position),
            method=choice(method),
            against=text_or_ids(against, "against"),
            reference=texts(reference),
            predictions=number(predictions),
        )
    ids = {"token_ids": token_ids, "target_ids": target_ids, "mask": mask}
    most = None if max_tokens is None else count(max_tokens, "max_tokens", 1)
    given = _check_input(model, image, ids, text=text, text_pair=text_pair, max_tokens=most)
    pictured, matrices = image is not None and model.facts.kind != "vision", _matrices(model, request, jacobian_lens)
    return compute(model, given, request, kind=kind, dtype=dtype, image=pictured, matrices=matrices)


def _check_input(model: Model, image: Any, ids: Mapping[str, Any], **texts: Any) -> dict[str, Any]:
    """Return the arguments of Model.encode, checked as those of an analysis are. Raises InvalidRequest or InvalidImage."""
    listed = {name: numbers(values, name) for name, values in ids.items()}
    picture = None if image is None else pack(image)
    given = request_of(None, ["weights"], [], model=model.name[:200], image=picture, **listed, **texts).input
    del given["kind"]
    return given


def _matrices(
    model: Model, request: EffectRequest, lens: str | PathLike[str] | Mapping[int, Any] | None
) -> dict[int, Any] | None:
    """Return the matrices of a Jacobian lens by layer. Raises InvalidRequest."""
    if lens is None:
        return None
    if not getattr(request.method, "writes", 0):
        raise InvalidRequest(NOTHING_READ, pointer="/jacobian_lens")
    if not isinstance(lens, (str, PathLike, Mapping)):
        raise InvalidRequest("jacobian_lens is a file, or a matrix by layer.", pointer="/jacobian_lens")
    return read_jacobian_lens(lens if isinstance(lens, Mapping) else fspath(lens), model.width)


__all__ = ["Effect", "Target", "effect"]
