"""The rules of the tree: who imports whom, what nobody may call, how long a file may be, and that generated files are fresh."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "backend" / "headscope"
FILES = sorted(PACKAGE.rglob("*.py"))

NOUNS = {
    "_version",
    "types",
    "declarations",
    "errors",
    "settings",
    "logs",
    "adjacency",
    "words",
    "alignment",
    "database",
    "csvtext",
    "streams",
}
PURE = {"mechanisms", "lenses", "measures"}
ROOMS = PURE | {"models", "capture", "store", "jobs"}
PIPELINE = {"analysis", "caveats", "collector", "result", "study", "figures"}
ROOTS = {
    "library",
    "arguments",
    "worker",
    "parts",
    "home",
    "admission",
    "runtime",
    "datasets",
    "studies",
    "attentions",
    "comparison",
    "training",
    "limiters",
}
# Room -> what it may import, beside itself.
MAY_IMPORT = {
    "_version": set(),
    "types": set(),
    "declarations": {"types"},
    "errors": set(),
    "settings": {"errors"},
    "logs": {"errors"},
    "adjacency": set(),
    "database": {"errors"},
    "csvtext": set(),
    "streams": set(),
    "words": {"types", "errors"},
    "alignment": {"types", "errors", "words"},
    **{room: {"types", "declarations", "errors", "adjacency"} for room in PURE},
    "models": NOUNS | {"mechanisms"},
    "capture": NOUNS | {"models", "mechanisms"},
    "store": {"types", "errors", "database", "csvtext", "streams"},
    "jobs": {"types", "errors", "database"},
    "query": NOUNS | PURE,
    "accounts": {"errors"},
    "request": NOUNS | PURE | {"models"},
    "budget": NOUNS | PURE | {"models", "request"},
    **{room: NOUNS | ROOMS | {"request", "budget"} | PIPELINE for room in PIPELINE},
    "study": NOUNS | ROOMS | {"request", "budget", "query"} | PIPELINE,
    **{room: NOUNS | ROOMS | {"request", "budget", "query"} | PIPELINE | ROOTS for room in ROOTS},
    **dict.fromkeys(
        ("api", "cli", "commands", "client", "widget", "terminal", "__main__"),
        NOUNS
        | ROOMS
        | {"accounts", "request", "budget", "query", "api", "cli", "commands", "outside", "terminal"}
        | PIPELINE
        | ROOTS,
    ),
    "outside": {"errors", "settings", "accounts", "home"},
    "__init__": NOUNS | PURE | {"models", "query", "widget"} | PIPELINE | ROOTS,
}
# Rooms of the server's own process: torch and transformers may be imported inside a function there at most.
LIGHT = NOUNS | {
    "accounts",
    "api",
    "cli",
    "commands",
    "outside",
    "terminal",
    "runtime",
    "datasets",
    "studies",
    "limiters",
    "request",
    "budget",
    "figures",
    "query",
    "jobs",
    "store",
    "__init__",
    "__main__",
}
LIGHT_FILES = {
    f"models/{name}"
    for name in ("__init__", "catalog", "facts", "families", "generation", "images", "safety", "support", "tokens")
}
HEAVY = {"torch", "transformers"}
# Pure rooms compute; they neither read nor write anything.
IMPURE = {"transformers", "io", "os", "pathlib", "socket", "subprocess", "sqlite3", "urllib", "httpx", "logging"}
BANNED_MODULES = {"pickle", "cPickle", "dill", "joblib", "marshal", "shelve", "kernels"}
BANNED_CALLS = {"torch.load", "os.system", "os.popen", "eval", "exec", "np.load", "numpy.load"}
BANNED_ARGUMENTS = {"allow_pickle", "trust_remote_code", "shell"}


@dataclass(frozen=True)
class Import:
    """One imported module: its dotted name, whether it is ours, and whether it is imported when the file is."""

    module: str
    ours: bool
    at_load: bool
    line: int


def name_of(path: Path) -> str:
    """`models/catalog` for backend/headscope/models/catalog.py."""
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file, wherever it stands."""
    parts = ("headscope", *path.relative_to(PACKAGE).with_suffix("").parts)
    for node, at_load in walk(tree_of(path), at_load=True):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*parts[: len(parts) - node.level], *filter(None, [node.module])] if node.level else [node.module]
            names = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        for name in names:
            ours = name.startswith("headscope")
            yield Import(name.removeprefix("headscope.") if ours else name, ours, at_load, node.lineno)


