"""Request metrics: counts and latencies for /metrics, and a debug log event per request.

Labels have few values whatever clients send: routes by template, known methods, classes of statuses.
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


class MetricsMiddleware:
    """The outermost ASGI middleware, so that rejected requests are counted, too."""

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
            "Time to the first byte of the response, by route.",
            ("route",),
            buckets=SECONDS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, counted = time.perf_counter(), False

        async def send_counted(message: Message) -> None:
            nonlocal counted
            if message["type"] == "http.response.start" and not counted:
                counted = True
                self._count(scope, message["status"], time.perf_counter() - start)
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        except Exception:
            if not counted:  # the server responds with 500
                self._count(scope, 500, time.perf_counter() - start)
            raise

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route, method = route_template(scope), scope["method"] if scope["method"] in METHODS else OTHER
        self._requests.labels(route, method, f"{status // 100}xx").inc()
        self._seconds.labels(route).observe(seconds)
        if logger.isEnabledFor(logging.DEBUG):
            event = {"route": route, "method": method, "status": status, "ms": round(seconds * 1e3, 1)}
            logger.debug("answered", extra={**event, "request_id": scope.get("request_id", "")})


def route_template(scope: Scope) -> str:
    """Return the path of the matched route with its parameters in braces; OTHER if no route matched."""
    route = scope.get("route")
    if route is None:
        return OTHER
    path = str(getattr(route, "path_format", route.path))
    # The path of a route lacks the prefix that its router was included with.
    lacks_prefix = scope["path"].startswith(f"{PREFIX}/") and not path.startswith(f"{PREFIX}/")
    return f"{PREFIX}{path}" if lacks_prefix else path
