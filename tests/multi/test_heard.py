# SPDX-License-Identifier: BSD-3-Clause
"""A rank that gives up a group is heard by those who wait for its messages, on every
host, whether or not a connection was made before."""

from __future__ import annotations

import heard_ranks
import pytest
from workers import SOON, run_ranks

# Hosts are simulated by hints; their links go over loopback.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}

SAYS = {
    "abort": " was aborted: abort() was called",
    "fail": " timed out after 150ms",
    "leave": " left the group",
}


@pytest.mark.parametrize(
    ("hosts", "culprit"), [("ABC", 1), ("AAB", 2), ("ABB", 0), ("AAA", 1)]
)
def test_messages_end_when_the_other_rank_gives_up(hosts, culprit):
    run = heard_ranks.in_messages
    results = run_ranks(run, 3, env=LOOPBACK, names=hosts, culprit=culprit)
    for rank, told in enumerate(results):
        for name, (text, seconds) in told.items():
            if rank != culprit:
                where = f"{name}, rank {rank}, {seconds:.3f} s: {text}"
                assert f"rank {culprit} (pid " in text, where
                assert SAYS[name.split(",")[0]] in text, where
                assert seconds < SOON, where


@pytest.mark.parametrize("hosts", ["ABC", "ABB", "AAB"])
def test_a_rank_that_heard_of_a_failure_is_heard_itself(hosts):
    run = heard_ranks.from_a_bystander
    results = run_ranks(run, 3, env=LOOPBACK, names=hosts)
    for text, seconds in results[:2]:
        assert "rank 2 (pid " in text and " was aborted" in text, text
        assert seconds < SOON, (seconds, text)


def test_who_calls_a_rank_that_has_given_up_before_is_told():
    run = heard_ranks.late_callers
    results = run_ranks(run, 3, env=LOOPBACK, names="ABC")
    for rank in (0, 2):
        (aborted, after), (left, later) = results[rank]
        assert "rank 1 (pid " in aborted and " was aborted" in aborted, aborted
        assert "rank 1 (pid " in left and " left the group" in left, left
        assert after < SOON and later < SOON, (after, later)


def test_calls_of_ended_groups_keep_no_sockets():
    run = heard_ranks.of_ended_groups
    for counts in run_ranks(run, 3, env=LOOPBACK, names="ABC", rounds=12):
        assert max(counts[6:]) <= counts[1] + 2, counts


@pytest.mark.parametrize(
    ("hosts", "end", "said"),
    [
        ("AAA", "abort", "abort() was called"),
        ("AAA", "leave", "closed"),
        ("ABC", "abort", "abort() was called"),
    ],
)
def test_a_group_that_a_rank_will_not_make_fails_at_its_deadline(hosts, end, said):
    run = heard_ranks.of_a_group_not_made
    texts = run_ranks(run, 3, env=LOOPBACK, names=hosts, end=end)
    assert said in texts[1], texts[1]
    assert all(" timed out after 300ms" in texts[rank] for rank in (0, 2)), texts
    if hosts == "AAA":
        assert "rank 1 (pid " in texts[0] and "rank 1 (pid " in texts[2], texts


@pytest.mark.parametrize("hosts", ["ABC", "AAB", "ABB", "AAA"])
def test_groups_that_were_made_before_go_on_without_the_default_group(hosts):
    run = heard_ranks.of_a_group_made_before
    assert run_ranks(run, 3, env=LOOPBACK, names=hosts) == [3.0] * 3


@pytest.mark.parametrize("hosts", ["AAA", "AAB", "ABC"])
def test_an_exception_in_a_with_statement_is_heard_on_every_host(hosts):
    run = heard_ranks.of_an_exception
    results = run_ranks(run, 3, env=LOOPBACK, names=hosts)
    assert results[1][0] == "'the reason'"
    for text, seconds in (results[0], results[2]):
        assert "rank 1 (pid " in text, text
        assert text.endswith("its with statement ended with KeyError: 'the reason'")
        assert seconds < SOON, (seconds, text)


@pytest.mark.parametrize("hosts", ["AAA", "ABC"])
@pytest.mark.parametrize("maker", heard_ranks.MAKERS)
def test_a_group_whose_making_is_interrupted_is_left(hosts, maker):
    run = heard_ranks.of_an_interrupted_making
    results = run_ranks(run, 3, env=LOOPBACK, names=hosts, maker=maker)
    assert results[1][0] == "KeyboardInterrupt"
    for text, seconds in (results[0], results[2]):
        assert "rank 1 (pid " in text, text
        assert "left the group" in text, text
        assert seconds < SOON, (seconds, text)
