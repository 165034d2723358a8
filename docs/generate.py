"""Generate the parts of the docs that repeat the code: python docs/generate.py [--check]

A generated part is between the comments <!-- generated: NAME --> and <!-- end of generated -->. With --check nothing is written, and the exit status
tells whether all pages are up to date.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import declared
import gallery
import measured
import scored
from click.testing import CliRunner
from declared import table

import headscope
from headscope import errors
from headscope.analysis.effect_request import EffectRequest
from headscope.analysis.request import AnalysisRequest
from headscope.api import openapi, problems
from headscope.api.middleware import security
from headscope.api.routes import jobs
from headscope.batteries import BATTERIES
from headscope.cli import main as cli
from headscope.client.call import Operation
from headscope.client.operations import Operations
from headscope.models.support import READ
from headscope.settings import GIB, Settings
from headscope.studies.request import StudyRequest

DOCS = Path(__file__).resolve().parent
PACKAGE = Path(errors.__file__).resolve().parent
BLOCK = re.compile(r"(<!-- generated: (?P<name>\S+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)


def settings() -> str:
    """Return a table of all settings."""
    rows = []
    for name, field in Settings.model_fields.items():
        kind = field.annotation.__name__ if isinstance(field.annotation, type) else str(field.annotation)
        kind = kind.removesuffix(" | None")
        kind = {
            "Path": "path",
            "pathlib.Path": "path",
            "str": "text",
            "SecretStr": "text",
            "pydantic.types.SecretStr": "text",
            "int": "whole number",
            "float": "number",
            "bool": "true or false",
        }.get(kind, kind)
        if "Annotated[str" in kind:
            kind = "tuple[str, ...]"
        kind = kind.replace("typing.Literal", "").replace("tuple[pathlib.Path, ...]", "JSON list of paths")
        kind = kind.replace("tuple[str, ...]", "JSON list of names").strip("[]").replace("'", "`")
        rows.append((f"`HEADSCOPE_{name.upper()}`", kind, _default(name, field), field.description or ""))
    return table(("variable", "value", "default", "meaning"), rows)


def _default(name: str, field: Any) -> str:
    if name == "home":
        return "`headscope` in the user's cache folder"
    value = field.default
    if name.endswith("_bytes") and value >= GIB:
        return f"{value} ({value // GIB} GiB)"
    if name.endswith("_bytes") and value:
        unit, size = ("MiB", 1024**2) if value >= 1024**2 else ("KiB", 1024)
        return f"{value} ({value // size} {unit})"
    return "none" if value in ((), None) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def cli_help(command: str) -> str:
    """Return the output of --help, at a width of 80 columns."""
    words = [] if command == "main" else command.split("/")
    result = CliRunner(env={"COLUMNS": "80"}).invoke(cli.main, [*words, "--help"], prog_name="headscope")
    shown = " ".join(["headscope", *words, "--help"])
    return f"```text\n$ {shown}\n{result.output.rstrip()}\n```"


def supported() -> str:
    """Return how many architectures are supported, and how exactly."""
    record = _architectures()
    results = Counter(entry["result"] for entry in record["types"].values())
    total, version = sum(results.values()), record["transformers"]
    return (
        f"Headscope was tested on {total} text and vision architectures of transformers {version}: {results['equal']} are captured and equal the model's own eager attention "
        f"within 10<sup>-5</sup>, {results['fallback']} show the weights that the model itself returns, and {results['refused']} are rejected, with the reason."
    )


@functools.cache  # it reads the whole package, and every page of an error asks
def codes() -> dict[str, tuple[int, str]]:
    """Return every error code with its status and title: from the classes, from calls that raise Unknown, and from HTTP errors."""
    found: dict[str, tuple[int, str]] = {}
    classes = [errors.HeadscopeError]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if cls is not errors.Unknown:
            found[cls.code] = (cls.status, cls.title)
    source = "\n".join(path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    named = r'(?:[Uu]nknown(?:_job)?|_chosen|choices_of|canonical|parse_slice)\(\s*"([a-z_-]+)"'
    for what in (*re.findall(named, source), *jobs.DOCUMENTS):
        found[f"unknown-{what}"] = (errors.Unknown.status, f"Unknown {what}")
    found |= {code: (status, title) for status, (code, title, _) in problems.HTTP_ERRORS.items()}
    refused = r'\(\s*(\d{3}),\s*"([a-z-]+)",\s*"([^"]+)",'
    for status, code, title in re.findall(refused, inspect.getsource(security)):
        found.setdefault(code, (int(status), title))
    found["http-error"] = (400, "The request failed")
    return dict(sorted(found.items()))


def error(code: str) -> str:
    """Return the line below a code's name."""
    status, title = codes()[code]
    shown = "any other" if code == "http-error" else str(status)
    return f"HTTP status {shown}. Title: “{title}”."


