"""Metrics of jobs: what child processes count is added up in their parent, which can be scraped."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import httpx
import pytest

from headscope.errors import InvalidSetting
from headscope.jobs import metrics
from tests.support.compose import free_port
from tests.support.metrics import counted, registry

LABELS = {"model": "m", "lens": 'a"b'}


def work(sending: Connection, number: int, *, killed: bool = False) -> None:
    """Count, in a child."""
    metrics.send_to(sending)
    for _ in range(number):
        metrics.add("study_inputs", 2)
        metrics.add("run_seconds", 0.2, **LABELS)
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)


def run(number: int, *, killed: bool = False) -> multiprocessing.Process:
    """Start a child that counts."""
    context = multiprocessing.get_context("fork")
    child = context.Process(target=work, args=(metrics.relay().sending, number), kwargs={"killed": killed})
    child.start()
    return child


def observed(part: str, **labels: str) -> float:
    """The value of a part of a histogram; 0 before the first observation."""
    return registry().get_sample_value(f"headscope_run_seconds_{part}", {**LABELS, **labels}) or 0.0


def test_what_children_count_is_added_up() -> None:
    """Several children at once, one of which is killed; a scrape has everything that was counted before it."""
    before, runs, seconds = counted("study_inputs"), observed("count"), observed("sum")
    metrics.add("study_inputs", 5)
    children = [run(100), run(1), run(20, killed=True)]
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, -signal.SIGKILL]
    assert counted("study_inputs") == before + 5 + 2 * 121
    assert observed("count") == observed("bucket", le="0.25") == runs + 121
    assert observed("bucket", le="0.1") == 0
    assert observed("sum") == pytest.approx(seconds + 0.2 * 121)


def test_nothing_is_lost_between_scrapes() -> None:
    """Children send, one after another, three times as much as fits into a pipe."""
    before = counted("study_inputs")
    for _ in range(20):
        run(100).join()
    assert counted("study_inputs") == before + 4000


def test_a_parent_that_does_not_read_keeps_no_child_waiting() -> None:
    """If the pipe is full, what is counted is lost; what is in the pipe is whole."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    os.set_blocking(sending.fileno(), False)
    child = multiprocessing.get_context("fork").Process(target=work, args=(sending, 5000))
    child.start()
    child.join()
    assert child.exitcode == 0
    received = []
    while receiving.poll():
        received.append(receiving.recv_bytes())
    assert 100 < len(received) < 10_000
    assert set(received) == {received[0], received[1]}


def test_metrics_are_served_on_an_address() -> None:
    """A second process on the same address is told to take another one, and so is one with an address of another machine."""
    address = f"127.0.0.1:{free_port()}"
    metrics.serve(address)
    metrics.add("model_loads")
    text = httpx.get(f"http://{address}/metrics", trust_env=False).text
    assert f"headscope_model_loads_total {counted('model_loads')}" in text.splitlines()
    for other in (address, "192.0.2.1:9101", "127.0.0.1:99999"):
        with pytest.raises(InvalidSetting, match=f"Metrics cannot be served on {other}:"):
            metrics.serve(other)
