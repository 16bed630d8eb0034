# SPDX-License-Identifier: BSD-3-Clause
"""What fails on one host is told on all, whatever the ranks there wait for."""

from __future__ import annotations

from collections.abc import Iterator

import netns
import pytest
import told_ranks
from workers import SOON, rank_outcomes, run_ranks

# By kind of failure, what its culprit raises, and what all others do, to be formatted
# with the culprit and the group's name.
CALLS = (
    "rank 0 called all_reduce(3 x float64, SUM), rank {0} called broadcast(3 x float64"
)
LATE = "all_reduce #2 in group {1} timed out after 150ms: waiting for rank "
SAYS = {
    "differ": (CALLS, CALLS),
    "abort": ("group {1} was aborted", "group {1} was aborted"),
    "interrupt": (
        "KeyboardInterrupt: ",
        ") gave up: all_reduce #2 in group {1} was interrupted",
    ),
    "timeout": (f": {LATE}", f") gave up: {LATE}"),
    "leave": ("ValueError: left", " left the group (last seen in #1)"),
}


@pytest.fixture
def three() -> Iterator[list[netns.Host]]:
    """Ranks 0 and 1 on the first host, 2 and 3 on the second, 4 on the third."""
    netns.skip_unless_possible()
    with netns.Network(3) as network:
        first, second, third = network.hosts
        yield [first, first, second, second, third]


def _check_failure(name: str, group: int, rank: int, text: str) -> None:
    """Who it was and in which operation, once."""
    culprit, _, _ = told_ranks.FAILURES[name]
    kind = name.split(",")[0].split(" ")[0]
    own, others = SAYS[kind]
    assert (own if rank == culprit else others).format(culprit, group) in text
    if rank != culprit:
        assert f"rank {culprit} " in text
        assert text.count(f" #2 in group {group}") == 1
        assert text.count(" gave up") <= 1
    if kind == "timeout":
        late = {"a leader waits": 2, "a leader is late": 0}[name.split(", ")[1]]
        assert f"waiting for rank {late} (pid " in text


def test_every_failure_is_told_to_ranks_that_wait_for_their_own_host(three):
    address = three[0].address
    results = run_ranks(told_ranks.failures, 5, hosts=three, address=address)
    for group, name in enumerate(told_ranks.FAILURES, 1):
        for rank, told in enumerate(results):
            text, seconds = told[name]
            where = f"{name}, rank {rank}, {seconds:.3f} s: {text}"
            assert seconds < SOON, where
            try:
                _check_failure(name, group, rank, text)
            except AssertionError as error:
                raise AssertionError(where) from error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "late"), [(4, (1, 3)), (4, (0, 2)), (1, (0, 3)), (0, (2,)), (3, (0, 2))]
)
def test_a_killed_rank_is_told_to_ranks_that_wait_for_their_own_host(
    three, victim, late
):
    outcomes = rank_outcomes(
        told_ranks.end,
        5,
        hosts=three,
        address=three[0].address,
        victim=victim,
        late=late,
    )
    for rank, outcome in enumerate(outcomes):
        if rank != victim:
            assert outcome.is_good, outcome.describe()
            text, seconds = outcome.value
            assert "all_reduce #2 in group 1: " in text, text
            assert f"rank {victim} (pid " in text, text
            assert f" on host {three[victim].name})" in text, text
            assert seconds < SOON, (rank, seconds, text)


def test_sizes_that_two_ranks_differ_in_are_told_to_all(three):
    address = three[0].address
    results = run_ranks(told_ranks.sizes, 5, hosts=three, address=address)
    for rank, told in enumerate(results):
        for name, (text, seconds) in told.items():
            where = f"{name}, rank {rank}, {seconds:.3f} s: {text}"
            assert "rank 1" in text and ("rank 3" in text or "rank 0" in text), where
            assert " #2 in group " in text and " #3 in group" not in text, where
            assert seconds < SOON, where


@pytest.mark.slow
@pytest.mark.parametrize("victim", [3, 4])
def test_a_monitored_barrier_sees_who_is_gone_on_another_host(three, victim):
    outcomes = rank_outcomes(
        told_ranks.watch, 5, hosts=three, address=three[0].address, victim=victim
    )
    for rank, outcome in enumerate(outcomes):
        if rank != victim:
            assert outcome.is_good, outcome.describe()
            text, seconds = outcome.value
            assert f"rank {victim} " in text, text
            assert seconds < SOON, (rank, seconds, text)


@pytest.mark.slow
def test_a_receive_from_another_host_can_be_given_up(three):
    two = [three[0], three[2]]
    results = run_ranks(told_ranks.receive, 2, hosts=two, address=two[0].address)
    (interrupted, after), (aborted, later) = results[0]
    assert interrupted == "KeyboardInterrupt: "
    assert " was aborted" in aborted
    assert after < 0.1 and later < 0.1
