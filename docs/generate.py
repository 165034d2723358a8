"""Writes the parts of the docs that repeat what the code says: python docs/generate.py [--check]

A page marks the place by a comment, <!-- generated: NAME -->, and ends it by <!-- end of generated -->. With --check nothing is written; the exit
status says whether every page is as the code would have it.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import headscope
from headscope import cli, errors
from headscope.api import guard, openapi, problems
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from headscope.mechanisms import MECHANISMS
from headscope.request import AnalysisRequest
from headscope.settings import GIB, Settings
from headscope.types import NEEDS, Declaration

DOCS = Path(__file__).resolve().parent
PACKAGE = Path(errors.__file__).resolve().parent
BLOCK = re.compile(r"(<!-- generated: (?P<name>\S+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)
KINDS: dict[str, dict[str, Any]] = {"lens": dict(LENSES), "mechanism": dict(MECHANISMS), "measure": dict(MEASURES)}


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def settings() -> str:
    """Every setting, from the class that reads them."""
    rows = []
    for name, field in Settings.model_fields.items():
        kind = field.annotation.__name__ if isinstance(field.annotation, type) else str(field.annotation)
        kind = {"Path": "path", "int": "whole number", "float": "number", "bool": "true or false"}.get(kind, kind)
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
    if name.endswith("_bytes"):
        unit, size = ("MiB", 1024**2) if value >= 1024**2 else ("KiB", 1024)
        return f"{value} ({value // size} {unit})"
    return "none" if value == () else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def cli_help(command: str) -> str:
    """What --help prints, at a width of 80 columns."""
    words = [] if command == "main" else [command]
    result = CliRunner(env={"COLUMNS": "80"}).invoke(cli.main, [*words, "--help"], prog_name="headscope")
    shown = " ".join(["headscope", *words, "--help"])
    return f"```text\n$ {shown}\n{result.output.rstrip()}\n```"


def declaration(name: str) -> str:
    """What a lens, mechanism or measure says of itself."""
    kind, _, key = name.partition("/")
    what: Declaration = KINDS[kind][key]
    described = what.describe()
    low, high = ("unbounded" if bound is None else f"{bound:g}" for bound in what.range)
    rows = [("what it is", what.doc), ("what it is not", what.not_)]
    if "shape" in described:
        rows.append(("shape", f"`[{', '.join(described['shape'].split())}]`"))
    if described.get("columns"):
        rows.append(("columns", _columns(described["columns"])))
    if described.get("classes"):
        rows.append(("classes", ", ".join(f"{number} `{name}`" for number, name in enumerate(described["classes"]))))
    if kind != "mechanism":
        rows.append(("reads", "whole layers" if getattr(what, "of", "heads") == "layer" else "heads, each on its own"))
    if kind == "lens":
        rows.append(("signed", "yes: entries may be negative" if described["signed"] else "no"))
    if kind != "lens" or not described["signed"]:
        above = f"from {low}" if low != "unbounded" else low
        rows.append(("range", f"{low} to {high}" if high != "unbounded" else above))
    rows.append(("unit", "none" if what.unit == "1" else what.unit))
    named = described["params"].get("properties", {})
    rows.append(("parameters", ", ".join(f"`{parameter}`" for parameter in named) or "none"))
    if described.get("lenses"):
        rows.append(("computed for", ", ".join(f"`{lens}`" for lens in described["lenses"])))
    if what.needs:
        rows.append(("needs", ", ".join(f"[`{need}`](../index.md#needs)" for need in what.needs)))
    rows.append(("source", what.citation))
    return table(("name", f"`{what.name}`"), rows)


def _columns(names: list[str]) -> str:
    """Names of columns; of a long numbered run only its ends."""
    shown = [f"`{name}`" for name in names]
    for start, name in enumerate(names):
        stem = re.sub(r"\d+$", "", name)
        run = sum(1 for other in names[start:] if re.fullmatch(re.escape(stem) + r"\d+", other))
        if stem != name and run > 12:
            return ", ".join([*shown[: start + 1], "...", *shown[start + run - 1 :]])
    return ", ".join(shown)


def parameters(name: str) -> str:
    """What each parameter of a lens, mechanism or measure takes, from its schema."""
    kind, _, key = name.partition("/")
    declared = KINDS[kind][key].describe()["params"].get("properties", {})
    head = ("parameter", "value", "default", "meaning")
    rows = [
        (f"`{name}`", _takes(schema), f"`{_json(schema.get('default'))}`", schema.get("description", ""))
        for name, schema in declared.items()
    ]
    return table(head, rows)


def _takes(schema: dict[str, Any]) -> str:
    options = [_kind(option) for option in schema.get("anyOf", [schema])]
    return " or ".join(options)


def _kind(schema: dict[str, Any]) -> str:
    """One schema in words, with its bounds: whole number from 1 to 8."""
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{_json(value)}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        inner = _kind(schema["items"]) if "items" in schema else "anything"
        return f"list ({inner} each)"
    kind = {"integer": "whole number", "boolean": "`true` or `false`", "string": "text", "null": "`null`"}
    words = kind.get(schema.get("type", ""), schema.get("type", "anything"))
    bounds = (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"), ("exclusiveMaximum", "and below"))
    return " ".join([words, *(f"{word} {_bound(schema[key])}" for key, word in bounds if key in schema)])


def _bound(value: float) -> str:
    return f"{value:.10g}"


FOLDERS = {"lens": "lenses", "mechanism": "mechanisms", "measure": "measures"}


def overview(kind: str) -> str:
    """One line per lens, mechanism or measure, with a link to its page."""
    rows = [(f"[`{name}`]({FOLDERS[kind]}/{name}.md)", what.doc) for name, what in KINDS[kind].items()]
    return table((kind, "what it is"), rows)


def methods() -> str:
    """All of them by name, for the README."""
    rows = []
    for kind, folder in FOLDERS.items():
        links = [f"[`{name}`](docs/explanation/{folder}/{name}.md)" for name in KINDS[kind]]
        rows.append((f"{len(links)} {folder}", ", ".join(links)))
    return table(("", "what there is"), rows)


def needs() -> str:
    """What methods may ask of a model, and which of them do."""
    rows = []
    for need, meaning in NEEDS.items():
        asking = [
            f"[`{name}`]({FOLDERS[kind]}/{name}.md)"
            for kind, declared in KINDS.items()
            for name, what in declared.items()
            if need in what.needs
        ]
        rows.append((f"`{need}`", meaning, ", ".join(asking)))
    return table(("need", "what it means", "who needs it"), rows)


def supported() -> str:
    """How many architectures are shown as they are."""
    record = _architectures()
    results = Counter(entry["result"] for entry in record["types"].values())
    total, version = sum(results.values()), record["transformers"]
    return (
        f"Of the {total} text and vision architectures of transformers {version}, {results['equal']} are captured and equal the model's own eager attention within "
        f"10<sup>-5</sup>, {results['fallback']} show the weights that the model itself returns, and {results['refused']} are refused, with the reason."
    )


def codes() -> dict[str, tuple[int, str]]:
    """Every error code with its status and title: from the classes, from the names that Unknown is raised with, and from what HTTP itself refuses."""
    found: dict[str, tuple[int, str]] = {}
    classes = [errors.HeadscopeError]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        if cls is not errors.Unknown:
            found[cls.code] = (cls.status, cls.title)
    source = "\n".join(path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py")))
    for what in re.findall(r'(?:Unknown|_chosen|_choices|_canonical|places)\(\s*"([a-z_]+)"', source):
        found[f"unknown-{what}"] = (errors.Unknown.status, f"Unknown {what}")
    found |= {code: (status, title) for status, (code, title) in problems.TITLES.items()}
    refused = r'\(\s*(\d{3}),\s*"([a-z-]+)",\s*"([^"]+)",'
    for status, code, title in re.findall(refused, inspect.getsource(guard)):
        found.setdefault(code, (int(status), title))
    found["http-error"] = (400, "The request failed")
    return dict(sorted(found.items()))


def error(code: str) -> str:
    """The line under a code's name."""
    status, title = codes()[code]
    shown = "any other" if code == "http-error" else str(status)
    return f"HTTP status {shown}. Title: “{title}”."


