# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of one machine that cannot reach each other's sockets use TCP, and say so."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import netns
import pytest
import reach_ranks
from workers import SOON, rank_outcomes

SAID = "reach each other's Unix sockets, and use TCP"
ENV = {"TORCH_CPP_LOG_LEVEL": "WARNING"}
LOOPBACK = {**ENV, "GLOO_SOCKET_IFNAME": "lo"}


def check(outcomes, is_split):
    """All have the result; the log has one line in all where they were split."""
    size = len(outcomes)
    for outcome in outcomes:
        assert outcome.is_good, outcome.describe()
        expected = [size * (size + 1) / 2, (outcome.rank - 1) % size]
        assert outcome.value == expected
    output = "".join(outcome.output for outcome in outcomes)
    assert output.count(SAID) == is_split, output


@pytest.mark.parametrize(
    ("ranks", "is_split"),
    [((), False), ((0,), True), ((1, 2), False), ((0, 2), True), ((0, 1, 2, 3), True)],
)
def test_ranks_with_scoped_sockets_use_tcp_where_they_must(ranks, is_split):
    if reach_ranks.landlock_version() < 6:
        pytest.skip("this kernel has no scoped sockets (Landlock 6, Linux 6.12)")
    run = reach_ranks.scoped
    check(rank_outcomes(run, 4, env=LOOPBACK, ranks=ranks), is_split)


def test_ranks_that_a_leader_does_not_reach_find_another_one():
    """More than eight, so that the table of all ranks comes from a leader."""
    if reach_ranks.landlock_version() < 6:
        pytest.skip("this kernel has no scoped sockets (Landlock 6, Linux 6.12)")
    check(rank_outcomes(reach_ranks.scoped, 12, env=LOOPBACK, ranks=(0,)), True)


@pytest.mark.parametrize(("ranks", "is_split"), [((5, 13), False), ((4, 18), True)])
def test_many_leaders_tell_all_whether_there_is_anything_to_read(ranks, is_split):
    if reach_ranks.landlock_version() < 6:
        pytest.skip("this kernel has no scoped sockets (Landlock 6, Linux 6.12)")
    run = reach_ranks.scoped
    outcomes = rank_outcomes(run, 20, env=LOOPBACK, ranks=ranks, per_host=2)
    check(outcomes, is_split)


@pytest.mark.parametrize("places", [(0, 0, 0), (0, 1), (0, 1, 0, 1), (0, 1, 1, 2)])
def test_namespaces_that_look_like_one_host_use_tcp(places):
    netns.skip_unless_possible()
    with netns.Network(max(2, *places) + 1) as network:
        hosts = [network.hosts[place] for place in places]
        method = f"tcp://{hosts[0].address}:29500"
        run = reach_ranks.in_namespaces
        outcomes = rank_outcomes(
            run, len(places), env=ENV, hosts=hosts, init_method=method
        )
        check(outcomes, len(set(places)) > 1)


@pytest.mark.parametrize("killed", [1, 2])
def test_an_end_in_another_pid_namespace_is_noticed(killed):
    netns.skip_unless_possible()
    with netns.Network(2) as network:
        hosts = [network.hosts[place] for place in (0, 0, 1, 1)]
        method = f"tcp://{hosts[0].address}:29500"
        outcomes = rank_outcomes(
            reach_ranks.in_namespaces,
            4,
            env=ENV,
            hosts=hosts,
            init_method=method,
            killed=killed,
        )
        for outcome in outcomes:
            if outcome.rank != killed:
                assert outcome.is_good, outcome.describe()
                text, seconds = outcome.value
                assert f"rank {killed} (pid " in text, text
                assert seconds < SOON, text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_ranks_of_several_users_share_no_memory():
    users = [0, 65534, 0, 65534]
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        store = Path(folder, "store")
        store.touch()
        store.chmod(0o666)
        outcomes = rank_outcomes(
            reach_ranks.of_several_users,
            4,
            env=LOOPBACK,
            users=users,
            init_method=f"file://{store}",
        )
    for outcome in outcomes:
        assert outcome.is_good, outcome.describe()
        result, proved = outcome.value
        assert result == [10.0, (outcome.rank - 1) % 4]
        own = users[outcome.rank]
        assert proved == [user == own for user in users]
