# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do that leave right after operations in which they waited for nobody."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from datetime import timedelta

import numpy as np
from operations import wait_until_ended, wait_until_stopped

import distlite


def call(rank: int, kind: str) -> None:
    array = np.ones(4, np.float32)
    if rank == 0 and kind == "broadcast":
        distlite.broadcast(array, src=0)
    elif rank == 0 and kind == "scatter":
        distlite.scatter(np.empty(4, np.float32), [array] * 3, src=0)
    elif rank == 0 and kind == "reduce":
        distlite.reduce(array, dst=2)
    elif rank == 0 and kind == "gather":
        distlite.gather(array, None, dst=2)
    elif rank == 1:
        # This goes ahead, too: its root is the last rank, which calls nothing.
        distlite.reduce(np.ones(7), dst=2)


def differ_and_leave(
    rank: int, world_size: int, init_method: str, kind: str, hints: str = "AAA"
) -> str:
    """What calling or leaving raised; rank 0 goes ahead."""
    os.environ["DISTLITE_HOST_HINT"] = hints[rank]
    distlite.init_process_group(
        "gloo", init_method=init_method, rank=rank, world_size=world_size
    )
    distlite.barrier()
    started = time.monotonic()
    try:
        call(rank, kind)
    except distlite.DistBackendError as error:
        distlite.destroy_process_group()
        return str(error)
    try:
        distlite.destroy_process_group()
    except distlite.DistBackendError as error:
        assert not distlite.is_initialized()
        return str(error)
    return f"quiet after {time.monotonic() - started:.1f} s"


def agree_and_leave(rank: int, world_size: int, init_method: str) -> None:
    """Many small broadcasts, the last of which rank 1 comes to late."""
    distlite.init_process_group(
        "gloo", init_method=init_method, rank=rank, world_size=world_size
    )
    for turn in range(300):
        array = np.full(4, float(rank))
        if rank == 1 and turn == 299:
            time.sleep(0.2)
        distlite.broadcast(array, src=0)
        assert (array == 0).all()
    distlite.destroy_process_group()


def pids_of_all(world_size: int) -> list[int]:
    pids: list[object] = [None] * world_size
    distlite.all_gather_object(pids, os.getpid())
    return [int(str(pid)) for pid in pids]


def leave_after_others(
    rank: int, world_size: int, init_method: str, is_killed: bool
) -> float:
    """Rank 1 leaves without the last broadcast, in good order or not."""
    distlite.init_process_group(
        "gloo", init_method=init_method, rank=rank, world_size=world_size
    )
    peer = pids_of_all(world_size)[1 - rank]
    distlite.barrier()
    if rank == 1 and is_killed:
        os._exit(7)
    if rank == 0:
        wait_until_ended(peer)
        distlite.broadcast(np.ones(4), src=0)
    started = time.monotonic()
    distlite.destroy_process_group()
    return time.monotonic() - started


def leave_after_a_failure(rank: int, world_size: int, init_method: str) -> bool:
    """What was told once is not told again."""
    distlite.init_process_group(
        "gloo", init_method=init_method, rank=rank, world_size=world_size
    )
    try:
        distlite.all_reduce(np.ones(3 + rank))
    except distlite.DistBackendError:
        distlite.destroy_process_group()
        return True
    return False


def leave_beside_a_thread(
    rank: int, world_size: int, init_method: str
) -> tuple[float, int]:
    """How long leaving took, and how often another thread of Python ran meanwhile.

    Rank 1 is stopped and takes nothing, so rank 0 waits a second for it to take what it
    is told of messages that were given up.
    """
    distlite.init_process_group(
        "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=30),
    )
    group = distlite.distributed_c10d._get_default_group()
    peer = pids_of_all(world_size)[1 - rank]
    distlite.barrier()
    if rank == 1:
        script = f"sleep 6; kill -CONT {os.getpid()}"
        with subprocess.Popen(["/bin/sh", "-c", script]):
            os.kill(os.getpid(), signal.SIGSTOP)
        return 0.0, 0
    wait_until_stopped(peer)
    group.set_timeout(timedelta(seconds=0.2))
    # As much as a ring holds. The large ones have to be accepted, and there is no room
    # for the notice that they were given up.
    works = [distlite.isend(np.ones(1), dst=1) for _ in range(200)]
    works += [distlite.isend(np.ones(50_000), dst=1) for _ in range(100)]
    for work in works:
        with contextlib.suppress(distlite.DistBackendError):
            work.wait()
    turns: list[float] = []
    is_over = threading.Event()

    def count() -> None:
        while not is_over.wait(0.01):
            turns.append(time.monotonic())

    thread = threading.Thread(target=count)
    thread.start()
    started = time.monotonic()
    group.shutdown()
    ended = time.monotonic()
    is_over.set()
    thread.join()
    return ended - started, sum(started + 0.1 < turn < ended for turn in turns)
