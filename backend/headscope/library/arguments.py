"""What a caller of the library hands over, as requests take it: methods by name or mapping, numbers in lists, arrays and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import index
from typing import Any

from pydantic import ValidationError

from ..analysis.request import AnalysisRequest
from ..errors import InvalidRequest
from ..studies.study import invalid

# A mechanism, lens or measure: its name, or a mapping with its name and parameters.
Method = str | Mapping[str, Any]


def request_of(
    mechanism: Method | None, lenses: Iterable[Method], measures: Iterable[Method], **fields: Any
) -> AnalysisRequest:
    """The request, or InvalidRequest in our words where a value is of the wrong type."""
    try:
        return AnalysisRequest(
            mechanism=choice(mechanism),
            lenses=choices(lenses, "lenses"),
            measures=choices(measures, "measures"),
            **fields,
        )
    except ValidationError as error:
        raise invalid(error) from None


def choice(method: Method | None) -> Any:
    """A method as pydantic takes it."""
    return dict(method) if isinstance(method, Mapping) else method


def choices(methods: Iterable[Method], name: str) -> list[Any]:
    """Several methods. Raises InvalidRequest for anything but a list of them; `name` is the argument's."""
    if isinstance(methods, (str, Mapping)) or not isinstance(methods, Iterable):
        raise InvalidRequest(
            f'{name} is a list of names, such as ["weights"], or of names with parameters.', pointer=f"/{name}"
        )
    return [choice(method) for method in methods]


def numbers(values: Any, name: str) -> list[int] | None:
    """Whole numbers in a list, a range, an array or a tensor [n]; None stays None."""
    if values is None:
        return None
    try:
        return [index(value) for value in values]
    except TypeError:  # no list, or not of whole numbers
        raise InvalidRequest(f"{name} is a list of whole numbers.", pointer=f"/{name}") from None


def number(value: Any) -> Any:
    """A whole number of numpy's or torch's as Python's own; anything else as it is."""
    return index(value) if hasattr(value, "__index__") and not isinstance(value, bool) else value
