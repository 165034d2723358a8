"""Heads switched off in each way, row by row."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headscope.errors import InvalidRequest
from headscope.mechanisms.ablate import ABLATE, AblateParams
from headscope.mechanisms.base import Pass
from tests.support.variants import variants

from .scores import scores, setting


def begin(heads, how="uniform"):
    return ABLATE.begin(AblateParams(heads=heads, how=how), setting())


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 7),
    rule=st.sampled_from(["all", "prefix", "window"]),
    how=st.sampled_from(["uniform", "zero", "leave-one-out"]),
    off=st.sets(st.integers(0, 3), max_size=3),
)
def test_only_the_named_heads_change(seed, n, rule, how, off):
    of = scores(seed, n, rule=rule, layer=1)
    found = begin([f"1.{head}" for head in off], how).attend(of)
    plain = Pass().attend(of)
    for head in range(4):
        if head not in off:
            assert torch.equal(found[head], plain[head])
            continue
        for query in range(n):
            allowed = [key for key in range(n) if of.blocked is None or not of.blocked[0, query, key]]
            for key in range(n):
                expected = 1 / len(allowed) if how == "uniform" and key in allowed else 0
                assert abs(found[head, query, key].item() - expected) < 1e-6


def test_each_head_may_have_a_mask_of_its_own():
    masks = torch.stack([torch.ones(3, 3).triu(shift).bool() for shift in (1, 2, 3)])
    of = scores(0, 3, heads=(0, 1, 2), blocked=masks)
    found = begin(["0.0", "0.1", "0.2"]).attend(of)
    assert torch.equal(found == 0, masks)
    assert torch.allclose(found.sum(-1), torch.ones(3, 3))


def test_blocks_of_heads_are_known_by_their_names():
    of = dataclasses.replace(scores(1, 4, heads=(0, 1)), heads=(2, 3))
    found = begin(["0.3"], "zero").attend(of)
    assert (found[1] == 0).all()
    assert torch.equal(found[0], Pass().attend(of)[0])


@pytest.mark.parametrize(("heads", "factor"), [(["1.0"], 4 / 3), (["1.0", "1.2"], 2), (["1.0", "1.0"], 4 / 3)])
def test_leave_one_out_scales_the_others(heads, factor):
    pass_, output = begin(heads, "leave-one-out"), torch.randn(4, 5, 3)
    assert torch.allclose(pass_.leave(1, (0, 1, 2, 3), output), output * factor)
    assert torch.equal(pass_.leave(0, (0, 1, 2, 3), output), output)
    assert torch.equal(begin(heads, "zero").leave(1, (0, 1, 2, 3), output), output)


def test_without_heads_nothing_changes():
    of, output = scores(2, 6), torch.randn(4, 6, 3)
    for how in ("uniform", "zero", "leave-one-out"):
        pass_ = begin([], how)
        assert torch.equal(pass_.attend(of), Pass().attend(of))
        assert pass_.leave(0, of.heads, output) is output


@pytest.mark.parametrize("name", ["3.0", "0.4", "9999.9999"])
def test_heads_beyond_the_model_are_refused(name):
    with pytest.raises(InvalidRequest):
        begin([name])


def test_layers_go_by_their_numbers_where_some_do_not_attend():
    hybrid = setting((4, 2), layers=(3, 7))
    of, output = scores(3, 5, layer=7, heads=(0, 1)), torch.randn(2, 5, 3)
    pass_ = ABLATE.begin(AblateParams(heads=["7.1"], how="leave-one-out"), hybrid)
    assert (pass_.attend(of)[1] == 0).all()
    assert torch.allclose(pass_.leave(7, (0, 1), output), 2 * output)
    with pytest.raises(InvalidRequest):
        ABLATE.begin(AblateParams(heads=["0.0"]), hybrid)


def test_leaving_out_every_head_is_refused():
    with pytest.raises(InvalidRequest):
        begin([f"0.{head}" for head in range(4)], "leave-one-out")
    begin([f"0.{head}" for head in range(4)], "zero")


@variants("name", ["4", "4.5.6", "a.b", "-1.0", "4.5\n", "04.5", "12345.0", ""])
def test_names_are_layer_dot_head(name):
    with pytest.raises(ValidationError):
        AblateParams(heads=[name])
