"""A hook of MkDocs: every page of the site also as Markdown, beside its HTML, and all of them listed in llms.txt (https://llmstxt.org) and joined in llms-full.txt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SUMMARY = (
    "# {site}\n\n> {about}\n\nEvery page is plain Markdown; all of them in one file: [llms-full.txt](llms-full.txt).\n"
)


def on_nav(nav: Any, config: Any, files: Any) -> None:
    """Keep the navigation and the files for the end of the build."""
    config.extra |= {"navigation": nav, "files": files}


def on_post_build(config: Any) -> None:
    """Write the pages and the two lists into the site."""
    site, nav = Path(config.site_dir), config.extra["navigation"]
    for file in config.extra["files"].documentation_pages():
        (site / file.src_uri).write_text(file.content_string, "utf-8")
    pages = "".join(f"- {_link(item)}\n" for item in nav.items if item.is_page)
    sections = "".join(_section(item, 2) for item in nav.items if item.is_section)
    summary = SUMMARY.format(site=config.site_name, about=config.site_description)
    (site / "llms.txt").write_text(f"{summary}\n{pages}{sections}", "utf-8")
    texts = [page.file.content_string.strip() for page in nav.pages]
    (site / "llms-full.txt").write_text("\n\n".join(texts) + "\n", "utf-8")


def _section(item: Any, depth: int) -> str:
    """Return a section of the navigation as a list of links, and its own sections below it."""
    links = "".join(f"- {_link(page)}\n" for page in item.children if page.is_page)
    inner = "".join(_section(child, depth + 1) for child in item.children if child.is_section)
    return f"\n{'#' * depth} {item.title}\n\n{links}{inner}"


def _link(page: Any) -> str:
    return f"[{page.title}]({page.file.src_uri})"
