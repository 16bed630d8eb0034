# SPDX-License-Identifier: BSD-3-Clause
"""What processes do in the tests of agree().  Does not import pytest."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import distlite
from distlite.groups import agreement
from distlite.testing import mark

LIMIT = 50.0
ROUNDS = 6


def connect(port: int) -> distlite.TCPStore:
    return distlite.TCPStore("127.0.0.1", port, timeout=LIMIT)


def join(rank: int, world_size: int, port: int, hosts: int = 1) -> None:
    """The processes act as if they were on so many hosts."""
    if hosts > 1:
        os.environ["DISTLITE_HOST_HINT"] = f"host{rank % hosts}"
    store = connect(port)
    distlite.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=LIMIT
    )


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def error_of(function: Callable[..., object], *args: object) -> str:
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Dying:
    """A store whose process is killed before its last request, or after it."""

    def __init__(self, store: distlite.Store, last: int, is_after: bool) -> None:
        self._store, self._left, self._is_after = store, last, is_after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def request(*args: Any, **options: Any) -> Any:
            self._left -= name != "set_timeout"
            if self._left == 0 and not self._is_after:
                die()
            try:
                return method(*args, **options)
            finally:
                if self._left == 0:
                    die()

        return request


def plan_of(seed: int, world_size: int) -> dict[str, Any]:
    """Which ranks are killed, at which of their requests; the flags of all; on how many
    hosts they are, and what has happened to the group before."""
    choice = random.Random(seed)
    killed = choice.sample(range(world_size), choice.randrange(1, world_size))
    return {
        "deaths": {r: (choice.randrange(1, 30), choice.random() < 0.5) for r in killed},
        "flags": [
            [choice.random() < 0.9 for _ in range(world_size)] for _ in range(ROUNDS)
        ],
        "hosts": choice.choice([1, 1, 2]),
        "before": choice.choice(["", "abort", "death"]),
    }


def survive(rank: int, world_size: int, port: int, seed: int) -> list[Any]:
    """Agrees some times, while ranks are killed between any two requests."""
    plan = plan_of(seed, world_size)
    join(rank, world_size, port, plan["hosts"])
    group = distlite.group.WORLD
    distlite.barrier()
    if plan["before"] == "abort":
        group.abort()
    if plan["before"] == "death" and rank in plan["deaths"]:
        die()
    if plan["before"] == "death":
        assert error_of(distlite.barrier)
    if rank in plan["deaths"]:
        last, is_after = plan["deaths"][rank]
        attempts = agreement._Attempts(group, time.monotonic() + LIMIT)
        attempts._store = Dying(attempts._store, last, is_after)
        distlite.groups.world.world.agreements[group] = attempts
    # Survivors end when all have their answers: the end of one shall not be an event.
    found = [distlite.agree(plan["flags"][turn][rank]) for turn in range(ROUNDS)]
    if rank in plan["deaths"]:
        die()
    return [tuple(each) for each in found]


def come_late(rank: int, world_size: int, port: int) -> dict[str, Any]:
    """The last rank comes when the others have given up, which then change flags."""
    join(rank, world_size, port)
    group, store = distlite.group.WORLD, connect(port)
    late, found = world_size - 1, {}
    if rank != late:
        began = time.monotonic()
        found["error"] = error_of(distlite.agree, True, None, 0.5)
        found["took"] = time.monotonic() - began
        store.add("given up", 1)
    else:
        while store.add("given up", 0) < late:
            time.sleep(0.01)
    found["second"] = tuple(distlite.agree(rank != 0))
    found["third"] = tuple(distlite.agree(np.bool_(True)))
    distlite.barrier()
    found["keys"] = [
        key for key in group.get_group_store().list_keys() if key.startswith("agree/")
    ]
    distlite.barrier()
    return found


def be_impatient(rank: int, world_size: int, port: int) -> Any:
    """One rank gives up often, while the second waits; the third comes afterwards."""
    join(rank, world_size, port)
    store = connect(port)
    if rank == 2:
        store.get("tired")
    if rank != 0:
        return tuple(distlite.agree(True))
    errors = [error_of(distlite.agree, True, None, 0.05) for _ in range(4)]
    store.set("tired", "")
    assert all("timed out after 50ms: waiting for " in each for each in errors), errors
    while True:
        try:
            return tuple(distlite.agree(False, timeout=0.2))
        except distlite.DistBackendError:
            continue


def be_interrupted(rank: int, world_size: int, port: int) -> Any:
    """The flag of a call that is interrupted counts for nobody."""
    join(rank, world_size, port)
    store = connect(port)
    if rank != 0:
        store.get("interrupted")
        return tuple(distlite.agree(True))

    def interrupt(*_: object) -> None:
        raise InterruptedError("by the test")

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    text = error_of(distlite.agree, False)
    assert text == "InterruptedError: by the test", text
    store.set("interrupted", "")
    return tuple(distlite.agree(True))


def be_stopped(rank: int, world_size: int, port: int) -> Any:
    """The test stops one rank for a while."""
    join(rank, world_size, port)
    store = connect(port)
    if rank == 1:
        mark("ready")
        store.get("stopped")
        return tuple(distlite.agree(True))
    store.get("stopped")
    text = error_of(distlite.agree, True, None, 0.5)
    if store.add("count", 1) == world_size - 1:
        store.set("given up", "")
    return text, tuple(distlite.agree(True))


def leave_and_live(rank: int, world_size: int, port: int, host_count: int) -> Any:
    """The last rank leaves in order, and ends when the others have given up."""
    join(rank, world_size, port, host_count)
    store, others = connect(port), world_size - 1
    if rank == others:
        distlite.destroy_process_group()
        store.set("left", "")
        store.get("given up")
        return None
    store.get("left")
    text = error_of(distlite.agree, True, None, 0.7)
    if store.add("count", 1) == others:
        store.set("given up", "")
    return text, tuple(distlite.agree(True))


def agree_in_parts(rank: int, world_size: int, port: int) -> Any:
    """Groups of a store do not disturb each other, and each counts by itself."""
    from distlite import elastic

    join(rank, world_size, port)
    pair = distlite.new_group([0, 2])
    found: list[Any] = []
    if rank == 1:
        found.append(error_of(distlite.agree, True, pair))
    else:
        found += [
            tuple(distlite.agree(rank == 0, pair)),
            tuple(distlite.agree(True, pair)),
        ]
    found.append(tuple(distlite.agree(True)))
    with elastic.join(connect(port), min_size=3, timeout=LIMIT) as member:
        view = member.next()
        view.group.abort()
        found.append(tuple(distlite.agree(view.rank != 2, view.group)))
        found.append(tuple(distlite.agree(True, view.group)))
    return found


def count_requests(rank: int, world_size: int, port: int) -> float:
    """Requests of each rank for an agreement to which all come at about one time."""
    join(rank, world_size, port)
    store = connect(port)
    distlite.agree(True)
    distlite.barrier()
    before = store.stats()["requests"]
    distlite.barrier()
    for _ in range(20):
        distlite.barrier()
        assert distlite.agree(True)
    distlite.barrier()
    after = store.stats()["requests"]
    distlite.barrier()
    return float(after - before) / 20 / world_size


def find_foreign_values(rank: int, world_size: int, port: int) -> list[str]:
    join(rank, world_size, port)
    store, found = distlite.group.WORLD.get_group_store(), []
    if rank == 0:
        store.set("agree/0/flags", "a b c\n")
        found.append(error_of(distlite.agree, True, None, 0.1))
        nested = b"[" * 100_000
        values = [b"\xff\xfe", b"[", b"[1, [2], 3]", b'[true, ["x"]]', b"[true, 5]"]
        for value in (*values, b"{}" * 99, nested):
            store.set("agree/0/decision", value)
            found.append(error_of(distlite.agree, True, None, 1.0))
    distlite.barrier()
    return found
