"""Answers of an identity provider that must not sign anyone in, minted with keys of the test's own; and who is signed in by good ones."""

from __future__ import annotations

import asyncio
import json
import time
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from headscope.errors import HeadscopeError, InvalidSetting, ProviderUnavailable, SignInRefused
from headscope.server.identity import Identity, IdentityProvider
from headscope.settings import Settings
from tests.support.variants import variants

ISSUER, PAGE = "https://id.lab.example", "https://headscope.lab.example/"
KEY, OTHER_KEY = (ECKey.generate_key("P-256", {"kid": name, "alg": "ES256"}) for name in ("one", "two"))
ADA = {"preferred_username": "ada"}


class Issuer:
    """A provider under the control of a test: `claims` replace those of a good ID token."""

    def __init__(self, **settings: Any) -> None:
        named = {"oidc_issuer": ISSUER, "oidc_client_id": "headscope", "oidc_client_secret": "hidden", **settings}
        self.provider = IdentityProvider(Settings(**named), httpx2.MockTransport(self._answer))
        self.claims: dict[str, Any] = dict(ADA)
        self.metadata: dict[str, Any] = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "jwks_uri": f"{ISSUER}/keys",
        }
        self.header, self.key, self.published = {"alg": "ES256", "kid": "one"}, KEY, [KEY]
        self.userinfo: dict[str, Any] | None = None
        self.broken: dict[str, httpx2.Response] = {}
        self.asked: list[str] = []

    def sign_in(self) -> Identity:
        """Sign in by the whole flow."""
        return asyncio.run(self._sign_in())

    async def _sign_in(self) -> Identity:
        url, secret = await self.provider.begin(PAGE)
        self.sent = dict(parse_qsl(urlsplit(url).query))
        return await self.provider.finish(secret.value, PAGE, code="code", state=self.sent["state"])

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        self.asked.append(path)
        if path in self.broken:
            return self.broken[path]
        if path == "/userinfo":
            assert request.headers["authorization"] == "Bearer access"
            return httpx2.Response(200, json=self.userinfo)
        if path == "/token":
            return httpx2.Response(200, json=self._tokens(dict(parse_qsl(request.content.decode()))))
        keys = {"keys": [key.as_dict(private=False) for key in self.published]}
        return httpx2.Response(200, json=keys if path == "/keys" else self.metadata)

    def _tokens(self, sent: dict[str, str]) -> dict[str, Any]:
        assert (sent["grant_type"], sent["code"], sent["redirect_uri"]) == ("authorization_code", "code", PAGE)
        assert len(sent["code_verifier"]) == 43
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "sub": "1",
            "aud": "headscope",
            "exp": now + 60,
            "iat": now,
            "nonce": self.sent["nonce"],
        }
        return {"access_token": "access", "token_type": "Bearer", "id_token": self._mint({**claims, **self.claims})}

    def _mint(self, claims: dict[str, Any]) -> str:
        kept = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(self.header, kept, self.key, algorithms=[self.header["alg"]])

    def refuses(self, words: str, error: type[HeadscopeError] = SignInRefused) -> None:
        """Check that the sign-in is refused, for a reason that contains these words."""
        with pytest.raises(error, match=words):
            self.sign_in()


@pytest.fixture
def issuer() -> Issuer:
    """A provider that is as good as its word."""
    return Issuer()


def test_a_good_answer(issuer: Issuer) -> None:
    """The request has state, nonce and the challenge of PKCE, which belong to this sign-in alone; the subject does not depend on the name."""
    first = issuer.sign_in()
    assert first.name == "ada"
    before = issuer.sent
    assert (before["response_type"], before["client_id"], before["redirect_uri"]) == ("code", "headscope", PAGE)
    assert (before["code_challenge_method"], before["scope"]) == ("S256", "openid profile email")
    issuer.claims["preferred_username"] = "countess"
    second = issuer.sign_in()
    assert (second.subject, second.name) == (first.subject, "countess")
    assert not {before[name] for name in ("state", "nonce", "code_challenge")} & set(issuer.sent.values())
    assert issuer.asked.count("/keys") == 1
    issuer.claims["sub"] = "2"
    assert issuer.sign_in().subject != first.subject