def error_table() -> str:
    """All codes, with links."""
    return table(
        ("code", "status", "title"),
        [
            (f"[`{code}`]({code}.md)", "other" if code == "http-error" else str(status), title)
            for code, (status, title) in codes().items()
        ],
    )


def routes() -> str:
    """Every route with its parameters, from the OpenAPI document."""
    return "\n\n".join(_route(*entry) for entry in _operations())


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in openapi.document()["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path.replace("{id_}", "{id}"), operation


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
                {"integer": "whole number"}.get(kind, kind),
                "" if default is None else f"`{default}`",
                parameter.get("description", schema.get("description", "")),
            )
        )
    rows = [row for row in rows if row[1] != "path"]
    if rows:
        lines += ["", table(("parameter", "in", "value", "default", "meaning"), rows)]
    return "\n".join(lines)


def route_table() -> str:
    """One line per route."""
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


def request_fields() -> str:
    """The fields of an analysis' request."""
    schema = AnalysisRequest.model_json_schema()
    rows = []
    for name, field in schema["properties"].items():
        options = field.get("anyOf", [field])
        kinds = [str(option.get("enum", option.get("type", "object"))) for option in options]
        kind = " or ".join(kind.strip("[]").replace("'", "`") for kind in kinds)
        kind = kind.replace("array", "list").replace("integer", "whole number")
        if name == "mechanism":
            kind, default = "string or object", '`{"name": "softmax"}`'
        else:
            value = field.get("default")
            default = "required" if name in schema.get("required", []) else f"`{_json(value)}`"
        rows.append((f"`{name}`", kind, default, field.get("description", "")))
    return table(("field", "value", "default", "meaning"), rows)


