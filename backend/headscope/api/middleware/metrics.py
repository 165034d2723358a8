"""What this process has answered: one event per request in the log (debug), and counts for /metrics.

Routes are named by their template, methods by the few that HTTP has, statuses by their class: strangers can't make new series or lines by what they ask for.
"""

from __future__ import annotations

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger("headscope.requests")

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
OTHER = "other"
PREFIX = "/api/v1"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class RequestMetrics:
    """ASGI middleware around everything else, so that refusals are counted, too."""

    def __init__(self, app: ASGIApp, *, registry: CollectorRegistry) -> None:
        self._app = app
        self._requests = Counter(
            "headscope_http_requests",
            "Requests that this process has answered.",
            ("route", "method", "status"),
            registry=registry,
        )
        self._seconds = Histogram(
            "headscope_http_request_seconds",
            "Time until the answer began, by route.",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, answered = time.perf_counter(), False

        async def send_counted(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start" and not answered:
                answered = True
                self._count(scope, message["status"], time.perf_counter() - started)
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        except Exception:
            if not answered:  # whoever is outside answers for it
                self._count(scope, 500, time.perf_counter() - started)
            raise

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route, method = template(scope), scope["method"] if scope["method"] in METHODS else OTHER
        self._requests.labels(route, method, f"{status // 100}xx").inc()
        self._seconds.labels(route).observe(seconds)
        if logger.isEnabledFor(logging.DEBUG):
            said = {"route": route, "method": method, "status": status, "ms": round(seconds * 1e3, 1)}
            logger.debug("answered", extra={**said, "request_id": scope.get("request_id", "")})


def template(scope: Scope) -> str:
    """The path of the route that was found, with its parameters' names in braces."""
    route = scope.get("route")
    if route is None:
        return OTHER
    path = str(getattr(route, "path_format", route.path))
    # A route does not know what its router was included under.
    below = scope["path"].startswith(f"{PREFIX}/") and not path.startswith(f"{PREFIX}/")
    return f"{PREFIX}{path}" if below else path
