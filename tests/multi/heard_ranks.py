# SPDX-License-Identifier: BSD-3-Clause
"""What ranks run that wait in messages while others give up: see test_heard.py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from health_ranks import Scene, Told
from launching import wait_until
from operations import wait_until_ahead

import distlite as dist
from distlite.groups import group_making

# Far above what a test may take to be told, and below its own limit.
LIMIT = timedelta(seconds=20)
# In which waiting ranks look several times at calls, boards and probes.
WINDOW = 0.4
# The deadline of a collective that fails.
SHORT = 0.15

Group = Any


def receive(group: Group, peer: int) -> None:
    dist.recv(np.zeros(1), peer, group=group)


def receive_any(group: Group, peer: int) -> None:
    dist.recv(np.zeros(1), group=group)


def receive_later(group: Group, peer: int) -> None:
    work = dist.irecv(np.zeros(1), peer, group=group)
    assert work is not None
    work.wait()


def send(group: Group, peer: int) -> None:
    # So large that it ends only when it is received.
    dist.send(np.zeros(100_000), peer, group=group)


WAITS: tuple[Callable[[Group, int], None], ...] = (
    receive,
    receive_any,
    receive_later,
    send,
)


def abort(group: Group) -> None:
    group.abort()


def fail(group: Group) -> None:
    """A collective that fails: the others have not come to it."""
    group.set_timeout(timedelta(seconds=SHORT))
    try:
        dist.all_reduce(np.zeros(3), group=group)
    except (dist.DistBackendError, RuntimeError):
        return
    raise AssertionError("nothing was raised")


def leave(group: Group) -> None:
    dist.destroy_process_group(group)


ENDS: dict[str, Callable[[Group], None]] = {
    "abort": abort,
    "fail": fail,
    "leave": leave,
}


def in_messages(
    rank: int, world_size: int, init_method: str, names: str, culprit: int
) -> dict[str, Told]:
    """Each way to wait for the culprit and each way in which it gives up, in a group of
    its own, in which nobody has sent anything before."""
    scene = Scene(rank, world_size, init_method, names)
    results = {}
    for end in ENDS:
        for wait in WAITS:
            name = f"{end}, {wait.__name__}"
            if (end, wait) == ("leave", receive_any):
                continue  # the others may still send
            group = dist.new_group(timeout=LIMIT)
            results[name] = _play(scene, group, name, culprit, wait, ENDS[end])
            if rank != culprit or end != "leave":
                dist.destroy_process_group(group)
    dist.destroy_process_group()
    return results


def _play(
    scene: Scene,
    group: Group,
    name: str,
    culprit: int,
    wait: Callable[[Group, int], None],
    end: Callable[[Group], None],
) -> Told:
    dist.barrier()
    told = "", 0.0
    if scene.rank == culprit:
        wait_until_ahead(set(range(scene.size)) - {culprit})
        scene.mark(name)
        end(group)
    else:
        told = _told(scene, name, lambda: wait(group, culprit))
    dist.barrier()
    return told


def _told(scene: Scene, name: str, operation: Callable[[], None]) -> Told:
    try:
        operation()
    except (dist.DistBackendError, RuntimeError) as error:
        end = time.monotonic()
        return str(error), end - float(scene.store.get(name))
    raise AssertionError("nothing was raised")


def from_a_bystander(
    rank: int, world_size: int, init_method: str, names: str
) -> Told | None:
    """Rank 0 waits for a message of rank 1, which hears in a collective that rank 2 has
    given up, and then gives up as well."""
    scene = Scene(rank, world_size, init_method, names)
    group = dist.new_group(timeout=LIMIT)
    told: Told | None = None
    if rank == 0:
        told = _told(scene, "end", lambda: receive(group, 1))
    elif rank == 1:
        told = _told(scene, "end", lambda: dist.barrier(group))
    else:
        wait_until_ahead([0, 1])
        scene.mark("end")
        group.abort()
    dist.barrier()
    dist.destroy_process_group()
    return told


def late_callers(
    rank: int, world_size: int, init_method: str, names: str
) -> list[Told]:
    """Messages for a rank that gave up its groups before, and computes."""
    scene = Scene(rank, world_size, init_method, names)
    groups = [dist.new_group(timeout=LIMIT) for _ in range(2)]
    told = []
    dist.barrier()
    if rank == 1:
        groups[0].abort()
        dist.destroy_process_group(groups[1])
        scene.mark("end")
        scene.store.wait(["told/0", "told/2"])
    else:
        scene.store.wait(["end"])
        for group in groups:
            scene.mark(f"start/{rank}")
            told.append(_told(scene, f"start/{rank}", lambda g=group: receive(g, 1)))
        scene.mark(f"told/{rank}")
    dist.barrier()
    dist.destroy_process_group()
    return told


def _sockets() -> int:
    count = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
        except OSError:
            continue
    return count


def of_ended_groups(
    rank: int, world_size: int, init_method: str, names: str, rounds: int
) -> list[int]:
    """Open sockets after every round of groups whose calls were never taken."""
    scene = Scene(rank, world_size, init_method, names)
    counts = []
    for turn in range(rounds):
        group = dist.new_group(timeout=LIMIT)
        dist.barrier()
        before = _sockets()
        if rank == world_size - 1:
            # The higher rank calls; the others never come to receive. A small message
            # would end when the kernel has it.
            large = np.zeros(1 << 15)
            works = [dist.isend(large, other, group=group) for other in range(rank)]
            wait_until(lambda before=before: _sockets() >= before + rank)
            scene.mark(f"called {turn}")
            group.abort()
            for work in works:
                _told(scene, f"called {turn}", work.wait)
        else:
            scene.store.wait([f"called {turn}"])
        dist.barrier()
        dist.destroy_process_group(group)
        dist.barrier()
        counts.append(_sockets())
    dist.destroy_process_group()
    return counts


def of_a_group_not_made(
    rank: int, world_size: int, init_method: str, names: str, end: str
) -> str:
    """Rank 1 gives up the default group, and lives, before it has made the group in
    which the others wait for it."""
    scene = Scene(rank, world_size, init_method, names)
    # Made by all: it goes on, and keeps what the ranks of the default group share.
    kept = dist.new_group(timeout=LIMIT)
    if rank == 1:
        default = dist.group.WORLD
        default.abort() if end == "abort" else default.shutdown()
        scene.store.wait(["told/0", "told/2"])
        with pytest.raises(dist.DistError) as info:
            dist.new_group()
        text = str(info.value)
    else:
        group = dist.new_group(timeout=timedelta(milliseconds=300))
        with pytest.raises(dist.DistBackendError) as info:
            dist.all_reduce(np.zeros(3), group=group)
        text = str(info.value)
        scene.mark(f"told/{rank}")
    dist.barrier(kept)
    return text


def of_a_group_made_before(
    rank: int, world_size: int, init_method: str, names: str
) -> float:
    """Rank 1 gives up the default group, but not the one that was made out of it, in
    which the others wait for it meanwhile, and have not met it before."""
    Scene(rank, world_size, init_method, names)
    group = dist.new_group(timeout=LIMIT)
    value = np.ones(3)
    if rank == 1:
        dist.group.WORLD.abort()
        wait_until_ahead([0, 2])
        # As long as they would need to take it for the end of this group, too.
        time.sleep(WINDOW)
    dist.all_reduce(value, group=group)
    return float(value[0])


def of_an_exception(rank: int, world_size: int, init_method: str, names: str) -> Any:
    """Rank 1's block ends with an exception; the others wait for it meanwhile."""
    os.environ["DISTLITE_HOST_HINT"] = names[rank]
    began = time.monotonic()
    try:
        with dist.process_group(
            "gloo", init_method, 60, rank=rank, world_size=world_size
        ):
            dist.barrier()
            began = time.monotonic()
            if rank == 1:
                raise KeyError("the reason")
            dist.all_reduce(np.zeros(1000))
    except (KeyError, dist.DistBackendError) as error:
        return str(error), time.monotonic() - began
    raise AssertionError("nothing was raised")


MAKERS: dict[str, Callable[[], Any]] = {
    "new_group": lambda: dist.new_group(timeout=LIMIT),
    "split_group": lambda: dist.split_group(split_ranks=[[0, 1, 2]], timeout=LIMIT),
}


def of_an_interrupted_making(
    rank: int, world_size: int, init_method: str, names: str, maker: str
) -> Told:
    """Ctrl-C reaches rank 1 when it has made the group, and before it gets it; the
    others wait for it there, while its traceback keeps what it made."""
    scene = Scene(rank, world_size, init_method, names)
    if rank != 1:
        group = MAKERS[maker]()
        told = _told(scene, "end", lambda: dist.all_reduce(np.zeros(3), group=group))
        scene.mark(f"told/{rank}")
        return told

    def interrupt(*_: object) -> None:
        wait_until_ahead([0, 2])
        scene.mark("end")
        raise KeyboardInterrupt

    group_making.serve_devices = interrupt
    try:
        MAKERS[maker]()
    except KeyboardInterrupt as error:
        scene.store.wait(["told/0", "told/2"])
        return type(error).__name__, 0.0
    raise AssertionError("nothing was raised")
