# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of several hosts prove the job's token to each other, and to nobody else."""

from __future__ import annotations

import pytest
import token_ranks
from token_ranks import TOKEN
from workers import SOON, rank_outcomes, run_ranks

# Hosts are simulated by hints; their links go over loopback.
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo"}


@pytest.mark.parametrize("names", ["AAB", "ABC", "AAA"])
def test_ranks_with_one_token_find_each_other(names):
    tokens = [TOKEN] * 3
    results = run_ranks(token_ranks.join, 3, env=LOOPBACK, names=names, tokens=tokens)
    assert [total for total, _ in results] == [3.0] * 3


@pytest.mark.parametrize(
    ("token", "by_others", "by_itself"),
    [
        (
            "another",
            "was not written with this job's token",
            "was not written with this job's token",
        ),
        (
            None,
            "was written without this job's token",
            "was written with a token, and this process has none",
        ),
    ],
)
@pytest.mark.parametrize("names", ["AAB", "AAA"])
def test_a_rank_with_another_token_is_told_everywhere(
    names, token, by_others, by_itself
):
    tokens = [TOKEN, TOKEN, token]
    results = run_ranks(token_ranks.join, 3, env=LOOPBACK, names=names, tokens=tokens)
    for text, seconds in results[:2]:
        assert f"rank 2: its record in the store {by_others}" in text
        assert "DISTLITE_TOKEN" in text
        assert seconds < SOON
    text, seconds = results[2]
    assert f"rank 0: its record in the store {by_itself}" in text
    assert seconds < SOON
    assert not any(TOKEN in text for text, _ in results)


@pytest.mark.parametrize("is_passed", [False, True])
def test_strangers_are_refused_and_harm_nobody(is_passed, tmp_path):
    results = run_ranks(
        token_ranks.strangers,
        3,
        env=LOOPBACK,
        names="AAB",
        path=str(tmp_path / "store"),
        is_passed=is_passed,
    )
    for told in results:
        assert len(told) == 3
        assert all("this rank asks for the job's token" in text for text in told)


@pytest.mark.parametrize(("names", "victim"), [("ABC", 2), ("AAB", 0), ("ABB", 1)])
def test_a_killed_rank_is_named_over_proved_links(names, victim):
    outcomes = rank_outcomes(
        token_ranks.die, 3, env=LOOPBACK, names=names, victim=victim
    )
    for outcome in outcomes:
        if outcome.rank != victim:
            assert outcome.is_good, outcome.describe()
            text, seconds = outcome.value
            assert f"rank {victim} (pid" in text
            assert "exited or was killed" in text or "exited, was killed" in text
            assert seconds < SOON
