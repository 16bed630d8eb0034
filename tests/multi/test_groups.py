# SPDX-License-Identifier: BSD-3-Clause
"""Groups of some of the processes, beside each other and after each other."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import group_ranks
import numpy as np
import pytest
import subgroup_ranks
from workers import run_ranks

import distlite
from distlite import HashStore, ProcessGroup, ProcessGroupGloo, testing


def test_members_and_outsiders():
    results = run_ranks(subgroup_ranks.some_members, 4)
    for rank, found in enumerate(results):
        assert (found["count"], found["world"]) == (3, 4.0)
        if rank % 2:
            check_member(rank, found)
            continue
        assert found["values"] == [-100, -100]
        assert (found["rank"], found["not in"]) == ((-1, -1), True)
        assert (found["call"], found["arrays"], found["coalesced"]) == (None, [], None)
        assert [text.split(" on ")[1] for text in found["warnings"]] == [
            f"global rank {rank} which does not belong to the given group."
        ] * 3


def check_member(rank, found):
    ordered, reverse = found["views"]
    assert ordered == {
        "name": "1",
        "registered name": "1",
        "description": "odd",
        "rank": [1, 3].index(rank),
        "size": 2,
        "ranks": [1, 3],
        "global": [1, 3],
        "timeout": timedelta(minutes=30),
        "backend": "gloo",
    }
    assert reverse["rank"] == [3, 1].index(rank)
    assert (reverse["name"], reverse["description"]) == ("2", "undefined")
    assert reverse["ranks"] == reverse["global"] == [3, 1]
    assert reverse["timeout"] == timedelta(seconds=9)
    assert found["sums"] == [4.0, 4.0]
    assert (found["root"], found["group rank"], found["still"]) == (3, 1, 2.0)
    root, group_rank, global_rank = found["errors"]
    assert root.startswith("ValueError: Global rank 0 is not part of group <")
    assert group_rank.startswith("ValueError: Global rank 2 is not part of group <")
    assert global_rank.startswith("ValueError: Group rank 2 is not part of group <")
    unknown, closed, name = found["gone"]
    assert "is not registered" in unknown
    assert closed.startswith("DistBackendError")
    assert name == "None"


def test_only_members_call():
    assert run_ranks(subgroup_ranks.only_members_call, 3) == [
        [1, "1", 3.0],
        [1, 3.0, 3.0, "1", 3.0],
        [None, 1, 3.0, 3.0, "1", 3.0],
    ]


def test_groups_that_cannot_be():
    none_yet = "ValueError: Default process group has not been initialized"
    for found in run_ranks(subgroup_ranks.refused_groups, 3):
        for name in ("early", "early store", "early group"):
            assert found.pop(name).startswith(none_yet)
        assert found.pop("size").startswith("ValueError")
        assert found.pop("backend").startswith("AssertionError: Unknown backend type")
        assert found == {
            "twice": "ValueError: ranks list must not contain duplicate entries, "
            "got [0, 0]",
            "range": "ValueError: Rank 7 is out of range. Valid ranks are 0 to 2 "
            "(world_size=3)",
            "many": "ValueError: the new group's world size should be less or equal "
            "to the world size set by init_process_group",
            "empty": "ValueError: ranks list must not be empty",
            "timeout": "TypeError: Expected timeout argument to be of type "
            "datetime.timedelta, got 5, which is not a number of seconds either",
            "divisible": "ValueError: The world size (3) must be divisible by "
            "'group_size=2'",
            "positive": "ValueError: The arg 'group_size' (0) must be positive",
            "exceed": "ValueError: The arg 'group_size' (9) must not exceed the world "
            "size (3)",
            "listed empty": "ValueError: The arg 'ranks_per_subgroup_list' cannot be "
            "empty",
            "listed twice": "ValueError: Rank 1 has appeared in both subgroup [0, 1] "
            "and [1, 2]",
            "name": "1",
        }


def test_cutting_the_world():
    for rank, results in enumerate(run_ranks(subgroup_ranks.subgroups, 4)):
        own = {0: 3.0, 3: 3.0, 2: 2.0}.get(rank)
        assert results == [
            1.0 if rank < 2 else 5.0,
            [rank >= 2, rank < 2],
            own,
            [rank not in (0, 3), rank != 2],
            float(rank),
            [rank],
            False,
        ]


def test_many_groups_at_once():
    for wrong, quickest in run_ranks(subgroup_ranks.many_groups, 4):
        assert wrong == 0
        # Some milliseconds; the rest is for a machine that is busy.
        assert quickest < 0.2


@pytest.mark.parametrize("size", [6, pytest.param(17, marks=pytest.mark.slow)])
def test_groups_of_nearly_all_ranks(size):
    """The rings of fewer ranks are larger, and have room all the same."""
    for found in run_ranks(subgroup_ranks.nearly_all, size):
        assert found == [True] * (2 * size - 2)


def test_joining_with_the_init_barrier():
    env = {"TORCH_DIST_INIT_BARRIER": "1"}
    results = run_ranks(subgroup_ranks.only_members_call, 3, env=env)
    assert results[0] == [1, "1", 3.0]


@pytest.mark.parametrize("has_options", [False, True])
def test_a_gloo_group_by_hand(has_options):
    options = ProcessGroupGloo._Options()
    options._timeout = timedelta(seconds=7)
    limit = options if has_options else timedelta(seconds=7)
    store = HashStore()

    def run(rank):
        group = ProcessGroupGloo(store, rank, 2, limit)
        assert isinstance(group, ProcessGroup)
        assert (group.timeout, group.name()) == (timedelta(seconds=7), "gloo")
        tensor = np.ones(2)
        distlite.all_reduce(tensor, group=group)
        distlite.barrier(group)
        group.shutdown()
        return tensor.tolist()

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(run, range(2))] == [[2.0, 2.0]] * 2


def test_two_jobs_are_joined(tmp_path):
    found = testing.run_ranks(
        group_ranks.of_two_jobs, 3, backend=None, folder=str(tmp_path)
    )
    everyone = [(0, 0), (0, 1), (1, 0)]
    assert found == [
        [[3.0], everyone, [2.0]],
        [[3.0], everyone, [2.0]],
        [[3.0], everyone, [1.0]],
    ]


def test_a_group_made_by_hand(tmp_path):
    found = testing.run_ranks(
        group_ranks.made_by_hand, 3, backend=None, folder=str(tmp_path)
    )
    # One operation for the small arrays of a dtype, and one for the large array.
    arrived = [[10.0], [11.0], [12.0], [], [14.0], [1]]
    assert found == [[[6.0], arrived, 4]] * 3


def test_parts_of_a_group_are_merged_again(tmp_path):
    found = testing.run_ranks(group_ranks.of_split_and_merged, 4, folder=str(tmp_path))
    assert [total for total, *_ in found] == [[2.0], [4.0], [2.0], [4.0]]
    assert [rank for _, rank, *_ in found] == [0, 0, 1, 1]
    # Parts are in the order in which they came, and their ranks in their order.
    merged = [rank for _, _, rank, *_ in found]
    assert merged in ([0, 2, 1, 3], [2, 0, 3, 1])
    assert all(sums == [6.0] for *_, sums, _ in found)
    assert all("has been used for all before" in text for *_, text in found)
