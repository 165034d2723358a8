"""The rules of the tree: imports, forbidden calls, length of files, freshness of generated files."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from headscope.api.openapi import document

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "backend" / "headscope"
FILES = sorted(PACKAGE.rglob("*.py"))

PURE = {"effects", "mechanisms", "lenses", "measures"}
# Pure rooms compute; they neither read nor write anything.
IMPURE = {"transformers", "io", "os", "pathlib", "socket", "subprocess", "sqlite3", "urllib", "httpx", "logging"}
BANNED_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "kernels"}
BANNED_CALLS = {"torch.load", "os.system", "os.popen", "eval", "exec", "np.load", "numpy.load"}
BANNED_ARGUMENTS = {"allow_pickle", "trust_remote_code", "shell"}


@dataclass(frozen=True)
class Import:
    """One imported module: its dotted name, and the line."""

    module: str
    line: int


def name_of(path: Path) -> str:
    """Return `models/catalog` for backend/headscope/models/catalog.py."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return every import of a file, wherever it stands."""
    parts = ("headscope", *path.relative_to(PACKAGE).with_suffix("").parts)
    found = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*parts[: len(parts) - node.level], *filter(None, [node.module])] if node.level else [node.module]
            names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        found += [Import(name, node.lineno) for name in names]
    return tuple(found)


def test_contracts_of_imports() -> None:
    """The contracts in pyproject.toml hold: which package may import which, and that no import is circular."""
    linter = Path(sys.executable).with_name("lint-imports")
    shown = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stdout


def test_transformers_stay_in_few_places() -> None:
    """Only capture, the modules that load models and read their processors' outputs, and the callback of its Trainer import transformers."""
    places = (
        "capture/",
        "models/loading",
        "models/processors",
        "models/image_layout",
        "library/training_statistics",
    )
    allowed = {path for path in FILES if name_of(path).startswith(places)}
    assert importing("transformers") <= allowed


def test_mathematics_is_pure() -> None:
    """Effects, mechanisms, lenses and measures touch no file, no network, no setting."""
    files = [path for path in FILES if name_of(path).split("/")[0] in PURE]
    assert not set(files) & set().union(*map(importing, IMPURE))
    assert not [path for path in files if "open" in called(path)]


def test_only_settings_read_the_environment() -> None:
    """No other file looks at environment variables."""
    reads = {"os.environ", "os.environb", "os.getenv", "os.putenv"}
    for path in (path for path in FILES if path.name != "settings.py"):
        names = {ast.unparse(node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}
        assert not names & reads, path
        assert not {found.module for found in imports(path)} & reads, path


def test_nothing_runs_code_from_data() -> None:
    """No pickles, no remote code, no shell, no eval; no switch that would allow one of them."""
    assert not set().union(*map(importing, BANNED_MODULES))
    for path in FILES:
        assert not called(path) & BANNED_CALLS, path
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.keyword) and node.arg in BANNED_ARGUMENTS:
                assert isinstance(node.value, ast.Constant), f"{path}:{node.value.lineno} must be a plain False"
                assert node.value.value is False, f"{path}:{node.value.lineno} sets {node.arg}"


def test_no_security_by_assert() -> None:
    """Assertions vanish under python -O; the only ones here tell the type checker what a handler is registered for."""
    for path in FILES:
        found = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Assert)]
        assert (
            all("isinstance(error," in ast.unparse(node.test) for node in found) or name_of(path).split("/")[0] in PURE
        )


def test_names_of_classes_are_unique() -> None:
    """Class names are unique in the package."""
    names = Counter(node.name for path in FILES for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef))
    assert not [name for name, count in names.items() if count > 1]


def importing(module: str) -> set[Path]:
    """Return the files that import a module or a part of it, wherever in the file."""
    return {path for path in FILES if any(f"{found.module}.".startswith(f"{module}.") for found in imports(path))}


@cache
def called(path: Path) -> set[str]:
    """Return the dotted names of all calls."""
    return {ast.unparse(node.func) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)}


