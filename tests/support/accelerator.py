"""A device that is not there: tensors that live on the CPU, and yet only work with each other, as those of a GPU do.

It shows where code mixes devices, hands a GPU's tensor to NumPy, or draws with the wrong generator. It shows nothing about a GPU's own kernels: `make gpu`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map_only

GPU = torch.device("cuda", 0)
aten = torch.ops.aten
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
# What may join tensors of two devices: copies, and indices on the CPU, which torch moves by itself.
JOINING = {aten.copy_.default, aten._to_copy.default, *INDEXING}
MIXED = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
TO_NUMPY = "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."


class GpuTensor(torch.Tensor):
    """A tensor that says that it is on a GPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor, requires_grad: bool = False) -> GpuTensor:
        """Hide a tensor of the CPU."""
        made = torch.Tensor._make_wrapper_subclass(
            cls, held.size(), strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            layout=held.layout, device=held.device, requires_grad=requires_grad,
        )  # fmt: skip
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return GPU

    @property
    def is_cuda(self) -> bool:
        """Whether it is on a GPU."""
        return True

    def get_device(self) -> int:
        return 0

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(TO_NUMPY)

    __array__ = numpy

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history."""
        return GpuTensor(self.held.detach())

    @data.setter
    def data(self, value: GpuTensor) -> None:
        torch.Tensor.data.__set__(self, value)
        self.held = value.held

    def new_tensor(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return GpuTensor(self.held.new_tensor(*args, **kwargs))

    def tolist(self) -> Any:
        return self.held.tolist()

    def cpu(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.held.detach().clone()

    def cuda(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self

    def to(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        place, args, kwargs = _place(args, kwargs)
        found = super().to(*args, **kwargs) if args or kwargs else self
        return found.cpu() if place is not None and place.type == "cpu" else found

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute on the CPU, if all tensors are of this kind."""
        kwargs = kwargs or {}
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        if func in INDEXING and not isinstance(args[0], GpuTensor):
            raise RuntimeError(f"indices should be either on cpu or on the same device as the indexed tensor ({func})")
        # The zeros that torch creates for gradients would be on the device of a GPU's tensors.
        backward = torch._C._current_graph_task_id() != -1
        if (
            func not in JOINING
            and not backward
            and any(not isinstance(one, GpuTensor) and one.dim() for one in tensors)
        ):
            raise RuntimeError(f"{MIXED} ({func})")
        plain_args, plain_kwargs = tree_map_only(GpuTensor, lambda one: one.held, (args, kwargs))
        found = func(*plain_args, **plain_kwargs)
        if (
            args
            and isinstance(args[0], torch.Tensor)
            and not isinstance(args[0], GpuTensor)
            and func is aten.copy_.default
        ):
            return args[0]
        with torch.inference_mode(False):  # in it, torch gives no views of tensors from outside
            wrapped = tree_map_only(torch.Tensor, GpuTensor, found)
        return return_and_correct_aliasing(func, args, kwargs, wrapped)


def _is_gpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _place(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.device | None, tuple[Any, ...], dict[str, Any]]:
    """Take the device out of the arguments of Tensor.to."""
    kwargs = dict(kwargs)
    place = kwargs.pop("device", None)
    if args and isinstance(args[0], torch.Tensor):
        place, args = args[0].device, (args[0].dtype, *args[1:])
    elif args and isinstance(args[0], (str, int, torch.device)):
        place, args = args[0], args[1:]
    return (None if place is None else torch.device(place)), args, kwargs


class Accelerator(TorchFunctionMode):
    """The device, while this context lasts: creates tensors for it, and moves them there."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.to and not isinstance(args[0], GpuTensor):
            place, rest, options = _place(args[1:], kwargs)
            found = func(args[0], *rest, **options) if rest or options else args[0]
            return GpuTensor(found.clone()) if place is not None and place.type == "cuda" else found
        if func is torch.Tensor.cuda:
            return GpuTensor(args[0].clone())
        if not _is_gpu(kwargs.get("device")):
            return func(*args, **kwargs)
        generator = kwargs.get("generator")
        if generator is not None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        found = func(*args, **{**kwargs, "device": "cpu"})
        return found if isinstance(found, GpuTensor) else GpuTensor(found)


def on_gpu(module: torch.nn.Module) -> torch.nn.Module:
    """Move a module to the device."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor if isinstance(tensor, GpuTensor) else GpuTensor(tensor.detach().clone())

    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                part._parameters[name] = torch.nn.Parameter(move(parameter), parameter.requires_grad)
        for name, buffer in list(part._buffers.items()):
            if buffer is not None:
                part._buffers[name] = move(buffer)
    return module