def error_table() -> str:
    """Return a table of all codes, with links."""
    return table(
        ("code", "status", "title"),
        [
            (f"[`{code}`]({code}.md)", "other" if code == "http-error" else str(status), title)
            for code, (status, title) in codes().items()
        ],
    )


def routes() -> str:
    """Return every route with its parameters, from the OpenAPI document."""
    return "\n\n".join(_route(*entry) for entry in _operations())


@functools.cache
def _operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path.replace("{id_}", "{id}"), operation)
        for path, methods in openapi.document()["paths"].items()
        for method, operation in methods.items()
    ]


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    lines = [f"### {method} {path}", "", operation.get("description", operation.get("summary", ""))]
    rows = []
    for parameter in operation.get("parameters", []):
        schema = parameter["schema"]
        options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
        enum = next((option["enum"] for option in options if "enum" in option), None)
        kind = " or ".join(f"`{value}`" for value in enum) if enum else str(options[0].get("type", ""))
        default = schema.get("default")
        rows.append(
            (
                f"`{parameter['name'].rstrip('_')}`",
                parameter["in"],
                {"integer": "whole number", "array": "list", "string": "string"}.get(kind, kind)
                if parameter["in"] != "header"
                else "string",
                "" if default is None else f"`{default}`",
                parameter.get("description", schema.get("description", "")),
            )
        )
    rows = [row for row in rows if row[1] != "path"]
    if rows:
        lines += ["", table(("parameter", "in", "value", "default", "meaning"), rows)]
    return "\n".join(lines)


def route_table() -> str:
    """Return a table of all routes."""
    rows = []
    for method, path, operation in _operations():
        anchor = re.sub(r"[^\w\- ]", "", f"{method} {path}".lower()).strip().replace(" ", "-")
        rows.append(
            (
                f"[`{method} {path}`](#{anchor})",
                operation.get("description", "").split("\n")[0].split(". ")[0].rstrip("."),
            )
        )
    return table(("call", "does"), rows)


def request_fields(of: str) -> str:
    """Return a table of the fields of a request for an `analysis`, an `effect` or a `study`."""
    schema = {"analysis": AnalysisRequest, "effect": EffectRequest, "study": StudyRequest}[of].model_json_schema()
    named = {"mechanism": "string, object or null", "dataset": "string or object", "method": "string or object"}
    named |= {"against": "object or null"} if of == "study" else {}
    rows = []
    for name, field in schema["properties"].items():
        options = field.get("anyOf", [field])
        kinds = [str(option.get("enum", option.get("type", "object"))) for option in options]
        kind = " or ".join(kind.strip("[]").replace("'", "`") for kind in kinds)
        kind = kind.replace("array", "list").replace("integer", "whole number")
        kind = named.get(name, kind)
        value = field.get("default")
        default = "required" if name in schema.get("required", []) else f"`{json.dumps(value)}`"
        rows.append((f"`{name}`", kind, default, field.get("description", "")))
    return table(("field", "value", "default", "meaning"), rows)


def models() -> str:
    """Return a table of the catalogue, without the models that come with a clone."""
    rows = [
        (
            f"`{name}`",
            entry["title"],
            entry["kind"],
            f"{entry['layers']} × {entry['heads']}",
            str(entry["head_width"]),
            str(entry["max_tokens"]),
            entry["license"],
            entry.get("reason", "yes"),
        )
        for name, entry in _entries().items()
        if "group" not in entry
    ]
    return table(
        ("name", "model", "kind", "layers × heads", "head width", "most tokens", "licence", "can be analysed"), rows
    )


def twins() -> str:
    """Return a table of the models that come with a clone, and their siblings."""
    rows = [
        (f"`{name}`", entry["title"], entry["description"], entry["group"], entry["license"])
        for name, entry in _entries().items()
        if "group" in entry
    ]
    return table(("name", "model", "what it is", "group", "licence"), rows)


def _entries() -> dict[str, Any]:
    return tomllib.loads((DOCS.parent / "models" / "catalog.toml").read_text("utf-8"))


def signature(name: str) -> str:
    """Return a function of the library with its signature and docstring."""
    function = getattr(headscope, name)
    parameters = list(inspect.signature(function).parameters.values())
    lines, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        shown = (
            inspect.formatannotation(parameter.annotation)
            if not isinstance(parameter.annotation, str)
            else parameter.annotation
        )
        if parameter.name == "progress":
            lines.append("    progress: Callable[[float, str, str], None] = ...,  # fraction, stage, detail")
            continue
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"    {parameter.name}: {shown}{default},")
    returns = inspect.signature(function).return_annotation
    doc = (inspect.getdoc(function) or "").split("\n\n>>>")[0]
    doc = re.sub(r"\n(?!\n)", " ", doc).replace("  ", " ").replace("\n ", "\n\n").replace("\n\n\n", "\n\n")
    body = "\n".join(lines)
    return f"```text\nheadscope.{name}(\n{body}\n) -> {returns}\n```\n\n{doc}"


