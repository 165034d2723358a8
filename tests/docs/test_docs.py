"""The docs match the code: names, defaults, help, links, examples. No test needs a network."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from safetensors import safe_open

import headscope
from headscope import errors
from headscope.api.schemas.analyses import AnalysisDocument
from headscope.cli.main import COMMANDS
from headscope.effects import EFFECTS
from headscope.figures import FIGURES
from headscope.figures.studies import STUDY_FIGURES
from headscope.lenses import LENSES
from headscope.measures import MEASURES
from headscope.mechanisms import MECHANISMS
from headscope.settings import Settings
from tests.support.commands import run
from tests.support.extent import mostly_long
from tests.support.server import Server

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
ADDRESS = "http://127.0.0.1:8000"
FENCE = re.compile(r"(?:^<!-- (?P<note>[^\n]*) -->\n)?^```(?P<lang>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


def _module(path: Path):
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate, live = _module(DOCS / "generate.py"), _module(DOCS / "live.py")


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _text(*parts: str) -> str:
    return DOCS.joinpath(*parts).read_text("utf-8")


# What the code has, the docs have


def test_every_setting_is_in_the_table(subtests):
    for name in Settings.model_fields:
        with subtests.test(name=name):
            assert f"| `HEADSCOPE_{name.upper()}` |" in _text("reference", "settings.md")


def _raised() -> set[str]:
    codes, classes = set(), [errors.HeadscopeError]
    while classes:
        cls = classes.pop()
        classes += cls.__subclasses__()
        codes.add(cls.code)
    return codes | set(generate.codes())


def test_every_error_code_has_a_page(subtests):
    for code in sorted(_raised()):
        with subtests.test(code=code):
            page = _text("reference", "errors", f"{code}.md")
            assert page.startswith(f"# {code}\n")
            for heading in ("Symptom", "Cause", "Fix"):
                body = re.search(rf"^## {heading}\n\n(.+?)(?=\n## |\Z)", page, re.MULTILINE | re.DOTALL)
                assert body, heading
                assert body[1].strip()


def test_no_page_for_a_code_that_is_gone():
    assert {path.stem for path in (DOCS / "reference" / "errors").glob("*.md")} - {"index"} == _raised()


def test_codes_are_found_in_the_source():
    """The kinds of unknown things are read from the source; this fails if that stops working."""
    for what in ("model", "lens", "measure", "mechanism", "layer", "head", "analysis", "query", "key"):
        assert f"unknown-{what}" in generate.codes()
    assert {"wrong-host", "cross-site", "not-found", "bad-request"} <= set(generate.codes())


FOLDERS = {"lenses": LENSES, "mechanisms": MECHANISMS, "measures": MEASURES, "effects": EFFECTS}
KINDS = {"lenses": "lens", "mechanisms": "mechanism", "measures": "measure", "effects": "effect"}
DECLARED = [(folder, name) for folder, known in FOLDERS.items() for name in known]


def test_every_lens_mechanism_measure_and_effect_has_a_page(subtests):
    for folder, name in DECLARED:
        with subtests.test(folder=folder, name=name):
            page = _text("explanation", folder, f"{name}.md")
            kind = KINDS[folder]
            assert f"<!-- generated: declaration:{kind}/{name} -->" in page
            for heading in ("Equation", "What it is not", "Edge cases", "Where published code goes wrong", "Source"):
                assert f"\n## {heading}\n" in page
            assert 'class="equation"' in page
            known = FOLDERS[folder][name].params.model_fields
            assert (f"## Parameters\n\n<!-- generated: parameters:{kind}/{name} -->" in page) == bool(known)
            assert re.search(rf"!\[[^\]]{{10,}}\]\(\.\./\.\./pictures/{name}\.svg\)", page), "a picture, in words too"
            assert f"explanation/{folder}/{name}.md" in (ROOT / "mkdocs.yml").read_text("utf-8")


def test_every_figure_has_a_page(subtests):
    for name in FIGURES:
        with subtests.test(name=name):
            page = _text("explanation", "figures", f"{name}.md")
            assert f"<!-- generated: declaration:figure/{name} -->" in page
            for heading in ("How it is drawn", "Edge cases"):
                assert f"\n## {heading}\n" in page
            known = FIGURES[name].params.model_fields
            assert (f"## Parameters\n\n<!-- generated: parameters:figure/{name} -->" in page) == bool(known)
            assert f"explanation/figures/{name}.md" in (ROOT / "mkdocs.yml").read_text("utf-8")
            assert re.search(rf"!\[[^\]]{{10,}}\]\(\.\./\.\./pictures/figure-{name}\.png\)", page), (
                "a picture, in words too"
            )


def test_every_figure_of_studies_has_a_page(subtests):
    for name in STUDY_FIGURES:
        with subtests.test(name=name):
            page = _text("explanation", "figures", "studies", f"{name}.md")
            assert f"<!-- generated: declaration:study-figure/{name} -->" in page
            for heading in ("How it is drawn", "Edge cases"):
                assert f"\n## {heading}\n" in page
            known = STUDY_FIGURES[name].params.model_fields
            assert (f"## Parameters\n\n<!-- generated: parameters:study-figure/{name} -->" in page) == bool(known)
            assert f"explanation/figures/studies/{name}.md" in (ROOT / "mkdocs.yml").read_text("utf-8")
            assert re.search(rf"!\[[^\]]{{10,}}\]\(\.\./\.\./\.\./pictures/study-figure-{name}\.png\)", page), (
                "a picture, in words too"
            )


def test_generated_parts_are_as_the_code_would_have_them(subtests):
    for path in generate.pages():
        with subtests.test(path=path):
            page = path.read_text("utf-8")
            assert generate.render(page) == page, "run: python docs/generate.py"


def test_help_in_the_docs_is_the_real_help(subtests, tmp_path):
    for command in ["", *sorted(COMMANDS)]:
        with subtests.test(command=command):
            words = [command] if command else []
            real = run(tmp_path, *words, "--help").stdout
            title = " ".join(["headscope", *words, "--help"])
            shown = re.search(rf"```text\n\$ {title}\n(.*?)```", _text("reference", "cli.md"), re.DOTALL)
            # click breaks lines differently from version to version.
            assert shown[1].split() == real.split()


@pytest.fixture(scope="module")
def minilm_document(tmp_path_factory):
    """The document of a saved analysis."""
    path = tmp_path_factory.mktemp("format") / "a.safetensors"
    headscope.analyze("minilm", "The cat sat.").save(path)
    with safe_open(path, framework="numpy") as file:
        return json.loads(file.metadata()["headscope"])


def test_every_field_of_an_analysis_is_described(subtests):
    for field in AnalysisDocument.model_fields:
        with subtests.test(field=field):
            table = _text("reference", "rest.md").partition("## What is answered")[2].partition("## Tensors")[0]
            assert re.search(rf"^\|[^|]*`{field}`[^|]*\|", table, re.MULTILINE)


def test_every_field_of_a_file_is_described(minilm_document):
    table = _text("reference", "format.md").partition("`headscope`: a JSON")[2]
    missing = [name for name in minilm_document if not re.search(rf"^\|[^|]*`{name}`[^|]*\|", table, re.MULTILINE)]
    assert missing == []


def test_every_warning_is_described():
    sources = [path.read_text("utf-8") for path in (ROOT / "backend" / "headscope").rglob("*.py")]
    codes = {code for source in sources for code in re.findall(r'ResultWarning\(\s*"([a-z-]+)"', source)}
    assert codes
    assert codes == set(re.findall(r"^## ([a-z-]+)$", _text("reference", "warnings.md"), re.MULTILINE))


def test_tree_in_the_readme_is_the_repository():
    tree = re.search(r"## What is where\n\n```text\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[1]
    named = {line.split("/")[0] for line in tree.splitlines()}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    there = {line.split("/")[0] for line in listed.stdout.splitlines() if "/" in line}
    assert named == {name for name in there if not name.startswith(".")}


# Links and pictures

LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")


# Pages that `make docs` adds to the site.
LIVE = {DOCS / name for name in live.FILES}


def _prose(page: str) -> str:
    return re.sub(r"^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)


def _anchors(page: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere(subtests):
    for path in PAGES:
        with subtests.test(path=path):
            broken = []
            for found in LINK.finditer(_prose(path.read_text("utf-8"))):
                target, _, anchor = (found[1] or found[2]).partition("#")
                if re.match(r"[a-z]+:", target):
                    continue
                there = (path.parent / target).resolve() if target else path
                if there in LIVE:
                    continue
                if not there.is_file() or (
                    anchor and there.suffix == ".md" and anchor not in _anchors(there.read_text("utf-8"))
                ):
                    broken.append(found[1] or found[2])
            assert broken == []


def test_live_examples(tmp_path, monkeypatch):
    """The gallery shows pages that `make docs` writes; one is written here."""
    shown = set(re.findall(r'"(live/[^"#]+)', _text("gallery.md")))
    assert shown <= set(live.FILES)
    assert len(shown) == 2
    monkeypatch.setattr(live, "EXAMPLES", {"A short one": ("minilm", "The cat sat.")})
    live.write(tmp_path)
    assert {path.name for path in (tmp_path / "live").iterdir()} == {"index.html", "a-short-one.html"}


def test_gallery_has_every_figure(subtests):
    for prefix, known in (("figure", FIGURES), ("study-figure", STUDY_FIGURES)):
        for name in known:
            with subtests.test(name=name, prefix=prefix):
                assert f"](pictures/{prefix}-{name}.png)" in _text("gallery.md")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_picture_of_the_page_has_its_size(theme):
    head = (DOCS / "pictures" / f"page-{theme}.png").read_bytes()[:24]
    assert struct.unpack(">8x4x4sII", head) == (b"IHDR", 1440, 900)


def test_no_place_of_one_machine_in_the_docs(subtests):
    for path in PAGES:
        with subtests.test(path=path):
            assert not re.search(r"(?<![\w.])/(?:work|home|root|Users|tmp)/", path.read_text("utf-8"))


def test_site_builds_without_warnings_loads_nothing_from_elsewhere_and_has_every_page_as_markdown(tmp_path):
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"},
    )
    assert built.returncode == 0, built.stdout + built.stderr
    for page in tmp_path.rglob("*.html"):
        tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text("utf-8"))
        assert not [tag for tag in tags if re.search(r"(?:src|href|srcset)=\"?(?:https?:)?//", tag)], page.name
    for source in DOCS.rglob("*.md"):
        assert (tmp_path / source.relative_to(DOCS)).read_text("utf-8") == source.read_text("utf-8"), source.name
    listed, everything = ((tmp_path / name).read_text("utf-8") for name in ("llms.txt", "llms-full.txt"))
    links = re.findall(r"^- \[.+\]\((.+\.md)\)$", listed, re.MULTILINE)
    assert len(links) == len(set(links)) > 100
    assert all((tmp_path / link).read_text("utf-8").strip() in everything for link in links)


# Examples


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A real server on a free port."""
    with Server(tmp_path_factory.mktemp("docs") / "home") as running:
        yield f"http://{running.url}"


