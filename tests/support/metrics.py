"""The metrics of jobs of the test's own process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from headscope.jobs import metrics


def registry() -> CollectorRegistry:
    """A registry as that of a server or a worker."""
    made = CollectorRegistry()
    made.register(metrics.relay())
    return made


def counted(name: str) -> float:
    """The value of a counter."""
    value = registry().get_sample_value(f"headscope_{name}_total")
    assert value is not None
    return value