# Claims that are times; here as seconds from now.
TIMES = ("exp", "iat", "nbf")


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"nonce": "another"}, "another sign-in"),
        ({"nonce": None}, "another sign-in"),
        ({"exp": -3600, "iat": -7200}, "clocks"),
        ({"iat": 7200, "exp": 9000}, "clocks"),
        ({"nbf": 7200}, "clocks"),
        ({"exp": None}, "clocks"),
        ({"iss": "https://evil.example"}, "another service"),
        ({"iss": f"{ISSUER}/"}, "another service"),
        ({"aud": "another"}, "another service"),
        ({"aud": ["another", "third"]}, "another service"),
        ({"aud": ["headscope", "another"], "azp": "another"}, "another service"),
        ({"aud": None}, "another service"),
        ({"sub": None}, "another sign-in"),
        ({"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}, "another sign-in"),
    ],
    ids=str,
)
def test_claims_that_are_wrong(issuer: Issuer, claims: dict[str, Any], words: str) -> None:
    now = int(time.time())
    issuer.claims |= {name: now + value if name in TIMES and value else value for name, value in claims.items()}
    issuer.refuses(words)


def test_signatures_that_are_wrong(issuer: Issuer) -> None:
    """Another key, under its own name or that of the provider's; none; and a shared secret, be it the public key or the client's."""
    public = OctKey.import_key(json.dumps(KEY.as_dict(private=False)))
    for header, key in (
        ({"alg": "ES256", "kid": "two"}, OTHER_KEY),
        ({"alg": "ES256", "kid": "one"}, OTHER_KEY),
        ({"alg": "ES256"}, OTHER_KEY),
        ({"alg": "HS256", "kid": "one"}, public),
        ({"alg": "HS256"}, OctKey.import_key("hidden" * 8)),
    ):
        issuer.header, issuer.key = header, key
        issuer.refuses("not signed with its key")
    issuer.header, issuer.key = {"alg": "ES256", "kid": "one"}, KEY
    for token in ("", "a.b.c", "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.", "{}"):
        issuer.broken["/token"] = httpx2.Response(200, json={"access_token": "access", "id_token": token})
        issuer.refuses("not signed with its key")


def test_new_keys_are_read(issuer: Issuer) -> None:
    """A provider that has changed its keys is asked for them once more."""
    issuer.sign_in()
    issuer.published, issuer.key, issuer.header = [OTHER_KEY], OTHER_KEY, {"alg": "ES256", "kid": "two"}
    assert issuer.sign_in().name == "ada"
    assert issuer.asked.count("/keys") == 2


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"issuer": "https://evil.example"}, "HEADSCOPE_OIDC_ISSUER"),
        ({"token_endpoint": "http://id.lab.example/token"}, "HEADSCOPE_OIDC_ISSUER"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "HEADSCOPE_OIDC_ISSUER"),
        ({"jwks_uri": None}, "HEADSCOPE_OIDC_ISSUER"),
    ],
    ids=str,
)
def test_a_configuration_of_another(issuer: Issuer, metadata: dict[str, Any], words: str) -> None:
    issuer.metadata |= metadata
    issuer.refuses(words, ProviderUnavailable)


def test_a_provider_in_trouble(issuer: Issuer) -> None:
    """Errors of the provider are told apart from those of the sign-in; after one, its configuration is not asked for again at once."""
    for answer, error in (
        (httpx2.Response(503), ProviderUnavailable),
        (httpx2.Response(200, text="<html>"), ProviderUnavailable),
        (httpx2.Response(200, json=[]), ProviderUnavailable),
        (httpx2.Response(200, json={"access_token": "access"}), ProviderUnavailable),
        (httpx2.Response(400, json={"error": "invalid_grant"}), SignInRefused),
        (httpx2.Response(401, json={"error": "invalid_client"}), SignInRefused),
    ):
        issuer.broken["/token"] = answer
        issuer.refuses("identity provider", error)
    fresh = Issuer()
    fresh.broken["/.well-known/openid-configuration"] = httpx2.Response(500)
    for _ in range(3):
        fresh.refuses("cannot be reached", ProviderUnavailable)
    assert len(fresh.asked) == 1


