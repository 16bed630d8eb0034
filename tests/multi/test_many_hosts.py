# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of many hosts, set apart by hints, whose leaders pass small blocks on."""

from __future__ import annotations

from statistics import mean

import many_hosts_ranks
import pytest
from workers import rank_outcomes, run_ranks

import distlite as dist

RANKS = 13
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_results_are_those_of_one_process(dtype):
    run_ranks(many_hosts_ranks.move_and_reduce, RANKS, env=LOOPBACK, dtype=dtype)


@pytest.mark.parametrize(
    "hosts, locals_",
    [
        (8, 1),
        (4, 8),
        pytest.param(32, 1, marks=pytest.mark.slow),
        pytest.param(64, 1, marks=pytest.mark.slow),
    ],
)
def test_joining_costs_a_rank_the_same_however_many_there_are(hosts, locals_):
    """However long they wait, too."""
    with dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) as store:
        costs = [
            run_ranks(
                many_hosts_ranks.count_requests,
                hosts * locals_,
                env={**LOOPBACK, "DISTLITE_STORE_UNIX": "0"},
                port=store.port,
                prefix=str(round_),
                locals_=locals_,
                late=2.0 * round_,
            )
            for round_ in range(2)
        ]
    for found in costs:
        assert mean(requests for requests, _ in found) <= 12
        assert max(sizes for _, sizes in found) <= 4096


def test_bits_are_the_same_on_all_ranks():
    bits = run_ranks(many_hosts_ranks.average, RANKS, env=LOOPBACK)
    assert all(found == bits[0] for found in bits)


def test_a_rank_that_does_not_greet_is_named_on_every_host():
    """Also on those that wait for others that wait for it."""
    run = many_hosts_ranks.come_too_late
    told = run_ranks(run, RANKS, env=LOOPBACK, victim=4)
    for rank, text in enumerate(told):
        assert rank == 4 or "waiting for rank 4 (pid " in text, text


def test_a_rank_that_ended_before_it_showed_where_it_is_is_named_on_every_host():
    """Also on those that have no link to it, and wait for others that wait for it."""
    run = many_hosts_ranks.end_before_it_shows
    for outcome in rank_outcomes(run, RANKS, env=LOOPBACK, victim=5):
        if outcome.rank != 5:
            assert outcome.is_good, outcome.describe()
            assert "waiting for rank 5, which has not joined" in outcome.value


@pytest.mark.parametrize("kind", ["file", "waiting", "polling"])
def test_a_leader_that_ends_before_it_tells_whom_it_reaches_is_named_on_every_host(
    kind,
):
    """Larger groups are told by their links instead."""
    run = many_hosts_ranks.end_before_it_tells
    for outcome in rank_outcomes(run, 8, env=LOOPBACK, victim=4, kind=kind):
        if outcome.rank != 4:
            assert outcome.is_good, outcome.describe()
            assert "rank 4 (pid " in outcome.value, outcome.value


@pytest.mark.parametrize("victim", [4, 5, 12], ids=["leads", "member", "last host"])
@pytest.mark.parametrize(
    "seconds",
    # The simulator lets ranks end at any moment of joining.
    [0.0, *(pytest.param(s, marks=pytest.mark.slow) for s in (0.003, 0.01))],
)
def test_a_rank_that_ends_while_the_table_goes_round_is_named(victim, seconds):
    """Whatever it has got or passed on by then; ranks may also have joined."""
    run = many_hosts_ranks.end_at_some_time
    for outcome in rank_outcomes(run, 16, env=LOOPBACK, victim=victim, seconds=seconds):
        if outcome.rank != victim:
            assert outcome.is_good, outcome.describe()
            text = outcome.value
            assert text == "joined" or f"rank {victim} (pid " in text, text


@pytest.mark.parametrize(
    "victim, seconds",
    [(5, 0.0), (4, 0.005), (5, 0.005), (14, 0.005), (5, 0.02)],
    ids=["begins", "leads", "member", "leaf", "joins"],
)
def test_a_rank_that_is_stopped_while_it_joins_is_named(victim, seconds):
    """By all that wait for it, or for others that do."""
    run = many_hosts_ranks.stop_at_some_time
    for outcome in rank_outcomes(run, 16, env=LOOPBACK, victim=victim, seconds=seconds):
        if outcome.rank != victim:
            assert outcome.is_good, outcome.describe()
            text = outcome.value
            assert text == "joined" or f"rank {victim} (pid " in text, text


SAYS = {
    "killed": "rank {} (pid ",
    "left": "rank {} (pid ",
    "late": "waiting for rank {} (pid ",
    "stopped": "waiting for rank {} (pid ",
    "mismatch": "rank {} called broadcast(3 x float64",
}


def check_culprit(how: str, victim: int, ranks: int, seconds: float) -> None:
    outcomes = rank_outcomes(
        many_hosts_ranks.fail,
        ranks,
        env=LOOPBACK,
        victim=victim,
        how=how,
        seconds=seconds,
    )
    for outcome in outcomes:
        if outcome.rank != victim:
            assert outcome.is_good, outcome.describe()
            assert SAYS[how].format(victim) in outcome.value, outcome.value


@pytest.mark.parametrize("victim", [4, 7], ids=["head", "other"])
@pytest.mark.parametrize("how", SAYS)
def test_the_culprit_is_named_on_every_host(how, victim):
    """Ranks 4 and 7 are on the first and the third host of a group of four."""
    check_culprit(how, victim, RANKS, 4)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [4, 43], ids=["head", "one of two"])
@pytest.mark.parametrize("how", ["killed", "stopped", "mismatch"])
def test_the_culprit_is_named_on_64_hosts(how, victim):
    check_culprit(how, victim, 76, 8)
