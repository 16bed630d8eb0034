# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do that wait for each other, or only seem to."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import numpy as np
from operations import wait_until_in

import distlite

MARK = "deadlock: these ranks wait for each other"


def join(rank: int, size: int, path: str, hints: str, limit: float) -> None:
    """`hints`: a letter for each rank's host; empty for one host."""
    if hints:
        os.environ["DISTLITE_HOST_HINT"] = hints[rank]
    distlite.init_process_group(
        "gloo",
        init_method=f"file://{path}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=limit),
    )


def receive_in_a_collective(rank: int, size: int) -> None:
    if rank == size - 1:
        distlite.recv(np.ones(4), src=0)
    else:
        distlite.all_reduce(np.ones(4))


def cross_groups(rank: int, size: int) -> None:
    groups = [distlite.new_group([0, size - 1]) for _ in range(2)]
    if rank in (0, size - 1):
        for group in groups if rank == 0 else groups[::-1]:
            distlite.all_reduce(np.ones(4), group=group)


def cross_asynchronous_groups(rank: int, size: int) -> None:
    groups = [distlite.new_group([0, 1]) for _ in range(2)]
    first, second = groups if rank == 0 else groups[::-1]
    # The second operation of the group stands behind the first in its queue.
    distlite.all_reduce(np.ones(4), group=first, async_op=True)
    work = distlite.all_reduce(np.ones(4), group=first, async_op=True)
    work.wait()
    distlite.all_reduce(np.ones(4), group=second)


def send_to_each_other(rank: int, size: int) -> None:
    distlite.send(np.ones(1 << 20), dst=1 - rank)


def receive_in_a_ring(rank: int, size: int) -> None:
    distlite.recv(np.ones(4), src=(rank + 1) % size)


def receive_past_a_leader(rank: int, size: int) -> None:
    """Rank 1 is alone on its host, and hears of the other one by rank 0 only."""
    if rank == 1:
        distlite.all_reduce(np.ones(4))
    elif rank == 2:
        distlite.recv(np.ones(4), src=1)


def receive_from_a_leader(rank: int, size: int) -> None:
    """Rank 0 has its own host to wait for before it turns to the other one."""
    if rank == 0:
        distlite.all_reduce(np.ones(4))
    elif rank == 2:
        distlite.recv(np.ones(4), src=0)


def receive_from_a_follower(rank: int, size: int) -> None:
    """Rank 1 waits for rank 2, and by its leader for the other host."""
    if rank in (0, 1):
        distlite.all_reduce(np.ones(4))
    elif rank == 3:
        distlite.recv(np.ones(4), src=1)


def receive_past_all_leaders(rank: int, size: int) -> None:
    """Rank 1 is the first of its host to come, and rank 3 elsewhere never will."""
    if rank == 1:
        distlite.all_reduce(np.ones(4))
    elif rank == 3:
        distlite.recv(np.ones(4), src=1)


def receive_past_a_parent(rank: int, size: int) -> None:
    """Rank 0 of four has the root's array from rank 3, which is late."""
    if rank == 0:
        distlite.broadcast(np.ones(4), src=1)
    elif rank == 1:
        distlite.recv(np.ones(4), src=0)


def receive_from_a_root(rank: int, size: int) -> None:
    """The root has the array of rank 0 of four from rank 3, after that of rank 2; both
    are late."""
    if rank == 1:
        distlite.reduce(np.ones(4), dst=1)
    elif rank == 0:
        distlite.recv(np.ones(4), src=1)


def mistake_a_tag(rank: int, size: int) -> None:
    if rank == 0:
        distlite.send(np.ones(1 << 20), dst=1, tag=1)
    else:
        distlite.recv(np.ones(1 << 20), src=0, tag=2)


def hang(
    rank: int,
    world_size: int,
    path: str,
    kind: str,
    hints: str = "",
    culprits: Sequence[int] = (),
) -> str:
    """What `culprits` are told."""
    join(rank, world_size, path, hints, 60.0)
    return hang_in(rank, world_size, kind, culprits)


def hang_until(rank: int, world_size: int, path: str, kind: str, limit: float) -> str:
    """The error that ends it after a timeout."""
    join(rank, world_size, path, "", limit)
    try:
        globals()[kind](rank, world_size)
    except distlite.DistBackendError as error:
        return str(error)
    return ""


