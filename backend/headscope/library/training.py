"""Modules that attend by a mechanism from now on, to be trained or evaluated like any other."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError

from ..analysis.request import MechanismChoice, check_capabilities
from ..capture import AttentionSites, PatchedModule, examine
from ..errors import Unsupported
from ..mechanisms import MECHANISMS
from ..mechanisms.base import PassContext
from ..mechanisms.pasta import PASTA, Adding
from ..models.loading import Model, wrap
from ..studies.study import invalid

CHOICE: TypeAdapter[Any] = TypeAdapter(MechanismChoice)


def attend_by(module: Any, mechanism: str | Mapping[str, Any], *, special_ids: Collection[int] = ()) -> None:
    """From now on a transformers module computes its attention by a mechanism: for batches, padded or not, and with gradients.

    `mechanism` is a name, or a mapping with its name and parameters, as in `analyze`. "pasta" needs the ids of the tokenizer's special tokens. To attend as
    transformers does again, call module.set_attn_implementation("eager"). Raises InvalidRequest, Unknown or Unsupported.

    >>> import headscope
    >>> model = headscope.load("minilm")
    >>> headscope.attend_by(model.module, {"name": "hopfield", "alpha": 0.5})
    """
    try:
        choice = CHOICE.validate_python(mechanism if isinstance(mechanism, str) else dict(mechanism))
    except ValidationError as error:
        raise invalid(error) from None
    declared = MECHANISMS[choice.name]
    model, sites = _examine(module)
    check_capabilities([declared], sites.missing("self"))
    PatchedModule(model.module, sites, model.width, partial(declared.begin, choice), frozenset(special_ids)).install()


def learn_pasta(module: Any, special_ids: Collection[int], count: int = 2) -> torch.nn.Parameter:
    """Vectors [L, count, d] that a module adds to its special tokens before every layer from now on, as its parameter `pasta`: zeros, to be learned.

    `special_ids` are the ids of the tokenizer's special tokens; every row of a batch must hold `count` of them, padding not counted. What else is learned is
    yours to say. `{"name": "pasta", "vectors": vectors.tolist()}` is the mechanism that was learned. Raises Unsupported.
    """
    model, sites = _examine(module)
    check_capabilities([PASTA], sites.missing("self"))
    layers = [site.layer for site in sites.of("self")]
    body, width = model.module, model.width
    body.pasta = torch.nn.Parameter(torch.zeros(len(layers), count, width, device=body.device))

    def begin(setting: PassContext) -> Adding:
        if setting.special is None or setting.special.shape[-1] != count:
            raise Unsupported(
                f"There are vectors for {count} special tokens, but the inputs hold another number of them."
            )
        return Adding(dict(zip(layers, body.pasta, strict=True)), setting.special)

    PatchedModule(body, sites, width, begin, frozenset(special_ids)).install()
    learned: torch.nn.Parameter = body.pasta
    return learned


def _examine(module: Any) -> tuple[Model, AttentionSites]:
    """Return the model around the module, and what its attention is made of. Raises Unsupported where it can't be replaced."""
    model = wrap(module)
    sites = examine(model)
    if not sites.captured:
        raise Unsupported(
            "This model's attention does not go through transformers' AttentionInterface, so it can't be replaced."
        )
    return model, sites
