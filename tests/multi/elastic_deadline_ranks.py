# SPDX-License-Identifier: BSD-3-Clause
"""What processes do in the tests of the deadlines of elastic worlds.  Does not import
pytest."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from elastic_ranks import BULK, LONG, connect, error_of, one_sum

import distlite
from distlite import elastic
from distlite.elastic import restore

# Of each call.
TIMEOUT = 4.0
SHORT = 1.5


def stop_here(store: distlite.Store) -> None:
    """Stops this process until the others have tried in vain."""
    store.set("stopped", os.environ["RANK"])
    os.kill(os.getpid(), signal.SIGSTOP)


def tell_tried(store: distlite.Store) -> None:
    if store.add("tried", 1) == 2:
        store.set("both tried", "")


def timed(function: Callable[..., object], *args: object) -> tuple[str, float]:
    began = time.monotonic()
    return error_of(function, *args), time.monotonic() - began


def go_on(attempt: Callable[[], bool]) -> None:
    """Repeats until the attempt has succeeded."""
    while True:
        with suppress(distlite.DistBackendError, distlite.DistStoreError):
            if attempt():
                return


def stop_in_step(
    rank: int, world_size: int, port: int, hosts: int, commits: bool
) -> dict[str, Any]:
    """One member stops in the body of a step, and goes on when the others have tried to
    execute it, or at least to commit it, and then to begin the next epoch."""
    os.environ["DISTLITE_HOST_HINT"] = f"host{rank % hosts}"
    store = connect(port)
    found: dict[str, Any] = {}
    rules = {"min_size": 3, "max_size": 3, "settle": LONG}
    with elastic.join(store, timeout=TIMEOUT, **rules) as member:
        first = member.next(LONG)
        found["pid"] = os.getpid() if first.rank == 1 else 0
        one_sum(member, 1)
        if first.rank == 1:
            with suppress(distlite.DistError), member.step(2):
                stop_here(store)
        else:
            found["step"] = timed(empty_step if commits else one_sum, member, 2)
            found["next"] = timed(member.next, SHORT)
            tell_tried(store)
        store.wait(["both tried"])

        def attempt() -> bool:
            member.next()
            return member.done == 2 or one_sum(member, 2) == 3.0

        go_on(attempt)
        view = member.next()
        found["views"] = view.members == first.members, view.done, member.done
        distlite.barrier(view.group)
    return found


def empty_step(member: elastic.Member, number: int) -> None:
    with member.step(number):
        pass


def stop_in_restore(rank: int, world_size: int, port: int, call: str) -> dict[str, Any]:
    """One of three has lost the state, and another stops while it sends it."""
    store = connect(port)
    count = BULK if call == "broadcast" else 4
    state = {"bulk": np.arange(count)}
    found: dict[str, Any] = {}
    rules = {"min_size": 3, "max_size": 3, "settle": LONG}
    with elastic.join(store, timeout=TIMEOUT, **rules) as member:
        first = member.next(LONG)
        one_sum(member, 1)
        member._is_ready = first.rank != 2
        loaded = dict(state) if member._is_ready else {}
        assert member.next(LONG, anew=True).behind == (2,)
        found["pid"] = os.getpid() if first.rank == 0 else 0
        real = getattr(restore, call)

        def stopping(*args: Any, **options: Any) -> Any:
            setattr(restore, call, real)
            stop_here(store)
            return real(*args, **options)

        def bring() -> None:
            member.restore(member.next(), loaded.update, lambda: state)

        def attempt() -> bool:
            bring()
            return one_sum(member, 2) == 3.0

        if first.rank == 0:
            setattr(restore, call, stopping)
            error_of(bring)
        else:
            found["restore"] = timed(bring)
            found["next"] = timed(member.next, SHORT)
            tell_tried(store)
        store.wait(["both tried"])
        go_on(attempt)
        assert (loaded["bulk"] == state["bulk"]).all()
        distlite.barrier(member.next().group)
    return found
