"""Routes of the page's session: sign in with an access token or with the identity provider, show who is signed in, sign out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, cast

from fastapi import APIRouter, Depends, Request, Response
from starlette.exceptions import HTTPException

from ...errors import DatabaseUnavailable, ProviderUnavailable, SignInRefused, TooManyRequests, Unauthorized, Unknown
from ...server.accounts import Accounts
from ..dependencies import ServiceDep, VisitorDep
from ..error_responses import raises
from ..middleware.access import cookie_name, reject, token_of
from ..schemas.server import ProviderOffer, Session, SignIn, SignInCode, SignInStart

if TYPE_CHECKING:
    from ...server.identity import IdentityProvider

router = APIRouter(prefix="/session", tags=["users"])

# The path that the cookie is sent to, and its lifetime (s).
COOKIE_PATH = "/api/v1"
COOKIE_SECONDS = 30 * 24 * 3600
# The same of the cookie with the secret of a sign-in that has begun.
BEGUN_PATH = "/api/v1/session/oidc"
BEGUN_SECONDS = 600


async def _accounts(request: Request) -> Accounts:
    return cast("Accounts", request.app.state.accounts)


async def _provider(request: Request) -> IdentityProvider:
    """Return the identity provider. Without one, its routes do not exist."""
    if request.app.state.provider is None:
        raise HTTPException(404)
    return cast("IdentityProvider", request.app.state.provider)


AccountsDep = Annotated[Accounts, Depends(_accounts)]
PROVIDER = raises(Unknown, SignInRefused, ProviderUnavailable, TooManyRequests)


@router.get("")
async def who(visitor: VisitorDep, service: ServiceDep) -> Session:
    """Return the signed-in user, and the server's deployment."""
    return Session(user=None if visitor.everything else visitor.name, home=service.deployment)


@router.post("", responses=raises(Unauthorized, DatabaseUnavailable))
async def sign_in(
    body: SignIn, request: Request, response: Response, service: ServiceDep, accounts: AccountsDep
) -> Session:
    """Sign in: store the token in a cookie that scripts cannot read. On a server without users this has no effect."""
    if not await asyncio.to_thread(accounts.require_token):
        return Session(user=None, home=service.deployment)
    user = await asyncio.to_thread(accounts.find_user, body.token)
    if user is None:
        await reject(invalid=True)
    request.scope["signed_in"] = user
    _set_cookie(request, response, cookie_name(request.scope), body.token, COOKIE_SECONDS, COOKIE_PATH)
    return Session(user=user, home=service.deployment)


@router.delete("", status_code=204)
async def sign_out(request: Request, visitor: VisitorDep, accounts: AccountsDep) -> Response:
    """Sign out: delete the cookie, and end the session of a user of the identity provider. A token stays valid."""
    response = Response(status_code=204)
    if not visitor.everything:
        await asyncio.to_thread(accounts.sign_out, token_of(request.scope) or "")
        response.delete_cookie(cookie_name(request.scope), path=COOKIE_PATH, httponly=True, samesite="strict")
    return response


@router.get("/oidc")
async def offer(request: Request) -> ProviderOffer:
    """Return the identity provider whose users may sign in on the page."""
    provider = cast("IdentityProvider | None", request.app.state.provider)
    return ProviderOffer(issuer=None if provider is None else provider.issuer)


@router.post("/oidc", responses=PROVIDER)
async def begin_sign_in(request: Request, response: Response, service: ServiceDep) -> SignInStart:
    """Begin signing in with the identity provider (OpenID Connect): return the address to open. The provider sends the browser back to the page, with a code."""
    provider = await _provider(request)
    async with service.limiters.sign_ins.slot():
        url, secret = await provider.begin(_page_of(request))
    _set_cookie(request, response, _begun_name(request), secret.value, BEGUN_SECONDS, BEGUN_PATH)
    return SignInStart(url=url)


@router.post("/oidc/code", responses=PROVIDER | raises(DatabaseUnavailable))
async def finish_sign_in(
    body: SignInCode, request: Request, response: Response, service: ServiceDep, accounts: AccountsDep
) -> Session:
    """Finish signing in with the identity provider: exchange its code for a session, in a cookie that scripts cannot read. Begin in the same browser."""
    provider = await _provider(request)
    secret = request.cookies.get(_begun_name(request), "")
    async with service.limiters.sign_ins.slot():
        found = await provider.finish(secret, _page_of(request), code=body.code, state=body.state, issuer=body.iss)
    seconds = service.settings.oidc_session_seconds
    user, session = await asyncio.to_thread(accounts.sign_in, found.subject, found.name, seconds)
    request.scope["signed_in"] = user
    _set_cookie(request, response, cookie_name(request.scope), session, int(seconds), COOKIE_PATH)
    response.delete_cookie(_begun_name(request), path=BEGUN_PATH, httponly=True, samesite="strict")
    return Session(user=user, home=service.deployment)


def _set_cookie(request: Request, response: Response, name: str, value: str, seconds: int, path: str) -> None:
    """Set a cookie that neither scripts nor other sites can use."""
    # Browsers drop secure cookies over plain HTTP. Behind a proxy, only Origin tells whether the browser uses HTTPS.
    secure = request.headers.get("origin", "").startswith("https://")
    response.set_cookie(name, value, max_age=seconds, path=path, secure=secure, httponly=True, samesite="strict")


def _begun_name(request: Request) -> str:
    return f"{cookie_name(request.scope)}-sign-in"


def _page_of(request: Request) -> str:
    """Return the address of the page, by the origin that the security checks have compared with an allowed host."""
    origin = request.headers.get("origin")
    return f"{origin or 'http://' + request.headers['host']}/"
