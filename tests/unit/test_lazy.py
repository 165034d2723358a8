"""Packages are imported when they are first used, and only once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from headscope.core import lazy


def test_nothing_is_imported_before_its_first_use() -> None:
    """A fresh interpreter has none of the packages in memory after the import, and one of them after reading an attribute."""
    code = """
import sys
from headscope.core import lazy
names = {module.__name__ for module in vars(lazy).values() if isinstance(module, lazy.LazyModule)}
assert len(names) > 9
assert not names & sys.modules.keys()
assert lazy.redis.exceptions.RedisError is sys.modules["redis"].RedisError
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", [name for name in lazy.__all__ if name != "Tensor"])
def test_every_package_is_there(name: str) -> None:
    """Each stand-in has what its module has."""
    module = getattr(lazy, name)
    assert Path(module.__file__).exists()
    assert set(dir(module)) == set(dir(sys.modules[module.__name__]))


def test_classes_decorators_and_submodules() -> None:
    """What is read from the stand-in is the very thing: for isinstance, as a base class, as a decorator, in a submodule."""
    import torch

    class Twice(lazy.torch.nn.Module):
        @lazy.torch.no_grad()
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    assert isinstance(torch.ones(2), lazy.torch.Tensor)
    assert isinstance(Twice(), torch.nn.Module)
    assert not Twice()(torch.ones(2, requires_grad=True)).requires_grad
    with pytest.raises(AttributeError, match="torch"):
        _ = lazy.torch.there_is_no_such_thing


def test_threads_import_a_module_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads that need a slow module first at the same time run it once, and none sees half of it."""
    source = """
import pathlib, time
with pathlib.Path(__file__).with_suffix(".runs").open("a") as runs:
    runs.write("x")
time.sleep(0.2)
ready = True
"""
    (tmp_path / "slow_to_import.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    module, start = lazy.LazyModule("slow_to_import"), Barrier(8)

    def first_use(_: int) -> bool:
        start.wait()
        return bool(module.ready)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(first_use, range(8)))
    assert (tmp_path / "slow_to_import.runs").read_text() == "x"
    del sys.modules["slow_to_import"]
