"""headscope export-site: several analyses as a static site."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import HeadscopeError
from ..library.site import LIST, AnalysisSite
from .output import progress_bar


@click.command("export-site")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument(
    "analyses",
    metavar="ANALYSIS...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
)
@click.option("--title", default="Attention heads", show_default=True, help="Title of the list.")
@click.option("--replace", is_flag=True, help="Replace pages of the same names in FOLDER.")
def export_site(folder: Path, analyses: tuple[Path, ...], title: str, replace: bool) -> None:
    """Write analyses as a static site, for any web host.

    FOLDER gets a list and one page per ANALYSIS, a safetensors file of headscope analyze --out or of a server's export. The name of a file is the title of
    its page. Nothing but the folder is needed to open it, neither a server nor a network.
    """
    site = AnalysisSite(analyses, title)
    for entry, size in zip(site.entries, site.sizes, strict=True):
        click.echo(f"{entry.href}: at most {_megabytes(size)}")
    click.echo(f"Together at most {_megabytes(site.most_bytes)}.")
    try:
        with progress_bar(quiet=False) as progress:
            written = site.write(folder, replace=replace, progress=progress)
    except OSError as error:
        raise HeadscopeError("The site could not be written. Choose another folder.") from error
    click.echo(f"Wrote {_megabytes(written)}. Open {folder / LIST}.")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
