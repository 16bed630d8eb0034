# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of finding each other.  Does not import pytest."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from group_ranks import sum_of_ranks

import distlite


def init_by(rank: int, world_size: int, url: str, has_rank: bool) -> tuple[Any, ...]:
    """By URL, with the rank in the arguments or in the environment."""
    arguments = {"rank": rank, "world_size": world_size} if has_rank else {}
    distlite.init_process_group(
        init_method=url or None, timeout=timedelta(seconds=60), **arguments
    )
    answer = distlite.get_rank(), distlite.get_world_size()
    total = sum_of_ranks(rank, world_size)
    distlite.destroy_process_group()
    return (*answer, total)


def init_by_store(rank: int, world_size: int, kind: str, place: str) -> float:
    """Over a store of the caller's own."""
    if kind == "file":
        store: distlite.Store = distlite.FileStore(place, world_size)
    else:
        host, port = place.split(":")
        store = distlite.TCPStore(host, int(port), timeout=timedelta(seconds=60))
    store = distlite.PrefixStore("job", store)
    distlite.init_process_group(store=store, rank=rank, world_size=world_size)
    total = sum_of_ranks(rank, world_size)
    distlite.destroy_process_group()
    store.set(f"alive/{rank}", "yes")
    return total


def init_again(
    rank: int, world_size: int, url: str, times: int, leads: bool
) -> list[float]:
    """Several lives, in which one rank or another is always early."""
    totals = []
    for turn in range(times):
        distlite.init_process_group(
            init_method=url,
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=60),
        )
        totals.append(sum_of_ranks(rank, world_size))
        if (turn % world_size == rank) is not leads:
            time.sleep(0.02)  # late, or the others are
        distlite.destroy_process_group()
    return totals


def init_again_on_one_store(
    rank: int, world_size: int, port: int, times: int
) -> list[float]:
    store = distlite.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=60))
    totals = []
    for _ in range(times):
        distlite.init_process_group(
            store=store,
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=60),
        )
        totals.append(sum_of_ranks(rank, world_size))
        distlite.destroy_process_group()
    return totals


def init_after_failure(rank: int, world_size: int, port: int) -> float:
    """Rank 0 has tried before, in vain, when the others come for the first time."""
    store = distlite.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=60))
    keywords = {"store": store, "rank": rank, "world_size": world_size}
    if rank == 0:
        for _ in range(2):
            try:
                distlite.init_process_group(
                    **keywords, timeout=timedelta(milliseconds=200)
                )
            except distlite.DistError:
                continue
            raise AssertionError("nobody else was there")
        store.set("failed twice", "yes")
        store.set("keys", str(store.num_keys() + 1))
    else:
        # The third attempt has begun when it has left something in the store.
        while store.num_keys() <= int(store.get("keys")):
            time.sleep(0.01)
    distlite.init_process_group(**keywords, timeout=timedelta(seconds=60))
    total = sum_of_ranks(rank, world_size)
    distlite.destroy_process_group()
    return total


def init_error(
    rank: int, world_size: int, port: int, said: list[tuple[int, int]], seconds: float
) -> tuple[str, str, float]:
    """What an initialisation with the `said` rank and size comes to, and when."""
    store = distlite.TCPStore("127.0.0.1", port, timeout=timedelta(seconds=60))
    store.barrier("all are here", len(said))
    start = time.monotonic()
    try:
        distlite.init_process_group(
            store=store,
            rank=said[rank][0],
            world_size=said[rank][1],
            timeout=timedelta(seconds=seconds),
        )
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - start
    return "", "", time.monotonic() - start
