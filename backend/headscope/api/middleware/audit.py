"""The audit log of requests: what users of a server change, and who is refused."""

from __future__ import annotations

import time

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...server import audit
from .metrics import METHODS, OTHER, PREFIX, route_template

# Every operation that changes something, and the event of its success. To begin a sign-in changes nothing.
EVENTS = {
    ("POST", "/session"): "signed in",
    ("POST", "/session/oidc/code"): "signed in with the identity provider",
    ("DELETE", "/session"): "signed out",
    ("POST", "/analyses"): "analysis submitted",
    ("POST", "/analyses/batch"): "analyses submitted",
    ("DELETE", "/analyses/{id}"): "analysis deleted",
    ("POST", "/analyses/{id}/share"): "share key created",
    ("DELETE", "/analyses/{id}/share"): "share key revoked",
    ("POST", "/analyses/{id}/effects"): "effect submitted",
    ("DELETE", "/analyses/{id}/effects/{effect}"): "effect deleted",
    ("POST", "/studies"): "study submitted",
    ("DELETE", "/studies/{id}"): "study deleted",
    ("POST", "/studies/{id}/share"): "share key created",
    ("DELETE", "/studies/{id}/share"): "share key revoked",
    ("POST", "/datasets"): "data set uploaded",
    ("DELETE", "/datasets/{id}"): "data set deleted",
    ("POST", "/models"): "model download requested",
    ("DELETE", "/models/{model}"): "model removed",
    ("POST", "/models/{model}/head-scores"): "head scores submitted",
    ("DELETE", "/models/{model}/head-scores/{id}"): "head scores deleted",
}
REFUSED = frozenset({401, 403})
# Anyone can provoke refusals: one per interval (s) is recorded, with the number since the last one.
REFUSED_SECONDS = 1.0


class AuditMiddleware:
    """ASGI middleware outside the access check. A server without users has no one to tell apart: nothing is recorded there."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._refused, self._recorded_at = 0, -REFUSED_SECONDS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._record(scope, message["status"], Headers(raw=message["headers"]))
            await send(message)

        await self._app(scope, receive, send_recorded)

    def _record(self, scope: Scope, status: int, headers: Headers) -> None:
        visitor, route = scope.get("visitor"), route_template(scope)
        if visitor and visitor.everything:
            return
        user = scope.get("signed_in") or (visitor.name if visitor else None)
        if status in REFUSED:
            self._record_refusal(scope, route, status, user)
            return
        event = EVENTS.get((scope["method"], route.removeprefix(PREFIX)))
        if event and user and status < 300:
            resource = headers.get("location", scope["path"])
            audit.record(event, user=user, resource=resource.partition("?")[0], status=status)

    def _record_refusal(self, scope: Scope, route: str, status: int, user: str | None) -> None:
        self._refused += 1
        now = time.monotonic()
        if now < self._recorded_at + REFUSED_SECONDS:
            return
        method = scope["method"] if scope["method"] in METHODS else OTHER
        audit.record("access refused", user=user, method=method, route=route, status=status, count=self._refused)
        self._refused, self._recorded_at = 0, now
