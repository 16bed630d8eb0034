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
