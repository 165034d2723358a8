"""Clients of a server: persistent connections that send one request after another, with as little overhead as possible."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle


@dataclass
class Tally:
    """Outcomes of requests: latencies (s) of responses with status 200, the number of other responses, and of transport errors."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    broken: int = 0

    def quantile(self, share: float) -> float:
        """Return the quantile of the latencies in s: the smallest that this share of the requests did not exceed."""
        ordered = sorted(self.seconds)
        return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]


class Visitor:
    """A connection that requests these paths in turn. The address is host:port, or token@host:port for a server with users."""

    def __init__(self, address: str, paths: Sequence[str]) -> None:
        token, _, host = address.rpartition("@")
        head = f"Host: {host}\r\n" + (f"Authorization: Bearer {token}\r\n" if token else "")
        self._host, _, port = host.partition(":")
        self._port = int(port)
        self._requests = cycle([f"GET {path} HTTP/1.1\r\n{head}\r\n".encode() for path in paths])

    async def __aenter__(self) -> Visitor:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, tally: Tally, meant: float) -> None:
        """Send a request scheduled for time `meant` (time.perf_counter), from which its latency counts, including delays by earlier requests."""
        try:
            self._writer.write(next(self._requests))
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            await self._reader.readexactly(int(length))
        except (OSError, EOFError, ValueError):
            tally.broken += 1
            await self.__aexit__()
            await self.__aenter__()
            return
        if head.startswith(b"HTTP/1.1 200"):
            tally.seconds.append(time.perf_counter() - meant)
        else:
            tally.refused += 1


def closed(address: str, paths: Sequence[str], visitors: int, seconds: float, pause: float = 0.0) -> Tally:
    """Measure a closed loop: every client sends its next request after the response, but at least `pause` s after the last one."""

    async def visit(visitor: Visitor, tally: Tally, number: int) -> None:
        await asyncio.sleep(pause * number / visitors)
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            await visitor.ask(tally, now)
            await asyncio.sleep(max(pause - (time.perf_counter() - now), 0))

    return asyncio.run(_all(address, paths, visitors, visit))


def open_loop(address: str, paths: Sequence[str], visitors: int, seconds: float, rate: float) -> Tally:
    """Measure an open loop: `rate` requests per second at fixed times; latencies count from the scheduled time."""

    async def visit(visitor: Visitor, tally: Tally, number: int) -> None:
        start = time.perf_counter()
        for turn in range(int(seconds * rate / visitors)):
            meant = start + (turn * visitors + number) / rate
            await asyncio.sleep(max(meant - time.perf_counter(), 0))
            await visitor.ask(tally, meant)

    return asyncio.run(_all(address, paths, visitors, visit))


async def _all(
    address: str, paths: Sequence[str], visitors: int, visit: Callable[[Visitor, Tally, int], Awaitable[None]]
) -> Tally:
    """Run all clients, each starting at a different path."""
    tally = Tally()

    async def one(number: int) -> None:
        first = number * len(paths) // visitors
        async with Visitor(address, [*paths[first:], *paths[:first]]) as visitor:
            await visit(visitor, tally, number)

    await asyncio.gather(*(one(number) for number in range(visitors)))
    return tally
