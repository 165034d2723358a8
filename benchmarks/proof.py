"""Headscope beside engines that others wrote, on trained weights: python -m benchmarks.proof [MODEL ...]

For every model and engine: the largest difference of an attention weight, of an entry of a head's output before the output projection (relative to the largest of its
layer), of a logit, and of a head's direct contribution to one (relative to the largest), over a few texts, in float32. Then the time of reading the weights of all heads
of LONGEST tokens, and Headscope's, relative to transformers' eager pass that returns them. A MODEL is a folder or the name of a model on the hub; by default all models
that come without a hub. Rows are kept in docs/measured/proof.json, from which the table of the docs is made; `make proof` installs the engines.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, BertModel

import headscope
from headscope.capture import CaptureSpec, capture, examine
from headscope.core.attention import Layer
from headscope.models.catalog import Catalog
from headscope.models.model import Model
from headscope.settings import Settings
from models.reaction_model import tokenizer, unpack

from .common import Spread
from .engines import ENGINES, UNREAD, Reading, times

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "docs" / "measured" / "proof.json"
LONGEST = 128
# Engines that cannot be in the environment: TransformerLens 4 beside version 3, and inseq, which asks for libraries of NVIDIA's.
ELSEWHERE = {"TransformerLens bridge": ROOT / "build" / "transformer-lens-4", "inseq": ROOT / "build" / "inseq"}
TEXTS = (
    "The keys to the old cabinet are on the table, and the book that she wrote is not.",
    "When Mary and John went to the store, John gave a drink to Mary; when Mary and John went to the store, John gave a drink to",
    "In 1867 the company shipped 25,000 barrels, which its owner had never seen.",
)
REACTIONS = (
    "CC(=O)Cl.NCc1ccccc1>>CC(=O)NCc1ccccc1",
    "OB(O)c1ccccc1.Brc1ccc(C=O)cc1>>O=Cc1ccc(-c2ccccc2)cc1",
)


SHIPPED = ("minilm", "rxnmapper", "twins/twin-bert-softmax", "twins/twin-sst2-softmax", "twins/twin-gpt-softmax")
# BERTs of chemical reactions (Schwaller et al., Nature Machine Intelligence 2021; MIT), whose package has their weights as pickles: folder -> class, SHA-256.
CARRIER = "rxnfp==0.1.0"
CARRIED: dict[str, tuple[Any, str]] = {
    "bert_pretrained": (BertForMaskedLM, "50a6ed263d33ae759affa82c1e85554cc5ea9f56145f5c7fb39b6c25d4356437"),
    "bert_ft": (BertModel, "5bb7f9f5831ec16a4b90545f95394853caf19ff9a8272291c86e0b231e0ff2ba"),
}


def main() -> None:
    """Compare the named models, or all."""
    parser = argparse.ArgumentParser("python -m benchmarks.proof", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="folders, or names on the hub")
    parser.add_argument("--text", action="append", help="a text to compare on (can be given several times)")
    chosen = parser.parse_args()
    for name, folder, texts in _named(chosen.models) if chosen.models else _all():
        for key, row in compare(name, folder, tuple(chosen.text or texts)):
            print(row, flush=True)
            rows = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
            TABLE.write_text(json.dumps({**rows, key: row}, indent=1, sort_keys=True) + "\n", "utf-8")


def _named(models: list[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for name in models:
        yield Path(name).name if Path(name).exists() else name, name, TEXTS


def _all() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for name in SHIPPED:
        yield Path(name).name, str(ROOT / "models" / name), REACTIONS if name == "rxnmapper" else TEXTS
    for name, folder in _carried():
        yield name, str(folder), REACTIONS
    installed = Catalog(Settings()).installed("smollm2")
    if installed.is_dir():
        yield "smollm2", str(installed), TEXTS
    else:
        print("smollm2 is not installed: headscope models install smollm2")


def _carried() -> Iterator[tuple[str, Path]]:
    """Yield the models of the carrier as folders with safetensors."""
    build = ROOT / "build" / "proof"
    if not build.is_dir():
        with tempfile.TemporaryDirectory() as place:
            unpack(CARRIER, Path(place))
            for name, (kind, digest) in CARRIED.items():
                source = Path(place) / "rxnfp" / "models" / "transformers" / name
                weights = source / "pytorch_model.bin"
                if hashlib.sha256(weights.read_bytes()).hexdigest() != digest:
                    raise SystemExit(f"The weights in {CARRIER} have changed. Do not use this package.")
                made = Path(place) / "proof" / name
                config = BertConfig.from_json_file(source / "config.json")
                kind.from_pretrained(source, config=config, weights_only=True).save_pretrained(made)
                tokenizer((source / "vocab.txt").read_text("utf-8").split("\n")).save_pretrained(made)
            build.parent.mkdir(exist_ok=True)
            shutil.move(Path(place) / "proof", build)
    for name in CARRIED:
        yield f"rxnfp {name}", build / name


def compare(name: str, source: str, texts: tuple[str, ...]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a row for each engine that reads the model in a folder or on the hub."""
    model = headscope.load(source)
    folder = model.source.folder
    revision = model.source.revision if model.source.hub else _digest(folder)
    inputs = [[token.id for token in model.encode(text).tokens] for text in texts]
    every = [number for ids in inputs for number in ids]
    inputs.append((every * LONGEST)[:LONGEST])  # the last one is timed
    ours = [_read(model, ids) for ids in inputs]
    with torch.no_grad():
        mine = times(folder, lambda ids: _weights(model, ids[0].tolist()), torch.tensor([inputs[-1]]))
    for engine in ENGINES:
        version, theirs, taken = _ask(engine, folder, inputs)
        if theirs:
            row = {"model": name, "revision": revision, "engine": f"{engine} {version}"}
            row |= {"time": Spread.of(taken).text(1, 2), "our time": Spread.of(mine).text(1, 2)}
            yield f"{name}, {engine}", row | _largest([_difference(*pair) for pair in zip(ours, theirs, strict=True)])