def _json(value: object) -> str:
    return json.dumps(value)


def models() -> str:
    """The catalogue."""
    entries = tomllib.loads((DOCS.parent / "models" / "catalog.toml").read_text("utf-8"))
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
        for name, entry in entries.items()
    ]
    return table(
        ("name", "model", "kind", "layers × heads", "head width", "most tokens", "licence", "can be analysed"), rows
    )


def signature(name: str) -> str:
    """A function of the library as it is declared, and its docstring."""
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
        if name == "analyze" and parameter.name == "progress":
            lines.append("    progress: Callable[[float, str, str], None] = ...,  # fraction, stage, detail")
            continue
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"    {parameter.name}: {shown}{default},")
    returns = inspect.signature(function).return_annotation
    doc = (inspect.getdoc(function) or "").split("\n\n>>>")[0]
    doc = re.sub(r"\n(?!\n)", " ", doc).replace("  ", " ").replace("\n ", "\n\n").replace("\n\n\n", "\n\n")
    body = "\n".join(lines)
    return f"```text\nheadscope.{name}(\n{body}\n) -> {returns}\n```\n\n{doc}"


def _architectures() -> dict[str, Any]:
    record: dict[str, Any] = json.loads((DOCS / "reference" / "architectures.json").read_text("utf-8"))
    return record


def architectures() -> str:
    """Every architecture of transformers, as the sweep in tests/sweep found it."""
    record = _architectures()
    results = Counter(entry["result"] for entry in record["types"].values())
    counts = ", ".join(f"{results[name]} {name}" for name in ("equal", "fallback", "refused"))
    rows = []
    for name, entry in record["types"].items():
        lacks = next(iter(entry["lacks"].values()), {})
        found = ["", "", "", ""]
        if entry["result"] == "equal":
            found = ["no" if need in lacks else "yes" for need in ("projection", "residual", "replay", "bilinear")]
            found[1] = entry.get("norm", found[1])
        rows.append((f"`{name}`", entry["class"], entry["takes"], entry["result"], *found))
    head = ("model type", "class", "takes", "result", "projection", "residual", "replay", "one matrix")
    return f"With transformers {record['transformers']}: {counts}.\n\n{table(head, rows)}"


def not_equal() -> str:
    """Why some architectures are not equal."""
    record = _architectures()
    groups: dict[tuple[str, str], list[str]] = {}
    for name, entry in record["types"].items():
        if "reason" in entry:
            groups.setdefault((entry["result"], record["reasons"][entry["reason"]]), []).append(name)
    rows = [(result, reason, _listed(names)) for (result, reason), names in sorted(groups.items())]
    return table(("result", "reason", "model types"), rows)


def not_swept() -> str:
    """Which types the sweep leaves out."""
    record = _architectures()
    groups: dict[str, list[str]] = {}
    for name, place in record["left_out"].items():
        groups.setdefault(record["reasons"][place], []).append(name)
    rows = [(reason, _listed(names)) for reason, names in sorted(groups.items())]
    return table(("reason", "model types"), rows)


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


PARTS: dict[str, Callable[..., str]] = {
    "architectures": architectures,
    "not-equal": not_equal,
    "not-swept": not_swept,
    "settings": settings,
    "cli": cli_help,
    "declaration": declaration,
    "parameters": parameters,
    "overview": overview,
    "methods": methods,
    "needs": needs,
    "supported": supported,
    "error": error,
    "errors": error_table,
    "routes": routes,
    "route-table": route_table,
    "request": request_fields,
    "models": models,
    "signature": signature,
}


def render(page: str) -> str:
    """A page with every generated part as the code would have it now."""

    def fill(found: re.Match[str]) -> str:
        part, _, argument = found["name"].partition(":")
        body = PARTS[part](argument) if argument else PARTS[part]()
        return f"{found[1]}{body}\n{found[3]}"

    return BLOCK.sub(fill, page)


def pages() -> list[Path]:
    """Every page of the docs, and the README."""
    return [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]


def main(check: bool) -> int:
    """Write the pages, or say which are not as they should be."""
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
