# SPDX-License-Identifier: BSD-3-Clause
"""What ranks run whose failures are detected on hosts AABB: see test_health.py."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import struct
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
from operations import wait_until_ahead

import distlite as dist

# A second and a few looks: far below the deadlines, which are a minute.
Told = tuple[str, float]
LIMIT = timedelta(seconds=60)


class Scene:
    """Ranks on two hosts of one machine, and a file store that no rank serves."""

    def __init__(self, rank: int, size: int, init_method: str, names: str) -> None:
        os.environ["DISTLITE_HOST_HINT"] = names[rank]
        self.rank = rank
        self.size = size
        self.store = dist.FileStore(init_method.removeprefix("file://"), size)
        dist.init_process_group(
            "gloo", store=self.store, rank=rank, world_size=size, timeout=LIMIT
        )
        dist.barrier()

    def mark(self, name: str) -> None:
        self.store.set(name, repr(time.monotonic()))

    def fail(self, operation: object) -> Told:
        """What the operation raises, and how long after the end it was."""
        try:
            operation()  # type: ignore[operator]
        except dist.DistBackendError as error:
            end = time.monotonic()
            return str(error), end - float(self.store.get("end"))
        raise AssertionError("nothing was raised")

    def end(self) -> None:
        self.mark("end")
        os.kill(os.getpid(), signal.SIGKILL)


def _sum() -> None:
    dist.all_reduce(np.zeros(3))


def while_the_leader_computes(
    rank: int, world_size: int, init_method: str, names: str
) -> Told | None:
    """Rank 1 is killed, while rank 0 does something else until the others know."""
    scene = Scene(rank, world_size, init_method, names)
    others = [f"told/{other}" for other in range(2, world_size)]
    if rank == 1:
        # The other host is in the operation.
        wait_until_ahead(range(2, world_size))
        scene.end()
    if rank == 0:
        scene.store.wait(others)
    told = scene.fail(_sum)
    scene.mark(f"told/{rank}")
    return told


def _clone() -> None:
    """A child by the bare system call keeps open what a fork handler would close."""
    libc = ctypes.CDLL(None)
    if libc.syscall(56, signal.SIGCHLD, 0, 0, 0, 0) == 0:
        time.sleep(8)
        os._exit(0)


def after_a_raw_clone(rank: int, world_size: int, init_method: str, names: str) -> Told:
    scene = Scene(rank, world_size, init_method, names)
    if rank == 1:
        _clone()
        wait_until_ahead(set(range(world_size)) - {1})
        scene.end()
    return scene.fail(_sum)


def stalled_in_the_second_meeting(
    rank: int, world_size: int, init_method: str, names: str
) -> str:
    """Rank 3 stops at some moment of operations that follow one another, often once its
    leader has its part, and before it takes the result.  At whatever moment that is,
    the others wait for rank 3."""
    Scene(rank, world_size, init_method, names)
    dist.group.WORLD.set_timeout(timedelta(seconds=2))
    large = np.zeros(1 << 22)
    if rank == 3:
        command = (
            f"sleep 0.3; kill -STOP {os.getpid()}; sleep 6; kill -CONT {os.getpid()}"
        )
        subprocess.Popen(["/bin/sh", "-c", command])
    try:
        while True:
            dist.all_reduce(large)
    except (dist.DistBackendError, RuntimeError) as error:
        return str(error)


def in_another_group(rank: int, world_size: int, init_method: str, names: str) -> Told:
    """Ranks 0 and 3 wait in the world, rank 2 in another group."""
    scene = Scene(rank, world_size, init_method, names)
    pair = dist.new_group([0, 1, 2], timeout=LIMIT)
    if rank == 1:
        wait_until_ahead(set(range(world_size)) - {1})
        scene.end()
    if rank == 2:
        told = scene.fail(lambda: dist.recv(np.zeros(1), 1, group=pair))
        # Its end, too, would be told: it has not failed in the world.
        scene.store.wait(["told/0", "told/3"])
        return told
    told = scene.fail(_sum)
    scene.mark(f"told/{rank}")
    return told


def without_memory(
    rank: int, world_size: int, init_method: str, names: str, is_message: bool
) -> str:
    """Rank 1 cannot map what it needs for a group that the others make afterwards."""
    scene = Scene(rank, world_size, init_method, names)
    if rank == 1:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = pages * resource.getpagesize() + (1 << 18)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        try:
            dist.new_group(timeout=LIMIT)
        except MemoryError as error:
            text = str(error)
        else:
            text = "made"
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        scene.mark("failed")
        scene.store.wait([f"told/{other}" for other in range(world_size) if other != 1])
        return text
    scene.store.wait(["failed"])
    group = dist.new_group(timeout=LIMIT)
    try:
        if is_message:
            dist.recv(np.zeros(1), 1, group=group)
        else:
            dist.all_reduce(np.zeros(1), group=group)
    except dist.DistBackendError as error:
        scene.mark(f"told/{rank}")
        return str(error)
    raise AssertionError("nothing was raised")


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def kept_after_the_end(
    rank: int, world_size: int, init_method: str, names: str
) -> list[int]:
    """Groups that are destroyed but still referenced; the number of threads then."""
    np.zeros(4) @ np.zeros(4)
    before = _threads()
    Scene(rank, world_size, init_method, names)
    groups = [dist.group.WORLD, dist.new_group(), dist.new_group()]
    for group in groups:
        works = [dist.all_reduce(np.zeros(3), group=group, async_op=True)]
        works += [dist.isend(np.zeros(3), (rank + 1) % world_size, group=group)]
        works += [dist.irecv(np.zeros(3), (rank - 1) % world_size, group=group)]
        # Ended by the group's threads, and not by this one, which would wait.
        deadline = time.monotonic() + LIMIT.total_seconds()
        while not all(work.is_completed() for work in works):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        for work in works:
            work.wait()
    during = _threads()
    dist.destroy_process_group()
    deadline = time.monotonic() + 5
    # One that was joined may be listed for another moment.
    while _threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(groups) == 3
    return [before, during, _threads()]


def without_descriptors(
    rank: int, world_size: int, init_method: str, names: str, left: int
) -> str:
    """Rank 2 may open only so many more files while it joins."""
    os.environ["DISTLITE_HOST_HINT"] = names[rank]
    store = dist.FileStore(init_method.removeprefix("file://"), world_size)
    store.set(f"here/{rank}", "yes")
    store.wait([f"here/{other}" for other in range(world_size)])
    if rank == 2:
        count = len(os.listdir("/proc/self/fd"))
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + left, hard))
    try:
        dist.init_process_group(
            "gloo", store=store, rank=rank, world_size=world_size, timeout=LIMIT
        )
        dist.barrier()
    except (dist.DistError, RuntimeError) as error:
        return str(error)
    return ""


# Numbers of system calls on x86-64: memfd_create and socket.
MEMFD_CREATE, SOCKET = 319, 41


def _refuse(call: int, argument: int | None = None) -> None:
    """From now on the system call fails with EPERM, if its first argument is this."""
    load, equal, end = 0x20, 0x15, 0x06
    program = [(load, 0, 0, 0), (equal, 0, 3 if argument is not None else 1, call)]
    if argument is not None:
        program += [(load, 0, 0, 16), (equal, 0, 1, argument)]
    program += [(end, 0, 0, 0x00050001), (end, 0, 0, 0x7FFF0000)]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    memory = ctypes.create_string_buffer(code)
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, head, 0, 0) == 0, os.strerror(ctypes.get_errno())


def in_a_sandbox(
    rank: int,
    world_size: int,
    init_method: str,
    names: str,
    refused: str,
    ranks: tuple[int, ...],
) -> list[float]:
    """Some ranks may not make memory files or Unix sockets; all compute as ever."""
    if rank in ranks and refused == "memfd":
        _refuse(MEMFD_CREATE)
    elif rank in ranks:
        _refuse(SOCKET, socket.AF_UNIX)
    Scene(rank, world_size, init_method, names)
    data = np.full(1000, rank + 1.0)
    dist.all_reduce(data)
    other = np.zeros(1)
    works = [
        dist.isend(data[:1], (rank + 1) % world_size),
        dist.irecv(other, (rank - 1) % world_size),
    ]
    for work in works:
        work.wait()
    group = dist.new_group()
    dist.broadcast(data, 0, group=group)
    shared = dist.shared_zeros(10)
    dist.all_reduce(shared)
    dist.barrier()
    dist.destroy_process_group()
    return [float(data[-1]), float(other[0])]
