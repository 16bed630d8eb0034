# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of asynchronous operations that need a process."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
from group_ranks import init
from operations import wait_until_ended

import distlite


def interrupted_wait(rank: int, world_size: int, init_method: str) -> tuple:
    """Seconds from Ctrl-C to the exception, and what became of the operation."""
    init(rank, world_size, init_method)
    delay, sent = -1.0, []

    def press() -> None:
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    try:
        if rank == 0:
            work = distlite.all_reduce(np.ones(3), async_op=True)
            try:
                threading.Timer(0.2, press).start()
                work.wait()
            except KeyboardInterrupt:
                delay = time.monotonic() - sent[0]
            store_of_world().set("pressed", "1")
            work.wait()
        else:
            store_of_world().wait(["pressed"])
            distlite.all_reduce(np.ones(3))
    except distlite.DistBackendError as error:
        return delay, str(error)
    return delay, ""


def store_of_world() -> distlite.Store:
    return distlite.group.WORLD.get_group_store()


def works_at_exit(rank: int, world_size: int, init_method: str, how: str) -> None:
    """Ends with an operation under way that the other rank never joins."""
    init(rank, world_size, init_method)
    if rank == 0:
        store_of_world().set("pid", str(os.getpid()))
        global work  # alive until the interpreter's end
        work = distlite.all_reduce(np.ones(3), async_op=True)
        if how == "callback":
            work.get_future().add_done_callback(lambda future: None)
    store_of_world().barrier("ready", world_size)
    if rank == 1:
        wait_until_ended(int(store_of_world().get("pid")))


def died_while_queued(rank: int, world_size: int, init_method: str) -> list[str]:
    """Errors of several works when a rank dies; and what came before is right."""
    init(rank, world_size, init_method)
    first = np.ones(2)
    distlite.all_reduce(first, async_op=True).wait()
    assert first.tolist() == [world_size] * 2
    if rank == 1:
        store_of_world().wait(["queued"])
        os.kill(os.getpid(), signal.SIGKILL)
    works = [distlite.all_reduce(np.ones(2), async_op=True) for _ in range(4)]
    store_of_world().set("queued", "1")
    errors = []
    for work in works:
        try:
            work.wait()
        except distlite.DistBackendError as error:
            errors.append(str(error))
        assert isinstance(work.exception(), distlite.DistBackendError)
    return errors


def wait_in_a_forked_child(rank: int, world_size: int, init_method: str) -> list[str]:
    """What a child says that waits for operations of its parent."""
    init(rank, world_size, init_method)
    if rank == 1:
        distlite.recv(np.ones(4), src=0, tag=3)
        store_of_world().wait(["forked"])
        distlite.all_reduce(np.ones(4))
        distlite.send(np.ones(4), dst=0)
        return []
    works = [
        distlite.all_reduce(np.ones(4), async_op=True),
        distlite.irecv(np.ones(4), src=1),
    ]
    # It has ended before the fork, and its result is known in the child, too.
    ended = distlite.isend(np.ones(4), dst=1, tag=3)
    ended.wait()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        texts = []
        for work in works:
            try:
                work.wait()
            except distlite.DistBackendError as error:
                texts.append(str(error))
        texts.append(str(ended.wait()))
        os.write(writer, "\n".join(texts).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        texts = file.read().split("\n")
    os.waitpid(child, 0)
    store_of_world().set("forked", "1")
    for work in works:
        work.wait()
    return [text.replace(str(os.getpid()), "PARENT") for text in texts]
