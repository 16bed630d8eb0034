# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of sub-groups."""

from __future__ import annotations

import time
import warnings
from datetime import timedelta
from typing import Any

import numpy as np
from collective_ranks import error_of
from group_ranks import init

import distlite
from distlite import GroupMember

OUTSIDE = GroupMember.NON_GROUP_MEMBER


def sum_in(group: Any, value: float) -> float:
    tensor = np.array([value])
    distlite.all_reduce(tensor, group=group)
    return float(tensor[0])


def views(group: Any) -> dict[str, Any]:
    """What a member is told of its group."""
    return {
        "name": group.group_name,
        "registered name": distlite._get_process_group_name(group),
        "description": group.group_desc,
        "rank": distlite.get_rank(group),
        "size": distlite.get_world_size(group),
        "ranks": distlite.get_process_group_ranks(group),
        "global": [distlite.get_global_rank(group, i) for i in range(group.size())],
        "timeout": group.timeout,
        "backend": distlite.get_backend(group),
    }


def some_members(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Groups of ranks 3 and 1, in both orders, and what outsiders see."""
    init(rank, world_size, init_method)
    ordered = distlite.new_group([3, 1], group_desc="odd")
    reverse = distlite.new_group([3, 1], timedelta(seconds=9), sort_ranks=False)
    found: dict[str, Any] = {"count": distlite.get_pg_count()}
    if rank % 2 == 0:
        found["values"] = [ordered, reverse]
        found["rank"] = distlite.get_rank(ordered), distlite.get_world_size(ordered)
        found["not in"] = distlite._rank_not_in_group(ordered)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found["call"] = distlite.all_reduce(np.ones(1), group=ordered)
            found["arrays"] = distlite.all_gather_arrays(np.ones(1), group=ordered)
            found["coalesced"] = distlite.all_reduce_coalesced(
                [np.ones(1)], group=ordered, async_op=True
            )
        found["warnings"] = [str(each.message) for each in caught]
        distlite.destroy_process_group(ordered)
    else:
        found["views"] = [views(ordered), views(reverse)]
        found["sums"] = [sum_in(ordered, rank), sum_in(reverse, rank)]
        tensor = np.array([rank])
        distlite.broadcast(tensor, 3, reverse)
        found["root"] = int(tensor[0])
        found["errors"] = [
            error_of(distlite.broadcast, tensor, 0, ordered),
            error_of(distlite.get_group_rank, ordered, 2),
            error_of(distlite.get_global_rank, ordered, 2),
        ]
        found["group rank"] = distlite.get_group_rank(reverse, 1)
        distlite.destroy_process_group(ordered)
        found["gone"] = [
            error_of(distlite.get_rank, ordered),
            error_of(distlite.all_reduce, tensor, group=ordered),
            distlite._get_process_group_name(ordered),
        ]
        found["still"] = sum_in(reverse, 1)
    found["world"] = sum_in(None, 1)
    distlite.destroy_process_group()
    return found


def only_members_call(rank: int, world_size: int, init_method: str) -> list[Any]:
    """use_local_synchronization, also where ranks know different numbers of groups."""
    init(rank, world_size, init_method)
    results: list[Any] = []
    if rank == 2:
        results.append(distlite.new_group([0, 1], use_local_synchronization=True))
        results.append(
            distlite.new_group([2], use_local_synchronization=True).size(),
        )
    else:
        results.append(distlite.get_pg_count())
    if rank != 0:
        first = distlite.new_group([1, 2], use_local_synchronization=True)
        second = distlite.new_group([1, 2], use_local_synchronization=True)
        results += [sum_in(first, rank), sum_in(second, rank)]
        assert first.group_name != second.group_name
    everyone = distlite.new_group()
    results += [everyone.group_name, sum_in(everyone, 1)]
    distlite.destroy_process_group()
    return results


def refused_groups(rank: int, world_size: int, init_method: str) -> dict[str, str]:
    """Calls that every rank refuses; then the next name."""
    new_group, subgroups = distlite.new_group, distlite.new_subgroups
    listed = distlite.new_subgroups_by_enumeration
    found = {
        "early": error_of(new_group),
        "early store": error_of(distlite._get_default_store),
        "early group": error_of(distlite._get_default_group),
    }
    init(rank, world_size, init_method)
    found |= {
        "twice": error_of(new_group, [0, 0]),
        "range": error_of(new_group, [7]),
        "many": error_of(new_group, [0, 1, 2, 3]),
        "empty": error_of(new_group, []),
        "timeout": error_of(new_group, None, "5"),
        "backend": error_of(new_group, None, None, "bogus"),
        "divisible": error_of(subgroups, 2),
        "positive": error_of(subgroups, 0),
        "exceed": error_of(subgroups, 9),
        "size": error_of(subgroups),
        "listed empty": error_of(listed, []),
        "listed twice": error_of(listed, [[0, 1], [1, 2]]),
        "name": new_group().group_name,
    }
    store = distlite._get_default_store()
    assert distlite._get_default_group() is distlite.group.WORLD
    distlite._store_based_barrier(rank, store, "mine", 3, timedelta(seconds=9))
    distlite.destroy_process_group()
    return found


def subgroups(rank: int, world_size: int, init_method: str) -> list[Any]:
    """Sums in the own group of each way to cut the world, and in parts of parts."""
    init(rank, world_size, init_method)
    half, all_of = distlite.new_subgroups(2, group_desc="half")
    results = [sum_in(half, rank), [group == OUTSIDE for group in all_of]]
    lists = (iter(ranks) for ranks in ([0, 3], [2]))
    own, all_of = distlite.new_subgroups_by_enumeration(lists)
    results += [own and sum_in(own, rank), [group == OUTSIDE for group in all_of]]
    single, all_of = distlite.new_subgroups(1, half)
    results += [sum_in(single, rank), distlite.get_process_group_ranks(single)]
    distlite.destroy_process_group()
    results.append(distlite.is_initialized())
    return results


def many_groups(rank: int, world_size: int, init_method: str) -> tuple[int, float]:
    """A group for each pair, used in turn; wrong sums, seconds for the quickest one."""
    init(rank, world_size, init_method)
    wrong = 0
    quickest = float("inf")
    groups: dict[tuple[int, int], Any] = {}
    pairs = [(i, j) for i in range(world_size) for j in range(i)]
    for i, j in pairs * 3:
        begin = time.perf_counter()
        groups[i, j] = distlite.new_group([i, j])
        quickest = min(quickest, time.perf_counter() - begin)
    for turn in range(20):
        for (i, j), group in groups.items():
            if rank in (i, j):
                wrong += sum_in(group, rank + turn) != i + j + 2 * turn
    distlite.destroy_process_group()
    init(rank, world_size, init_method + "-again")
    wrong += distlite.new_group().group_name != "1"
    distlite.destroy_process_group()
    return wrong, quickest


def nearly_all(rank: int, world_size: int, init_method: str) -> list[bool]:
    """Groups that lack one rank each, whose ranks pass large arrays around at once."""
    init(rank, world_size, init_method)
    groups = [
        (gone, distlite.new_group([r for r in range(world_size) if r != gone]))
        for gone in range(world_size)
    ]
    works, right = [], []
    for gone, group in groups:
        if rank == gone:
            continue
        mine, size = group.rank(), world_size - 1
        sent = np.full(400_000, 100 * gone + mine)
        got = np.zeros_like(sent)
        there, back = (mine + 1) % size, (mine - 1) % size
        works.append(distlite.irecv(got, group=group, group_src=back))
        works.append(distlite.isend(sent, group=group, group_dst=there))
        total = np.full(50_000, gone + mine)
        works.append(distlite.all_reduce(total, group=group, async_op=True))
        right.append((got, 100 * gone + back))
        right.append((total, size * gone + size * (size - 1) // 2))
    for work in works:
        work.wait()
    distlite.barrier()
    distlite.destroy_process_group()
    return [bool((array == value).all()) for array, value in right]