@cache
def printed() -> list[str]:
    """Return what a fresh interpreter prints.

    That is the packages that it has in memory once it has imported what reads files of data sets, then the library, then used a page without a server, then imported the
    server; and what importing the engine did.
    """
    code = """
import gc, sys
shown = lambda: print(*{name.partition(".")[0] for name in sys.modules})
import headscope.studies.data.sandbox
shown()
import headscope, headscope.settings
headscope.settings, headscope.analyze, headscope.load, headscope.open
shown()
headscope.show
shown()
import headscope.api.app
shown()
import torch
asked = []
for module, names in ((torch.cuda, ("is_available", "device_count", "init", "_lazy_init")), (torch.accelerator, ("is_available", "device_count"))):
    for name in names:
        setattr(module, name, lambda *_, name=name: asked.append(name))
torch.cuda.is_available()
import headscope.worker.preload
print(asked, gc.isenabled(), len(gc.get_objects()) < 1000 < gc.get_freeze_count())
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    return shown.splitlines()


def loaded(step: int) -> set[str]:
    """Return the packages in memory after that import."""
    return set(printed()[step].split())


def test_reading_files_begins_soon() -> None:
    """The process that reads a file of a data set, one for every preview, imports little before it does."""
    assert "headscope" in loaded(0)
    assert not loaded(0) & {"numpy", "pydantic", "tokenizers", "pyarrow"}


def test_importing_the_server_loads_no_torch() -> None:
    """A fresh interpreter that imports the application has neither torch nor transformers in memory."""
    assert "fastapi" in loaded(3)
    assert not loaded(3) & {"torch", "transformers"}


def test_importing_the_engine_leaves_cuda_alone() -> None:
    """A process that preloads the engine does not ask for a GPU, which its children could not use then; it collects garbage, but not imports."""
    assert printed()[4] == "['is_available'] True True"  # asked by the test itself


def test_importing_the_library_loads_no_heavy_package() -> None:
    """A fresh interpreter that imports headscope, and names its functions, has none of the packages in memory that take long to load."""
    assert "headscope" in loaded(1)
    assert not loaded(1) & {"celery", "fastapi", "plotly", "redis", "torch", "transformers"}


def test_the_library_loads_no_web_framework() -> None:
    """headscope.show builds a page from the API's documents without FastAPI."""
    assert not loaded(2) & {"fastapi", "starlette"}


def test_no_file_is_too_long() -> None:
    """450 lines at most, in every language of the tree."""
    places = [(folder, ".py") for folder in (PACKAGE, ROOT / "models", ROOT / "tests", ROOT / "benchmarks")]
    places += [
        (ROOT / "frontend" / folder, ext)
        for folder in ("src", "gallery", "tests")
        for ext in (".ts", ".svelte", ".css")
    ]
    generated = {ROOT / "frontend" / "src" / "api" / "schema.ts"}
    long = {}
    for folder, ext in places:
        for path in set(folder.rglob(f"*{ext}")) - generated:
            count = len(path.read_text("utf-8").splitlines())
            if count > 450:
                long[path.relative_to(ROOT).as_posix()] = count
    assert not long


def test_no_function_is_too_long() -> None:
    """70 lines at most, its docstring included."""
    found = [
        (path.name, node.name, (node.end_lineno or 0) - node.lineno + 1)
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    assert not [one for one in found if one[2] > 70]


# Their tests are all long; CONTRIBUTING.md says which tests of `make test` hold the same.
LONG_FILES = {"browser/test_identity.py", "faults/test_chaos.py", "faults/test_one_worker.py"}


def test_no_file_falls_out_of_make_test() -> None:
    """Every file with long tests has others, or is on the list above."""
    tests = ROOT / "tests"
    without = set()
    for path in tests.rglob("test_*.py"):
        text = path.read_text("utf-8")
        nodes = ast.parse(text).body if "mark.long" in text else []
        shown = [
            ast.unparse(one.value)
            for one in nodes
            if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "pytestmark"
        ]
        functions = [one for one in nodes if isinstance(one, ast.FunctionDef) and one.name.startswith("test_")]
        long = [one for one in functions if "pytest.mark.long" in map(ast.unparse, one.decorator_list)]
        if functions and (len(long) == len(functions) or any("pytest.mark.long" in one for one in shown)):
            without.add(path.relative_to(tests).as_posix())
    assert without == LONG_FILES


def test_openapi_document_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's OpenAPI document is up to date (else: make types)."""
    for name in [name for name in os.environ if name.startswith("HEADSCOPE_")]:
        monkeypatch.delenv(name)
    printed = json.dumps(document(), indent=1, sort_keys=True) + "\n"
    assert printed == (ROOT / "frontend" / "src" / "api" / "openapi.json").read_text("utf-8")
