# SPDX-License-Identifier: BSD-3-Clause
"""distlite.testing.world: ranks as threads."""

import threading
from datetime import timedelta

import numpy as np
import pytest

import distlite as dist
from distlite import testing
from distlite.groups.world import World, world


def total(rank):
    values = np.array([float(rank)])
    dist.all_reduce(values)
    return float(values[0]), dist.get_rank(), dist.get_world_size()


def test_each_thread_has_a_world_of_its_own():
    with testing.world(4) as ranks:
        assert len(ranks) == 4
        assert ranks.run(total) == [(6.0, rank, 4) for rank in range(4)]
        assert not dist.is_initialized()  # in this thread
        with pytest.raises(ValueError, match="has not been initialized"):
            dist.all_reduce(np.ones(1))
        # A thread that no rank is has the process's, beside them.
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        assert dist.get_world_size() == 1
        assert ranks.run(dist.get_world_size) == [4] * 4
        dist.destroy_process_group()
    assert type(world) is World


def subgroup(rank):
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    values = np.array([rank])
    dist.all_reduce(values, group=halves[rank // 2])
    objects = [None] * 4
    dist.all_gather_object(objects, {"rank": rank})
    return int(values[0]), [each["rank"] for each in objects], dist.get_pg_count()


def test_groups_and_objects():
    with testing.world(4) as ranks:
        found = ranks.run(subgroup)
    assert found == [(1, [0, 1, 2, 3], 3)] * 2 + [(5, [0, 1, 2, 3], 3)] * 2


def test_worlds_after_and_within_each_other():
    def inner():
        with testing.world(2) as ranks:
            return ranks.run(dist.get_world_size)

    with testing.world(3) as ranks:
        assert ranks.run(inner) == [[2, 2]] * 3
        assert ranks.run(dist.get_world_size) == [3] * 3
    assert not any(thread.name.startswith("rank ") for thread in threading.enumerate())


def clearing_splits(rank):
    class Clears:
        def __index__(self):
            splits.clear()
            return 1

    splits = [Clears(), 1]
    output, values = np.zeros(2), np.arange(2.0) + 2 * rank
    dist.all_to_all_single(output, values, splits, [1, 1])
    return output.tolist()


def test_a_list_that_changes_while_it_is_read():
    with testing.world(2) as ranks:
        assert ranks.run(clearing_splits) == [[0.0, 2.0], [1.0, 3.0]]


def lonely(rank):
    if rank == 0:
        with pytest.raises(dist.DistError, match="100 ?ms"):
            dist.all_reduce(np.zeros(3), _timeout=timedelta(seconds=0.1))


def test_a_call_may_have_a_timeout_of_its_own():
    with testing.world(2, timeout=5) as ranks:
        ranks.run(lonely)


def planned(rank):
    return dist._C._plan_packs([np.zeros(2), np.zeros(3)], 1 << 20, None)


def test_small_arrays_travel_together():
    with testing.world(2) as ranks:
        assert ranks.run(planned) == [[[0, 1]]] * 2


def test_what_is_given_and_returned():
    with testing.world(2) as ranks:
        add = lambda left, right, rank: left + right + rank  # noqa: E731
        assert ranks.run(add, 1, right=2) == [3, 4]
        assert ranks.run(int) == [0, 0]


def divide(rank):
    if rank == 1:
        return 1 / 0
    dist.barrier()


def test_a_failure_ends_the_others_and_is_labelled():
    with testing.world(3) as ranks, pytest.raises(testing.RanksFailed) as caught:
        ranks.run(divide)
    text = str(caught.value)
    assert text.startswith("3 of 3 ranks of divide failed\n")
    assert "rank 1: ZeroDivisionError: division by zero" in text
    assert "in _run" not in text  # nothing of the tool's own
    outcomes = {each.rank: each for each in caught.value.outcomes}
    assert outcomes[0].is_late and "dist.barrier()" in outcomes[0].output
    described = outcomes[0].describe()
    assert "rank 0: did not end in time, and its operations were aborted" in described
    assert "killed" not in described and "dist.barrier()" in described


def absent(rank):
    if rank != 0:
        dist.group.WORLD.set_timeout(timedelta(seconds=0.3))
        dist.barrier()


def test_a_late_rank_is_named_by_the_others():
    with testing.world(2) as ranks:
        first, second = ranks.outcomes(absent)
    assert first.is_good
    assert "waiting for rank 0" in str(second.exception)


def test_a_rank_that_hangs_shows_where(monkeypatch):
    monkeypatch.setattr(testing.threads, "GRACE", 0.1)
    event = threading.Event()
    with testing.world(2) as ranks:
        try:
            hang = lambda rank: rank == 0 or event.wait(60)  # noqa: E731
            outcomes = ranks.outcomes(hang, timeout=1)
        finally:
            event.set()
    assert outcomes[1].is_late
    assert "event.wait(60)" in outcomes[1].output


def test_an_error_of_the_caller_is_not_hidden():
    with pytest.raises(KeyError, match="mine"), testing.world(2):
        raise KeyError("mine")
    assert type(world) is World


def test_without_a_group():
    with testing.world(2, backend=None) as ranks:
        assert ranks.run(dist.is_initialized) == [False, False]


def test_no_world_at_all():
    with pytest.raises(ValueError, match="at least one rank"):
        testing.world(0)


@pytest.mark.parametrize("how", ["argument", "posting"])
def test_a_refused_batch_begins_nothing(how):
    """The next message is the next receive's, not that of a forgotten one."""

    def batch(rank):
        other, kinds = 1 - rank, (ValueError, OSError)
        lost, got = np.zeros(1), np.zeros(1)
        ops = [dist.P2POp(dist.irecv, each, other) for each in (lost, np.zeros(1))]
        ops[1].tensor.flags.writeable = how == "posting"
        if how == "posting":
            ops[1].op = fail
        with pytest.raises(kinds, match="read-only|no descriptor"):
            dist.batch_isend_irecv(ops)
        dist.barrier()
        sent = dist.isend(np.array([rank + 1.0]), other)
        dist.irecv(got, other).wait()
        sent.wait()
        return lost[0], got[0]

    def fail(*arguments, **keywords):
        raise OSError("no descriptor")

    with testing.world(2, timeout=10) as ranks:
        assert ranks.run(batch) == [(0.0, 2.0), (0.0, 1.0)]
