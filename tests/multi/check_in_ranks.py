# SPDX-License-Identifier: BSD-3-Clause
"""What ranks run that do not belong to one job: see test_check_in.py."""

from __future__ import annotations

import os
import time
from datetime import timedelta

import numpy as np

import distlite as dist
from distlite.groups import check_in, lifecycle


def _initialize(
    init_method: str, rank: int, size: int, timeout: timedelta, way: str
) -> None:
    """By the URL, by the environment, or by a store over the URL's file."""
    if way == "env":
        address, _, port = init_method.removeprefix("tcp://").partition(":")
        os.environ |= {"MASTER_ADDR": address, "MASTER_PORT": port}
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
        dist.init_process_group("gloo", timeout=timeout)
    elif way == "prefix":
        file = dist.FileStore(init_method.removeprefix("file://"), -1)
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore("job", file),
            rank=rank,
            world_size=size,
            timeout=timeout,
        )
    else:
        dist.init_process_group(
            "gloo", init_method, rank=rank, world_size=size, timeout=timeout
        )


def for_ever(rank: int, world_size: int, init_method: str, is_number: bool) -> float:
    """Rank 0 waits for rank 1, which comes once rank 0 has begun to wait."""
    limit = -1.0 if is_number else timedelta(seconds=-1)
    store = dist.FileStore(init_method.removeprefix("file://"), -1)
    if rank == 0:
        wait = check_in.CheckIn._have_all_come

        def tell(self: check_in.CheckIn, pause: float) -> bool:
            store.set("waits", "")
            return wait(self, pause)

        check_in.CheckIn._have_all_come = tell  # type: ignore[method-assign]
    else:
        store.wait(["waits"])
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=limit
    )
    group = dist.new_group(timeout=limit)
    dist.barrier(group)
    dist.destroy_process_group()
    return group.timeout.total_seconds()


def start(
    rank: int,
    world_size: int,
    init_method: str,
    roles: list[tuple[int, int]],
    wait: float = 60.0,
    one_too_many: bool = False,
    way: str = "url",
    meets: bool = False,
) -> tuple[str, float]:
    """Each is started with a rank and a world size of its own: what it is told, and how
    long that took.  `one_too_many`: the last one comes once the others have joined, and
    these leave after it gave up.  `meets`: all begin at the same time, however long
    their processes took to start."""
    own, size = roles[rank]
    os.environ["DISTLITE_HOST_HINT"] = f"host{rank % 2}"
    path = init_method.removeprefix("file://")
    if one_too_many:
        others = dist.FileStore(path + ".others", -1)
        if rank == world_size - 1:
            others.wait([f"joined/{each}" for each in range(rank)])
    if meets:
        dist.FileStore(path + ".begin", world_size).barrier("begin", world_size)
    begin = time.monotonic()
    timeout = timedelta(seconds=wait)
    try:
        _initialize(init_method, own, size, timeout, way)
    except RuntimeError as error:
        took = time.monotonic() - begin
        if one_too_many:
            others.set("over", "yes")
        return f"{type(error).__name__}: {error}", took
    dist.barrier()
    if one_too_many:
        others.set(f"joined/{rank}", "yes")
        others.wait(["over"], timedelta(seconds=30))
    dist.destroy_process_group()
    return "joined", time.monotonic() - begin


def fail_after_check_in(
    rank: int, world_size: int, init_method: str, failing: int, error: str
) -> tuple[str, float]:
    """One rank cannot make its group, once all have checked in."""
    errors = {"memory": MemoryError("none left"), "interrupt": KeyboardInterrupt()}

    def fail(*_: object) -> None:
        raise errors[error]

    if rank == failing:
        lifecycle.make_group = fail  # type: ignore[assignment]
    begin = time.monotonic()
    try:
        dist.init_process_group("gloo", init_method, rank=rank, world_size=world_size)
    except (dist.DistError, MemoryError, KeyboardInterrupt) as caught:
        return f"{type(caught).__name__}: {caught}", time.monotonic() - begin
    raise AssertionError("nothing was raised")


def start_spawned(index: int, folder: str, roles: list[tuple[int, int]]) -> None:
    """A rank of spawn(), which has a rank and a world size of its own."""
    text, seconds = start(index, len(roles), f"file://{folder}/store", roles)
    with open(f"{folder}/{index}", "w") as file:
        file.write(f"{seconds} {text}")


def come_late(rank: int, world_size: int, init_method: str) -> int:
    """Longer after rank 0 than it waits before it looks who has had its rank."""
    time.sleep(rank * 2 * check_in.ALONE)
    dist.init_process_group(
        "gloo", init_method=init_method, rank=rank, world_size=world_size
    )
    dist.barrier()
    dist.destroy_process_group()
    return rank


def far_away(
    rank: int, world_size: int, ports: list[int], backend: str
) -> tuple[float, float]:
    """Each rank reaches the store by a port of its own; returns a sum, and how long the
    rank's store takes for one request."""
    store = dist.TCPStore("127.0.0.1", ports[rank], is_master=False)
    begin = time.monotonic()
    store.set(f"probe/{rank}", "")
    trip = time.monotonic() - begin
    dist.init_process_group(
        backend,
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=60),
    )
    values = np.ones(1)
    dist.all_reduce(values)
    dist.destroy_process_group()
    return float(values[0]), trip
