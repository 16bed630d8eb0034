# SPDX-License-Identifier: BSD-3-Clause
"""One-sided windows of groups with the backend mpi."""

import pytest
import window_ranks
from doubles_build import mpi_double
from mpi_launching import results_of
from test_mpi import LAUNCHERS, start
from test_windows import check_dead_rank
from workers import rank_outcomes, run_ranks


def run(function, size, **extra):
    return run_ranks(function, size, env=mpi_double(**extra), places="mpi")


@pytest.mark.parametrize("what", ["moves", "updates", "locks", "threads", "signals"])
def test_values(what):
    run(getattr(window_ranks, what), 2)


def test_no_ticket_is_drawn_twice():
    drawn = run(window_ranks.tickets, 3)
    assert sorted(number for each in drawn for number in each) == list(range(3000))


def test_a_rank_that_dies():
    check_dead_rank(env=mpi_double(), places="mpi")


def test_refusals():
    for rank, said in enumerate(run(window_ranks.refusals, 2)):
        assert f"the memory of rank {1 - rank}, which has 4" in said["beyond"]
        assert "was closed" in said["closed"]
        assert "window(int64)" in said["dtypes"] and "window(int32)" in said["dtypes"]


def test_the_end_of_a_group():
    for said in run(window_ranks.ended_group, 2):
        assert "closed" in said or "destroyed" in said
    [said] = run(window_ranks.ended_wait, 2)[1]
    assert "abort" in said


def test_the_dead_are_named():
    env = mpi_double()
    outcomes = rank_outcomes(window_ranks.killed_target, 2, env=env, places="mpi")
    said, again, seconds = outcomes[0].value
    assert "rank 1 (pid" in said and "exited or was killed" in said
    assert "rank 1 (pid" in again
    assert seconds < 20


def test_a_timeout_names_the_holder():
    said = run(window_ranks.late_holder, 2)[0]
    assert "timed out after 200ms: rank 1 (pid" in said and "has locked it" in said


def test_ctrl_c():
    assert run(window_ranks.interrupted, 2)[0] == [2, 2, 2]


def test_at_detail():
    run(window_ranks.detail, 2)


def test_a_rank_that_does_not_come_is_told_of():
    first, second = run(window_ranks.alone_in_a_window, 2)
    assert "window" in first and "barrier" in first
    assert "window" in second and "barrier" in second


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_under_mpirun(launcher, tmp_path):
    status, _, err = start(launcher, 2, "windows", TEST_MPI_RESULTS=str(tmp_path))
    assert status == 0, err
    drawn = [number for each in results_of(tmp_path, 2) for number in each]
    assert sorted(drawn) == list(range(200))
