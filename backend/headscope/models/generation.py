"""How a model shall continue a text, and what it then writes. Free of torch until it is called."""

from __future__ import annotations

import warnings
from threading import Lock
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from ..errors import Unsupported

# The generator of random numbers and the filters of warnings belong to the whole process.
_RANDOM = Lock()


class Generate(BaseModel):
    """Greedy unless do_sample; the same seed gives the same continuation."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

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


def write(module: Any, inputs: dict[str, Any], asked: Generate, most: int) -> list[int]:
    """Ids that the model gives for its inputs, one beam, with the inputs' own in front if it is a decoder; at most `most` new ones.

    The model's own rules for what it may write (forced or forbidden tokens) hold. Raises Unsupported for a model that can't write.
    """
    import torch

    from .modules import evaluating

    if not callable(getattr(module, "generate", None)) or not module.can_generate():
        raise Unsupported(
            "This model has no head that writes text, so it can't continue one. Leave generate out.",
            pointer="/generate",
        )
    wanted: dict[str, Any] = {"do_sample": asked.do_sample, "temperature": None, "top_k": None, "top_p": None}
    if asked.do_sample:
        wanted |= {"temperature": asked.temperature, "top_k": asked.top_k, "top_p": asked.top_p}
    wanted |= {"max_new_tokens": min(asked.max_new_tokens, most), "num_beams": 1, "num_return_sequences": 1}
    # A limit of time would make the result depend on the machine; other caches need other packages.
    wanted |= {
        "max_time": None,
        "stop_strings": None,
        "cache_implementation": None,
        "pad_token_id": _padding(module),
        "return_dict_in_generate": False,
    }
    with _RANDOM, evaluating(module), torch.inference_mode(), torch.random.fork_rng(devices=_devices(module)):
        return _generated(module, {**inputs, **wanted}, asked.seed)


def _generated(module: Any, arguments: dict[str, Any], seed: int) -> list[int]:
    import torch

    from .modules import is_out_of_memory

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of transformers, about settings that came with the model
        try:
            try:
                torch.manual_seed(seed)
                written = module.generate(**arguments)
            except IndexError:
                # transformers makes the cache of a decoder as deep as its encoder, which fails where the decoder is deeper.
                torch.manual_seed(seed)
                written = module.generate(**arguments, use_cache=False)
        except Exception as error:  # whatever the settings that came with the model make of it
            if is_out_of_memory(error):
                raise
            raise Unsupported(
                "This model can't continue a text: its own generation fails. Leave generate out.", pointer="/generate"
            ) from error
    ids: list[int] = written[0].tolist()
    return ids


def _devices(module: Any) -> list[Any]:
    """Devices beside the CPU whose random numbers sampling draws from."""
    return [module.device] if module.device.type == "cuda" else []


def _padding(module: Any) -> int:
    """Nothing is padded, but generate() asks for a padding id, and says so in a warning if there is none."""
    config = module.generation_config
    ends = config.eos_token_id
    end = ends[0] if isinstance(ends, list) else ends
    return int(next((id_ for id_ in (config.pad_token_id, end) if id_ is not None), 0))
