"""The declarations of methods (mechanisms, lenses, measures, figures) as schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ...core.declarations import Declaration
from ..schemas.methods import DeclarationSchema

Schema = TypeVar("Schema", bound=DeclarationSchema)


def describe(methods: Mapping[str, Declaration], schema: type[Schema], **more: str) -> list[Schema]:
    """Describe every method by its schema, with `more` fields."""
    return [schema.model_validate({**method.describe(), **more}) for method in methods.values()]
