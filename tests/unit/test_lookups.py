"""Concurrent lookups are shared, but none returns what was true before it was asked for."""

from __future__ import annotations

import asyncio
import threading

from headscope.errors import DatabaseUnavailable
from headscope.server.lookups import Lookups


def test_those_that_wait_share_the_next_lookup() -> None:
    """A value that changes during a lookup: the first caller may get the old one, all later ones get the new one by one more lookup."""
    begun, go, values = threading.Event(), threading.Event(), ["old"]
    calls: list[str] = []

    def look() -> str:
        calls.append(values[0])
        begun.set()
        go.wait(10)
        return calls[-1]

    async def main() -> list[str]:
        lookups = Lookups[str]()
        first = asyncio.create_task(lookups.get("key", look))
        await asyncio.to_thread(begun.wait, 10)
        values[0] = "new"
        later = [asyncio.create_task(lookups.get("key", look)) for _ in range(20)]
        other = asyncio.create_task(lookups.get("other", lambda: "at once"))
        assert await other == "at once"
        later[3].cancel()
        go.set()
        found = await asyncio.gather(first, *later, return_exceptions=True)
        assert isinstance(found.pop(4), asyncio.CancelledError)
        return found

    assert asyncio.run(main()) == ["old"] + ["new"] * 19
    assert calls == ["old", "new"]


def test_an_error_reaches_all_and_the_next_one_tries_again() -> None:
    answers: list[bool] = []

    def look() -> bool:
        answers.append(True)
        if len(answers) < 3:
            raise DatabaseUnavailable("Away.")
        return True

    async def main() -> None:
        lookups = Lookups[bool]()
        found = await asyncio.gather(*(lookups.get("key", look) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(error, DatabaseUnavailable) for error in found)
        assert await lookups.get("key", look)

    asyncio.run(main())
    assert len(answers) == 3


def test_one_after_another() -> None:
    """Lookups without company are independent, and leave nothing behind."""

    async def main() -> None:
        lookups = Lookups[int]()
        assert [await lookups.get(turn % 3, lambda turn=turn: turn) for turn in range(50)] == list(range(50))
        await asyncio.sleep(0)
        assert not lookups._running
        assert not lookups._next

    asyncio.run(main())
