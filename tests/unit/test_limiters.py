"""Limits on expensive requests: clients take turns, too many of one client are rejected, and equal calls share a result."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headscope.errors import BudgetExceeded, TooManyRequests
from headscope.server.limiters import Limiter, MemoryLimiter, client


async def _of(name: str, limiter: Limiter, order: list[str]) -> None:
    """Hold a slot as that client, and note it."""
    client.set(name)
    async with limiter.slot():
        order.append(name)
        await asyncio.sleep(0)


def test_clients_take_turns() -> None:
    """A client with many requests does not delay a client with a single one."""
    order: list[str] = []

    async def flood() -> None:
        limiter = Limiter(total=1, each=1)
        await asyncio.gather(*(_of(name, limiter, order) for name in ["ada"] * 50 + ["emmy"]))

    asyncio.run(flood())
    assert order.index("emmy") < 3
    assert order.count("ada") == 50


def test_only_so_many_wait() -> None:
    """Of five requests of one client, one runs, two wait and two are rejected; other clients are not affected."""
    order: list[str] = []

    async def flood() -> list[object]:
        limiter = Limiter(total=4, each=1, waiting=2)
        names = ["ada"] * 5 + ["emmy"]
        ended = await asyncio.gather(*(_of(name, limiter, order) for name in names), return_exceptions=True)
        await _of("ada", limiter, order)  # there is room again
        return list(ended)

    errors = [error for error in asyncio.run(flood()) if error is not None]
    assert [type(error) for error in errors] == [TooManyRequests] * 2
    assert TooManyRequests.retry_after
    assert (order.count("ada"), order.count("emmy")) == (4, 1)


def test_equal_calls_share_an_answer() -> None:
    """A running call for the same client and question is awaited; its slot is held until its thread ends."""
    calls: list[str] = []
    go = threading.Event()

    async def ask(limiter: Limiter, name: str, question: str) -> str:
        client.set(name)

        def call() -> str:
            calls.append(name)
            go.wait(10)
            return question

        return await limiter.share(question, call)

    async def several() -> list[str]:
        limiter = Limiter(total=2, each=2, waiting=0)
        asked = [("ada", "a")] * 5 + [("emmy", "a")]
        tasks = [asyncio.create_task(ask(limiter, *one)) for one in asked]
        await asyncio.sleep(0.05)
        tasks[0].cancel()  # the others still wait for it
        go.set()
        ended = await asyncio.gather(*tasks[1:])
        assert await ask(limiter, "ada", "a") == "a"
        return ended

    assert asyncio.run(several()) == ["a"] * 5
    assert sorted(calls) == ["ada", "ada", "emmy"]


def test_errors_are_those_of_the_call() -> None:
    async def failing() -> None:
        with pytest.raises(ZeroDivisionError):
            await Limiter(total=1, each=1).share("a", lambda: 1 // 0)

    asyncio.run(failing())


def test_what_no_client_may_have() -> None:
    """What alone exceeds a client's limit is too large, however idle the server is; what exceeds it with other requests has to wait."""
    room = MemoryLimiter(total=200, each=100)
    with room.request():
        with pytest.raises(BudgetExceeded, match="one client") as refused:
            room.take(101)
        assert (refused.value.actual, refused.value.limit) == (101, 100)
        room.take(60)
        with pytest.raises(TooManyRequests):
            room.take(60)
