# SPDX-License-Identifier: BSD-3-Clause
"""Leaving a group compares what ranks called that did not wait for each other."""

from __future__ import annotations

import leaving_ranks
import pytest
from workers import SOON, rank_outcomes, run_ranks

KINDS = ["broadcast", "scatter", "reduce", "gather"]


@pytest.mark.parametrize("hints", ["AAA", "AAB"])
@pytest.mark.parametrize("kind", KINDS)
def test_calls_that_differ_are_told_on_leaving(kind, hints):
    found = run_ranks(leaving_ranks.differ_and_leave, 3, kind=kind, hints=hints)
    if hints == "AAB":
        # Hosts meet in every operation, and rank 2 does not come.
        assert all("rank " in text for text in found[:2]), found
        return
    for text in found[:2]:
        assert f"rank 0 called {kind}" in text, found
        assert "rank 1 called reduce(7 x float64, SUM, to rank 2)" in text, found


def test_calls_that_agree_are_not():
    run_ranks(leaving_ranks.agree_and_leave, 3)


def test_ranks_that_are_gone_are_neither_an_error_nor_waited_for():
    seconds = run_ranks(leaving_ranks.leave_after_others, 2, is_killed=False)
    assert max(seconds) < SOON
    leaver, killed = rank_outcomes(leaving_ranks.leave_after_others, 2, is_killed=True)
    assert leaver.is_good, leaver.describe()
    assert leaver.value < SOON
    assert killed.returncode == 7


def test_a_group_that_failed_is_left_quietly():
    assert run_ranks(leaving_ranks.leave_after_a_failure, 2) == [True, True]


def test_other_threads_run_while_one_leaves():
    (seconds, turns), _ = run_ranks(leaving_ranks.leave_beside_a_thread, 2)
    assert seconds > 0.5
    assert turns > 5
