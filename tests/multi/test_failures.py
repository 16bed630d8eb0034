# SPDX-License-Identifier: BSD-3-Clause
"""Disagreement, death, lateness: every rank hears of it, soon, and of whom."""

import pytest
from failing_ranks import (
    CALLS,
    ended,
    fork_and_go_on,
    interrupted,
    late,
    late_to_barrier,
    leave,
    mismatches,
    survive,
)
from ports import reserve_port
from workers import SOON, rank_outcomes, run_ranks


def test_every_rank_hears_of_a_mismatch():
    for rank, results in enumerate(run_ranks(mismatches, 3)):
        for attempt, promised in (("first", 1.0), ("later", 0.1)):
            assert min(result[attempt][1] for result in results.values()) < promised
        for kind, result in results.items():
            first, seconds = result["first"]
            assert seconds < SOON, kind
            assert "rank 1 called" in first, kind
            # Rank 2 may find out by itself, or hear of it from rank 0.
            others = (0, 2) if rank == 2 else (0,)
            assert any(f"rank {other} called" in first for other in others), kind
            # The group is broken, and keeps its first cause.
            later, seconds = result["later"]
            assert "broken" in later and first in later, kind
            assert seconds < SOON, kind
        text, _ = results["count"]["first"]
        assert "10 x float64" in text and "20 x float64" in text


@pytest.mark.parametrize(
    ("call", "early"), [*((call, False) for call in CALLS), ("all_reduce", True)]
)
def test_survivors_hear_of_a_death(call, early, tmp_path):
    outcomes = rank_outcomes(survive, 3, call=call, folder=str(tmp_path), early=early)
    assert outcomes[1].returncode == -9
    for outcome in (outcomes[0], outcomes[2]):
        assert outcome.is_good, outcome.describe()
        kind, text, _, seconds = outcome.value["first"]
        assert kind == "DistBackendError"
        assert f"rank 1 (pid {outcome.value['pid']} " in text
        assert (seconds if early else outcome.value["delay"]) < SOON
        kind, text, _, seconds = outcome.value["later"]
        assert (kind, seconds < SOON) == ("DistBackendError", True)
        assert "rank 1" in text
        assert outcome.value["errors"] == ("SUCCESS", "REMOTE_ERROR")
        kind, _, _, seconds = outcome.value["end"]
        assert (kind, seconds < SOON) == ("", True)


@pytest.mark.parametrize("how", ["return", "exit", "_exit", "destroy", "abort"])
def test_survivors_hear_of_a_leave(how):
    outcomes = rank_outcomes(leave, 3, how=how)
    for outcome in (outcomes[0], outcomes[2]):
        assert outcome.is_good, outcome.describe()
        kind, text, _, seconds = outcome.value
        assert kind == "DistBackendError"
        assert "rank 1" in text
        assert seconds < SOON


def test_timeout_names_who_did_not_come():
    results = run_ranks(late, 3, seconds=0.5)
    for rank in 0, 2:
        first, later, error = results[rank]
        assert error == "TIMEOUT"
        assert first[0] == later[0] == "DistBackendError"
        assert "rank 1" in first[1]
        assert "500ms" in first[1]
        assert first[3] < SOON
        # One timeout breaks the group; it says why, at once.
        assert "rank 1" in later[1]
        assert later[3] < SOON
    # The first to give up has waited; the other one may have come later.
    assert max(results[rank][0][3] for rank in (0, 2)) >= 0.5
    first, later, error = results[1]
    assert error != "SUCCESS"
    assert first[0] == later[0] == "DistBackendError"
    assert first[3] < SOON


def test_ctrl_c_ends_a_blocked_call():
    url = f"tcp://127.0.0.1:{reserve_port()}"
    delays, _ = run_ranks(interrupted, 2, url=url, times=5)
    # 100 ms are promised, and a busy machine may be slower more than once.
    assert min(delays) < 0.1 and max(delays) < SOON


@pytest.mark.parametrize(
    ("how", "word"), [("abort", "abort"), ("shutdown", "closed"), ("destroy", "closed")]
)
def test_another_thread_ends_the_group(how, word):
    (kind, text, delay), _ = run_ranks(ended, 2, how=how)
    assert kind == "DistBackendError"
    assert word in text
    assert 0 <= delay < SOON


def test_a_forked_child_is_refused_and_harmless():
    for said, totals in run_ranks(fork_and_go_on, 2):
        assert "DistBackendError" in said and "fork" in said
        assert totals == [1.0] * 3


def test_timeout_of_one_call():
    result, _ = run_ranks(late_to_barrier, 2)
    kind, text, _, seconds = result
    assert kind == "DistBackendError"
    assert "rank 1" in text
    assert 0.2 <= seconds < SOON
