"""Options of several commands: models, and methods with parameters."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from ..core.declarations import Declaration
from ..core.text import check_text
from ..errors import InvalidRequest, InvalidText
from ..lenses import LENSES
from ..measures import MEASURES
from ..mechanisms import MECHANISMS
from ..models.catalog import GGUF, Catalog
from ..settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


class MethodType(click.ParamType[dict[str, Any]]):
    """A mechanism, lens or measure: NAME, NAME:PARAMETER=VALUE,PARAMETER=VALUE, or a JSON object with its name and parameters."""

    def __init__(self, kind: str, methods: Mapping[str, Declaration]) -> None:
        self.name, self._methods = kind, methods

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "NAME[:PARAMETER=VALUE,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Return the name and parameters as one mapping, or fail with a usage error."""
        if isinstance(value, dict):
            return value
        if value.lstrip().startswith("{"):
            try:
                method = json.loads(value)
            except ValueError:
                self.fail("That is not valid JSON.", param, ctx)
        else:
            name, _, parameters = value.partition(":")
            texts = self._texts(name)
            method = {"name": name, **dict(parse_parameter(part, texts) for part in parameters.split(",") if part)}
        if method.get("name") not in list(self._methods):  # JSON may have anything as a name
            self.fail(f"There is no such {self.name}. Choose one of {', '.join(self._methods)}.", param, ctx)
        return dict(method)

    def _texts(self, name: str) -> set[str]:
        """Return the names of a method's parameters that are texts, such as a head, 4.10."""
        fields = self._methods[name].params.model_fields if name in self._methods else {}
        return {field for field, declared in fields.items() if declared.annotation is str}


def read_text(text: str) -> str:
    """Return the argument TEXT, or standard input for "-". Raises InvalidText."""
    found = text
    try:
        if text == "-":
            cast("TextIOWrapper", sys.stdin).reconfigure(errors="strict")  # in the C locale any bytes pass
            found = sys.stdin.read()
    except UnicodeDecodeError:
        raise InvalidText("Standard input is not valid UTF-8.", pointer="/text") from None
    check_text(found)
    return found


def check_model(model: str) -> None:
    """Raise the errors of a model that does not exist or is not installed, before torch is loaded."""
    path = Path(model).expanduser()
    if not path.is_dir() and not (path.suffix == GGUF and path.is_file()):
        catalog = Catalog(Settings(hub="any"))
        catalog.check(catalog.locate(model, pointer=None))


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file of reference texts that are not blank. Raises InvalidRequest."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        raise InvalidRequest("The file with the reference texts is not readable UTF-8.", pointer="/reference") from None
    return [line for line in lines if line.strip()]


def split_pair(text: str, usage: str) -> tuple[str, str]:
    """Return what is before and after the first equals sign. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(usage)
    return name, value


def parse_parameter(text: str, texts: Collection[str] = ()) -> tuple[str, Any]:
    """Parse PARAMETER=VALUE. The value is a string if its name is among `texts`, or if it is no JSON; otherwise it is decoded."""
    name, value = split_pair(text, "Parameters are given as PARAMETER=VALUE, for example alpha=0.5.")
    if name.strip() in texts:
        return name.strip(), value.strip()
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        return name.strip(), value


MODEL = click.option(
    "-m", "--model", default="minilm", show_default=True, help="Catalogue name, local directory, or hub id."
)
KIND = click.option(
    "--kind",
    default="self",
    show_default=True,
    type=click.Choice(["self", "encoder", "decoder", "cross"]),
    help="Which attention of an encoder-decoder.",
)
MECHANISM = click.option(
    "--mechanism",
    type=MethodType("mechanism", MECHANISMS),
    help="How the model attends; `headscope mechanisms` lists them.  [default: as it was trained]",
)
LENS = click.option(
    "-l",
    "--lens",
    "lenses",
    multiple=True,
    type=MethodType("lens", LENSES),
    help="Lens; may be repeated; `headscope lenses` lists them.  [default: weights, effective]",
)
REFERENCE = click.option(
    "--reference",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Text file with one reference text per line, for ablation:how=reference.",
)
MAX_TOKENS = click.option("--max-tokens", type=click.IntRange(1), help="Truncate every input to that many tokens.")


def measure_option(default: str) -> Callable[[F], F]:
    """Return the option for measures; `default` is shown in its help."""
    text = f"Measure; may be repeated; `headscope measures` lists them.  [default: {default}]"
    return click.option("-x", "--measure", "measures", multiple=True, type=MethodType("measure", MEASURES), help=text)
