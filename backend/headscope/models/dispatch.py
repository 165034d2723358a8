"""Modules that accelerate has dispatched: their parts are on several devices, or offloaded and in memory only while they run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..core.lazy import Tensor, torch
from .parts import every_part


def hooks_of(part: Any) -> tuple[Any, ...]:
    """Return the hooks of accelerate that move a part's weights and inputs."""
    hook = vars(part).get("_hf_hook")
    return () if hook is None else tuple(getattr(hook, "hooks", (hook,)))


def is_offloaded(part: Any) -> bool:
    """Return whether the part's own weights are in memory only while it runs."""
    return any(getattr(hook, "offload", False) for hook in hooks_of(part))


def execution_device(module: Any) -> torch.device | None:
    """Return the device of the module's inputs, or of those of its first part that accelerate moves; None if it moves none."""
    hooks = (hook for part in every_part(module) for hook in hooks_of(part) if _places(hook))
    first = next(hooks, None)
    return None if first is None else torch.device(first.execution_device)


def _places(hook: Any) -> bool:
    return getattr(hook, "execution_device", None) is not None


def home(module: Any) -> torch.device:
    """Return the device of a model's inputs and outputs, on which Headscope reads everything that its parts compute."""
    placing = next(filter(_places, hooks_of(module)), None)
    if placing is not None:
        return torch.device(placing.execution_device)
    device: torch.device = module.device
    return execution_device(module) or device if device.type == "meta" else device


@contextmanager
def present(part: Any) -> Iterator[None]:
    """Have the part's own weights in memory, on the device where it runs."""
    hooks = [hook for hook in hooks_of(part) if getattr(hook, "offload", False)]
    for hook in hooks:
        hook.pre_forward(part)
    try:
        yield
    finally:
        for hook in hooks:
            hook.post_forward(part, None)


def tensor_of(part: Any, name: str, like: Tensor) -> Any:
    """Return a tensor of the part by name, on the device of `like`; None if it has none of that name."""
    with present(part):
        found = getattr(part, name, None)
        return found if found is None else found.to(like.device)


def parameters_of(part: Any, like: Tensor) -> dict[str, Tensor]:
    """Return the part's own parameters by name, on the device of `like`."""
    with present(part):
        return {name: parameter.to(like.device) for name, parameter in part.named_parameters(recurse=False)}


def state(module: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the parameters and persistent buffers by name, as in a state dictionary; offloaded ones are in memory only while they are yielded.

    state_dict() itself would rearrange the weights of bitsandbytes, after which version 0.50 computes with wrong ones.
    """
    for prefix, part in module.named_modules(remove_duplicate=False):
        with present(part):
            for name, tensor in persistent(part):
                yield f"{prefix}.{name}" if prefix else name, tensor


def persistent(part: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the part's own parameters and buffers that are saved with it."""
    yield from part.named_parameters(recurse=False, remove_duplicate=False)
    passing = part._non_persistent_buffers_set  # noqa: SLF001 - torch has no other name for it
    yield from (pair for pair in part.named_buffers(recurse=False, remove_duplicate=False) if pair[0] not in passing)


def embedding_matrix(module: Any) -> Any:
    """Return the embedding of token ids, [V, D], of a model of transformers; None if it has none."""
    try:
        found = module.get_input_embeddings()
    # The only error that transformers raises here. Some models return None instead, or a module without a matrix.
    except NotImplementedError:
        return None
    return getattr(found, "weight", None)
