# SPDX-License-Identifier: BSD-3-Clause
"""GradientReducer among ranks."""

from __future__ import annotations

import data_parallel_ranks as ranks
import pytest
from workers import run_ranks


@pytest.fixture(scope="module")
def of_three():
    """What three ranks found; averages they have checked themselves."""
    return run_ranks(ranks.three, 3)


@pytest.fixture(scope="module")
def of_two():
    return run_ranks(ranks.two, 2)


def test_ranks_with_other_parameters_are_named(of_two):
    found = [each["differences"] for each in of_two]
    assert found[0] == found[1]
    shape, dtype, name, missing, more, setting = found[0]
    assert {kind for kind, _ in found[0]} == {"ValueError"}
    assert "'bias' is float64[31] on rank 1 (" in shape[1]
    assert "not float64[30], unlike rank 0 (" in shape[1]
    assert "'bias' is float32[30] on rank 1" in dtype[1]
    assert "rank 1" in name[1] and "has 'bios' where there should be 'bias'" in name[1]
    assert "has no 'last', unlike rank 0" in missing[1]
    assert "has 'more', unlike rank 0" in more[1]
    assert "bucket_cap_mb is 5 on rank 1" in setting[1] and "not 25" in setting[1]


def test_missing_gradients_are_named_on_all_ranks(of_three):
    found = [each["unused"] for each in of_three]
    assert found[0] == found[1] == found[2]
    ((kind, text),) = found[0]
    assert kind == "RuntimeError"
    assert "on rank 1: 'scale', 'last'; on rank 2: 'scale'. Call ready()" in text


def test_buckets_follow_the_order_of_the_first_step(of_two):
    found = [each["rebuilding"] for each in of_two]
    assert found[0] == found[1]
    rebuilt, fixed = found[0][:3], found[0][3:]
    backwards = (("last", "none", "scale"), ("bias",), ("first",))
    assert rebuilt[0] == fixed[0] == fixed[2]
    assert [name for names in rebuilt[0] for name in names] == [
        name for names in backwards for name in names
    ]
    assert rebuilt[1] == rebuilt[2] != rebuilt[0]
    assert [name for names in rebuilt[1] for name in names] == list(ranks.SHAPES)


def test_a_group_of_some_ranks(of_three):
    outside, *inside = (each["group"] for each in of_three)
    assert outside == ("ValueError", "GradientReducer: this rank is not in the group")
    assert inside == [("", ""), ("", "")]
