"""Puts the built page into the wheel, where api/app.py looks for it; a wheel built without the page serves the interface only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds frontend/dist as headscope/api/page, but not to editable installs: those read the folder itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        page = Path(self.root) / "frontend" / "dist"
        if version == "standard" and page.is_dir():
            build_data["force_include"][str(page)] = "headscope/api/page"
