"""Declarations of lenses, mechanisms, measures and figures as Markdown, for generate.py."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from headscope.core.declarations import CAPABILITIES, Declaration
from headscope.effects import EFFECTS
from headscope.figures import FIGURES
from headscope.figures.studies import STUDY_FIGURES
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from headscope.mechanisms import MECHANISMS

KINDS: dict[str, Mapping[str, Any]] = {
    "lens": LENSES,
    "mechanism": MECHANISMS,
    "measure": MEASURES,
    "effect": EFFECTS,
    "figure": FIGURES,
    "study-figure": STUDY_FIGURES,
}
FOLDERS = {
    "lens": "lenses",
    "mechanism": "mechanisms",
    "measure": "measures",
    "effect": "effects",
    "figure": "figures",
    "study-figure": "figures/studies",
}
DRAWN = {"figure", "study-figure"}
# What some figures require of a study.
ASKS = {
    "against": "two variants",
    "labels": "entity labels",
    "lenses": "all its lenses",
    "effects": "effects",
    "truth": "labels of queries and keys",
}


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def declaration(name: str) -> str:
    """Return a table of the declaration of a lens, mechanism or measure."""
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
    if kind in DRAWN:
        up = "../" * (FOLDERS[kind].count("/") + 1)
        drawn = (f"[`{measure}`]({up}measures/{measure}.md)" for measure in described["measures"])
        rows.append(("drawn from", ", ".join(drawn) or "the study itself"))
    elif kind != "mechanism":
        rows.append(("reads", "whole layers" if getattr(what, "of", "heads") == "layer" else "heads, each on its own"))
    if kind == "lens":
        rows.append(("signed", "yes: entries may be negative" if described["signed"] else "no"))
    if kind not in DRAWN and (kind != "lens" or not described["signed"]):
        above = f"from {low}" if low != "unbounded" else low
        rows.append(("range", f"{low} to {high}" if high != "unbounded" else above))
    if kind not in DRAWN:
        rows.append(("unit", _units(what)))
    named = described["params"].get("properties", {})
    rows.append(("parameters", ", ".join(f"`{parameter}`" for parameter in named) or "none"))
    if described.get("asks"):
        rows.append(("asks for", ", ".join(ASKS[what] for what in described["asks"])))
    if described.get("lenses"):
        rows.append(
            (
                "reads" if kind == "study-figure" else "computed for",
                ", ".join(f"`{lens}`" for lens in described["lenses"]),
            )
        )
    if what.needs:
        rows.append(("needs", ", ".join(f"[`{need}`](../index.md#needs)" for need in what.needs)))
    rows.append(("source", what.citation))
    return table(("name", f"`{what.name}`"), rows)


def _units(what: Declaration) -> str:
    """Return the unit, and the columns that have another one."""
    others: dict[str, list[str]] = {}
    for column, unit in getattr(what, "units", {}).items():
        others.setdefault(unit, []).append(column)
    parts = [f"{_unit(unit)} ({_columns(columns)})" for unit, columns in others.items()]
    return "; ".join([_unit(what.unit), *parts])


def _unit(unit: str) -> str:
    return "none" if unit == "1" else unit


def _columns(names: list[str]) -> str:
    """Return the names of columns, abbreviating long numbered ranges."""
    shown = [f"`{name}`" for name in names]
    for start, name in enumerate(names):
        stem = re.sub(r"\d+$", "", name)
        run = sum(1 for other in names[start:] if re.fullmatch(re.escape(stem) + r"\d+", other))
        if stem != name and run > 12:
            return ", ".join([*shown[: start + 1], "...", *shown[start + run - 1 :]])
    return ", ".join(shown)


def parameters(name: str) -> str:
    """Return a table of the parameters of a method, from its schema."""
    kind, _, key = name.partition("/")
    declared = KINDS[kind][key].describe()["params"]
    rows = []
    for parameter, schema in declared.get("properties", {}).items():
        value = json.dumps(schema.get("default"))
        default = "required" if parameter in declared.get("required", ()) else f"`{value}`"
        rows.append((f"`{parameter}`", _takes(schema), default, schema.get("description", "")))
    return table(("parameter", "value", "default", "meaning"), rows)


def _takes(schema: dict[str, Any]) -> str:
    options = [_kind(option) for option in schema.get("anyOf", [schema])]
    return " or ".join(options)


def _kind(schema: dict[str, Any]) -> str:
    """Return a schema in words, with its bounds: whole number from 1 to 8."""
    if "enum" in schema or "const" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        inner = _kind(schema["items"]) if "items" in schema else "anything"
        return f"list ({inner} each)"
    kind = {"integer": "whole number", "boolean": "`true` or `false`", "string": "text", "null": "`null`"}
    words = kind.get(schema.get("type", ""), schema.get("type", "anything"))
    bounds = (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"), ("exclusiveMaximum", "and below"))
    return " ".join([words, *(f"{word} {_bound(schema[key])}" for key, word in bounds if key in schema)])


def _bound(value: float) -> str:
    return f"{value:.10g}"


def overview(kind: str) -> str:
    """Return a table of all lenses, mechanisms or measures, with links to their pages."""
    rows = [(f"[`{name}`]({FOLDERS[kind]}/{name}.md)", what.doc) for name, what in KINDS[kind].items()]
    return table(("figure" if kind in DRAWN else kind, "what it is"), rows)


def needs() -> str:
    """Return a table of the capabilities that methods may require of a model, and which methods do."""
    rows = []
    for need, meaning in CAPABILITIES.items():
        asking = [
            f"[`{name}`]({FOLDERS[kind]}/{name}.md)"
            for kind, declared in KINDS.items()
            for name, what in declared.items()
            if need in what.needs
        ]
        rows.append((f"`{need}`", meaning, "every method" if need == "weights" else ", ".join(asking)))
    return table(("need", "what it means", "who needs it"), rows)
