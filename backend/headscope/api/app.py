"""The FastAPI application: routes, middleware, error handlers and the page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig

from .._version import __version__
from ..core.lazy import LazyModule
from ..jobs import tracing
from ..server.accounts import Accounts
from ..server.service import Service
from ..settings import Settings
from ..worker.process import build_embedded
from . import error_responses, problems
from .http.response_cache import ResponseCache
from .middleware.access import AccessMiddleware
from .middleware.audit import AuditMiddleware
from .middleware.bodies import BodyLimitMiddleware, BodyLimits
from .middleware.metrics import PREFIX, MetricsMiddleware
from .middleware.responses import LargeResponseMiddleware
from .middleware.security import SecurityMiddleware
from .routes import (
    analyses,
    compare,
    datasets,
    declarations,
    effects,
    exports,
    figures,
    head_scores,
    heads,
    health,
    jobs,
    maps,
    metrics,
    models,
    session,
    shares,
    studies,
    study_results,
)
from .static_files import serve_page

if TYPE_CHECKING:
    from ..server import identity
else:  # needs authlib, and only where there is a provider
    identity = LazyModule("headscope.server.identity")

# Size of the thread pool for blocking calls.
THREADS = 32
# Requests that are made again and again, and tell nothing.
UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})
# Tried in this order: the most frequent requests first.
ROUTERS = (
    analyses.router,
    maps.router,
    session.router,
    head_scores.router,  # before the models, whose names may have slashes
    models.router,
    declarations.router,
    jobs.router,
    shares.router,
    exports.router,
    effects.router,
    heads.router,
    compare.router,
    figures.router,
    datasets.router,
    studies.router,
    study_results.router,
)


def create(settings: Settings, *, tokens: bool = False) -> FastAPI:
    """Return the server's application, which starts and stops its service. With `tokens`, access requires a token even if none exists yet."""
    service = Service(settings, build_embedded)
    provider = identity.IdentityProvider(settings) if settings.oidc_issuer else None
    accounts = Accounts(service.facts, settings.home, required=tokens or provider is not None)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # The default has few threads on machines with few cores, and these threads mostly wait for disks or Redis.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS, "waiting"))
        service.start()
        try:
            yield
        finally:
            service.stop()

    app = FastAPI(
        title="Headscope",
        version=__version__,
        description="See what attention heads do, and how much of what a head map shows reaches the output.",
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # its page loads a script from another site
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_telemetry(),
        lifespan=lifespan,
    )
    app.state.service, app.state.accounts, app.state.provider = service, accounts, provider
    app.state.registry, app.state.response_cache = metrics.make_registry(service), ResponseCache()
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX)
    for router in (figures.page, health.router, metrics.router):
        app.include_router(router)
    serve_page(app)
    problems.add_handlers(app)
    error_responses.describe(app)
    _add_middleware(app, service, accounts, settings)
    return app


def _telemetry() -> TelemetryConfig:
    """Return FastAPI's telemetry: traces if they are wanted. Headscope has its own metrics and logs."""
    return {
        "tracing": tracing.start(),
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
        "exclude": lambda scope: scope["path"] in UNTRACED,
    }


def _add_middleware(app: FastAPI, service: Service, accounts: Accounts, settings: Settings) -> None:
    """Add the middleware, from the innermost to the outermost."""
    limits = BodyLimits(settings)
    app.add_middleware(LargeResponseMiddleware, room=service.limiters.memory)
    app.add_middleware(BodyLimitMiddleware, limits=limits, memory=service.limiters.bodies)
    app.add_middleware(AccessMiddleware, accounts=accounts, shared=service.database.shared)
    app.add_middleware(AuditMiddleware)
    app.add_middleware(SecurityMiddleware, hosts=settings.allowed_hosts, limits=limits)
    app.add_middleware(MetricsMiddleware, registry=app.state.registry)
