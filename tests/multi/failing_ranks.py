# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of failures.  Does not import pytest."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from group_ranks import init, sum_of_ranks
from operations import once_in, wait_until_ahead, wait_until_ended

import distlite
from distlite import ReduceOp

Call = Callable[[int], None]


def odd_one(rank: int) -> bool:
    return rank == 1


MISMATCHES: dict[str, Call] = {
    "count": lambda rank: distlite.all_reduce(np.zeros(20 if odd_one(rank) else 10)),
    "dtype": lambda rank: distlite.all_reduce(
        np.zeros(10, "f4" if odd_one(rank) else "f8")
    ),
    "reduce op": lambda rank: distlite.all_reduce(
        np.zeros(10), ReduceOp.MAX if odd_one(rank) else ReduceOp.SUM
    ),
    "large count": lambda rank: distlite.all_reduce(
        np.zeros(2_000_001 if odd_one(rank) else 2_000_000)
    ),
    "large and small": lambda rank: distlite.all_reduce(
        np.zeros(2_000_000 if odd_one(rank) else 2)
    ),
    "operation": lambda rank: (
        distlite.barrier() if odd_one(rank) else distlite.all_reduce(np.zeros(10))
    ),
    "root": lambda rank: distlite.broadcast(np.zeros(10), int(odd_one(rank))),
    "broadcast count": lambda rank: distlite.broadcast(
        np.zeros(11 if odd_one(rank) else 10), 0
    ),
    "broadcast item size": lambda rank: distlite.broadcast(
        np.zeros(10, "S4" if odd_one(rank) else "S5"), 0
    ),
}


def mismatches(
    rank: int, world_size: int, init_method: str
) -> dict[str, dict[str, tuple[str, float]]]:
    """What each kind of disagreement is called, at first and on the next call.

    A rank that only sends goes on without waiting for those who disagree: it may hear
    of it in the call after that, here a barrier.
    """
    results: dict[str, dict[str, tuple[str, float]]] = {}
    for kind, call in MISMATCHES.items():
        init(rank, world_size, init_method)
        sum_of_ranks(rank, world_size)
        result = results[kind] = {}
        for attempt in "first", "later":
            start = time.monotonic()
            try:
                call(rank)
                distlite.barrier()
            except distlite.DistBackendError as error:
                result[attempt] = str(error), time.monotonic() - start
        distlite.destroy_process_group()
    return results


def caught(call: Callable[[], Any]) -> tuple[str, str, float, float]:
    """The failure of `call`: type, text, when, and how long it took."""
    start = time.monotonic()
    try:
        call()
    except BaseException as error:
        now = time.monotonic()
        return type(error).__name__, str(error), now, now - start
    return "", "returned", time.monotonic(), time.monotonic() - start


CALLS: dict[str, Callable[[], Any]] = {
    "all_reduce": lambda: distlite.all_reduce(np.zeros(10)),
    "large all_reduce": lambda: distlite.all_reduce(np.zeros(3_000_000)),
    "broadcast": lambda: distlite.broadcast(np.zeros(10), 1),
    "barrier": lambda: distlite.barrier(),
}


def survive(
    rank: int, world_size: int, init_method: str, call: str, folder: str, early: bool
) -> dict[str, Any]:
    """Rank 1 is killed while the others are in `call`, or before they get there."""
    init(rank, world_size, init_method)
    sum_of_ranks(rank, world_size)
    note = Path(folder) / "death"
    if rank == 1:
        if not early:
            wait_until_ahead(set(range(world_size)) - {1})
        note.write_text(f"{time.monotonic()} {os.getpid()}")
        os.kill(os.getpid(), signal.SIGKILL)
    if early:
        while not note.exists() or not note.read_text().split()[1:]:
            time.sleep(0.01)
        wait_until_ended(int(note.read_text().split()[1]))
    before = distlite.group.WORLD.get_error()
    first = caught(CALLS[call])
    after = distlite.group.WORLD.get_error()
    later = caught(CALLS[call])
    death, pid = note.read_text().split()
    end = caught(distlite.destroy_process_group)
    return {
        "first": first,
        "later": later,
        "errors": (before.name, after.name),
        "delay": first[2] - float(death),
        "pid": int(pid),
        "end": end,
    }


