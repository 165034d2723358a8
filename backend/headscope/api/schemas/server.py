"""Schemas of the server itself: sign-in, share keys and readiness."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .common import Strict


class SignIn(Strict):
    """An access token."""

    token: Annotated[str, Field(min_length=1, max_length=200)]


class ProviderOffer(Strict):
    """The identity provider whose users may sign in; `issuer` is null if there is none."""

    issuer: str | None


class SignInStart(Strict):
    """The address of the identity provider to send the browser to."""

    url: str


class SignInCode(Strict):
    """What the identity provider has added to the page's address: a code, or none if it has declined."""

    state: Annotated[str, Field(min_length=1, max_length=200)]
    code: Annotated[str | None, Field(max_length=6000)] = None
    iss: Annotated[str | None, Field(max_length=1000)] = None


class Session(Strict):
    """The signed-in user, and the server's deployment (`home`).

    `user` is null on a server without users and for a request with only a share key.
    """

    user: str | None
    home: Literal["embedded", "cluster"]


class Share(Strict):
    """A share key, and the URL of the page that opens with it."""

    key: str
    link: str


class Health(Strict):
    """Whether the server accepts work, and how much it holds."""

    status: Literal["ok", "degraded"]
    version: str
    queued: int | None = Field(description="Number of queued jobs; null while the queue is unreachable.")
    workers: int | None = Field(
        description="Number of workers of a cluster; null if a child process of the server does the work."
    )
    results: int | None
    result_bytes: int | None
