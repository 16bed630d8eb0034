# SPDX-License-Identifier: BSD-3-Clause
"""What processes do in the tests of elastic worlds.  Does not import pytest."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import distlite
from distlite import elastic
from distlite.elastic.member import LOOK
from distlite.elastic.restore import SMALL
from distlite.testing import mark

LIMIT = 50.0
# Longer than a busy machine keeps a living member from its next call.
LONG = 20.0
# Numbers that several members send together.
BULK = SMALL // 4


def connect(port: int) -> distlite.TCPStore:
    return distlite.TCPStore("127.0.0.1", port, timeout=LIMIT)


def error_of(function: Callable[..., object], *args: object) -> str:
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Work:
    """Steps that add up the numbers of members, with a state that all keep."""

    def __init__(self, member: elastic.Member) -> None:
        self.member = member
        self.state = {"sums": np.zeros(0), "bulk": np.zeros(BULK), "name": ""}
        self.loads: list[int] = []
        self.views: dict[int, elastic.View] = {}

    def load(self, state: dict[str, Any]) -> None:
        self.state = state
        self.loads.append(len(state["sums"]))

    def go_on(
        self,
        is_over: Callable[[elastic.View], bool],
        before: Callable[[int], object] = lambda step: None,
    ) -> None:
        """Steps from 1, each of which is executed by the members of one epoch."""
        while True:
            try:
                view = self.member.next()
                self.views[view.epoch] = view
                self.member.restore(view, self.load, lambda: self.state)
                if is_over(view):
                    return
                self.one_step(view, before)
            except elastic.Evicted:
                raise
            except distlite.DistBackendError:
                continue

    def one_step(self, view: elastic.View, before: Callable[[int], object]) -> None:
        step = (self.member.done or 0) + 1
        values = np.ones(1)
        with self.member.step(step):
            before(step)
            distlite.all_reduce(values, group=view.group)
        self.state = {
            "sums": np.append(self.state["sums"], values),
            "bulk": self.state["bulk"] + values,
            "name": f"after step {step}",
        }
        assert len(self.state["sums"]) == self.member.done == step

    def found(self) -> dict[str, Any]:
        rows = {
            epoch: (view.rank, list(view.ranks), list(view.members))
            for epoch, view in self.views.items()
        }
        return {
            "id": self.member.id,
            "sums": self.state["sums"].tolist(),
            "bulk": self.state["bulk"][::33333].tolist(),
            "name": self.state["name"],
            "loads": self.loads,
            "views": rows,
            "lost": {e: list(v.lost) for e, v in self.views.items()},
            "joined": {e: list(v.joined) for e, v in self.views.items()},
            "left": {e: list(v.left) for e, v in self.views.items()},
        }


def die() -> None:
    # This rank may be the one that writes the table of the failure before.
    distlite._C._finish_report()
    os.kill(os.getpid(), signal.SIGKILL)


def lose(rank: int, world_size: int, port: int, lost: list[int]) -> dict[str, Any]:
    """Some members are killed in the body of a step each."""
    store = connect(port)
    count = world_size - len(lost)
    limits = {"max_size": world_size, "settle": LONG, "timeout": LIMIT}
    with elastic.join(store, **limits) as member:
        work = Work(member)
        dies = {4 + 2 * turn: each for turn, each in enumerate(lost)}
        work.go_on(
            lambda view: member.done == 10 and view.size == count,
            lambda step: die() if dies.get(step) == rank else None,
        )
        distlite.barrier(member.next().group)
        return work.found()


def give_a_state(rank: int, world_size: int, port: int, bulk: int) -> str:
    """The last process is behind; the others have the same arrays, in two orders."""
    import ml_dtypes

    rows = np.array([(1, 2.5), (3, 4.5)], [("key", "<i4"), ("value", ">f8")])
    brief = np.arange(8).astype(ml_dtypes.bfloat16).reshape(2, 4)[:, ::2]
    state = {"rows": rows, "brief": brief, "scalar": np.array(7, "M8[s]")}
    state["bulk"] = np.arange(bulk)
    store = connect(port)
    if rank == 2:
        store.get("go")
    with elastic.join(store, min_size=2, settle=0.5, timeout=LIMIT) as member:
        loaded: dict[str, Any] = {}
        while len(loaded) < len(state):
            view = member.next()
            if view.size == 2:
                store.set("go", "")
                with member.step((member.done or 0) + 1):
                    continue
            turned = dict(reversed(state.items())) if view.rank == 1 else state
            if not member.restore(view, loaded.update, lambda held=turned: held):
                loaded = state
        for name, array in state.items():
            assert loaded[name].dtype == array.dtype, name
            np.testing.assert_array_equal(loaded[name], array)
        distlite.barrier(view.group)
    return f"loaded {len(loaded)}"


def differ(rank: int, world_size: int, port: int, bulk: int) -> str:
    """The last process is behind; the others have states of two shapes."""
    store = connect(port)
    if rank == 2:
        store.get("go")
    with elastic.join(store, min_size=2, settle=0.5, timeout=LIMIT) as member:
        while True:
            view = member.next()
            if view.size == 3:
                state = {"w": np.zeros(bulk + view.rank)}
                begun = time.monotonic()
                text = error_of(member.restore, view, dict, state.copy)
                assert time.monotonic() - begun < LONG
                store.set(f"done/{rank}", "")
                store.wait([f"done/{each}" for each in range(3)])
                return text
            store.set("go", "")
            with member.step((member.done or 0) + 1):
                pass


def gain(rank: int, world_size: int, port: int, first: int) -> dict[str, Any]:
    """The processes from `first` on come while the others work."""
    store = connect(port)
    if rank >= first:
        store.get("go")
    member = elastic.join(store, min_size=first, settle=0.5, timeout=LIMIT)
    with member:
        work = Work(member)

        def before(step: int) -> None:
            if step == 3:
                store.set("go", "")

        work.go_on(lambda view: view.size == world_size, before)
        # All of them have come; some steps more, so that the newcomers work as well.
        end = (member.done or 0) + 3
        work.go_on(lambda view: (member.done or 0) >= end)
        distlite.barrier(member.next().group)
        return work.found()


def replace(rank: int, world_size: int, port: int, ranks: str) -> dict[str, Any]:
    """The last process is a spare, and one of the others is killed."""
    store = connect(port)
    is_spare = rank == world_size - 1
    if is_spare:
        store.get("begun")
    member = elastic.join(
        store,
        min_size=world_size - 1,
        max_size=world_size - 1,
        spare=is_spare,
        ranks=ranks,
        settle=LIMIT,
        timeout=LIMIT,
    )
    with member:
        work = Work(member)
        if not is_spare:
            member.next()
            store.set("begun", "")
        work.go_on(
            lambda view: member.done == 6,
            lambda step: die() if step == 4 and is_second(member.view) else None,
        )
        distlite.barrier(member.next().group)
        return work.found()


def is_second(view: elastic.View) -> bool:
    return view.epoch == 1 and view.rank == 1


def stop(rank: int, world_size: int, port: int, hosts: int) -> dict[str, Any]:
    """One member is stopped by the test, and goes on when the others have left it."""
    os.environ["DISTLITE_HOST_HINT"] = f"host{rank % hosts}"
    store = connect(port)
    member = elastic.join(store, min_size=2, max_size=3, settle=0.5, timeout=LIMIT)
    view = member.next()
    window = distlite.Window(np.zeros(1), group=view.group)
    found: dict[str, Any] = {}
    if view.rank == 2:
        store.set("victim", str(rank))
        mark("ready")
        store.get("over")
        values = np.ones(1)
        add = distlite.ReduceOp.SUM
        found["reduce"] = error_of(distlite.all_reduce, values, add, view.group)
        found["put"] = error_of(window.put, np.ones(1), 0)
        found["next"] = error_of(one_sum, member, 1)
        found["next"] = error_of(member.next)
        found["again"] = error_of(member.next)
        return found
    store.get("stopped")
    view = member.next(anew=True)
    values = np.ones(1)
    distlite.all_reduce(values, group=view.group)
    found["sum"], found["size"], found["lost"] = (
        float(values[0]),
        view.size,
        len(view.lost),
    )
    store.set("over", "")
    found["after"] = [one_sum(member, step) for step in range(20)]
    store.barrier("end", 2, LIMIT)
    member.leave()
    return found


def one_sum(member: elastic.Member, step: int) -> float:
    values = np.ones(1)
    with member.step(step) as view:
        distlite.all_reduce(values, group=view.group)
    return float(values[0])


def fail(rank: int, world_size: int, port: int) -> dict[str, Any]:
    """A body raises on one member."""
    store = connect(port)
    member = elastic.join(store, min_size=3, max_size=3, settle=LONG, timeout=LIMIT)
    found: dict[str, Any] = {"first": one_sum(member, 1) if member.next() else 0}

    def body() -> None:
        with member.step(2) as view:
            distlite.barrier(view.group)
            if view.rank == 1:
                raise OSError("the disk is full")

    found["error"] = error_of(body)
    found["done"] = member.done
    view = member.next()
    found["view"] = view.epoch, view.size, view.done
    found["second"] = one_sum(member, 2)
    found["twice"] = error_of(one_sum, member, 2)
    distlite.barrier(view.group)
    member.leave()
    return found


def doubt(
    rank: int, world_size: int, port: int, doubting: list[int], leaves: bool
) -> dict[str, Any]:
    """Some members lose the result of a step's flags; the others may leave at once."""
    from distlite.elastic import member as module

    store = connect(port)
    member = elastic.join(store, max_size=3, settle=LONG, timeout=LIMIT)
    view = member.next()
    real = module.all_reduce

    def losing(flags: Any, **options: Any) -> None:
        real(flags, **options)
        module.all_reduce = real
        raise distlite.DistBackendError("the result was lost")

    found: dict[str, Any] = {}
    if view.rank in doubting:
        module.all_reduce = losing
    found["error"] = error_of(one_sum, member, 1)
    found["done"] = member.done
    if leaves and view.rank not in doubting:
        member.leave()
        return found
    # Those that have seen the success meet an epoch that is over.
    while member.done != 2:
        member.next()
        error_of(one_sum, member, (member.done or 0) + 1)
    found["epoch"] = member.next().epoch
    distlite.barrier(member.next().group)
    member.leave()
    return found


def leave(rank: int, world_size: int, port: int) -> dict[str, Any]:
    store = connect(port)
    member = elastic.join(store, min_size=2, max_size=3, settle=LONG, timeout=LIMIT)
    work = Work(member)
    place = member.next().rank
    if place == 1:
        work.go_on(lambda view: member.done == 3)
        member.leave()
        member.leave()
        return {"error": error_of(member.next), **work.found()}
    work.go_on(lambda view: member.done == 6 and view.size == 2)
    distlite.barrier(member.next().group)
    member.leave()
    return work.found()


def count_requests(rank: int, world_size: int, port: int) -> float:
    """How many requests 500 steps of two members cost, without the looks for newcomers
    of that time."""
    store = connect(port)
    member = elastic.join(store, min_size=2, settle=LONG, max_size=2, timeout=LIMIT)
    view = member.next()
    distlite.barrier(view.group)
    began, before = time.monotonic(), store.stats()["requests"]
    for step in range(500):
        with member.step(step):
            pass
    distlite.barrier(view.group)
    after, seconds = store.stats()["requests"], time.monotonic() - began
    distlite.barrier(view.group)
    member.leave()
    return float(after - before - seconds / LOOK)
