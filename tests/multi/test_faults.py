# SPDX-License-Identifier: BSD-3-Clause
"""Faults for the tests of programs: distlite.testing.Fault."""

from __future__ import annotations

import re
import signal

import fault_ranks
import pytest

import distlite as dist
from distlite import testing
from distlite.testing import Fault

TOTAL = 3.0 * fault_ranks.OPERATIONS


def test_a_killed_rank_is_named_and_the_schedule_shown():
    faults = [Fault("kill", rank=1, at=4)]
    with pytest.raises(testing.RanksFailed) as failed:
        testing.run_ranks(fault_ranks.add_up, 3, faults=faults)
    head, first = str(failed.value).splitlines()[:2]
    assert head == "faults: [Fault('kill', rank=1, at=4)]"
    assert first == "3 of 3 ranks of add_up failed"
    outcomes = failed.value.outcomes
    assert outcomes[1].returncode == -signal.SIGKILL
    assert "Fault('kill', rank=1, at=4): <all_reduce in group 0>" in outcomes[1].output
    for rank in (0, 2):
        assert "all_reduce #4 in group 0: rank 1" in str(outcomes[rank].exception)


def test_faults_that_pass():
    faults = [
        Fault("delay", rank=0, at=1, seconds=0.2),
        Fault("slow", rank=1, at=3, seconds=0.02),
        Fault("stop", rank=2, at=2, seconds=0.4),
    ]
    found = testing.run_ranks(fault_ranks.longest_pauses, 3, faults=faults)
    assert found[0][0] >= 0.2
    assert found[1][1] >= 0.02 * (fault_ranks.OPERATIONS - 2)
    assert found[2][0] >= 0.4 and found[2][2] >= 0.35  # its other thread as well
    # The others wait for the one that was stopped.
    assert min(each[1] for each in found) >= 0.4


def test_connections_that_are_cut():
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        found = testing.run_ranks(
            fault_ranks.on_hosts,
            3,
            backend=None,
            faults=[Fault("cut", rank=2, at=4)],
            init_method=str(store.port),
        )
    for text, has_store in found:
        assert has_store == "True"
        assert re.match(r"all_reduce #\d+ in group 0: .*rank", text), text


@pytest.mark.parametrize("seed", range(6))
def test_drawn_faults_leave_no_rank_without_an_answer(seed):
    faults = testing.draw_faults(seed, 3, operations=12, longest=0.2)
    killed = {each.rank for each in faults if each.kind == "kill"}
    for each in testing.rank_outcomes(fault_ranks.add_up, 3, faults=faults):
        assert not each.is_late, f"{faults}\n{each.describe()}"
        if each.is_good:
            assert each.value == TOTAL, faults
        else:
            assert killed, f"{faults}\n{each.describe()}"


def test_draws():
    drawn = [testing.draw_faults(seed, [1, 5], operations=7) for seed in range(300)]
    assert drawn == [
        testing.draw_faults(seed, [1, 5], operations=7) for seed in range(300)
    ]
    every = [each for faults in drawn for each in faults]
    assert {each.kind for each in every} == {"delay", "slow", "stop", "cut", "kill"}
    assert {each.rank for each in every} == {1, 5}
    assert {each.at for each in every} == set(range(1, 8))
    assert {len(faults) for faults in drawn} == {1, 2, 3}
    assert all(each.seconds <= 0.01 for each in every if each.kind == "slow")
    assert all(each == eval(repr(each)) for each in every)
    only = testing.draw_faults(1, 2, kinds=["stop"], most=1, longest=0.5)
    assert [each.kind for each in only] == ["stop"] and only[0].seconds <= 0.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "melt", "rank": 0},
        {"kind": "kill", "rank": -1},
        {"kind": "kill", "rank": 0, "at": 0},
        {"kind": "delay", "rank": 0, "seconds": -1.0},
        {"kind": "delay", "rank": 0, "seconds": float("inf")},
        {"kind": "delay", "rank": 0, "seconds": float("nan")},
    ],
)
def test_wrong_faults(wrong):
    with pytest.raises(ValueError):
        Fault(**wrong)


def test_a_rank_that_is_not_there():
    faults = [Fault("kill", rank=3)]
    with pytest.raises(ValueError, match=r"rank=3, at=1\): there are 3 ranks"):
        testing.run_ranks(fault_ranks.add_up, 3, faults=faults)
    with (
        testing.world(3) as ranks,
        pytest.raises(ValueError, match="there are 3 ranks"),
    ):
        ranks.run(fault_ranks.add_up, faults=faults)


def test_threads_that_are_slow():
    faults = [
        Fault("stop", rank=0, at=2, seconds=0.2),
        Fault("slow", rank=1, at=1, seconds=0.01),
    ]
    with testing.world(3) as ranks:
        found = ranks.run(fault_ranks.longest_pauses, faults=faults)
        assert found[0][0] >= 0.2
        assert found[1][1] >= 0.01 * fault_ranks.OPERATIONS
        # Faults are those of one run.
        assert ranks.run(fault_ranks.add_up) == [TOTAL] * 3


def test_a_thread_that_gives_up():
    faults = [Fault("kill", rank=1, at=4)]
    ranks = testing.world(3)
    outcomes = ranks.outcomes(fault_ranks.add_up, faults=faults)
    with pytest.raises(testing.RanksFailed, match=r"faults: \[Fault\('kill', rank=1"):
        ranks.run(fault_ranks.add_up, faults=faults)
    ranks.__exit__(None, None, None)
    assert not any(each.is_good or each.is_late for each in outcomes)
    for rank in (0, 2):
        assert "rank 1" in str(outcomes[rank].exception)