def leave(rank: int, world_size: int, init_method: str, how: str) -> Any:
    """Rank 1 ends without destroying its group, or destroys it, under a call."""
    init(rank, world_size, init_method)
    sum_of_ranks(rank, world_size)
    store = distlite.group.WORLD.get_group_store()
    if rank == 1:
        wait_until_ahead(set(range(world_size)) - {1})
        if how == "exit":
            sys.exit(0)
        if how == "_exit":
            os._exit(0)
        if how == "destroy":
            distlite.destroy_process_group()
        if how == "abort":
            distlite.group.WORLD.abort()
        if how != "return":
            # Alive, but out of the group.
            store.wait(["told/0", "told/2"])
        return None
    result = caught(CALLS["all_reduce"])
    store.set(f"told/{rank}", "yes")
    return result


def late(rank: int, world_size: int, init_method: str, seconds: float) -> Any:
    """Rank 1 does not come until the others have given up."""
    init(rank, world_size, init_method)
    sum_of_ranks(rank, world_size)
    group = distlite.group.WORLD
    store = group.get_group_store()
    group.set_timeout(timedelta(seconds=seconds))
    if rank == 1:
        store.wait(["over/0", "over/2"])
    first = caught(CALLS["all_reduce"])
    store.set(f"over/{rank}", "yes")
    return first, caught(CALLS["barrier"]), group.get_error().name


def late_to_barrier(rank: int, world_size: int, init_method: str) -> Any:
    """The timeout of one call instead of the group's."""
    init(rank, world_size, init_method)
    store = distlite.group.WORLD.get_group_store()
    if rank == 1:
        store.wait(["over"])
        return None
    result = caught(lambda: distlite.barrier(timeout=timedelta(milliseconds=200)))
    store.set("over", "yes")
    return result


def interrupted(rank: int, world_size: int, url: str, times: int) -> list[float]:
    """How long Ctrl-C takes to end a blocked call on rank 0."""
    delays = []
    for turn in range(times):
        init(rank, world_size, url)
        store = distlite.group.WORLD.get_group_store()
        if rank == 0:
            sent = []

            def send(sent: list[float] = sent) -> None:
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

            kind, text, when, _ = caught(
                lambda send=send: (once_in("0", send), CALLS["all_reduce"]())
            )
            assert kind == "KeyboardInterrupt", (kind, text)
            delays.append(when - sent[0])
            store.set(f"over/{turn}", "yes")
            store.wait([f"heard/{turn}"])  # the store ends with this rank
        else:
            store.wait([f"over/{turn}"])
            store.set(f"heard/{turn}", "yes")
        distlite.destroy_process_group()
    return delays


def ended(rank: int, world_size: int, init_method: str, how: str) -> Any:
    """Another thread ends the group under a blocked call: what that says, and how long
    after the end."""
    init(rank, world_size, init_method)
    store = distlite.group.WORLD.get_group_store()
    if rank == 1:
        store.wait(["over"])
        return None
    end = {
        "abort": distlite.group.WORLD.abort,
        "shutdown": distlite.group.WORLD.shutdown,
        "destroy": distlite.destroy_process_group,
    }[how]
    begun = []

    def end_it() -> None:
        begun.append(time.monotonic())
        end()

    ending = once_in("0", end_it)
    kind, text, when, _ = caught(CALLS["all_reduce"])
    ending.join()
    store.set("over", "yes")
    return kind, text, when - begun[0]


def fork_and_go_on(rank: int, world_size: int, init_method: str) -> Any:
    """A child of a member says what it may do; its end harms nobody."""
    init(rank, world_size, init_method)
    sum_of_ranks(rank, world_size)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        outcome = caught(CALLS["all_reduce"])
        end = caught(distlite.destroy_process_group)
        os.write(writing, repr((outcome[:2], end[:2])).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    totals = [sum_of_ranks(rank, world_size) for _ in range(3)]
    distlite.destroy_process_group()
    return said, totals
