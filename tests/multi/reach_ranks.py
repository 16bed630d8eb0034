# SPDX-License-Identifier: BSD-3-Clause
"""What ranks of one machine run that cannot reach each other: see test_reach.py."""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import struct
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

import distlite as dist

LIMIT = timedelta(seconds=60)
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID = 0x00020000, 0x04000000, 0x20000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
CREATE_RULESET, RESTRICT_SELF = 444, 446  # on all architectures
SCOPE_ABSTRACT_UNIX_SOCKET = 1


def landlock_version() -> int:
    """0 where the kernel has no Landlock."""
    return max(0, ctypes.CDLL(None).syscall(CREATE_RULESET, 0, 0, 1))


def scope_sockets() -> None:
    """From now on this process reaches no abstract socket made outside of it."""
    libc = ctypes.CDLL(None, use_errno=True)
    rules = struct.pack("QQQ", 0, 0, SCOPE_ABSTRACT_UNIX_SOCKET)
    fd = libc.syscall(CREATE_RULESET, rules, ctypes.c_size_t(len(rules)), 0)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.syscall(RESTRICT_SELF, fd, 0) == 0, os.strerror(ctypes.get_errno())
    os.close(fd)


def in_own_namespaces(function: Callable[[], Any]) -> Any:
    """Runs `function` as process 1 of a PID namespace without /proc, with one name for
    all hosts: nothing but trying tells one namespace from the other."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWPID) != 0
        or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0
        or libc.mount(b"none", b"/proc", b"tmpfs", 0, None) != 0
    ):
        raise OSError(ctypes.get_errno(), "making namespaces")
    socket.sethostname("container")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        libc.prctl(1, signal.SIGKILL, 0, 0, 0)
        try:
            answer = function()
        except BaseException as error:
            answer = error
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    answer = pickle.loads(content) if content else EOFError("the child was killed")
    if isinstance(answer, BaseException):
        raise answer
    return answer


def compute(rank: int, world_size: int) -> list[float]:
    """Something of everything; what it gives is the same over any transport."""
    data = np.full(1000, rank + 1.0)
    dist.all_reduce(data)
    large = np.full(300_000, rank + 1.0)
    dist.all_reduce(large)
    assert large[0] == large[-1] == data[0]
    other = np.zeros(1)
    works = [
        dist.isend(np.full(1, float(rank)), (rank + 1) % world_size),
        dist.irecv(other, (rank - 1) % world_size),
    ]
    for work in works:
        assert work is not None
        work.wait()
    group = dist.new_group()
    dist.broadcast(data, 0, group=group)
    shared = dist.shared_zeros(10)
    dist.all_reduce(shared)
    dist.barrier()
    return [float(data[-1]), float(other[0])]


def join(rank: int, world_size: int, init_method: str) -> None:
    dist.init_process_group(
        "gloo", init_method, rank=rank, world_size=world_size, timeout=LIMIT
    )


def scoped(
    rank: int,
    world_size: int,
    init_method: str,
    ranks: tuple[int, ...],
    per_host: int = 100,
) -> list[float]:
    """Each of `ranks` is in a Landlock domain of its own."""
    os.environ["DISTLITE_HOST_HINT"] = str(rank // per_host)
    if rank in ranks:
        scope_sockets()
    join(rank, world_size, init_method)
    result = compute(rank, world_size)
    dist.destroy_process_group()
    return result


def in_namespaces(
    rank: int, world_size: int, init_method: str, killed: int = -1
) -> Any:
    """Each rank is process 1 of a PID namespace; one may be killed after the join."""

    def run() -> Any:
        join(rank, world_size, init_method)
        result = compute(rank, world_size)
        if killed < 0:
            dist.destroy_process_group()
            return result
        if rank == killed:
            # Process 1 of a namespace cannot be killed from inside of it.
            os._exit(9)
        begin = time.monotonic()
        try:
            dist.barrier()
        except dist.DistBackendError as error:
            return str(error), time.monotonic() - begin
        raise AssertionError("nothing was raised")

    return in_own_namespaces(run)


def of_several_users(
    rank: int, world_size: int, init_method: str, users: list[int]
) -> Any:
    """Each rank runs as a user of its own; the groups it proves, and what they find."""
    # The first time imports what the second uses: another user may not be able to read
    # the checkout.
    join(rank, world_size, f"{init_method}-of-root")
    compute(rank, world_size)
    dist.destroy_process_group()
    if users[rank]:
        os.setuid(users[rank])
    join(rank, world_size, init_method)
    result = compute(rank, world_size)
    group = dist.group.WORLD
    proved = [group._is_proved(other) for other in range(world_size)]
    dist.destroy_process_group()
    return result, proved
