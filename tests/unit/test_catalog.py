"""What is a model of a model folder, and what only looks like one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.errors import Unknown
from headscope.models.catalog import Catalog
from headscope.settings import Settings


@pytest.mark.parametrize("name", ["loop", "linked", "file", "away", "a" + "\u6f22" * 95])
def test_what_is_no_model_is_unknown(tmp_path: Path, name: str) -> None:
    """A loop of links, a link that leaves the folder, a file, and a name of 286 bytes; the models beside them are listed."""
    models = tmp_path / "models"
    for folder in (models / "good", models / "linked", tmp_path / "outside"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (models / "loop").symlink_to("loop")
    (models / "linked" / "weights").symlink_to("weights")
    (models / "away").symlink_to(tmp_path / "outside")
    (models / "file").write_text("")
    catalog = Catalog(Settings(model_dirs=(models,), home=tmp_path / "home", hub="off"))
    assert "good" in catalog.names()
    with pytest.raises(Unknown):
        catalog.locate(name)


def test_models_that_are_loaded_in_advance(tmp_path: Path) -> None:
    """The default model, and what was installed as a package; or those of the setting, in its order."""
    settings = Settings(home=tmp_path / "home", hub="off")
    catalog = Catalog(settings)
    assert catalog.preloaded() == ["minilm"]
    installed = catalog.installed("smollm2")
    installed.mkdir(parents=True)
    (installed / "config.json").write_text("{}")
    assert catalog.preloaded() == ["minilm", "smollm2"]
    assert Catalog(settings.model_copy(update={"preload": ("bert", "minilm")})).preloaded() == ["bert", "minilm"]
