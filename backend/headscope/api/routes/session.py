"""Routes of the page's session: sign in with an access token, show who is signed in, sign out."""

from __future__ import annotations

import asyncio
from typing import cast

from fastapi import APIRouter, Request, Response

from ...errors import DatabaseUnavailable, Unauthorized
from ...server.accounts import Accounts
from ..dependencies import ServiceDep, VisitorDep
from ..error_responses import raises
from ..middleware.access import cookie_name, reject
from ..schemas.server import Session, SignIn

router = APIRouter(prefix="/session", tags=["users"])

# The path that the cookie is sent to, and its lifetime (s).
COOKIE_PATH = "/api/v1"
COOKIE_SECONDS = 30 * 24 * 3600


@router.get("")
async def who(visitor: VisitorDep, service: ServiceDep) -> Session:
    """Return the signed-in user, and the server's deployment."""
    return Session(user=None if visitor.everything else visitor.name, home=service.deployment)


@router.post("", responses=raises(Unauthorized, DatabaseUnavailable))
async def sign_in(body: SignIn, request: Request, response: Response, service: ServiceDep) -> Session:
    """Sign in: store the token in a cookie that scripts cannot read. On a server without users this has no effect."""
    accounts = cast("Accounts", request.app.state.accounts)
    if not await asyncio.to_thread(accounts.require_token):
        return Session(user=None, home=service.deployment)
    user = await asyncio.to_thread(accounts.find_user, body.token)
    if user is None:
        await reject(invalid=True)
    # Browsers drop secure cookies over plain HTTP. Behind a proxy, only Origin tells whether the browser uses HTTPS.
    secure = request.headers.get("origin", "").startswith("https://")
    response.set_cookie(
        cookie_name(request.scope),
        body.token,
        max_age=COOKIE_SECONDS,
        path=COOKIE_PATH,
        secure=secure,
        httponly=True,
        samesite="strict",
    )
    return Session(user=user, home=service.deployment)


@router.delete("", status_code=204)
async def sign_out(request: Request, visitor: VisitorDep) -> Response:
    """Sign out: delete the cookie. The token stays valid."""
    response = Response(status_code=204)
    if not visitor.everything:
        response.delete_cookie(cookie_name(request.scope), path=COOKIE_PATH, httponly=True, samesite="strict")
    return response
