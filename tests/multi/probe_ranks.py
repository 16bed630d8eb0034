# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of probes: see test_probe.py."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from typing import Any

import numpy as np
from collective_ranks import error_of
from reducer_ranks import join

import distlite


def messages(
    rank: int, world_size: int, init_method: str, places: str
) -> dict[str, Any] | None:
    """Rank 0 looks before it receives, in another order than that of the sends."""
    join(rank, world_size, init_method, places)
    if rank == 1:
        works = [
            distlite.isend(np.arange(3.0), 0, tag=4),
            distlite.isend(np.arange(200_000, dtype="int32"), 0, tag=5),
            distlite.isend(np.zeros(2, "M8[s]"), 0, tag=6),
            distlite.isend(np.zeros(0, "uint8"), 0, tag=7),
        ]
        for work in works:
            work.wait()
        distlite.send_object_list(["object"], 0)
        distlite.barrier()
        return None
    found: dict[str, Any] = {"none": distlite.iprobe(1, tag=99)}
    for tag in (5, 4, 7, 6):
        message = distlite.probe(1 if tag < 6 else None, tag=tag)
        again = distlite.iprobe(tag=tag)
        assert message is not None
        values = message.empty()
        source = distlite.recv(values, message.source, tag=tag)
        after = distlite.iprobe(tag=tag)
        found[f"tag {tag}"] = (
            (repr(message), repr(message) == repr(again), source, after),
            (str(values.dtype), values[-3:].tolist()),
        )
    objects = [None]
    distlite.recv_object_list(objects, 1)
    found["object"] = objects
    distlite.barrier()
    return found


def any_tag(
    rank: int, world_size: int, init_method: str, places: str
) -> list[Any] | None:
    """A probe that waits for whatever comes first, from each of the others in turn."""
    join(rank, world_size, init_method, places)
    found: list[Any] = []
    if rank > 0:
        distlite.send_object_list(["not a message"], 0)
        distlite.send(np.full(rank, rank, "int16"), 0, tag=10 * rank)
    else:
        for each in range(1, world_size):
            objects = [None]
            distlite.recv_object_list(objects, each)
        for _ in range(1, world_size):
            message = distlite.probe()
            assert message is not None
            values = message.empty()
            distlite.recv(values, message.source, tag=message.tag)
            found.append((message.source, message.tag, values.tolist()))
        found.sort()
        found.append(error_of(distlite.probe, tag=-1))
        found.append(error_of(distlite.probe, 0))
        found.append(error_of(distlite.probe, world_size))
    distlite.barrier()
    return found


def in_order(
    rank: int, world_size: int, init_method: str, places: str
) -> list[int | None] | None:
    """The tags that probes for any tag find, one after another."""
    join(rank, world_size, init_method, places)
    found: list[int | None] | None = None
    if rank == 1:
        works = [
            distlite.isend(np.full(count, float(tag)), 0, tag=tag)
            for tag, count in ((5, 3), (9, 100_000), (5, 1), (7, 2))
        ]
        barrier = distlite.barrier(async_op=True)
        for work in works:
            work.wait()
        assert barrier is not None
        barrier.wait()
    else:
        late = distlite.probe(1, tag=7)
        assert late is not None
        found = [late.tag]
        for _ in range(3):
            message = distlite.probe()
            assert message is not None
            values = message.empty()
            distlite.recv(values, 1, tag=message.tag)
            assert (values == message.tag).all()
            found.append(message.tag)
        distlite.recv(late.empty(), 1, tag=7)
        last = distlite.iprobe()
        found.append(None if last is None else last.tag)
        distlite.barrier()
    return found


def two_threads(rank: int, world_size: int, init_method: str, places: str) -> None:
    """One thread receives what has tag 1, another one probes for tag 2."""
    join(rank, world_size, init_method, places)
    count = 200
    if rank == 1:
        for i in range(count):
            distlite.send(np.full(1, float(i)), 0, tag=1 + i % 2)
    else:

        def probe() -> None:
            for i in range(1, count, 2):
                message = distlite.probe(1, tag=2)
                assert message is not None
                distlite.recv(value := message.empty(), 1, tag=2)
                assert value[0] == i

        prober = threading.Thread(target=probe)
        prober.start()
        for i in range(0, count, 2):
            distlite.recv(value := np.zeros(1), 1, tag=1)
            assert value[0] == i
        prober.join()
    distlite.barrier()


def races(rank: int, world_size: int, init_method: str, places: str) -> list[Any]:
    """A receive that waits already takes the message; a probe beside it goes on."""
    join(rank, world_size, init_method, places)
    found: list[Any] = []
    if rank == 1:
        distlite.recv(np.zeros(1), 0, tag=2)
        for i in range(2):
            distlite.send(np.full(1, 7.0 + i), 0, tag=1)
    else:
        first = np.zeros(1)
        work = distlite.irecv(first, 1, tag=1)
        prober = threading.Thread(
            target=lambda: found.append(repr(distlite.probe(1, tag=1)))
        )
        prober.start()
        distlite.send(np.zeros(1), 1, tag=2)
        work.wait()
        prober.join()
        second = np.zeros(1)
        distlite.recv(second, tag=1)
        found += [first[0], second[0]]
    distlite.barrier()
    return found


def late(rank: int, world_size: int, init_method: str, places: str) -> list[str]:
    """Nobody sends: the deadline, then a rank that dies while others probe it."""
    join(rank, world_size, init_method, places)
    last = world_size - 1
    if rank == last:
        for other in range(last):
            distlite.recv(np.zeros(1), other)
        os.kill(os.getpid(), signal.SIGKILL)
    world: Any = distlite.group.WORLD
    limit = world.timeout
    world.set_timeout(timedelta(seconds=0.2))
    told = [error_of(distlite.probe, last, tag=3)]
    world.set_timeout(limit)
    distlite.send(np.zeros(1), last)
    told.append(error_of(distlite.probe, last, tag=3))
    while (found := error_of(distlite.iprobe)) == "no error":
        pass
    path = init_method.removeprefix("file://")
    distlite.FileStore(path, world_size).barrier("told", last, 60)
    return [*told, found]
