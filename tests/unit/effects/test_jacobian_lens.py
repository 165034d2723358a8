"""The Jacobian lens of heads' outputs: against matrices and norms by hand in float64, from the files that it is stored in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import headscope
from headscope.errors import InvalidRequest
from tests.support.commands import run
from tests.support.extent import mostly_long

from ..conftest import TINY, VOCABULARY
from .reference import Recorded, chain
from .test_contribution import TOKENS, _t5, perturbed
from .test_writes import arrays, writes

PLACE = 3


def lens(layers: int) -> dict[int, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {layer: torch.randn((32, 32), generator=generator) for layer in range(layers)}


def by_hand(family: str, module: Any, matrices: dict[int, torch.Tensor]) -> Any:
    """What each head adds to all logits after the matrix of its layer, [L, H, V]."""
    r = Recorded(module, input_ids=TOKENS)
    if family == "bert":
        head = "cls.predictions.transform"
        gelu = r.read[f"{head}.LayerNorm"][0][PLACE] / r.wrote[f"{head}.dense"][0][PLACE]
        end = chain(
            lambda c: gelu * (r.weight(f"{head}.dense.weight") @ c),
            r.norm(f"{head}.LayerNorm", PLACE, "layer", module.config.layer_norm_eps),
            lambda c: r.weight("cls.predictions.decoder.weight") @ c,
        )
        projections = [f"bert.encoder.layer.{i}.attention.output.dense" for i in range(3)]
        norms = [f"bert.encoder.layer.{i}.{one}" for i in range(3) for one in ("attention.output", "output")]
        after = [r.norm(f"{one}.LayerNorm", PLACE, "layer", module.config.layer_norm_eps) for one in norms]
        own = [chain(*after[2 * i : 2 * i + 2]) for i in range(3)]
    else:
        gpt = family == "gpt2"
        stack, norm = ("transformer.h", "transformer.ln_f") if gpt else ("model.layers", "model.norm")
        kind, epsilon = ("layer", 1e-5) if gpt else ("rms", module.config.rms_norm_eps)
        end = chain(r.norm(norm, PLACE, kind, epsilon), lambda c: r.weight("lm_head.weight") @ c)
        projections = [f"{stack}.{i}.{'attn.c_proj' if gpt else 'self_attn.o_proj'}" for i in range(3)]
        own = [chain()] * 3
    found = []
    for layer, name in enumerate(projections):
        matrix = matrices.get(layer, torch.eye(32)).double().numpy()
        heads = r.heads(name, PLACE, 4, transposed=family == "gpt2")
        found.append([end(matrix @ own[layer](o)) for o in heads])
    return np.array(found)


@pytest.mark.parametrize("family", mostly_long(TINY, "bert", "llama"))
def test_is_the_matrix_of_the_layer_between_the_head_and_the_logits(family: str) -> None:
    """After what the layer itself makes of the head's output; the output of the last layer needs no matrix."""
    torch.manual_seed(0)
    module, matrices = perturbed(TINY[family]()), lens(2)
    given: dict[str, Any] = {"token_ids": TOKENS, "position": PLACE, "method": writes(VOCABULARY // 2)}
    e = headscope.effect(module, **given, jacobian_lens=matrices)
    ids, logits = arrays(e)
    expected = by_hand(family, module, matrices)
    scale = np.abs(expected).max((1, 2), keepdims=True)
    np.testing.assert_allclose(logits / scale, np.take_along_axis(expected, ids, -1) / scale, rtol=1e-4, atol=1e-4)
    plain = headscope.effect(module, **given)
    np.testing.assert_array_equal(e.effects, plain.effects)
    if family != "bert":  # whose later layers normalise what they are given
        same = headscope.effect(module, **given, jacobian_lens={layer: torch.eye(32) for layer in range(3)})
        np.testing.assert_allclose(arrays(same)[1], arrays(plain)[1], atol=1e-5 * np.abs(arrays(plain)[1]).max())


def test_files(tmp_path: Path) -> None:
    """From Python and on the command line."""
    torch.manual_seed(0)
    module, matrices = TINY["llama"](), lens(2)
    half = {layer: one.half() for layer, one in matrices.items()}
    save_file({f"J_{layer}": one for layer, one in half.items()}, tmp_path / "lens.safetensors")
    expected = headscope.effect(module, token_ids=TOKENS, method=writes(3), jacobian_lens=half)
    e = headscope.effect(module, token_ids=TOKENS, method=writes(3), jacobian_lens=tmp_path / "lens.safetensors")
    assert e.writes == expected.writes
    model = headscope.load("twin-gpt-softmax")
    width = model.module.config.hidden_size
    save_file({f"J_{layer}": torch.zeros(width, width) for layer in range(6)}, tmp_path / "zero.safetensors")
    given = ["effect", "The keys", "-m", "twin-gpt-softmax", "--method", "contribution:writes=1"]
    ended = run(tmp_path / "home", *given, "--jacobian-lens", str(tmp_path / "zero.safetensors"), "--json")
    assert ended.returncode == 0, ended.stderr
    assert '"logit": 0.0' in ended.stdout


def test_refusals(tmp_path: Path) -> None:
    """Other files, matrices of another width, layers without one, and methods that read no logits."""
    gpt2, nothing = headscope.load(TINY["gpt2"]()), tmp_path / "lens.pt"
    nothing.write_bytes(b"no lens")
    torch.save({"J": lens(3)}, tmp_path / "pickled.pt")
    save_file({"weight": torch.eye(32)}, tmp_path / "other.safetensors")
    for match, given in (
        ("no file of a Jacobian lens", nothing),
        ("no file of a Jacobian lens", tmp_path / "pickled.pt"),
        ("square matrix", tmp_path / "other.safetensors"),
        ("no file of a Jacobian lens", tmp_path / "missing.safetensors"),
        ("square matrix", {0: torch.eye(31), 1: torch.eye(32)}),
        ("square matrix", {0: "x"}),
        ("square matrix", dict.fromkeys(range(3), torch.eye(32, dtype=torch.complex64))),
        ("square matrix", dict.fromkeys(range(3), 1e300 * torch.eye(32, dtype=torch.float64))),
        ("a file, or a matrix by layer", list(lens(3).values())),
        ("a file, or a matrix by layer", b"lens.safetensors"),
        ("lacks matrices", {1: torch.eye(32)}),
    ):
        with pytest.raises(InvalidRequest, match=match):
            headscope.effect(gpt2, token_ids=TOKENS, method=writes(3), jacobian_lens=given)
    for method in ("contribution", "ablation"):
        with pytest.raises(InvalidRequest, match="reads what heads write"):
            headscope.effect(gpt2, token_ids=TOKENS, method=method, jacobian_lens=lens(3))
    with pytest.raises(InvalidRequest, match="other attention"):
        headscope.effect(_t5(), token_ids=TOKENS, target_ids=[0, 9], method=writes(3), jacobian_lens=lens(3))
