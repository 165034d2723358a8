"""Routes: sign in with an access token, so that a browser sends it by itself; who is signed in; sign out."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from fastapi import APIRouter, Request, Response
from pydantic import Field

from ...errors import AccountsUnreadable, Unauthorized
from ...server.accounts import Accounts
from ..dependencies import ServiceDep, VisitorDep
from ..error_responses import raises
from ..middleware.access import cookie_name, refuse
from ..schemas.analyses import Strict

router = APIRouter(prefix="/session", tags=["users"])

# The cookie goes to the interface only, and is kept this long (s).
PLACE = "/api/v1"
KEPT_SECONDS = 30 * 24 * 3600


class SignIn(Strict):
    """An access token."""

    token: Annotated[str, Field(min_length=1, max_length=200)]


class Session(Strict):
    """Who is signed in; null on a server without users, and for somebody with nothing but a share key. Which home the server has: itself, or a cluster."""

    user: str | None
    home: Literal["embedded", "cluster"]


@router.get("")
async def who(visitor: VisitorDep, service: ServiceDep) -> Session:
    """Who is signed in, and to which home."""
    return Session(user=None if visitor.everything else visitor.name, home=service.deployment)


@router.post("", responses=raises(Unauthorized, AccountsUnreadable))
async def sign_in(body: SignIn, request: Request, response: Response, service: ServiceDep) -> Session:
    """Take a token and keep it in a cookie that scripts can't read. On a server without users there is nothing to sign in to."""
    accounts = cast("Accounts", request.app.state.accounts)
    if not accounts.require_token():
        return Session(user=None, home=service.deployment)
    user = accounts.find_user(body.token)
    if user is None:
        await refuse(wrong=True)
    # Over plain HTTP a secure cookie would not be kept; behind a proxy only the browser knows that it came by HTTPS.
    secure = request.headers.get("origin", "").startswith("https://")
    name = cookie_name(request.scope)
    response.set_cookie(
        name, body.token, max_age=KEPT_SECONDS, path=PLACE, secure=secure, httponly=True, samesite="strict"
    )
    return Session(user=user, home=service.deployment)


@router.delete("", status_code=204)
async def sign_out(request: Request, visitor: VisitorDep) -> Response:
    """Have the browser forget the token. The token itself goes on."""
    response = Response(status_code=204)
    if not visitor.everything:
        response.delete_cookie(cookie_name(request.scope), path=PLACE, httponly=True, samesite="strict")
    return response
