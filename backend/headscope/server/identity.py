"""The lab's identity provider: OpenID Connect's authorization code flow with PKCE. Imported only where a provider is configured; needs the extra `oidc`.

https://openid.net/specs/openid-connect-core-1_0.html, https://www.rfc-editor.org/rfc/rfc7636 and https://www.rfc-editor.org/rfc/rfc9207
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jwk import KeySet

from ..errors import ProviderUnavailable, SignInRefused
from ..settings import Settings

logger = logging.getLogger("headscope.identity")

# Signatures by a key that the provider alone has: neither "none", nor those by a shared secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
# Time for one answer of the provider (s), and for which its configuration, or a failure to read it, is remembered.
ANSWER_SECONDS, REMEMBER_SECONDS, FAILED_SECONDS = 10.0, 3600.0, 3.0
# Difference of the clocks that is tolerated (s).
LEEWAY = 60
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")

UNREACHABLE = "The identity provider cannot be reached. Try again in a moment, or sign in with an access token."
MISCONFIGURED = (
    "The identity provider does not answer as HEADSCOPE_OIDC_ISSUER requires. Ask this server's administrator."
)
NOT_STARTED = "This sign-in was not started in this browser, or took too long. Sign in again."
DECLINED = "The identity provider did not let you sign in. Try again, or ask its administrator."
REJECTED = "The identity provider rejects this sign-in, which may have expired or been used already. Sign in again."
NOT_SIGNED = "The identity provider's answer is not signed with its key. Sign in again; if that fails, ask this server's administrator."
OTHER_CLIENT = "The identity provider's answer is for another service. Check HEADSCOPE_OIDC_ISSUER and HEADSCOPE_OIDC_CLIENT_ID on this server."
OTHER_SIGN_IN = "The identity provider's answer belongs to another sign-in. Sign in again."
CLOCKS = "The identity provider's answer has expired or is not valid yet. Compare the clocks of the provider and of this server."
NAMELESS = (
    "The identity provider does not tell your name. Its administrator can add the claim of HEADSCOPE_OIDC_USER_CLAIM."
)
NOT_ALLOWED = "Your account at the identity provider has no access to this server. Ask its administrator."


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the provider. `subject` is a hash of the issuer and of its name for the user, which never changes."""

    subject: str
    name: str


@dataclass(frozen=True, slots=True)
class SignInSecret:
    """The secret of a sign-in under way, which only the browser keeps. The values of the protocol are derived from it, so that none can be exchanged."""

    value: str

    @property
    def state(self) -> str:
        return self._derive("state")

    @property
    def nonce(self) -> str:
        return self._derive("nonce")

    @property
    def verifier(self) -> str:
        return self._derive("verifier")

    def _derive(self, use: str) -> str:
        derived = hmac.digest(self.value.encode("utf-8", "surrogatepass"), use.encode(), "sha256")
        return base64.urlsafe_b64encode(derived).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class ProviderConfiguration:
    """What the provider publishes about itself, its keys, and until when both are remembered (s, monotonic)."""

    metadata: Mapping[str, Any]
    keys: KeySet
    until: float


