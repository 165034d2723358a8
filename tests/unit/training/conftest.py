"""What the training program sets for its own process is set back: tests of other files share theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import transformers


@pytest.fixture(autouse=True)
def process() -> Iterator[None]:
    """Threads and what transformers says, as they were."""
    threads, verbosity = torch.get_num_threads(), transformers.logging.get_verbosity()
    yield
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity(verbosity)
