"""The maps of a lens as the factors of their heads: an array whose entries are computed when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from math import prod
from typing import Any

import numpy as np
import psutil
from numpy.lib.mixins import NDArrayOperatorsMixin

from ..errors import BudgetExceeded
from .factors import EVERY, Array, Factors, Whole

# Bytes that certainly fit into memory.
SMALL = 64 * 1024 * 1024


class FactoredMap(NDArrayOperatorsMixin):
    """Maps [L, H, Q, K] of a lens, read-only: an index gives a numpy array, float32, for which only the heads and the window that it names are computed.

    Everything else that arrays have, such as operators, methods and numpy's functions, computes all maps first. That raises BudgetExceeded if they do not fit
    into memory.
    """

    dtype = np.dtype(np.float32)
    ndim = 4

    def __init__(self, shape: Sequence[int], heads: Sequence[Factors] = ()) -> None:
        """`heads` are the factors of single heads, layer by layer; more can be added."""
        layers, per_layer, queries, keys = shape
        self.shape = (layers, per_layer, queries, keys)
        self._heads = list(heads)
        self._numbers = np.arange(layers * per_layer).reshape(layers, per_layer)

    def add(self, heads: Sequence[Factors]) -> None:
        """Add copies of the factors of the next heads, in order: those that arrive may be parts of something larger."""
        copies: dict[tuple[int, ...], Array] = {}
        self._heads += [_copied(one, copies) for one in heads]

    def factors(self, layers: slice = EVERY, heads: slice = EVERY) -> Iterator[Factors]:
        """Yield the factors of some layers and heads, one head at a time."""
        return (self._heads[number] for number in self._numbers[layers, heads].flat)

    @property
    def size(self) -> int:
        """Number of entries."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the factors, which are in memory."""
        return sum(one.nbytes for one in self._heads)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[layer] for layer in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        key = _expanded(index)
        if key is None:
            return self.__array__()[index]
        if all(isinstance(one, slice) for one in key[2:]):  # heads may be chosen in any way
            return self._read(self._numbers[key[:2]], *key[2:])
        wide = [_widened(one, size) for one, size in zip(key, self.shape, strict=True)]
        rest = tuple(0 if isinstance(one, int) else EVERY if isinstance(one, slice) else one for one in key)
        return self._read(self._numbers[wide[0], wide[1]], *wide[2:])[rest]

    def _read(self, numbers: Any, rows: slice, columns: slice) -> Array:
        """Return a window of heads by number: their shape, then [R, C]."""
        sides = [len(range(*part.indices(size))) for part, size in zip((rows, columns), self.shape[2:], strict=True)]
        numbers = np.asarray(numbers)
        _check_fits(4 * numbers.size * prod(sides))
        found = np.empty((*numbers.shape, *sides), np.float32)
        for place in np.ndindex(numbers.shape):
            self._heads[numbers[place]].tile(0, rows, columns, found[place])
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("The entries of this map are computed, so there is nothing that could be shared.")
        found = self._read(self._numbers, EVERY, EVERY)
        return found if dtype is None else found.astype(dtype, copy=False)

    def __contains__(self, value: object) -> bool:
        return value in self.__array__()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(one, FactoredMap) for one in kwargs.get("out", ())):
            raise TypeError(
                "The entries of this map are computed, so they cannot be changed. Copy it with numpy.array."
            )
        arrays = [one.__array__() if isinstance(one, FactoredMap) else one for one in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"A map has no attribute {name!r}.")
        return getattr(self.__array__(), name)

    def __repr__(self) -> str:
        return f"<maps {list(self.shape)} float32, computed when they are read>"


def _expanded(index: Any) -> tuple[Any, ...] | None:
    """Return an index with one entry per axis: whole numbers, slices, and arrays of one dimension. None if it has anything else."""
    given = index if isinstance(index, tuple) else (index,)
    dots = [place for place, one in enumerate(given) if one is Ellipsis]
    place = dots[0] if dots else len(given)
    missing = FactoredMap.ndim - len(given) + len(dots)
    if len(dots) > 1 or missing < 0 or (dots and not missing):  # dots for no axis still separate what they are between
        return None
    key = [*given[:place], *[EVERY] * missing, *given[place + 1 :]]
    found = [one if isinstance(one, slice) else _as_numbers(one) for one in key]
    return None if any(one is None for one in found) else tuple(found)


def _as_numbers(one: Any) -> Any:
    """Return a whole number or an array of one dimension as such, None for anything else."""
    array = None if one is None or isinstance(one, bool | np.bool_) else np.asarray(one)
    if array is None or array.ndim > 1 or array.dtype.kind not in "iub":
        return None
    return int(array) if array.ndim == 0 else array


def _widened(one: Any, size: int) -> slice:
    """Return a slice that includes what an entry of an index selects of an axis. Raises IndexError."""
    if isinstance(one, int):
        place = range(size)[one]
        return slice(place, place + 1)
    return one if isinstance(one, slice) else EVERY


def free_memory() -> int:
    """Return how much memory is free, in bytes."""
    return int(psutil.virtual_memory().available)


def _check_fits(needed: int) -> None:
    if needed > SMALL and needed > (free := free_memory()):
        raise BudgetExceeded(
            f"These maps take {needed / 1e9:.1f} GB; {free / 1e9:.1f} GB of memory are free. Read fewer heads or rows at a time.",
            limit=free,
            actual=needed,
        )


def _copied(part: Any, copies: dict[tuple[int, ...], Array]) -> Any:
    """Return a part of factors with arrays of its own; heads share those that they shared. Maps are such already."""
    if isinstance(part, np.ndarray):
        key = (part.ctypes.data, *part.shape, *part.strides)
        if key not in copies:
            copies[key] = part.copy()
        return copies[key]
    if not is_dataclass(part) or isinstance(part, Whole):
        return part
    return replace(part, **{one.name: _copied(getattr(part, one.name), copies) for one in fields(part)})  # type: ignore[type-var]
