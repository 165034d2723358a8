"""The progress of a study, from its job and the chunks that are left."""

import json
from typing import Any

import pytest

from headscope.api.documents.studies import to_progress
from headscope.jobs import Job

SIZES = [256, 256, 132]


def _job(id_: str, payload: str, status: Any, fraction: float) -> Job:
    values: dict[str, Any] = {"batch": "a", "status": status, "stage": status, "detail": "", "tokens": 10}
    times: dict[str, Any] = {"created": 0.0, "started": None, "finished": None}
    return Job(id_, payload, fraction=fraction, attempts=0, error=None, version=1, **values, **times)


def _study(status: str) -> Job:
    payload = json.dumps({"chunks": [[number, 0, 0, size, 0] for number, size in enumerate(SIZES)]})
    return _job("a", payload, status, 0.0)


def _chunks(*statuses: Any) -> list[Job]:
    return [_job(f"a.{number}", "{}", status, 0.5) for number, status in enumerate(statuses)]


@pytest.mark.parametrize(
    ("statuses", "inputs", "fraction"),
    [
        (("queued", "queued", "queued"), 0, 0.0),
        (("done", "running", "queued"), 256, 0.99 * 384 / 644),
        (("done", "failed", "done"), 644, 0.99),
        ((), 644, 0.99),
    ],
)
def test_inputs_of_chunks_that_have_ended(statuses: tuple[str, ...], inputs: int, fraction: float) -> None:
    """Finished inputs are counted, also in the moment after the study has ended, in which its chunks are removed."""
    progress = to_progress(_study("queued"), _chunks(*statuses))
    assert (progress.inputs, progress.of, progress.fraction) == (inputs, 644, pytest.approx(fraction, abs=1e-4))
