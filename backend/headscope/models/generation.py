"""Text generation: its options, and the model's own `generate`."""

from __future__ import annotations

import warnings
from threading import Lock
from typing import Any

from pydantic import Field

from ..core.declarations import Params
from ..core.lazy import torch
from ..errors import Unsupported
from .modules import evaluating, is_out_of_memory

# Random number generators and warning filters are global to the process.
_RANDOM = Lock()


class Generate(Params):
    """Greedy unless do_sample; the same seed gives the same continuation."""

    max_new_tokens: int = Field(ge=1, le=4096, description="Most tokens that are added.")
    do_sample: bool = Field(
        default=False, description="Draw from the distribution instead of taking the likeliest token."
    )
    temperature: float = Field(default=1.0, gt=0, le=100, description="Of the distribution drawn from.")
    top_k: int = Field(default=50, ge=1, le=1_000_000, description="Draw from that many likeliest tokens.")
    top_p: float = Field(
        default=1.0, gt=0, le=1, description="Draw from the likeliest tokens that have this probability together."
    )
    seed: int = Field(default=0, ge=0, le=2**32 - 1, description="Of the random numbers.")


def generate(module: Any, inputs: dict[str, Any], options: Generate, most: int) -> list[int]:
    """Return the ids that the model generates with one beam, at most `most` new ones; a decoder's start with the input's own.

    The model's own rules (forced or forbidden tokens) apply. Raises Unsupported for a model that cannot generate.
    """
    if not callable(getattr(module, "generate", None)) or not module.can_generate():
        raise Unsupported("This model has no head that generates text. Omit generate.", pointer="/generate")
    names = ("temperature", "top_k", "top_p")
    arguments: dict[str, Any] = {
        **inputs,
        **{name: getattr(options, name) if options.do_sample else None for name in names},
        "do_sample": options.do_sample,
        "max_new_tokens": min(options.max_new_tokens, most),
        "num_beams": 1,
        "num_return_sequences": 1,
        # A time limit would make the result depend on the machine; other caches need other packages.
        "max_time": None,
        "stop_strings": None,
        "cache_implementation": None,
        "pad_token_id": _padding(module),
        "return_dict_in_generate": False,
    }
    devices = (
        [module.device] if module.device.type == "cuda" else []
    )  # whose random numbers are used, besides the CPU's
    with _RANDOM, evaluating(module), torch.inference_mode(), torch.random.fork_rng(devices=devices):
        return _generate(module, arguments, options.seed)


def _generate(module: Any, arguments: dict[str, Any], seed: int) -> list[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers warns about settings that came with the model
        try:
            try:
                torch.manual_seed(seed)
                ids = module.generate(**arguments)
            except IndexError:
                # transformers makes a decoder's cache as deep as its encoder, which fails if the decoder is deeper.
                torch.manual_seed(seed)
                ids = module.generate(**arguments, use_cache=False)
        except Exception as error:  # settings that came with the model may raise anything
            if is_out_of_memory(error):
                raise
            raise Unsupported(
                "This model cannot continue a text: its own generation fails. Omit generate.", pointer="/generate"
            ) from error
    found: list[int] = ids[0].tolist()
    return found


def _padding(module: Any) -> int:
    """Return a padding id: nothing is padded, but generate() warns if there is none."""
    config = module.generation_config
    ends = config.eos_token_id
    end = ends[0] if isinstance(ends, list) else ends
    return int(next((id_ for id_ in (config.pad_token_id, end) if id_ is not None), 0))
