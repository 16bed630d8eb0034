# SPDX-License-Identifier: BSD-3-Clause
"""One-sided windows, on one host."""

import numpy as np
import pytest
import window_ranks
from workers import rank_outcomes, run_ranks

import distlite
from distlite import HashStore, ProcessGroup, ReduceOp

KILLED = -9


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("what", ["moves", "updates", "locks", "threads", "signals"])
def test_values(what, size):
    run_ranks(getattr(window_ranks, what), size)


def test_no_ticket_is_drawn_twice():
    drawn = run_ranks(window_ranks.tickets, 3)
    assert sorted(number for each in drawn for number in each) == list(range(3000))


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 9))]
)
def test_random_programs(seed):
    run_ranks(window_ranks.random_program, 3, seed=seed)


def test_refusals():
    for rank, said in enumerate(run_ranks(window_ranks.refusals, 2)):
        peer = 1 - rank
        beyond = f"exceed the memory of rank {peer}, which has 4"
        for name in ("beyond", "negative", "far"):
            assert beyond in said[name], said[name]
        for name in ("beyond", "dtype", "rank", "read-only", "op", "average", "value"):
            assert said[name].startswith("ValueError"), said[name]
        assert "has dtype int32, but the window has float64" in said["dtype"]
        assert "rank 2 is not in group 0 of 2" in said["rank"]
        assert "numpy.array(x)" in said["read-only"]
        assert said["no array"].startswith("TypeError")
        assert '"replace" or "no_op"' in said["op"]
        assert "use SUM" in said["average"]
        assert "BOR" in said["bits"] and "float64" in said["bits"]
        assert "MINLOC is not supported" in said["pairs"]
        assert "windows do not take functions" in said["function"]
        assert "output has 1 elements, but the input has 2" in said["out"]
        assert "shares memory" in said["same"]
        assert f"rank {rank} does not hold the lock of rank {peer}" in said["unlock"]
        assert "locks do not nest" in said["nested"]
        for name in ("closed", "fence"):
            assert "was closed" in said[name]
        assert "window(int64)" in said["dtypes"] and "window(int32)" in said["dtypes"]


def check_dead_rank(**extra):
    outcomes = rank_outcomes(window_ranks.outlive_a_rank, 2, **extra)
    assert outcomes[0].exception is None, outcomes[0].traceback
    assert "rank 1 (pid" in outcomes[0].value
    assert "exited or was killed" in outcomes[0].value


def test_a_rank_that_dies():
    check_dead_rank(places=None)


def test_leaving_alone():
    said = run_ranks(window_ranks.closed_alone, 2)[0]
    assert said.startswith("DistBackendError") and "rank 1 " in said
    assert "has closed it" in said


def test_an_ended_group():
    for said in run_ranks(window_ranks.ended_group, 2):
        assert "closed" in said or "destroyed" in said


def test_the_end_of_a_group_ends_waits():
    [said] = run_ranks(window_ranks.ended_wait, 2)[1]
    assert "abort" in said


def test_a_killed_holder_is_named():
    first, killed, last = rank_outcomes(window_ranks.killed_holder, 3)
    assert killed.returncode == KILLED
    for outcome in (first, last):
        assert outcome.exception is None, outcome.traceback
        said, seconds = outcome.value
        assert "rank 1 (pid" in said and "exited or was killed while it held" in said
        assert seconds < 20


def test_a_killed_target_is_named():
    outcomes = rank_outcomes(window_ranks.killed_target, 2)
    said, again, seconds = outcomes[0].value
    assert "rank 1 (pid" in said and "exited or was killed" in said
    assert "rank 1 (pid" in again
    assert seconds < 20


def test_a_timeout_names_the_holder():
    said = run_ranks(window_ranks.late_holder, 2)[0]
    assert "timed out after 200ms: rank 1 (pid" in said and "has locked it" in said


def test_ctrl_c():
    assert run_ranks(window_ranks.interrupted, 2)[0] == [2, 2, 2]


def test_a_forked_child():
    for said in run_ranks(window_ranks.forked, 2):
        assert "fork" in said


def test_nothing_is_left_behind():
    for before, after in run_ranks(window_ranks.churn, 2):
        assert after[0] <= before[0]
        assert after[1] <= before[1] + 4


def test_at_detail():
    run_ranks(window_ranks.detail, 2)


@pytest.fixture
def alone():
    return ProcessGroup(HashStore(), 0, 1)


def test_alone(alone):
    with distlite.Window((2, 2), "i8", alone) as win:
        win.accumulate(np.ones((2, 2), "i8"), 0)
        assert win.fetch_and_op(4, 0, ReduceOp.PRODUCT, 3) == 1
        assert win.compare_and_swap(7, 1, 0) == 1
        assert win.compare_and_swap(8, 1, 0) == 7
        with win.lock(0) as held:
            assert held.rank == 0
        win.flush()
        win.flush(0)
        assert win.local.tolist() == [[7, 1], [1, 4]]
        assert repr(win) == "<distlite.Window (2, 2) of int64>"
    local = win.local
    del win
    assert local.tolist() == [[7, 1], [1, 4]]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (((2, -1),), ValueError),
        ((3, object), TypeError),
        ((1 << 61, np.int8), MemoryError),
        (("x",), TypeError),
    ],
)
def test_wrong_arguments(alone, arguments, kind):
    with pytest.raises(kind):
        distlite.Window(*arguments, group=alone)


def test_values_of_other_dtypes(alone):
    with distlite.Window(1, np.int8, alone) as win:
        assert win.fetch_and_op(2.0, 0) == 0
        for value in (1.5, 300, float("nan")):
            with pytest.raises((ValueError, OverflowError)):
                win.fetch_and_op(value, 0)
        with pytest.raises(ValueError, match="one number"):
            win.fetch_and_op(np.ones(2, np.int8), 0)
        assert win.local.tolist() == [2]


def test_outside():
    with pytest.raises(ValueError, match="not in the group"):
        distlite.Window(3, group=-100)


def test_other_backends():
    group = ProcessGroup(HashStore(), 0, 1, backend="fake")
    with pytest.raises(NotImplementedError, match="fake backend .* has no windows"):
        distlite.Window(3, group=group)
