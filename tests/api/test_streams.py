"""Event streams end soon after their reader loses access."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from headscope.api.middleware.access import RECHECK_SECONDS
from tests.api.users import Users, users
from tests.support.server import API, SLOW, eventually


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory, models: Path) -> Iterator[tuple[Users, str]]:
    """A server whose worker process is stopped, and the events of an analysis of Ada's and Emmy's that does not end."""
    with users(tmp_path_factory.mktemp("stopped") / "home", models) as lab:
        # A process that stands still is replaced after a while: by one that takes as long again.
        body = {**SLOW, "text": SLOW["text"] * 4, "max_tokens": 1000}
        id_ = lab.ada.post(f"{API}/analyses", json=body).json()["id"]
        assert lab.emmy.post(f"{API}/analyses", json=body).json()["id"] == id_
        eventually(lambda: lab.ada.get(f"{API}/analyses/{id_}").json()["status"] == "running", "its run")
        lab.server.child().suspend()
        yield lab, id_


def test_streams_end_with_the_right_to_read_them(stopped: tuple[Users, str]) -> None:
    """A revoked token and a revoked share key end their streams as complete responses; another user's continues."""
    lab, id_ = stopped
    address = f"{API}/analyses/{id_}"
    key = lab.ada.post(f"{address}/share").json()["key"]
    readers = {"emmy": (lab.emmy, {}), "key": (lab.anonymous, {"share": key}), "ada": (lab.ada, {})}
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        streams = {
            name: stack.enter_context(who.stream("GET", f"{address}/events", params=params))
            for name, (who, params) in readers.items()
        }
        ends = {name: pool.submit(_read, stream) for name, stream in streams.items()}
        assert lab.ada.delete(f"{address}/share").status_code == 204
        lab.server.revoke_user("emmy")
        for name in ("emmy", "key"):
            assert "event: progress" in ends[name].result(RECHECK_SECONDS * 4)
        assert not ends["ada"].done()
        lab.server.revoke_user("ada")
        ends["ada"].result(RECHECK_SECONDS * 4)
    assert "error" not in lab.server.log()


def _read(stream: httpx.Response) -> str:
    """Read a whole stream; raise if it is cut off."""
    return "".join(stream.iter_text())
