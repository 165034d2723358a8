"""constraints.txt pins every package that pyproject.toml names, to a version in its range."""

from __future__ import annotations

import itertools
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.compose import ROOT

# The builds of torch differ between machines; its range in pyproject.toml is narrow.
FREE = {"headscope", "torch"}


def test_pins_every_dependency() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    versions = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = itertools.chain(project["dependencies"], *project["optional-dependencies"].values())
    for requirement in map(Requirement, named):
        if requirement.name not in FREE:
            assert versions[canonicalize_name(requirement.name)] in requirement.specifier, requirement
    assert not FREE & set(versions)