def batteries() -> str:
    """Return a table of the batteries."""
    rows = [(f"`{one.name}`", one.doc, one.not_, one.citation) for one in BATTERIES.values()]
    return table(("battery", "what it is", "what it is not", "source"), rows)


def client() -> str:
    """Return a table of the methods that both clients have."""
    found = [(name, one) for name, one in vars(Operations).items() if isinstance(one, Operation)]
    rows = [
        (f"`{name}({', '.join(inspect.signature(one.call).parameters)})`", inspect.getdoc(one.call) or "")
        for name, one in found
    ]
    return table(("method", "does"), rows)


def _architectures() -> dict[str, Any]:
    record: dict[str, Any] = json.loads((DOCS / "reference" / "architectures.json").read_text("utf-8"))
    return record


def architectures() -> str:
    """Return a table of every architecture of transformers, from the sweep in tests/sweep."""
    record = _architectures()
    results = Counter(entry["result"] for entry in record["types"].values())
    counts = ", ".join(f"{results[name]} {name}" for name in ("equal", "fallback", "refused"))
    rows = []
    for name, entry in record["types"].items():
        lacks = next(iter(entry["lacks"].values()), {})
        found = ["", "", "", ""]
        if entry["result"] == "equal":
            found = ["no" if need in lacks else "yes" for need in ("projection", "residual", "replay", "bilinear")]
            found[0] = "gated" if found[0] == "yes" and "gate" not in lacks else found[0]
            found[1] = entry.get("norm", found[1])
        rows.append((f"`{name}`", entry["class"], entry["takes"], entry["result"], *found))
    head = ("model type", "class", "takes", "result", "projection", "residual", "replay", "one matrix")
    return f"With transformers {record['transformers']}: {counts}.\n\n{table(head, rows)}"


def not_equal() -> str:
    """Return why some architectures do not match."""
    record = _architectures()
    groups: dict[tuple[str, str], list[str]] = {}
    for name, entry in record["types"].items():
        if "reason" in entry:
            groups.setdefault((entry["result"], record["reasons"][entry["reason"]]), []).append(name)
    rows = [(result, reason, _listed(names)) for (result, reason), names in sorted(groups.items())]
    return table(("result", "reason", "model types"), rows)


def with_image() -> str:
    """Return what becomes of an image beside a text."""
    record = _architectures()
    groups: dict[str, list[str]] = {}
    for name, said in record["images"].items():
        groups.setdefault(said if said in READ else f"refused: {record['reasons'][said]}", []).append(name)
    rows = [(said, str(len(names)), _listed(names)) for said, names in sorted(groups.items())]
    return table(("with an image", "number", "model types"), rows)


def not_swept() -> str:
    """Return which types the sweep skips."""
    record = _architectures()
    groups: dict[str, list[str]] = {}
    for name, place in record["left_out"].items():
        groups.setdefault(record["reasons"][place], []).append(name)
    rows = [(reason, _listed(names)) for reason, names in sorted(groups.items())]
    return table(("reason", "model types"), rows)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


PARTS: dict[str, Callable[..., str]] = {
    "batteries": batteries,
    "client": client,
    "architectures": architectures,
    "not-equal": not_equal,
    "not-swept": not_swept,
    "with-image": with_image,
    "settings": settings,
    "cli": cli_help,
    "declaration": declared.declaration,
    "parameters": declared.parameters,
    "overview": declared.overview,
    "needs": declared.needs,
    "supported": supported,
    "error": error,
    "errors": error_table,
    "routes": routes,
    "route-table": route_table,
    "request": request_fields,
    "models": models,
    "twins": twins,
    "signature": signature,
    "faults": measured.faults,
    "load": measured.load,
    "gallery": gallery.page,
    "proof": measured.proof,
    "ratios": measured.ratios,
    "scores": scored.scores,
    "known-head": scored.known,
    "edges": scored.edges,
    "scored": scored.scored,
    "beside-weights": scored.beside_weights,
    "twin-worth": measured.twin_worth,
    "twin-tuned": measured.twin_tuned,
    "twin-seeds": measured.twin_seeds,
    "twin-study": measured.twins,
}


def render(page: str) -> str:
    """Return a page with its generated parts renewed."""

    def fill(found: re.Match[str]) -> str:
        part, _, argument = found["name"].partition(":")
        body = PARTS[part](argument) if argument else PARTS[part]()
        return f"{found[1]}{body}\n{found[3]}"

    return BLOCK.sub(fill, page)


def pages() -> list[Path]:
    """Yield every page of the docs, and the README."""
    return [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]


def main(check: bool) -> int:
    """Write the pages, or report those that are out of date."""
    stale = []
    for path in pages():
        before = path.read_text("utf-8")
        after = render(before)
        if after != before:
            stale.append(path.relative_to(DOCS.parent))
            if not check:
                path.write_text(after, "utf-8")
    for name in stale:
        print(f"{'stale' if check else 'written'}: {name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
