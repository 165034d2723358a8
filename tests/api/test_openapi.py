"""The OpenAPI document declares what the server responds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.api.users import DOCUMENT, NAMES, UNKNOWN_ID
from tests.fuzz import answered, fuzz, laboratory
from tests.support.extent import extent
from tests.support.server import Server
from tests.support.variants import variants

OPERATIONS = [
    (path, method, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


def resolved(response: dict[str, Any]) -> dict[str, Any]:
    """Resolve a reference to a response."""
    name = response.get("$ref", "").removeprefix("#/components/responses/")
    return DOCUMENT["components"]["responses"][name] if name else response


def numbers(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every number in a schema."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield schema
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from numbers(part)


def test_errors_are_problem_documents() -> None:
    """Every operation declares its errors as problem documents; a 400 may come from the HTTP parser, and readiness has its own 503."""
    public = ("/healthz", "/api/v1/session/oidc", "/api/v1/session/oidc/code")
    for path, method, operation in OPERATIONS:
        errors = {status: resolved(one) for status, one in operation["responses"].items() if status >= "400"}
        assert {"400", "421", "500"} <= errors.keys(), (method, path)
        assert ("401" in errors) is (path not in public), (method, path)
        assert ("403" in errors) is (method != "get"), (method, path)
        for status, error in errors.items():
            others = {("/readyz", "503"): {"application/json"}}.get((path, status), set())
            others |= {"text/plain"} if status == "400" else set()
            assert error["content"].keys() - others == {"application/problem+json"}, (method, path, status)


def test_success_has_a_media_type() -> None:
    """Every successful response with a body declares its media type."""
    for path, method, operation in OPERATIONS:
        for status, response in operation["responses"].items():
            if status in ("200", "201", "202"):
                assert response["content"], (method, path, status)


def test_numbers_have_bounds() -> None:
    """No number in a request can exceed what Redis, SQLite and JavaScript represent exactly."""
    for path, method, operation in OPERATIONS:
        for parameter in operation.get("parameters", []):
            for number in numbers(parameter["schema"]):
                assert {"maximum", "exclusiveMaximum"} & number.keys(), (method, path, parameter["name"])
                assert number.get("maximum", number.get("exclusiveMaximum")) <= 2**53


@variants("path", DOCUMENT["paths"])
def test_methods(embedded: Server, path: str) -> None:
    """An unsupported method is 405, and Allow lists all supported ones."""
    filled = path.format(**NAMES, id=UNKNOWN_ID, other=UNKNOWN_ID)
    for method in ("PUT", "OPTIONS", "TRACE"):
        answer = embedded.client.request(method, filled)
        assert answer.status_code == 405
        assert sorted(answer.headers["allow"].split(", ")) == [one.upper() for one in sorted(DOCUMENT["paths"][path])]


def test_generated_requests(tmp_path: Path, models: Path) -> None:
    """The short form of `make fuzz`: no check of Schemathesis fails, and most operations have succeeded at least once."""
    with laboratory(tmp_path, models) as lab:
        phases = extent("fuzzing,stateful", "fuzzing")
        done = fuzz(lab, tmp_path, 1, f"--phases={phases}", f"--max-examples={extent(4, 1)}")
        assert done.returncode == 0, done.stdout
        succeeded = {(route, method) for route, method, status in answered(lab) if status == "2xx"}
        assert len(succeeded) > len(OPERATIONS) / 2, succeeded
