"""headscope doctor: checks of this machine and of the services that the settings name."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import click

from ..api.documents.standalone import page_folder
from ..models.catalog import Catalog
from ..server.doctor import Finding, check_services
from ..settings import Settings
from .output import JSON

# Older releases of transformers can be made to run code by a model's configuration, and Celery's workers may stay idle after Redis was down.
OLDEST = {
    "torch": (2, 10),
    "transformers": (5, 3),
    "safetensors": (0, 8),
    "fastapi": (0, 165),
    "starlette": (1, 3),
    "celery": (5, 7),
    "kombu": (5, 7),
    "redis": (6, 4),
}


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Check this machine and say what to change."""
    settings = Settings()
    found = [*(check(settings) for check in CHECKS), *check_services(settings)]
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in found]))
    else:
        for finding in found:
            click.echo(f"{'ok ' if finding.ok else 'BAD'}  {finding.name}: {finding.message}")
    if not all(finding.ok for finding in found):
        sys.exit(1)


def _check_versions(_: Settings) -> Finding:
    found = {name: number for name in OLDEST if (number := _version(name))}  # those of a cluster are optional
    listed = ", ".join(f"{name} {number}" for name, number in found.items())
    old = [name for name, number in found.items() if tuple(map(int, number.split(".")[:2])) < OLDEST[name]]
    needed = ", ".join(f"{name} {'.'.join(map(str, OLDEST[name]))} or newer" for name in old)
    return Finding(
        "versions", not old, f"{listed}. Older releases have known faults: install {needed}." if old else listed
    )


def _version(name: str) -> str | None:
    """Return the version of an installed package, None without it."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _check_kernels(_: Settings) -> Finding:
    if _version("kernels") is None:
        return Finding("kernels", True, "the package kernels, which downloads code, is not installed")
    return Finding(
        "kernels",
        False,
        "the package kernels downloads and runs code named by models. Uninstall it: pip uninstall kernels",
    )


def _check_home(settings: Settings) -> Finding:
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.home):
            free = shutil.disk_usage(settings.home).free
            room = free + sum(file.stat().st_size for file in settings.home.rglob("*") if file.is_file())
    except OSError:
        return Finding("home", False, f"{settings.home} is not writable. Set HEADSCOPE_HOME to a writable folder.")
    enough = room > settings.quota_bytes
    quota = f"the quota of {settings.quota_bytes / 1e9:.0f} GB"
    note = "" if enough else f", with what is stored less than {quota}: lower HEADSCOPE_QUOTA_BYTES"
    return Finding("home", enough, f"{settings.home}, {free / 1e9:.0f} GB free{note}")


def _check_model(settings: Settings) -> Finding:
    catalog = Catalog(settings)
    card = catalog.describe(catalog.default)
    if card["local"]:
        return Finding("default model", True, f"{card['name']} is on this machine")
    return Finding(
        "default model",
        False,
        f"{card['name']} is not on this machine. Install Headscope again; in a checkout: pip install --editable .",
    )


def _check_page(_: Settings) -> Finding:
    built = (page_folder() / "index.html").is_file()
    return Finding("page", built, "built" if built else "not built. In a checkout: make page")


CHECKS: tuple[Callable[[Settings], Finding], ...] = (
    _check_versions,
    _check_kernels,
    _check_home,
    _check_model,
    _check_page,
)
