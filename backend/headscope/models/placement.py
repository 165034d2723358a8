"""Where the weights of a model go: to one device, or by module to several and to the disk."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ..errors import InvalidRequest, Unsupported
from .device import NO_DEVICE
from .free_memory import DISK

# Modules, by name, and their devices, "disk" for weights that are read whenever the module runs; or the name of a way to choose devices.
DeviceMap = str | Mapping[str, Any]
CHOICES = ("auto", "balanced", "balanced_low_0", "sequential")
NOT_A_MAP = f'device_map is one of {", ".join(CHOICES)}, or maps names of modules to devices, such as "cuda:0", "cpu" and "disk".'


def expand(places: DeviceMap, module: Any) -> DeviceMap:
    """Return a map in which no module contains another, as accelerate needs it, for a module of the same structure. Raises InvalidRequest for other names."""
    if not isinstance(places, Mapping):
        return places
    known = {name for name, _ in (*module.named_modules(), *module.named_parameters(), *module.named_buffers())}
    if not places.keys() <= known:
        raise InvalidRequest("device_map names modules that the model does not have.", pointer="/device_map")
    found = dict(_split(module, "", places, None))
    if None in found.values():
        raise InvalidRequest(
            'device_map gives some modules no device. Name them, or "" for all others.', pointer="/device_map"
        )
    return found


def _split(part: Any, name: str, places: Mapping[str, Any], device: Any) -> Iterator[tuple[str, Any]]:
    """Yield the name of a part and its device or, if the map names parts of it, of each of those."""
    device = places.get(name, device)
    prefix = f"{name}." if name else ""
    if not any(key.startswith(prefix) and key != name for key in places):
        yield name, device
        return
    for own, _ in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)):
        yield prefix + own, places.get(prefix + own, device)
    for child, inner in part.named_children():
        yield from _split(inner, prefix + child, places, device)


def read(device: str, device_map: DeviceMap | None) -> DeviceMap:
    """Return the map of a model that goes to `device` or, if there is one, of `device_map`. Raises InvalidRequest or Unsupported."""
    if device_map is None:
        if _is_missing(torch.device(device)):
            raise Unsupported(NO_DEVICE.format(device=device))
        return {"": device}
    if importlib.util.find_spec("accelerate") is None:
        raise Unsupported(
            'device_map needs the package accelerate. Install it: pip install "headscope[large]".',
            pointer="/device_map",
        )
    if not isinstance(device_map, Mapping):
        if device_map not in CHOICES:
            raise InvalidRequest(NOT_A_MAP, pointer="/device_map")
        return device_map
    return {str(name): _device(name_of) for name, name_of in device_map.items()}


def _device(name: Any) -> str:
    """Return the full name of a device. Raises InvalidRequest for one that this machine does not have."""
    if name == DISK:
        return DISK
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError, ValueError):
        raise InvalidRequest(NOT_A_MAP, pointer="/device_map") from None
    if _is_missing(device):
        raise InvalidRequest(f"This machine has no device {device}.", pointer="/device_map")
    return str(device)


def _is_missing(device: torch.device) -> bool:
    """Return whether a GPU is meant that this machine does not have, or has no driver for."""
    return device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