def test_claims_of_the_userinfo_endpoint(issuer: Issuer) -> None:
    """They are asked for where one is missing, and count only for the same user; those of the ID token go first."""
    issuer.metadata["userinfo_endpoint"] = f"{ISSUER}/userinfo"
    issuer.sign_in()
    assert "/userinfo" not in issuer.asked
    issuer.claims = {"preferred_username": None}
    issuer.userinfo = {"sub": "1", "preferred_username": "emmy"}
    assert issuer.sign_in().name == "emmy"
    issuer.userinfo["sub"] = "2"
    issuer.refuses("another sign-in")
    issuer.userinfo = {"preferred_username": "emmy"}
    issuer.refuses("identity provider", ProviderUnavailable)


MAIL = {"email": "ada@Lab.example", "email_verified": True}


@variants(
    ("settings", "claims", "name"),
    [
        ({}, {"preferred_username": None}, None),
        ({}, {"preferred_username": ["ada"]}, None),
        ({"oidc_groups": ["physics"]}, {}, None),
        ({"oidc_groups": ["physics"]}, {"groups": "physics"}, None),
        ({"oidc_groups": ["physics"]}, {"groups": ["chemistry"]}, None),
        ({"oidc_groups": ["physics"]}, {"groups": ["chemistry", "physics"]}, "ada"),
        ({"oidc_domains": ["lab.example"]}, {}, None),
        ({"oidc_domains": ["lab.example"]}, MAIL, "ada"),
        ({"oidc_domains": ["lab.example"]}, {**MAIL, "email_verified": False}, None),
        ({"oidc_domains": ["lab.example"]}, {**MAIL, "email_verified": "true"}, None),
        ({"oidc_domains": ["lab.example"]}, {**MAIL, "email": "ada@lab.example.evil.example"}, None),
        ({"oidc_domains": ["lab.example"]}, {**MAIL, "email": "ada@sub.lab.example"}, None),
        ({"oidc_user_claim": "email"}, MAIL, "ada@Lab.example"),
        ({"oidc_user_claim": "email"}, {"email": "ada@lab.example"}, None),
    ],
    ids=str,
)
def test_who_may_sign_in(settings: dict[str, Any], claims: dict[str, Any], name: str | None) -> None:
    issuer = Issuer(**settings)
    issuer.claims |= claims
    if name is None:
        issuer.refuses("identity provider")
    else:
        assert issuer.sign_in().name == name


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"oidc_issuer": "http://id.lab.example", "oidc_client_id": "headscope"}, "HEADSCOPE_OIDC_ISSUER"),
        ({"oidc_issuer": "id.lab.example", "oidc_client_id": "headscope"}, "HEADSCOPE_OIDC_ISSUER"),
        ({"oidc_issuer": ISSUER}, "HEADSCOPE_OIDC_CLIENT_ID"),
        ({"oidc_issuer": ISSUER, "oidc_client_id": "headscope", "oidc_scope": "profile"}, "HEADSCOPE_OIDC_SCOPE"),
    ],
    ids=str,
)
def test_settings(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        Settings(**settings)


def test_the_client_secret_is_not_shown(issuer: Issuer) -> None:
    shown = Settings(oidc_client_secret="hidden")
    assert "hidden" not in repr(shown) + json.dumps(shown.model_dump(mode="json"))


def test_without_the_extra() -> None:
    """One sentence says what to install."""
    missing = lambda name: None if name == "authlib" else find_spec(name)  # noqa: E731
    with patch("headscope.settings.find_spec", missing), pytest.raises(InvalidSetting, match=r"headscope\[oidc\]"):
        Settings(oidc_issuer=ISSUER, oidc_client_id="headscope")