def _weights(model: Model, ids: list[int]) -> Any:
    """Return the weights of all heads as the library gives them."""
    return headscope.analyze(model, token_ids=ids, lenses=("weights",), measures=()).maps["weights"]


def _read(model: Model, ids: list[int]) -> Reading:
    """Return what Headscope reads."""
    weights, outputs = {}, {}

    def keep(layer: Layer) -> None:
        for place, head in enumerate(layer.heads):
            weights[layer.index, head] = layer.weights[place].float()
            outputs[layer.index, head] = layer.output[place].float()

    output = capture(model, model.encode(token_ids=ids), examine(model), CaptureSpec(keep))
    layers = 1 + max(layer for layer, _ in weights)

    def stack(heads: dict[tuple[int, int], torch.Tensor]) -> torch.Tensor:
        return torch.stack([heads[place] for place in sorted(heads)]).unflatten(0, (layers, -1))

    logits = output.logits[0] if "logits" in output else None
    contributions = None
    if model.facts.kind == "decoder" and logits is not None:
        contributions = torch.from_numpy(headscope.effect(model, token_ids=ids).effects)
    return Reading(stack(weights), stack(outputs), logits, contributions)


def _ask(engine: str, folder: Path, inputs: list[list[int]]) -> tuple[str, list[Reading], list[float]]:
    """Return the version of the engine, what it reads and the times of that, nothing if it does not read the model.

    In a process of its own, because engines change torch and transformers when they are imported.
    """
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "readings.npz"
        command = [sys.executable, "-m", "benchmarks.engines", engine, str(folder), json.dumps(inputs), str(out)]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ELSEWHERE.get(engine, ""))}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode == UNREAD:
            print(f"{engine}: {done.stdout.strip()}")
            return "", [], []
        if done.returncode:
            raise SystemExit(f"{engine} failed with {folder}:\n{done.stderr}")
        with np.load(out) as found:
            readings = [
                Reading(
                    *(
                        torch.from_numpy(found[name]) if (name := f"{part}-{number}") in found else None
                        for part in Reading._fields
                    )
                )
                for number in range(len(inputs))
            ]
            return str(found["version"]), readings, found["times"].tolist()


def _difference(ours: Reading, theirs: Reading) -> dict[str, float]:
    found = {"weights": (ours.weights - theirs.weights).abs().max()}
    if ours.outputs is not None and theirs.outputs is not None:
        outputs = (ours.outputs - theirs.outputs).flatten(1).abs().amax(1) / theirs.outputs.flatten(1).abs().amax(1)
        found["outputs"] = outputs.max()
    if ours.logits is not None and theirs.logits is not None:
        found["logits"] = (ours.logits - theirs.logits).abs().max() / theirs.logits.abs().max()
    if ours.contributions is not None and theirs.contributions is not None:
        found["contributions"] = (
            ours.contributions - theirs.contributions
        ).abs().max() / theirs.contributions.abs().max()
    return {name: float(value) for name, value in found.items()}


def _largest(found: list[dict[str, float]]) -> dict[str, float]:
    return {part: max(each[part] for each in found) for part in found[0]}


def _digest(folder: Path) -> str:
    """Return the first digits of the SHA-256 of the weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    main()
