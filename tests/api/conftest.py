"""The server with users that the tests in this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.users import Users, users


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[Users]:
    """A server with two users, for tests that leave it unchanged."""
    with users(tmp_path_factory.mktemp("lab") / "home", models) as running:
        yield running
        log = running.server.log()
        assert not [name for name, token in running.tokens.items() if token in log], "a token was logged"
