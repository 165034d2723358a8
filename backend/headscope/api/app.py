"""The application: routes, failures, guard, and the page's files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from .._version import __version__
from ..accounts import FILE, Accounts
from ..figures.rendering import Renderer
from ..runtime import Service
from ..settings import Settings
from . import (
    analyses,
    answers,
    compare,
    datasets,
    declarations,
    exports,
    figures,
    heads,
    health,
    maps,
    metrics,
    problems,
    session,
    shares,
    studies,
    study_results,
)
from .access import Access
from .frontpage import serve_page
from .guard import Guard
from .intake import BodyLimits, Intake
from .reads import Reads
from .recent import Recent
from .responses import LargeResponses
from .traffic import PREFIX, Traffic

# Most calls that block at once.
THREADS = 32


def create(settings: Settings, *, tokens: bool = False) -> FastAPI:
    """The server's application. Its service starts and stops with it. `tokens`: nobody is let in without one, even while there is none."""
    service, accounts = Service(settings), Accounts(settings.home / FILE, required=tokens)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # However few cores there are: threads that wait for a disk or for Redis must not keep others waiting.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "waiting"))
        service.start()
        yield
        service.stop()

    app = FastAPI(
        title="Headscope",
        version=__version__,
        description="See what attention heads do, and how much of what a head map shows reaches the output.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its page would load a script from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # /metrics and the log say it all
        lifespan=lifespan,
    )
    app.state.service, app.state.accounts = service, accounts
    app.state.registry, app.state.recent = metrics.registry(service), Recent()
    app.state.renderer = Renderer()
    for part in (
        session,
        declarations,
        analyses,
        shares,
        maps,
        exports,
        heads,
        compare,
        figures,
        datasets,
        studies,
        study_results,
    ):
        app.include_router(part.router, prefix=PREFIX)
    app.include_router(figures.declared, prefix=PREFIX)
    app.include_router(figures.page)
    app.include_router(health.router)
    app.include_router(metrics.router)
    serve_page(app)
    problems.install(app)
    answers.describe(app)
    limits = BodyLimits.of(settings, PREFIX)
    reads = {"recent": app.state.recent, "simple": partial(maps.simple, service.limiters.room), "route": maps.ROUTE}
    app.add_middleware(Reads, service=service, **reads)
    app.add_middleware(LargeResponses, room=service.limiters.room)
    app.add_middleware(Intake, limits=limits)
    app.add_middleware(Access, accounts=accounts, shared=service.record.shared)
    app.add_middleware(Guard, hosts=settings.allowed_hosts, limits=limits)
    app.add_middleware(Traffic, registry=app.state.registry)
    return app
