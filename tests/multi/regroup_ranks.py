# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of split and shrunk groups.  Does not import pytest."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from collective_ranks import error_of
from subgroup_ranks import init, sum_in

import distlite


def parts(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Four ranks, cut in two, of which each is cut again; and what is refused."""
    init(rank, world_size, init_method)
    found: dict[str, Any] = {"count": distlite.get_pg_count()}
    half = distlite.split_group(None, np.array([[2, 0], [1, 3]]), timedelta(seconds=9))
    assert half is not None
    found["half"] = sum_in(half, rank), half.group_desc, half.timeout
    found["ranks"] = distlite.get_process_group_ranks(half)
    single = distlite.split_group(half, [[1]], group_desc="single", backend="cpu")
    found["single"] = single and (
        sum_in(single, rank),
        distlite.get_process_group_ranks(single),
        single.group_desc,
        distlite.get_backend(single),
    )
    # Twice the same: other groups.
    again = [distlite.split_group(half, [[0, 1]]) for _ in range(2)]
    found["again"] = [sum_in(group, 1) for group in reversed(again)]
    split = distlite.split_group
    found["errors"] = [
        error_of(split),
        error_of(split, None, []),
        error_of(split, None, [[]]),
        error_of(split, None, [[0, 0]]),
        error_of(split, None, [[0, 1], [1]]),
        error_of(split, half, [[2]]),
        error_of(split, None, [[0]], "5"),
    ]
    found["new"] = distlite.get_pg_count() == found["count"]
    distlite.destroy_process_group(half)
    found["left"] = sum_in(distlite.new_group([rank]), rank)
    return found


def refusals(group: Any) -> list[str]:
    """Of a group of four, asked by its rank 0."""
    shrink = distlite.shrink_group
    return [
        error_of(shrink, [], group),
        error_of(shrink, (1,), group),
        error_of(shrink, [1], group, 7),
        error_of(shrink, [9], group),
        error_of(shrink, [-1], group),
        error_of(shrink, [1, 1], group),
        error_of(shrink, [0], group),
        error_of(shrink, [1], distlite.new_group([0], use_local_synchronization=True)),
        error_of(shrink, [1], -100),
    ]


def stay(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Rank 1 leaves a sub-group, then the world; nobody dies."""
    init(rank, world_size, init_method)
    found: dict[str, Any] = {}
    if rank == 0:
        found["errors"] = refusals(None)
    backwards = distlite.new_group([3, 2, 1, 0], group_desc="back", sort_ranks=False)
    other = distlite.new_group([0, 1])
    if rank != 1:
        smaller = distlite.shrink_group([2], backwards)
        found["sub"] = (
            sum_in(smaller, rank),
            smaller.rank(),
            smaller.group_desc,
            distlite.get_process_group_ranks(smaller),
        )
        found["old"] = error_of(distlite.get_rank, backwards).split(":")[0]
        found["world"] = sum_in(None, 1.0)
        world = distlite.shrink_group([1])
        found["new"] = world is distlite.group.WORLD, sum_in(None, 1.0)
        found["rank"] = distlite.get_rank(), distlite.get_process_group_ranks(None)
        found["others"] = error_of(distlite.get_rank, smaller).split(":")[0]
        pair = distlite.new_group([0, 2])
        found["pair"] = pair if type(pair) is int else sum_in(pair, rank)
        local = distlite.new_group([0, 1], use_local_synchronization=True)
        found["local"] = local and sum_in(local, rank)
        found["last"] = sum_in(
            distlite.shrink_group([distlite.get_world_size() - 1])
            if distlite.get_rank() < 2
            else distlite.new_group([2], use_local_synchronization=True),
            1.0,
        )
    else:
        found["world"] = sum_in(None, 1.0)
        assert other is not None
    distlite.destroy_process_group()
    return found


def disagree(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Rank 1 leaves out another rank than 0 and 3 do; then all leave out the same."""
    init(rank, world_size, init_method)
    found: dict[str, Any] = {}
    if rank != 2:
        began = time.monotonic()
        found["error"] = error_of(distlite.shrink_group, [3] if rank == 1 else [2])
        found["seconds"] = time.monotonic() - began
    distlite.barrier()
    if rank != 2:
        distlite.shrink_group([2])
        found["sum"] = sum_in(None, rank)
    distlite.destroy_process_group()
    return found


def lose(
    rank: int, world_size: int, init_method: str, lost: int, how: str, folder: str
) -> dict[str, Any]:
    """One rank is killed or stopped while the others are in an operation."""
    init(rank, world_size, init_method)
    distlite.barrier()  # all have joined
    flag = 0
    if rank == lost:
        Path(folder, "lost").write_text(str(os.getpid()))
        os.kill(os.getpid(), getattr(signal, how))
        return {}
    pid = wait_for_end(Path(folder, "lost"))
    found: dict[str, Any] = {}
    if how == "SIGKILL":
        found["error"] = error_of(distlite.all_reduce, np.ones(1))
        assert "broken" in error_of(distlite.all_reduce, np.ones(1))
    else:
        flag = distlite.distributed_c10d.SHRINK_ABORT
    start = time.perf_counter()
    distlite.shrink_group([lost], None, flag)
    found["seconds"] = time.perf_counter() - start
    found["rank"] = distlite.get_rank(), distlite.get_world_size()
    found["sum"] = sum_in(None, rank)
    found["new"] = sum_in(distlite.new_group([0, 1, 2]), rank)
    found["objects"] = [a.tolist() for a in distlite.all_gather_arrays(np.ones(rank))]
    distlite.barrier()
    if distlite.get_rank() == 0 and how == "SIGSTOP":
        os.kill(pid, signal.SIGKILL)
    distlite.destroy_process_group()
    return found


def wait_for_end(path: Path) -> int:
    """Until the process named there is dead or stopped; its pid."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = path.read_text() if path.exists() else ""
        if text:
            status = Path(f"/proc/{text}/stat")
            try:
                state = status.read_text().rpartition(")")[2].split()[0]
            except OSError:
                return int(text)
            if state in "TtZX":
                return int(text)
        time.sleep(0.005)
    raise TimeoutError("the rank lives on")


def try_again(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Rank 0 gives up because rank 1 is late, twice, and then they meet."""
    init(rank, world_size, init_method)
    found: dict[str, Any] = {"errors": []}
    world = distlite.group.WORLD
    store = world.get_group_store()
    if rank == 2:
        store.wait(["over"])
        return found
    if rank == 0:
        world.set_timeout(timedelta(seconds=0.2))
        for _ in range(2):
            found["errors"].append(error_of(distlite.shrink_group, [2]))
        world.set_timeout(timedelta(seconds=60))
        store.set("failed", "yes")
    else:
        store.wait(["failed"])
    started = time.monotonic()
    distlite.shrink_group([2])
    found["sum"] = sum_in(None, 1.0)
    found["seconds"] = time.monotonic() - started
    store.set("over", "yes")
    distlite.destroy_process_group()
    return found


def shrink_after_different_counts(rank: int, world_size: int, init_method: str) -> bool:
    """One rank was in a call of new_group() that the others never came to."""
    init(rank, world_size, init_method)
    if rank == 1:
        distlite.new_group([1])
    distlite.shrink_group([0]) if rank else distlite.destroy_process_group()
    if rank:
        pair = distlite.new_group([0, 1])
        distlite.barrier(pair)
        distlite.destroy_process_group()
    return True