def _blocks(path: Path, *languages: str) -> list[tuple[int, str, str]]:
    page = path.read_text("utf-8")
    return [
        (page[: found.start("code")].count("\n"), found["code"], found["note"] or "")
        for found in FENCE.finditer(page)
        if found["lang"] in languages
    ]


WITH_PYTHON = [path for path in PAGES if any(not note.startswith("not run:") for _, _, note in _blocks(path, "python"))]
# What their blocks do, others do with less.
LONG = {DOCS / "gallery.md", DOCS / "how-to" / "reproduce.md"}
WITH_SHELL = [path for path in PAGES if any(note == "run" for _, _, note in _blocks(path, "sh"))]


def _run(code: str, line: int, path: Path, names: dict[str, object]) -> None:
    """Run a block, and compare expressions with the value in the comment behind them; an array with its shape, given as a list."""
    lines = code.splitlines()
    for statement in ast.parse("\n" * line + code, str(path)).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), str(path), "exec"), names)
            continue
        value = eval(compile(ast.Expression(statement.value), str(path), "eval"), names)
        claim = _literal(lines[statement.end_lineno - line - 1][statement.end_col_offset :].strip().removeprefix("# "))
        if claim is not None:
            shown = list(value.shape) if isinstance(value, np.ndarray) else value
            assert shown == claim, f"{path.name}:{statement.end_lineno}"


