"""Code for a GPU, without one: tensors keep to their device, and results are those of the CPU. With a GPU: `make gpu`."""

from __future__ import annotations

import pytest

from tests.support.accelerator import Accelerator, on_gpu
from tests.support.extent import mostly_long

from .compare import SAME, cases, differences


@pytest.mark.parametrize("name", mostly_long(["bert", "llama"], "bert"))
def test_nothing_mixes_devices(name: str) -> None:
    """Every mechanism, lens, measure and effect."""
    with Accelerator():
        found = [one for case in cases(on_gpu, [name]) for one in differences(case, (SAME,), ())]
    assert {f"{one.case}, {one.method}": one.wrong for one in found if one.wrong} == {}
    assert sum(not one.refused for one in found) > len(found) / 2
