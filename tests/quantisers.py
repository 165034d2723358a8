"""Packages that quantise weights, each in its own ways, on this machine: python -m tests.quantisers

For every way that is installed and runs: the largest difference of an attention weight, and of a contribution to an output (relative), from the same model with
dequantised weights, and if the model gives the same maps after it was saved to a folder. Exits with status 1 if a difference exceeds what the results declare.
Packages: bitsandbytes, torchao, optimum-quanto.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, QuantoConfig, TorchAoConfig

import headscope

from .unit.test_quantised import BITSANDBYTES, IDS, SHAPE, plain

# Layers that round what they are given may move a number by a step.
LIMITS = {"exact": 1e-4, "rounding": 0.1}


def ways() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Package, way, and its configuration."""
    for way, config in BITSANDBYTES.items():
        yield "bitsandbytes", way, lambda config=config: config
    if importlib.util.find_spec("torchao"):
        from torchao import quantization as torchao

        for config in (
            torchao.Int8WeightOnlyConfig(),
            torchao.Int8DynamicActivationInt8WeightConfig(),
            torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4),
            torchao.Float8WeightOnlyConfig(),
        ):
            yield "torchao", type(config).__name__.removesuffix("Config"), lambda config=config: TorchAoConfig(config)
    if importlib.util.find_spec("optimum.quanto"):
        for weights in ("int8", "int4", "float8"):
            yield "optimum-quanto", weights, lambda weights=weights: QuantoConfig(weights=weights)


def judge(source: Path, package: str, config: Any) -> dict[str, str]:
    """A row of the table."""
    options = {"quantization_config": config, "dtype": torch.float32, "device_map": "cpu"}
    module = LlamaForCausalLM.from_pretrained(source, **options)
    with tempfile.TemporaryDirectory() as folder:
        saved = _save(module, folder)  # before bitsandbytes rounds its scales, which it does when they are first used
        wanted, found = (_analysed(one) for one in (plain(module), module))
        apart = {name: np.abs(found.maps[name] - maps).max() for name, maps in wanted.maps.items()}
        apart["norm"] /= wanted.maps["norm"].max()
        rounding = package == "bitsandbytes" or any(one.code == "rounded-projection" for one in found.warnings)
        limit = LIMITS["rounding" if rounding else "exact"]
        row = {name: f"{value:.1e}{'' if value < limit else ' !'}" for name, value in apart.items()}
        if not saved:
            same = np.allclose(_analysed(folder).maps["weights"], found.maps["weights"], atol=1e-6)
            saved = "same" if same else "differs !"
        return {**row, "folder": saved}


def _analysed(model: Any) -> headscope.Analysis:
    return headscope.analyze(model, token_ids=IDS, lenses=("weights", "norm"), measures=())


def _save(module: Any, folder: str) -> str:
    """Save the model; why that is not possible, or nothing."""
    try:
        module.save_pretrained(folder)
    except Exception as error:  # noqa: BLE001 - of the package
        return f"cannot be saved: {type(error).__name__}"
    return ""


def main() -> int:
    """Returns 1 if anything is not as declared."""
    transformers.logging.set_verbosity(50)
    torch.manual_seed(0)
    wrong = False
    with tempfile.TemporaryDirectory() as folder:
        LlamaForCausalLM(LlamaConfig(**SHAPE)).save_pretrained(folder)
        print("| package | way | weights | contributions | from a folder |\n| --- | --- | --- | --- | --- |")
        for package, way, make in ways():
            try:
                row = judge(Path(folder), package, make())
            except Exception as error:  # noqa: BLE001 - a package that does not run here may raise anything
                row = {"reason": f"{type(error).__name__}: {str(error).strip()[-120:]}"}
            wrong |= any("!" in value for value in row.values())
            print("|", " | ".join([package, way, *row.values()]), "|", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
