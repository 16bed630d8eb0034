# SPDX-License-Identifier: BSD-3-Clause
"""Who has failed is known soon, by every rank of every host, and is named."""

from __future__ import annotations

import platform
import re

import health_ranks
import pytest
from workers import SOON, rank_outcomes, run_ranks

# Hosts are simulated by hints; their links go over loopback.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}


def _told_of_rank_1(run, hosts):
    """What the other ranks were told of the end of rank 1, and when."""
    outcomes = rank_outcomes(run, len(hosts), env=LOOPBACK, names=hosts)
    for outcome in outcomes:
        if outcome.rank != 1:
            assert outcome.is_good, outcome.describe()
            text, seconds = outcome.value
            where = f"rank {outcome.rank}, {seconds:.3f} s: {text}"
            # A link that ends does not tell whether its process has.
            ends = " exited or was killed", " exited, was killed, or left"
            assert "rank 1 (pid " in text and any(end in text for end in ends), where
            assert seconds < SOON, where
            assert text.count(" in group 0") <= 1, where
    return outcomes


@pytest.mark.parametrize("hosts", ["AABB", "AAAB", "AAB"])
def test_an_end_is_told_while_the_leader_of_its_host_computes(hosts):
    _told_of_rank_1(health_ranks.while_the_leader_computes, hosts)


@pytest.mark.parametrize("hosts", ["AAA", "AABB"])
def test_a_child_by_raw_clone_does_not_hide_an_end(hosts):
    _told_of_rank_1(health_ranks.after_a_raw_clone, hosts)


def test_all_groups_of_a_process_know_of_an_end():
    _told_of_rank_1(health_ranks.in_another_group, "AABB")


def test_a_rank_that_stops_while_it_takes_the_result_is_the_one_that_is_named():
    run = health_ranks.stalled_in_the_second_meeting
    outcomes = rank_outcomes(run, 5, env=LOOPBACK, names="AABBB")
    for outcome in outcomes:
        if outcome.rank != 3:
            assert outcome.is_good, outcome.describe()
            assert "waiting for rank 3 (pid " in outcome.value, outcome.value


@pytest.mark.parametrize("is_message", [False, True])
def test_a_rank_that_cannot_make_a_group_says_so_in_one_way(is_message):
    """On its host and on others, in collectives and in messages."""
    run = health_ranks.without_memory
    texts = run_ranks(run, 3, env=LOOPBACK, names="AAB", is_message=is_message)
    assert "Cannot allocate memory" in texts[1]
    for text in (texts[0], texts[2]):
        said = re.search(
            r": rank 1 \(pid .*\): could not make the group: mapping ", text
        )
        assert said and "Cannot allocate memory" in text, text


@pytest.mark.parametrize("hosts", ["AA", "AAB"])
def test_destroyed_groups_have_no_threads_though_somebody_keeps_them(hosts):
    run = health_ranks.kept_after_the_end
    for before, during, after in run_ranks(run, len(hosts), env=LOOPBACK, names=hosts):
        assert during >= before + 4
        assert after == before


@pytest.mark.parametrize("left", [7, 9, 11, 13])
def test_a_rank_that_cannot_join_says_why_and_is_not_called_killed(left):
    run = health_ranks.without_descriptors
    texts = run_ranks(run, 3, env=LOOPBACK, names="AAA", left=left)
    for text in texts:
        assert "exited or was killed" not in text and "timed out" not in text, text
    if texts[2]:
        assert "oo many open files" in texts[2] or "ulimit -n" in texts[2], texts[2]
        for text in texts[:2]:
            assert "rank 2 (pid " in text, text


@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of system calls")
@pytest.mark.parametrize("refused", ["memfd", "unix sockets"])
@pytest.mark.parametrize("ranks", [(0,), (1,), (0, 1, 2)])
def test_ranks_that_a_sandbox_keeps_from_sharing_memory_use_tcp(refused, ranks):
    run = health_ranks.in_a_sandbox
    env = {**LOOPBACK, "TORCH_CPP_LOG_LEVEL": "WARNING"}
    asked = {"refused": refused, "ranks": ranks}
    for outcome in rank_outcomes(run, 3, env=env, names="AAA", **asked):
        assert outcome.is_good, outcome.describe()
        assert outcome.value == [6.0, 6.0]
        said = outcome.output.count("cannot share memory with other ranks of its host")
        assert said == (outcome.rank in ranks), outcome.output
