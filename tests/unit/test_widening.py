"""Models in half precision that are too large to be widened at once: the same results as if they were, and no weight is widened while its part does not run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headscope
from headscope.models import loading, widening
from tests.support.extent import mostly_long
from tests.sweep.build import build

from .conftest import hooks
from .test_dispatch import MADE, analysed, assert_same, from_memory, made, split

IDS = [5, 17, 5, 42, 9, 23]
HALF = [torch.bfloat16, torch.float16]


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model in half precision is large, and so are all its parts."""
    monkeypatch.setattr(widening, "MOST_ADDED", 0)
    monkeypatch.setattr(widening, "LEAST", 1)


def widened_at_once(module: Any, **options: Any) -> headscope.Analysis:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(widening, "MOST_ADDED", 2**31)
        return analysed(module, **options)


def state(module: Any) -> list[Any]:
    """What an analysis might leave changed."""
    tensors = [
        (name, one.dtype, one.data_ptr(), one.requires_grad)
        for name, one in module.named_parameters(remove_duplicate=False)
    ]
    return [
        *tensors,
        *[(hooks(part), "forward" in vars(part), vars(part).get("_hf_hook")) for part in module.modules()],
    ]


@pytest.mark.parametrize(
    ("family", "dtype"),
    mostly_long(product(MADE, HALF), ("llama", torch.bfloat16), ("gpt2", torch.float16), ("dinov2", torch.bfloat16)),
)
def test_everything_is_as_if_widened_at_once(family: str, dtype: torch.dtype, large: None) -> None:
    """Every lens and measure that the family supports, and the id; afterwards the module is as it was."""
    module = made(family, dtype)
    before, wanted = state(module), widened_at_once(module)
    found = analysed(module)
    assert_same(found, wanted)
    assert found.id == wanted.id
    assert state(module) == before


def test_weights_are_wide_only_while_their_part_runs(large: None) -> None:
    """Within a layer all other weights are stand-ins of the wide type, on no device; the part that runs has its own."""
    module, seen = made("llama", torch.bfloat16), dict[str, set[tuple[str, str]]]()

    def look(part: Any, args: Any, output: Any) -> None:
        for name, one in module.named_parameters():
            seen.setdefault(name, set()).add((one.device.type, str(one.dtype)))

    handle = module.model.layers[1].register_forward_hook(look)
    headscope.analyze(headscope.load(module), token_ids=IDS, lenses=("weights", "norm"))
    handle.remove()
    assert set.union(*seen.values()) == {("meta", "torch.float32")}
    assert {one.dtype for one in module.parameters()} == {torch.bfloat16}


@pytest.mark.parametrize("bias", [False, True])
def test_linear_layers_in_blocks(bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of which three rows are widened at a time gives the product in float64, and its gradient."""
    monkeypatch.setattr(widening, "BLOCK", 3 * 40)
    torch.manual_seed(0)
    part = torch.nn.Linear(40, 50, bias, dtype=torch.bfloat16)
    vectors, weight = torch.randn(2, 7, 40, requires_grad=True), part.weight.detach().double()
    with widening.widened([part], torch.float32):
        found = part(vectors)
    found.square().sum().backward()
    expected = vectors.detach().double() @ weight.mT + (part.bias.detach().double() if bias else 0)
    np.testing.assert_allclose(found.detach(), expected, atol=1e-5)
    np.testing.assert_allclose(vectors.grad, 2 * expected @ weight, atol=1e-4)
    assert part.weight.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
@pytest.mark.parametrize("family", ["mobilebert", "jetmoe"])
def test_a_model_that_reaches_into_other_modules(family: str, large: None) -> None:
    """It uses a weight while the module that holds it does not run, and is therefore widened at once."""
    module = build(family).module.to(torch.bfloat16)
    found = headscope.analyze(module, token_ids=IDS, lenses=("weights",))
    wanted = headscope.analyze(copy.deepcopy(module).float(), token_ids=IDS, lenses=("weights",))
    np.testing.assert_allclose(found.maps["weights"], wanted.maps["weights"], atol=1e-6)


@pytest.mark.parametrize(
    "method",
    mostly_long(
        ["contribution", "ablation", "attribution-patching", "gradient-attention", "integrated-gradients"],
        "ablation",
        "integrated-gradients",
    ),
)
def test_effects(method: str, large: None) -> None:
    """Of heads on a logit, with gradients too."""
    module, options = made("llama", torch.bfloat16), {"target": 7, "method": method}
    if method == "attribution-patching":
        options["against"] = [5, 17, 8, 42, 9, 23]
    found = headscope.effect(headscope.load(module), token_ids=IDS, **options)
    wanted = headscope.effect(headscope.load(copy.deepcopy(module).float()), token_ids=IDS, **options)
    np.testing.assert_allclose(found.effects, wanted.effects, atol=1e-5 * np.abs(wanted.effects).max())


def test_large_folders_keep_their_type(tmp_path: Path, large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights stored in half precision stay so in memory, unless float32 adds little; float32 never becomes narrower."""
    module = made("llama", torch.bfloat16)
    module.save_pretrained(tmp_path / "narrow")
    made("llama").save_pretrained(tmp_path / "wide")
    loaded = headscope.load(tmp_path / "narrow")
    assert loaded.module.dtype == torch.bfloat16
    assert headscope.load(tmp_path / "wide").module.dtype == torch.float32
    found = headscope.analyze(loaded, token_ids=IDS, lenses=("weights", "alti"))
    monkeypatch.setattr(widening, "MOST_ADDED", 2**31)
    wide = headscope.load(tmp_path / "narrow")
    assert wide.module.dtype == torch.float32
    wanted = headscope.analyze(wide, token_ids=IDS, lenses=("weights", "alti"))
    assert_same(found, wanted)
    assert found.id == wanted.id
    added = 2 * sum(one.numel() for one in module.parameters())
    for most, dtype in ((added, "float32"), (added - 1, "bfloat16")):
        monkeypatch.setattr(widening, "MOST_ADDED", most)
        assert loading.kept_dtype(tmp_path / "narrow", "float32") == dtype


@pytest.mark.parametrize("dispatch", mostly_long([from_memory, split], split))
def test_parts_elsewhere_are_widened_on_their_way(dispatch: Callable[..., Any], large: None, tmp_path: Path) -> None:
    """Weights in memory by their own hook, offloaded ones by accelerate's."""
    module = dispatch("llama", made("llama", torch.bfloat16), tmp_path)
    assert_same(analysed(module), widened_at_once(made("llama", torch.bfloat16)))
    assert {one.dtype for one in module.parameters()} == {torch.bfloat16}
