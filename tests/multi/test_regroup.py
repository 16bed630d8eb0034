# SPDX-License-Identifier: BSD-3-Clause
"""split_group and shrink_group: parts of a group, and what is left without some."""

from datetime import timedelta

import pytest
import regroup_ranks
from ports import reserve_port
from workers import SOON, rank_outcomes, run_ranks


def test_parts():
    for rank, found in enumerate(run_ranks(regroup_ranks.parts, 4)):
        mates = [0, 2] if rank % 2 == 0 else [1, 3]
        assert found["ranks"] == mates
        assert found["half"] == (
            *(float(sum(mates)), "default_pg:split:0", timedelta(seconds=9)),
        )
        expected = (float(rank), [rank], "single", "cpu") if rank >= 2 else None
        assert found["single"] == expected
        assert found["again"] == [2.0, 2.0]
        assert (found["new"], found["left"]) == (True, float(rank))
        assert found["errors"] == [
            "ValueError: split_ranks cannot be None or empty",
            "ValueError: split_ranks cannot be None or empty",
            "ValueError: the split group cannot be empty",
            "ValueError: rank 0 appears twice in split_ranks",
            "ValueError: rank 1 appears twice in split_ranks",
            "ValueError: Rank 2 is out of range. Valid ranks are 0 to 1 (group size 2)",
            "TypeError: Expected timeout argument to be of type datetime.timedelta, "
            "got 5, which is not a number of seconds either",
        ]


def test_going_on_without_a_living_rank():
    results = run_ranks(regroup_ranks.stay, 4)
    errors = results[0].pop("errors")
    assert [text.partition(": ")[0] for text in errors] == [
        *("ValueError", "TypeError", *["ValueError"] * 7)
    ]
    for text, part in zip(
        errors,
        (
            "ranks_to_exclude cannot be empty.",
            "ranks_to_exclude must be a list, but got tuple.",
            "Invalid shrink_flags value: 7.",
            "Rank 9 is out of range.",
            "Rank -1 is out of range.",
            "contains a rank twice",
            "rank 0 cannot exclude itself",
            "Cannot shrink a process group with size 1.",
            "is not initialized in the world group map",
        ),
        strict=True,
    ):
        assert part in text
    assert results[1] == {"world": 4.0}
    for new_rank, rank in enumerate((0, 2, 3)):
        found = results[rank]
        # Backwards, rank 2 was process 1.
        assert found["sub"] == (5.0, (3, 2, 0).index(rank), "back", [3, 2, 0])
        assert (found["old"], found["others"]) == ("ValueError", "ValueError")
        assert (found["world"], found["new"]) == (4.0, (True, 3.0))
        assert found["rank"] == (new_rank, [0, 1, 2])
        assert found["pair"] == (-100 if rank == 2 else 3.0)
        assert found["local"] == (None if rank == 3 else 2.0)
        assert found["last"] == (1.0 if rank == 3 else 2.0)


def test_those_that_leave_out_others_are_told():
    results = run_ranks(regroup_ranks.disagree, 4)
    lists = {0: "[2]", 1: "[3]", 3: "[2]"}
    for rank, mine in lists.items():
        found = results[rank]
        others = [r for r, theirs in lists.items() if theirs != mine]
        assert found["error"] in [
            "DistBackendError: shrink_group: the ranks do not exclude the same ranks: "
            f"rank {rank} excludes {mine}, rank {other} excludes {lists[other]}. "
            "All remaining ranks must call shrink_group with the same list"
            for other in others
        ]
        assert found["seconds"] < SOON
        assert found["sum"] == 4.0


@pytest.mark.parametrize(("how", "lost"), [("SIGKILL", 0), ("SIGSTOP", 3)])
def test_going_on_without_a_lost_rank(how, lost, tmp_path):
    # Rank 0 is also the one who serves the store.
    outcomes = rank_outcomes(
        regroup_ranks.lose,
        4,
        init_method=f"tcp://127.0.0.1:{reserve_port()}",
        lost=lost,
        how=how,
        folder=str(tmp_path),
    )
    assert outcomes[lost].returncode == -9
    ranks = [rank for rank in range(4) if rank != lost]
    for new_rank, rank in enumerate(ranks):
        outcome = outcomes[rank]
        assert outcome.is_good, outcome.describe()
        found = outcome.value
        assert found["rank"] == (new_rank, 3)
        assert found["sum"] == found["new"] == float(sum(ranks))
        assert found["objects"] == [[1.0] * each for each in ranks]
        assert found["seconds"] < SOON


def test_a_survivor_that_gave_up_meets_the_others_when_it_tries_again():
    results = run_ranks(regroup_ranks.try_again, 3)
    assert len(results[0]["errors"]) == 2
    for error in results[0]["errors"]:
        assert "timed out after 200ms: waiting for rank 1 (pid " in error
    for rank in (0, 1):
        assert results[rank]["sum"] == 2.0
        assert results[rank]["seconds"] < SOON


def test_groups_of_a_smaller_world_are_named_alike():
    assert all(run_ranks(regroup_ranks.shrink_after_different_counts, 3))
