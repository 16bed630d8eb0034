# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of many hosts, set apart by hints, whose leaders pass small blocks on."""

from __future__ import annotations

import many_hosts_ranks
import pytest
from workers import rank_outcomes, run_ranks

RANKS = 13
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_results_are_those_of_one_process(dtype):
    run_ranks(many_hosts_ranks.move_and_reduce, RANKS, env=LOOPBACK, dtype=dtype)


def test_bits_are_the_same_on_all_ranks():
    bits = run_ranks(many_hosts_ranks.average, RANKS, env=LOOPBACK)
    assert all(found == bits[0] for found in bits)


def test_a_rank_that_does_not_greet_is_named_on_every_host():
    """Also on those that wait for others that wait for it."""
    run = many_hosts_ranks.come_too_late
    told = run_ranks(run, RANKS, env=LOOPBACK, victim=4)
    for rank, text in enumerate(told):
        assert rank == 4 or "waiting for rank 4 (pid " in text, text


SAYS = {
    "killed": "rank 4 (pid ",
    "left": "rank 4 (pid ",
    "late": "waiting for rank 4 (pid ",
    "mismatch": "rank 4 called broadcast(3 x float64",
}


@pytest.mark.parametrize("how", SAYS)
def test_the_culprit_is_named_on_every_host(how):
    outcomes = rank_outcomes(
        many_hosts_ranks.fail, RANKS, env=LOOPBACK, victim=4, how=how
    )
    for outcome in outcomes:
        if outcome.rank != 4:
            assert outcome.is_good, outcome.describe()
            assert SAYS[how] in outcome.value, outcome.value
