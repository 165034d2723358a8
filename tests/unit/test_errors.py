"""Errors reach another process with everything that they say."""

from __future__ import annotations

import pickle

import pytest

from headscope.errors import BudgetExceeded, Cancelled, HeadscopeError, InvalidQuery, Unknown


@pytest.mark.parametrize(
    "error",
    [
        Cancelled("The job was cancelled."),
        BudgetExceeded("Too large.", pointer="/text", limit=3, actual=5),
        InvalidQuery("A number is missing.", 3),
        Unknown("lens", "There is no such lens.", pointer="/lenses"),
    ],
    ids=lambda error: error.code,
)
def test_an_error_survives_a_pipe(error: HeadscopeError) -> None:
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert (str(arrived), vars(arrived), arrived.problem()) == (str(error), vars(error), error.problem())