class IdentityProvider:
    """The provider of the settings, whose configuration is read at the first sign-in. `transport` replaces the network in tests.

    The methods raise ProviderUnavailable.
    """

    def __init__(self, settings: Settings, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        self.issuer = str(settings.oidc_issuer)
        self._client_id = str(settings.oidc_client_id)
        secret = settings.oidc_client_secret
        self._secret = None if secret is None else secret.get_secret_value()
        # Made once: reading the certificates takes tens of milliseconds.
        network: dict[str, Any] = {"verify": ssl.create_default_context()} if transport is None else {}
        self._options = {"timeout": ANSWER_SECONDS, "transport": transport, **network}
        self._reading = asyncio.Lock()
        self._configuration: ProviderConfiguration | None = None
        self._failed_at = -FAILED_SECONDS

    async def begin(self, redirect_url: str) -> tuple[str, SignInSecret]:
        """Begin a sign-in: return the address of the provider to send the browser to, and the secret for the browser to keep."""
        configuration = await self._read_configuration()
        secret = SignInSecret(secrets.token_urlsafe(32))
        address = prepare_grant_uri(
            configuration.metadata["authorization_endpoint"],
            client_id=self._client_id,
            response_type="code",
            redirect_uri=redirect_url,
            scope=self._settings.oidc_scope,
            state=secret.state,
            nonce=secret.nonce,
            code_challenge=create_s256_code_challenge(secret.verifier),
            code_challenge_method="S256",
        )
        return str(address), secret

    async def finish(
        self, secret: str, redirect_url: str, *, code: str | None, state: str, issuer: str | None = None
    ) -> Identity:
        """Finish a sign-in with what the provider has added to `redirect_url`, and return who signs in. Raises SignInRefused.

        `secret` is that of the browser, and empty if it has none. Without `code`, the provider has declined.
        """
        kept = SignInSecret(secret)
        if not secret or not hmac.compare_digest(kept.state.encode(), state.encode("utf-8", "surrogatepass")):
            raise SignInRefused(NOT_STARTED)
        if code is None:
            raise SignInRefused(DECLINED)
        if issuer is not None and issuer != self.issuer:
            raise SignInRefused(OTHER_CLIENT)
        configuration = await self._read_configuration()
        async with self._client(configuration) as client:
            try:
                tokens = await client.fetch_token(
                    configuration.metadata["token_endpoint"],
                    grant_type="authorization_code",
                    code=code,
                    redirect_uri=redirect_url,
                    code_verifier=kept.verifier,
                )
                claims = await self._verify(configuration, tokens, kept.nonce)
                more = await self._ask_about(configuration, client, claims)
            except OAuthError as error:
                logger.warning("sign-in rejected by the identity provider", extra={"error": _known_error(error)})
                raise SignInRefused(REJECTED) from None
            except (httpx2.HTTPError, ValueError, KeyError, TypeError) as error:
                raise _unavailable(UNREACHABLE, error) from None
        return self._identify({**more, **claims})

    async def _read_configuration(self, *, renew: bool = False) -> ProviderConfiguration:
        """Return the configuration, read by one request at a time; after a failure, none reads it again at once."""
        async with self._reading:
            now, known = time.monotonic(), self._configuration
            if known is not None and now < known.until and not renew:
                return known
            if now < self._failed_at + FAILED_SECONDS:
                raise ProviderUnavailable(UNREACHABLE)
            try:
                async with httpx2.AsyncClient(**self._options) as client:
                    metadata = await _read_json(client, f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
                    self._check(metadata)
                    keys = KeySet.import_key_set(cast("Any", await _read_json(client, metadata["jwks_uri"])))
            except (httpx2.HTTPError, JoseError, ValueError, KeyError, TypeError) as error:
                self._failed_at = time.monotonic()
                raise _unavailable(
                    UNREACHABLE if isinstance(error, httpx2.HTTPError) else MISCONFIGURED, error
                ) from None
            self._configuration = ProviderConfiguration(metadata, keys, now + REMEMBER_SECONDS)
            return self._configuration

    def _check(self, metadata: Mapping[str, Any]) -> None:
        """Raise ValueError unless this is the configuration of the issuer, and all connections are as safe as the one to it."""
        scheme = urlsplit(self.issuer).scheme
        if metadata["issuer"] != self.issuer:
            raise ValueError("another issuer")
        if any(urlsplit(metadata[name]).scheme not in ("https", scheme) for name in ENDPOINTS):
            raise ValueError("an endpoint without https")

    def _client(self, configuration: ProviderConfiguration) -> AsyncOAuth2Client:
        known = configuration.metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        method = "client_secret_basic" if "client_secret_basic" in known else "client_secret_post"
        return AsyncOAuth2Client(
            client_id=self._client_id,
            client_secret=self._secret,
            token_endpoint_auth_method="none" if self._secret is None else method,
            **self._options,
        )

    async def _verify(
        self, configuration: ProviderConfiguration, tokens: Mapping[str, Any], nonce: str
    ) -> dict[str, Any]:
        """Return the claims of the ID token, once signature, issuer, audience, times and nonce are verified. Raises SignInRefused."""
        try:
            token = self._decode(tokens["id_token"], configuration.keys)
        except (JoseError, ValueError):  # the provider may have changed its keys
            renewed = await self._read_configuration(renew=True)
            try:
                token = self._decode(tokens["id_token"], renewed.keys)
            except (JoseError, ValueError) as error:
                raise _refused(NOT_SIGNED, error) from None
        options = {name: {"essential": True, "value": value} for name, value in self._expected().items()}
        params = {"nonce": nonce, "client_id": self._client_id, "access_token": tokens.get("access_token")}
        claims = CodeIDToken(token.claims, token.header, options, params)
        try:
            claims.validate(leeway=LEEWAY)
        except JoseError as error:
            raise _refused(_reason(error), error) from None
        return dict(claims)

    def _decode(self, id_token: str, keys: KeySet) -> jwt.Token:
        return jwt.decode(id_token, keys, algorithms=ALGORITHMS)

    def _expected(self) -> dict[str, str]:
        return {"iss": self.issuer, "aud": self._client_id}

    async def _ask_about(
        self, configuration: ProviderConfiguration, client: AsyncOAuth2Client, claims: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the claims that the provider gives only at its userinfo endpoint, where one that is needed is missing. Raises SignInRefused."""
        address = configuration.metadata.get("userinfo_endpoint")
        if address is None or self._needed() <= claims.keys():
            return {}
        answer = await client.get(address)
        answer.raise_for_status()
        more: dict[str, Any] = answer.json()
        if more["sub"] != claims["sub"]:
            raise SignInRefused(OTHER_SIGN_IN)
        return more

    def _needed(self) -> set[str]:
        """Return the claims that decide who signs in, and whether they may."""
        groups = {"groups"} if self._settings.oidc_groups else set()
        domains = {"email", "email_verified"} if self._settings.oidc_domains else set()
        return {self._settings.oidc_user_claim, *groups, *domains}

    def _identify(self, claims: Mapping[str, Any]) -> Identity:
        """Return the user of these claims. Raises SignInRefused if the settings do not admit the user."""
        settings = self._settings
        name, email, groups = claims.get(settings.oidc_user_claim), claims.get("email"), claims.get("groups")
        verified = claims.get("email_verified") is True
        if settings.oidc_groups and not (isinstance(groups, list) and set(settings.oidc_groups).intersection(groups)):
            raise SignInRefused(NOT_ALLOWED)
        domain = email.rpartition("@")[2].lower() if isinstance(email, str) and verified else None
        if settings.oidc_domains and domain not in {allowed.lower() for allowed in settings.oidc_domains}:
            raise SignInRefused(NOT_ALLOWED)
        if not isinstance(name, str) or (settings.oidc_user_claim == "email" and not verified):
            raise SignInRefused(NAMELESS)
        subject = f"{self.issuer}\n{claims['sub']}".encode("utf-8", "surrogatepass")
        return Identity(hashlib.sha256(subject).hexdigest(), name)


async def _read_json(client: httpx2.AsyncClient, address: str) -> dict[str, Any]:
    answer = await client.get(address)
    answer.raise_for_status()
    found = answer.json()
    if not isinstance(found, dict):
        raise TypeError("not an object")
    return found


def _reason(error: JoseError) -> str:
    """Return the sentence for a claim that is wrong."""
    claim = getattr(error, "claim", None)
    if isinstance(error, ExpiredTokenError) or claim in ("exp", "iat", "nbf"):
        return CLOCKS
    return OTHER_CLIENT if claim in ("iss", "aud", "azp") else OTHER_SIGN_IN


def _refused(detail: str, error: Exception) -> SignInRefused:
    logger.warning("sign-in refused", extra={"error": type(error).__name__, "claim": getattr(error, "claim", None)})
    return SignInRefused(detail)


def _unavailable(detail: str, error: Exception) -> ProviderUnavailable:
    logger.warning("identity provider unavailable", extra={"error": type(error).__name__})
    return ProviderUnavailable(detail)


def _known_error(error: OAuthError) -> str:
    """Return the code of an OAuth error, for the log."""
    known = ("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type")
    return str(error.error) if error.error in known else "other"