def walk(node: ast.AST, *, at_load: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it runs when the file is imported: not in a function, not for type checkers only."""
    for child in ast.iter_child_nodes(node):
        typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
        inside = at_load and not typing_only and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        yield child, inside
        yield from walk(child, at_load=inside)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_follow_the_layers(path: Path) -> None:
    """A room imports only from the rooms below it."""
    room = name_of(path).split("/")[0]
    allowed = MAY_IMPORT[room] | {room, "headscope", "__version__"}
    wrong = [
        f"{path.name}:{found.line} imports {found.module}"
        for found in imports(path)
        if found.ours and found.module.split(".")[0] not in allowed
    ]
    assert not wrong


# Folders of study: what each may import of ours, beside itself. Data sets know no study; what is read of a study does not compute one.
STUDY_MAY_IMPORT = {
    "data": {"errors", "models"},
    "results": {"errors", "csvtext", "streams", "lenses", "measures", "query", "figures", "study.sequences"},
}


@pytest.mark.parametrize("folder", STUDY_MAY_IMPORT)
def test_a_study_has_three_parts(folder: str) -> None:
    """Rows of files, the computation, and what is read of it."""
    allowed = STUDY_MAY_IMPORT[folder] | {f"study.{folder}"}
    files = [path for path in FILES if name_of(path).startswith(f"study/{folder}/")]
    assert files
    wrong = [
        f"{name_of(path)}:{found.line} imports {found.module}"
        for path in files
        for found in imports(path)
        if found.ours and not any(f"{found.module}.".startswith(f"{one}.") for one in allowed)
    ]
    assert not wrong


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_transformers_stay_in_two_places(path: Path) -> None:
    """Only models/loading and capture use transformers."""
    name = name_of(path)
    if name == "models/loading" or name.startswith("capture/"):
        return
    assert not [found for found in imports(path) if found.module.split(".")[0] == "transformers"]


@pytest.mark.parametrize("path", [p for p in FILES if name_of(p).split("/")[0] in PURE], ids=name_of)
def test_mathematics_is_pure(path: Path) -> None:
    """Mechanisms, lenses and measures touch no file, no network, no setting."""
    assert not [found for found in imports(path) if found.module.split(".")[0] in IMPURE | {"settings"}]
    assert "open" not in called(path)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_the_server_process_stays_light(path: Path) -> None:
    """Nothing that the server imports imports torch or transformers when it is loaded."""
    name = name_of(path)
    if name.split("/")[0] not in LIGHT and name not in LIGHT_FILES:
        return
    assert not [found for found in imports(path) if found.at_load and found.module.split(".")[0] in HEAVY]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_only_settings_read_the_environment(path: Path) -> None:
    """No other file looks at environment variables."""
    names = {ast.unparse(node) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}
    assert not names & {"os.environ", "os.environb", "os.getenv", "os.putenv"}
    assert not [found for found in imports(path) if found.module in ("os.environ", "os.getenv", "os.environb")]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_runs_code_from_data(path: Path) -> None:
    """No pickles, no remote code, no shell, no eval; no switch that would allow one of them."""
    assert not [found for found in imports(path) if found.module.split(".")[0] in BANNED_MODULES]
    assert not called(path) & BANNED_CALLS
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.keyword) and node.arg in BANNED_ARGUMENTS:
            assert isinstance(node.value, ast.Constant), f"{path.name}:{node.value.lineno} must be a plain False"
            assert node.value.value is False, f"{path.name}:{node.value.lineno} sets {node.arg}"


@pytest.mark.parametrize("path", [p for p in FILES if name_of(p).split("/")[0] not in PURE], ids=name_of)
def test_no_security_by_assert(path: Path) -> None:
    """Assertions vanish under python -O; the only ones here tell the type checker what a handler is registered for."""
    found = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Assert)]
    assert all("isinstance(error," in ast.unparse(node.test) for node in found)


def called(path: Path) -> set[str]:
    """Dotted names of everything that is called."""
    return {ast.unparse(node.func) for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)}


def test_importing_the_server_loads_no_torch() -> None:
    """A fresh interpreter that imports the application has neither torch nor transformers in memory."""
    code = "import sys, headscope.api.app; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


def test_no_file_is_too_long() -> None:
    """450 lines at most, in every language of the tree."""
    places = [(folder, ".py") for folder in (PACKAGE, ROOT / "models", ROOT / "tests", ROOT / "benchmarks")]
    places += [(ROOT / "frontend" / folder, ext) for folder in ("src", "tests") for ext in (".ts", ".svelte", ".css")]
    generated = {ROOT / "frontend" / "src" / "api" / "schema.ts"}
    long = {}
    for folder, ext in places:
        for path in set(folder.rglob(f"*{ext}")) - generated:
            count = len(path.read_text("utf-8").splitlines())
            if count > 450:
                long[path.relative_to(ROOT).as_posix()] = count
    assert not long


def test_openapi_document_is_fresh() -> None:
    """The page's types are made from what the server says of itself today (else: make types)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADSCOPE_")}
    command = [sys.executable, "-m", "headscope.api.openapi"]
    printed = subprocess.run(command, capture_output=True, check=True, env=environment).stdout
    assert printed == (ROOT / "frontend" / "src" / "api" / "openapi.json").read_bytes()
