"""The application: routes, failures, guard, and the page's files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI

from .._version import __version__
from ..figures.rendering import Renderer
from ..server.accounts import FILE, Accounts
from ..server.service import Service
from ..settings import Settings
from . import error_responses, problems
from .http.recent import RecentAnswers
from .http.responses import LargeResponses
from .middleware.access import Access
from .middleware.bodies import BodyLimitMiddleware, BodyLimits
from .middleware.metrics import PREFIX, RequestMetrics
from .middleware.reads import ReadCache
from .middleware.security import SecurityMiddleware
from .routes import (
    analyses,
    compare,
    datasets,
    declarations,
    exports,
    figures,
    heads,
    health,
    maps,
    metrics,
    session,
    shares,
    studies,
    study_results,
)
from .static_files import serve_page

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
    app.state.registry, app.state.recent = metrics.registry(service), RecentAnswers()
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
    error_responses.describe(app)
    limits = BodyLimits.of(settings, PREFIX)
    reads = {"recent": app.state.recent, "simple": partial(maps.simple, service.limiters.memory), "route": maps.ROUTE}
    app.add_middleware(ReadCache, service=service, **reads)
    app.add_middleware(LargeResponses, room=service.limiters.memory)
    app.add_middleware(BodyLimitMiddleware, limits=limits)
    app.add_middleware(Access, accounts=accounts, shared=service.database.shared)
    app.add_middleware(SecurityMiddleware, hosts=settings.allowed_hosts, limits=limits)
    app.add_middleware(RequestMetrics, registry=app.state.registry)
    return app
