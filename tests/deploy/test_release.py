"""A release is a clean commit whose version, changelog and tag agree, and its files can be built again."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import hatch_build
import pytest

from deploy import release
from headscope import __version__
from tests.support.compose import ROOT

DATED = "# Changelog\n\n## [1.2.0] - 2026-12-01\n\n- A lens.\n\n## [1.1.0] - 2026-11-01\n"


def git(checkout: Path, *words: str) -> None:
    author = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    subprocess.run(["git", *author, *words], cwd=checkout, check=True, capture_output=True)


def commit(checkout: Path, changelog: str = DATED) -> None:
    (checkout / "CHANGELOG.md").write_text(changelog)
    git(checkout, "add", "--all")
    git(checkout, "commit", "--allow-empty", "--message", "A change")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The checkout of a commit that can be released as 1.2.0."""
    place = tmp_path / release.VERSION
    place.parent.mkdir(parents=True)
    place.write_text('__version__ = "1.2.0"\n')
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def test_a_release_may_have_its_tag_already(checkout: Path) -> None:
    assert release.check(checkout) == "1.2.0"
    git(checkout, "tag", "--annotate", "v1.2.0", "--message", "1.2.0")
    assert release.check(checkout) == "1.2.0"


def test_a_checkout_with_changes_is_refused(checkout: Path) -> None:
    (checkout / "new.py").write_text("")
    with pytest.raises(release.Refused, match="has changes"):
        release.check(checkout)


@pytest.mark.parametrize(
    ("changelog", "said"),
    [
        (DATED.replace("1.2.0", "1.3.0"), r'is not "## \[1.2.0\]'),
        (DATED.replace(" - 2026-12-01", ""), r'is not "## \[1.2.0\]'),
        (DATED.replace("\n## ", "\n## [Unreleased]\n\n- Another lens.\n\n## ", 1), "unreleased changes"),
        ("# Changelog\n", r'is not "## \[1.2.0\]'),
    ],
    ids=["another version", "without a date", "unreleased changes", "empty"],
)
def test_a_changelog_without_the_version_is_refused(checkout: Path, changelog: str, said: str) -> None:
    commit(checkout, changelog)
    with pytest.raises(release.Refused, match=said):
        release.check(checkout)


def test_an_empty_heading_of_what_comes_next_may_stay(checkout: Path) -> None:
    commit(checkout, DATED.replace("\n## ", "\n## [Unreleased]\n\n## ", 1))
    assert release.check(checkout) == "1.2.0"


def test_tags_that_disagree_are_refused(checkout: Path) -> None:
    git(checkout, "tag", "v1.1.0")
    with pytest.raises(release.Refused, match=r"has the tag v1\.1\.0"):
        release.check(checkout)
    git(checkout, "tag", "--delete", "v1.1.0")
    git(checkout, "tag", "v1.2.0")
    commit(checkout)
    with pytest.raises(release.Refused, match="is on another commit"):
        release.check(checkout)


def test_the_list_of_packages_has_what_is_in_the_wheel(subtests: pytest.Subtests) -> None:
    """Weights with their digest, the code of the page, and what pip installs: with an extra only if that is asked for."""
    document = release.list_packages(ROOT, __version__)
    assert document["metadata"]["component"]["purl"] == f"pkg:pypi/headscope@{__version__}"
    components = document["components"]
    assert len({part["purl"] for part in components}) == len(components)
    assert release.MODELS[0][1] == hatch_build.CARRIER
    assert components[0]["hashes"][0]["content"] == hatch_build.WEIGHTS
    for name, scope in (("torch", "required"), ("fastapi", "required"), ("celery", "optional"), ("s3fs", "optional")):
        with subtests.test(name):
            (part,) = (part for part in components if part["name"] == name)
            assert part["scope"] == scope
    assert not {part["name"] for part in components} & {"headscope", "pytest", "mkdocs-material"}


def test_the_page_has_no_other_packages_than_those_listed() -> None:
    """Svelte's own code imports only these where it runs in a browser; the page's sources import nothing else."""
    imported = re.compile(r"""^import .*? from ["']([a-z@][^"']*)["']""", re.MULTILINE)
    sources = [*(ROOT / "frontend" / "src").rglob("*.ts"), *(ROOT / "frontend" / "src").rglob("*.svelte")]
    found = {name.partition("/")[0] for path in sources for name in imported.findall(path.read_text("utf-8"))}
    assert found <= {*release.PAGE, "vitest", "node:fs", "vite"}
