"""The progress of a study, from its job and the chunks that are left."""

import json
from typing import Any

import pytest

from headscope.api.documents.studies import to_progress
from headscope.jobs import ChunkState, Job

SIZES = [256, 256, 132]


def _study(status: str) -> Job:
    payload = json.dumps({"chunks": [[number, 0, 0, size, 0] for number, size in enumerate(SIZES)]})
    values: dict[str, Any] = {
        "id": "a",
        "payload": payload,
        "batch": "a",
        "status": status,
        "fraction": 0.0,
        "stage": status,
        "detail": "",
    }
    return Job(**values, attempts=0, error=None, created=0.0, started=None, finished=None, version=1)


def _chunks(*statuses: Any) -> list[ChunkState]:
    return [ChunkState(f"a.{n}", status, 0.5, status, "", 10, None, None) for n, status in enumerate(statuses)]


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
