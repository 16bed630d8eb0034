# SPDX-License-Identifier: BSD-3-Clause
"""One-sided windows between hosts, which DISTLITE_HOST_HINT sets apart."""

import pytest
import window_ranks
from test_windows import check_dead_rank
from workers import rank_outcomes, run_ranks

APART, MIXED = [0, 1], [0, 0, 1]
TLS = {"DISTLITE_TOKEN": "the job's", "DISTLITE_TLS": "psk"}


@pytest.mark.parametrize("places", [APART, pytest.param(MIXED, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["moves", "updates", "locks", "threads", "signals"])
def test_values(what, places):
    run_ranks(getattr(window_ranks, what), len(places), places=places)


@pytest.mark.parametrize("what", ["moves", "updates", "locks"])
def test_values_over_tls(what):
    run_ranks(getattr(window_ranks, what), 2, places=APART, env=TLS)


def test_a_random_program_over_tls():
    run_ranks(window_ranks.random_program, 3, seed=9, places=MIXED, env=TLS)


def test_a_killed_holder_is_named_over_tls():
    check_killed_holder([0, 1, 2], TLS)


def test_no_ticket_is_drawn_twice():
    drawn = run_ranks(window_ranks.tickets, 3, places=MIXED)
    assert sorted(number for each in drawn for number in each) == list(range(3000))


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 9))]
)
def test_random_programs(seed):
    run_ranks(window_ranks.random_program, 3, seed=seed, places=MIXED)


def test_refusals():
    for rank, said in enumerate(run_ranks(window_ranks.refusals, 2, places=APART)):
        peer = 1 - rank
        assert f"the memory of rank {peer}, which has 4" in said["beyond"]
        assert "has dtype int32, but the window has float64" in said["dtype"]
        assert f"rank {rank} does not hold the lock of rank {peer}" in said["unlock"]
        assert "was closed" in said["closed"]


def test_a_rank_that_dies():
    check_dead_rank(places=APART)


def test_leaving_alone():
    said = run_ranks(window_ranks.closed_alone, 2, places=APART)[0]
    assert said.startswith("DistBackendError") and "rank 1 " in said
    assert "has closed it" in said


def test_freeing_alone():
    for said in run_ranks(window_ranks.freed_alone, 2, places=APART)[0]:
        assert said.startswith("DistBackendError") and "rank 1 " in said
        assert "has closed it" in said


def test_leaving_the_group_alone():
    for said in run_ranks(window_ranks.left_alone, 2, places=APART)[0]:
        assert said.startswith("DistBackendError") and "rank 1 " in said
        assert "left the group" in said


def test_an_ended_group():
    for said in run_ranks(window_ranks.ended_group, 2, places=APART):
        assert "closed" in said or "destroyed" in said


def test_the_end_of_a_group_ends_waits():
    [said] = run_ranks(window_ranks.ended_wait, 2, places=APART)[1]
    assert "abort" in said


def check_killed_holder(places, env=None):
    outcomes = rank_outcomes(window_ranks.killed_holder, 3, places=places, env=env)
    for outcome in (outcomes[0], outcomes[2]):
        assert outcome.exception is None, outcome.traceback
        said, seconds = outcome.value
        assert "rank 1 (pid" in said and "exited or was killed" in said
        assert seconds < 20


@pytest.mark.parametrize("places", [[0, 1, 0], [0, 0, 1], [0, 1, 2]])
def test_a_killed_holder_is_named(places):
    """It holds the lock of memory on its own host or on another, and so do waiters."""
    check_killed_holder(places)


def test_a_killed_target_is_named():
    outcomes = rank_outcomes(window_ranks.killed_target, 2, places=APART)
    assert outcomes[0].exception is None, outcomes[0].traceback
    said, again, seconds = outcomes[0].value
    assert "rank 1 (pid" in said and "exited or was killed" in said
    assert "rank 1 (pid" in again
    assert seconds < 20


def test_a_timeout_names_the_holder():
    said = run_ranks(window_ranks.late_holder, 2, places=APART)[0]
    assert "timed out after 200ms: rank 1 (pid" in said and "has locked it" in said


def test_a_timeout_names_the_holder_elsewhere():
    said = run_ranks(window_ranks.late_elsewhere, 2, places=APART)[1]
    assert "timed out after 200ms: rank 0 (pid" in said and "has locked it" in said


def test_ctrl_c():
    assert run_ranks(window_ranks.interrupted, 2, places=APART)[0] == [2, 2, 2]


def test_ctrl_c_elsewhere():
    assert run_ranks(window_ranks.interrupted_elsewhere, 2, places=APART)[1] == [2] * 3
