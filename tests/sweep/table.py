"""What a sweep found, as the files that ship: the whole record for the docs, and what the server wants to know of it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import transformers

from headscope.models.support import CAUSAL, CROSS, DECODER, IMAGE, NOT_CAUSAL, READ

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "reference" / "architectures.json"
FAMILIES = ROOT / "backend" / "headscope" / "models" / "families.json"
# What the mask and the kind of attention decide; the server tells it from the configuration.
TOLD = {pair for told in (CROSS, DECODER, CAUSAL, NOT_CAUSAL, IMAGE) for pair in told.items()}

Verdicts = dict[str, dict[str, Any]]


def record(found: Verdicts) -> str:
    """Everything as JSON, one line per type; sentences stand once, in `reasons`, and are named by their place."""
    reasons = sorted({reason for verdict in found.values() for reason in _reasons(verdict)})
    place = {reason: index for index, reason in enumerate(reasons)}
    kept = {name: _short(verdict, place) for name, verdict in sorted(found.items()) if "result" in verdict}
    pictured = {name: verdict["image"] for name, verdict in sorted(found.items()) if "image" in verdict}
    images = {name: said if said in READ else place[said] for name, said in pictured.items()}
    left = {name: place[verdict["left_out"]] for name, verdict in sorted(found.items()) if "left_out" in verdict}
    lines = [
        f' "transformers": {json.dumps(transformers.__version__)}',
        ' "reasons": [\n' + ",\n".join(f"  {json.dumps(reason)}" for reason in reasons) + "\n ]",
        f' "types": {_lines(kept)}',
        f' "left_out": {_lines(left)}',
        f' "images": {_lines(images)}',
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def families(found: Verdicts, version: str = transformers.__version__) -> str:
    """The version of transformers, and model type -> result, reason, and the needs that no kind of its attention can meet, as JSON, one line per type.

    `image` is what becomes of an image beside a text; `refused` has the kinds of attention that are refused although others are not, and why.
    """
    known = {name: verdict for name, verdict in sorted(found.items()) if {"result", "image"} & {*verdict}}
    types = {name: _family(verdict) for name, verdict in known.items()}
    return f'{{\n "transformers": {json.dumps(version)},\n "types": {_lines(types)}\n}}\n'


def recorded() -> tuple[str, Verdicts]:
    """The version of transformers that the record was made with, and the verdicts in it."""
    table = json.loads(RECORD.read_text("utf-8"))
    reasons = table["reasons"]
    found: Verdicts = {name: {"left_out": reasons[place]} for name, place in table["left_out"].items()}
    for name, short in table["types"].items():
        lacks = {
            kind: {need: reasons[place] for need, place in needs.items()} for kind, needs in short["lacks"].items()
        }
        reason = {"reason": reasons[short["reason"]]} if "reason" in short else {}
        refused = {kind: reasons[place] for kind, place in short.get("refused", {}).items()}
        found[name] = {**short, "lacks": lacks, **reason, **({"refused": refused} if refused else {})}
    for name, said in table["images"].items():
        found[name]["image"] = said if said in READ else reasons[said]
    return table["transformers"], found


def summary(found: Verdicts) -> str:
    """How many of each."""
    names = (
        verdict.get("result") or next(n for n in ("left_out", "crashed") if n in verdict) for verdict in found.values()
    )
    return ", ".join(f"{number} {name.replace('_', ' ')}" for name, number in Counter(names).most_common())


def _lines(entries: dict[str, Any], indent: str = " ") -> str:
    body = ",\n".join(f"{indent} {json.dumps(name)}: {json.dumps(entry)}" for name, entry in entries.items())
    return "{\n" + body + f"\n{indent}}}"


def _reasons(verdict: dict[str, Any]) -> list[str]:
    inner = [reason for needs in verdict.get("lacks", {}).values() for reason in needs.values()]
    image = [verdict["image"]] if verdict.get("image", READ[0]) not in READ else []
    refused = verdict.get("refused", {}).values()
    return [*(verdict[name] for name in ("reason", "left_out") if name in verdict), *image, *refused, *inner]


def _short(verdict: dict[str, Any], place: dict[str, int]) -> dict[str, Any]:
    lacks = {kind: {need: place[why] for need, why in needs.items()} for kind, needs in verdict["lacks"].items()}
    reason = {"reason": place[verdict["reason"]]} if "reason" in verdict else {}
    refused = {kind: place[why] for kind, why in verdict.get("refused", {}).items()}
    return (
        {name: verdict[name] for name in ("result", "class", "takes", "norm") if name in verdict}
        | reason
        | ({"refused": refused} if refused else {})
        | {"lacks": lacks}
    )


def _family(verdict: dict[str, Any]) -> dict[str, Any]:
    every = [
        {need: why for need, why in needs.items() if (need, why) not in TOLD}
        for needs in verdict.get("lacks", {}).values()
    ]
    shared = set.intersection(*(set(needs) for needs in every)) if every else set()
    told = {key: verdict[key] for key in ("result", "reason", "image", "refused") if key in verdict}
    return {**told, "lacks": {need: every[0][need] for need in sorted(shared)}}
