"""Modules of transformers that attend by another mechanism, to be trained or evaluated as usual."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import torch

from ..analysis.request import MECHANISM, check_capabilities
from ..capture import AttentionSites, PatchedModule, examine
from ..errors import InvalidRequest, Unsupported
from ..mechanisms import MECHANISMS
from ..mechanisms.base import Pass, PassContext
from ..mechanisms.pasta import PASTA, PastaPass, continued_pass
from ..models.loading import Model, wrap
from . import arguments
from .arguments import choice, numbers, validating

# Special tokens in a row, as in the parameters of the mechanism.
MOST_VECTORS = 64


def attend_by(module: Any, mechanism: str | Mapping[str, Any], *, special_ids: Collection[int] = ()) -> None:
    """Make a transformers module compute its attention by a mechanism, for batches with or without padding, and with gradients.

    `mechanism` is a name, or a mapping with its name and parameters, as in `analyze`. "pasta" needs the ids of the tokenizer's special tokens. It is the
    default mechanism of analyses of the module, too. In an encoder-decoder the encoder attends by it. To restore the original attention, call
    module.set_attn_implementation("eager"). Raises InvalidRequest, Unknown or Unsupported.

    >>> import headscope
    >>> model = headscope.load("minilm")
    >>> headscope.attend_by(model.module, {"name": "hopfield", "alpha": 0.5})
    """
    with validating():
        chosen = MECHANISM.validate_python(choice(mechanism))
    declared = MECHANISMS[chosen.name]
    model, sites = _examine(module)
    special = frozenset(numbers(special_ids, "special_ids") or ())
    check_capabilities([declared], sites.missing("self"))
    begin, parameters = partial(declared.begin, chosen), chosen.model_dump()
    PatchedModule(model.module, sites, model.width, begin, lambda: parameters, special).install()


def learn_pasta(module: Any, special_ids: Collection[int], count: int = 2) -> torch.nn.Parameter:
    """Add a parameter `pasta` to a module: vectors [L, count, d], initially zero, that it adds to its special tokens before every layer. Return the parameter.

    `special_ids` are the ids of the tokenizer's special tokens; every row of a batch must contain `count` of them, not counting padding. Other parameters are
    left as they are. After training, the mechanism is `{"name": "pasta", "vectors": vectors.tolist()}`, the default of analyses of the module. Raises InvalidRequest
    or Unsupported.
    """
    special = frozenset(numbers(special_ids, "special_ids") or ())
    if not special:
        raise InvalidRequest("special_ids must be the ids of one special token or more.", pointer="/special_ids")
    if (count := arguments.count(count, "count", 1)) > MOST_VECTORS:
        raise InvalidRequest(f"count may be at most {MOST_VECTORS}.", pointer="/count")
    model, sites = _examine(module)
    check_capabilities([PASTA], sites.missing("self"))
    layers = [site.layer for site in sites.of("self")]
    body, width = model.module, model.width
    learned = torch.nn.Parameter(torch.zeros(len(layers), count, width, device=body.device))

    def begin(setting: PassContext) -> Pass:
        if setting.continued and setting.special is not None:
            return continued_pass(setting.special)
        if setting.special is None or setting.special.shape[-1] != count:
            raise Unsupported(
                f"There are vectors for {count} special tokens, but the inputs contain a different number."
            )
        return PastaPass(dict(zip(layers, body.pasta, strict=True)), setting.special)

    def parameters() -> dict[str, Any]:
        return {"name": "pasta", "vectors": body.pasta.tolist(), "layers": layers}

    PatchedModule(body, sites, width, begin, parameters, special).install()
    body.pasta = learned
    return learned


def _examine(module: Any) -> tuple[Model, AttentionSites]:
    """Return the model around the module, and its attention sites. Raises Unsupported if its attention cannot be replaced."""
    if not isinstance(module, torch.nn.Module) or not hasattr(module, "config"):
        raise InvalidRequest("Pass a PreTrainedModel of transformers.", pointer="/module")
    model = wrap(module)
    sites = examine(model)
    if not sites.captured:
        raise Unsupported(
            "This model's attention does not go through transformers' AttentionInterface, so it cannot be replaced."
        )
    return model, sites