def _literal(comment: str) -> object | None:
    """Return the value that a comment begins with, up to a colon; None if it is text."""
    for part in (comment, comment.rpartition(": ")[0], comment.partition(": ")[0]):
        try:
            return ast.literal_eval(part)
        except (ValueError, SyntaxError):
            continue
    return None


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    "path", mostly_long(WITH_PYTHON, *(path for path in WITH_PYTHON if path not in LONG)), ids=_name
)
def test_python_in_the_docs_runs(path, request, tmp_path, monkeypatch):
    """Run the blocks of a page in order, as a reader would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADSCOPE_HOME", str(tmp_path / "home"))
    names: dict[str, object] = {"__name__": "__main__"}
    for line, code, note in _blocks(path, "python"):
        if note.startswith("not run:"):
            continue
        if ADDRESS in code:
            code = code.replace(ADDRESS, request.getfixturevalue("address"))
        _run(code, line, path, names)
    for value in names.values():
        if isinstance(value, httpx.Client):
            value.close()


# In place of the command, a script that writes down what it was called with.
RECORD = """#!{python}
import json, sys
with open({calls!r}, "a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
"""


@pytest.mark.parametrize("path", mostly_long(WITH_SHELL, *(path for path in WITH_SHELL if path not in LONG)), ids=_name)
def test_shell_in_the_docs_runs(path, address, tmp_path, monkeypatch):
    """Run the blocks of a page in order in one folder. `headscope`, which a block calls at its end, runs in this process: its start takes as long as all the rest."""
    monkeypatch.chdir(tmp_path)
    calls, command = tmp_path / "calls.jsonl", tmp_path / "bin" / "headscope"
    command.parent.mkdir()
    command.write_text(RECORD.format(python=sys.executable, calls=str(calls)))
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}"}
    for _, code, note in _blocks(path, "sh"):
        if note != "run":
            continue
        calls.write_text("")
        ran = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", code.replace(ADDRESS, address)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        printed = ran.stdout
        for call in calls.read_text().splitlines():
            called = run(tmp_path / "home", *json.loads(call))
            assert called.returncode == 0, called.stderr
            printed += called.stdout
        assert printed.strip()
        assert '"code"' not in printed.partition('"warnings"')[0], printed
