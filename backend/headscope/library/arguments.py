"""Conversion of library arguments to fields of requests: methods by name or mapping; numbers in lists, arrays and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import index
from typing import Any, get_args

from pydantic import ValidationError

from ..analysis.request import AnalysisRequest
from ..analysis.result import Result
from ..core.lazy import torch
from ..errors import InvalidRequest
from ..figures.theme import PALETTES
from ..studies.data.rows import LARGEST_OUTPUT

# A mechanism, lens or measure: its name, or a mapping with its name and parameters.
Method = str | Mapping[str, Any]
# A token or class, by its text or number.
Output = str | int
# Problems of a value of another type, and what pydantic calls the types among which a value may choose.
WRONG_TYPES = frozenset({"string_type", "list_type", "int_type", "model_type", "dict_type"})
ANY_TYPE = frozenset({"str", "int", "constrained-str", "constrained-int"})
NO_NAME = "Give a name, or a mapping with a name and parameters"
DTYPES = get_args(AnalysisRequest.model_fields["dtype"].annotation)


def request_of(
    mechanism: Method | None, lenses: Iterable[Method], measures: Iterable[Method], **fields: Any
) -> AnalysisRequest:
    """Return the request. Raises InvalidRequest if a value is of the wrong type."""
    with validating():
        return AnalysisRequest(
            mechanism=choice(mechanism),
            lenses=choices(lenses, "lenses"),
            measures=choices(measures, "measures"),
            **fields,
        )


@contextmanager
def validating() -> Iterator[None]:
    """Raise InvalidRequest, with the first problem as one sentence, for values that pydantic rejects.

    Where several types are allowed, the problem of the type that the value has comes before those of the others.
    """
    try:
        yield
    except ValidationError as error:
        found = error.errors()
        first = next((one for one in found if one["type"] not in WRONG_TYPES), found[0])
        place = ".".join(str(part) for part in first["loc"] if part not in ANY_TYPE and "[" not in str(part))
        message = NO_NAME if first["type"] == "union_tag_not_found" else first["msg"]
        raise InvalidRequest(f"{place}: {message}." if place else f"{message}.") from None


def choice(method: Method | None) -> Any:
    """Return a method in the form that pydantic validates."""
    return dict(method) if isinstance(method, Mapping) else method


def choices(methods: Iterable[Method], name: str) -> list[Any]:
    """Return several methods in the form that pydantic validates. Raises InvalidRequest unless the argument `name` is a list."""
    if isinstance(methods, (str, Mapping)) or not isinstance(methods, Iterable):
        raise InvalidRequest(
            f'{name} is a list of names, such as ["weights"], or of names with parameters.', pointer=f"/{name}"
        )
    return [choice(method) for method in methods]


def numbers(values: Any, name: str) -> list[int] | None:
    """Return the integers of a list, range, array or tensor [n] as a list; None stays None."""
    if values is None:
        return None
    try:
        return [index(value) for value in values]
    except TypeError:  # not a list, or not of integers
        raise InvalidRequest(f"{name} must be a list of integers.", pointer=f"/{name}") from None


def number(value: Any) -> Any:
    """Convert an integer of numpy or torch to int; return anything else unchanged."""
    with suppress(TypeError):  # no integer, or an array of several
        return value if isinstance(value, bool) else index(value)
    return value


def count(value: Any, name: str, least: int = 0) -> int:
    """Return an integer that counts something. Raises InvalidRequest for anything else, or below `least`."""
    found = number(value)
    if not isinstance(found, int) or isinstance(found, bool) or found < least:
        raise InvalidRequest(f"{name} must be a whole number, {least} or larger.", pointer=f"/{name}")
    return found


def is_output(value: Any) -> bool:
    """Return whether a value names a token or class: by a text, or by a number."""
    return isinstance(value, str) or (
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST_OUTPUT
    )


def outputs(target: Output | Sequence[Output] | None) -> list[Any] | None:
    """Return the outputs that a target names, as a request has them. Raises InvalidRequest for what cannot name one."""
    if target is None:
        return None
    found = [number(one) for one in (target if isinstance(target, (tuple, list)) else [target])]
    if not all(map(is_output, found)):
        raise InvalidRequest(
            "target is a token or class, by its text or its number (from 0), or a pair of them.", pointer="/target"
        )
    return found


def check_weights(device: str | None, dtype: str) -> None:
    """Raise InvalidRequest for names that are not a device of torch or a type. Loading finds out if this machine has the device."""
    if dtype not in DTYPES:
        raise InvalidRequest(f"dtype must be one of {', '.join(DTYPES)}.", pointer="/dtype")
    try:
        torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):
        raise InvalidRequest('device must be the name of one, such as "cpu" or "cuda:0".', pointer="/device") from None


def check_choice(value: str, known: Iterable[str], name: str) -> None:
    """Raise InvalidRequest for a value that is none of those that the argument `name` takes."""
    if value not in tuple(known):  # a value may be one that cannot be looked up in a dictionary
        raise InvalidRequest(f"{name} is {' or '.join(known)}.", pointer=f"/{name}")


def check_theme(theme: str) -> None:
    """Raise InvalidRequest for a theme that figures do not have."""
    check_choice(theme, PALETTES, "theme")


def check_analysis(*values: Any) -> None:
    """Raise InvalidRequest for anything but analyses, such as the name of a file."""
    if not all(isinstance(value, Result) for value in values):
        raise InvalidRequest("An analysis is the result of headscope.analyze or headscope.open.")


def items(values: Any, name: str) -> list[Any] | None:
    """Return any iterable but a text as a list of its values, in the form that pydantic validates; None stays None. Raises InvalidRequest for anything else."""
    if isinstance(values, str) or not isinstance(values, Iterable | None):
        raise InvalidRequest(f"{name} must be a list.", pointer=f"/{name}")
    return None if values is None else [choice(value) for value in values]


def text_or_ids(text: str | Sequence[int] | None, name: str) -> str | list[int] | None:
    """Return a text as it is, and token ids as a list."""
    return text if isinstance(text, str) else numbers(text, name)


def texts(given: Sequence[str | Sequence[int]] | None) -> list[Any] | None:
    """Return several texts or their token ids. Raises InvalidRequest for anything else, such as a single text."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidRequest("reference must be a list of texts, or of their token ids.", pointer="/reference")
    return [text_or_ids(one, "reference") for one in given]