class Ender(logging.Handler):
    """Ends the groups of a rank that is told of a deadlock, once all culprits are."""

    def __init__(self, meet: Callable[[str], None]) -> None:
        super().__init__()
        self.meet, self.text = meet, ""

    def emit(self, record: logging.LogRecord) -> None:
        if not self.text and MARK in record.getMessage():
            self.text = record.getMessage()
            self.meet("seen")
            distlite.distributed_c10d._abort_process_group()


def hang_in(rank: int, world_size: int, kind: str, culprits: Sequence[int]) -> str:
    """In a group that is there: what the log has told.  Nobody leaves before all
    `culprits` have been told: an exit would end the waits of the others, and that of
    rank 0 the store."""
    store = distlite.distributed_c10d._get_default_store()

    def meet(key: str) -> None:
        store.set(f"{key}/{rank}", b"")
        store.wait([f"{key}/{each}" for each in culprits])

    ender = Ender(meet)
    logging.getLogger("distlite").addHandler(ender)
    distlite.capture_log()
    with contextlib.suppress(distlite.DistBackendError):
        globals()[kind](rank, world_size)
    meet("told")
    with contextlib.suppress(distlite.DistNetworkError):  # rank 0 may leave at once
        store.set(f"leaving/{rank}", b"")
    if rank == 0:
        store.wait([f"leaving/{each}" for each in culprits])
    return ender.text


# What follows ends well, after waits that are long enough to be looked at.


def wait_for_a_slow_rank(rank: int, size: int) -> None:
    for turn in range(3):
        if rank == turn % size:
            time.sleep(1.0)
        distlite.all_reduce(np.ones(4))
        if rank != 0:
            distlite.send(np.ones(1 << 18), dst=0)
        else:
            time.sleep(0.7)
            for _ in range(size - 1):
                distlite.recv(np.ones(1 << 18))


def let_a_thread_resolve_it(rank: int, size: int) -> None:
    """Both main threads wait for each other; the second thread of rank 1 helps."""
    group = distlite.new_group([0, 1])

    def help_out() -> None:
        # It is known to call operations since it has waited in one.
        distlite.all_reduce(np.ones(4), group=group)
        time.sleep(2.0)
        distlite.send(np.ones(4), dst=0, tag=1)

    if rank == 0:
        wait_until_in([1], group.group_name)
        # A wait is noted at the end of its first slice of sleep, of 50 ms.
        time.sleep(0.5)
        distlite.all_reduce(np.ones(4), group=group)
        distlite.recv(np.ones(4), src=1, tag=1)
        distlite.send(np.ones(4), dst=1, tag=2)
        return
    thread = threading.Thread(target=help_out)
    thread.start()
    distlite.recv(np.ones(4), src=0, tag=2)
    thread.join()


def need_the_root_alone(rank: int, size: int) -> None:
    """Rank 2 waits for the other host's leader, which has no need of rank 1: the root's
    data go on before all ranks of its host have come."""
    array = np.full(4, rank)
    if rank == 1:
        distlite.recv(array, src=2)
    elif rank == 0:
        time.sleep(1.5)
    distlite.broadcast(array, src=0)
    assert (array == 0).all()
    if rank == 2:
        distlite.send(array, dst=1)


def receive_what_is_on_its_way(rank: int, size: int) -> None:
    """Rank 1 has sent what rank 0 waits for, before it waits for rank 0."""
    if rank == 0:
        time.sleep(1.0)
        distlite.recv(np.ones(1 << 20), src=1, tag=1)
        distlite.send(np.ones(4), dst=1, tag=2)
    else:
        work = distlite.isend(np.ones(1 << 20), dst=0, tag=1)
        distlite.recv(np.ones(4), src=0, tag=2)
        work.wait()


def stop_a_rank(rank: int, size: int) -> None:
    """A stopped rank waits for nobody."""
    if rank == 1:
        stat = f"/proc/{os.getpid()}/stat"
        script = f"until grep -q ') T ' {stat}; do sleep 0.1; done; sleep 2; "
        script += f"kill -CONT {os.getpid()}"
        with subprocess.Popen(["/bin/sh", "-c", script]):
            os.kill(os.getpid(), signal.SIGSTOP)
    distlite.all_reduce(np.ones(4))


def finish(rank: int, world_size: int, path: str, kind: str, hints: str = "") -> None:
    join(rank, world_size, path, hints, 60.0)
    finish_in(rank, world_size, kind)


def finish_in(rank: int, world_size: int, kind: str) -> None:
    globals()[kind](rank, world_size)
    distlite.barrier()
    distlite.destroy_process_group()
    sys.stderr.flush()
