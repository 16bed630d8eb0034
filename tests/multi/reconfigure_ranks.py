# SPDX-License-Identifier: BSD-3-Clause
"""What processes do in the tests of groups that are reconfigured.  Does not import
pytest."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import numpy as np
from doubles_build import change_double, nccl_doubles
from nccl_ranks import FakeKit, communicators_left, kit_of

import distlite
from distlite.distributed_c10d import (
    ErrorType,
    ReconfigureOptions,
    _get_reconfigure_handle,
    _reconfigure,
    _supports_reconfigure,
)
from distlite.testing import mark

LIMIT = 50.0


def error_of(function: Callable[..., object], *args: Any, **named: Any) -> str:
    try:
        function(*args, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class Process:
    """One process, and the store over which the processes tell each other handles."""

    def __init__(
        self,
        rank: int,
        size: int,
        place: str,
        hosts: int = 1,
        backend: str = "gloo",
        options: object = None,
        device_id: str | None = None,
    ) -> None:
        if hosts > 1:
            os.environ["DISTLITE_HOST_HINT"] = f"host{rank % hosts}"
        self.number, self.count, self.turn = rank, size, 0
        self.store: distlite.Store
        if place.startswith("/"):
            self.store = distlite.FileStore(place, size)
        else:
            self.store = distlite.TCPStore("127.0.0.1", int(place), timeout=LIMIT)
        distlite.init_process_group(
            backend,
            store=self.store,
            rank=rank,
            world_size=size,
            timeout=LIMIT,
            pg_options=options,
            device_id=device_id,
            enable_reconfigure=True,
        )
        self.group = distlite.group.WORLD

    def collect(self, who: Iterable[int] | None = None) -> list[str]:
        """Returns the handles of these processes; all of them call it."""
        self.turn += 1
        self.store.set(f"handle/{self.turn}/{self.number}", _get_reconfigure_handle())
        numbers = range(self.count) if who is None else who
        return [
            self.store.get(f"handle/{self.turn}/{n}", timeout=LIMIT).decode()
            for n in numbers
        ]

    def meet(self, name: str) -> None:
        self.store.set(f"{name}/{self.number}", "")
        self.store.wait([f"{name}/{n}" for n in range(self.count)], LIMIT)

    def check(self, rank: int, size: int) -> None:
        """Fails unless the group has these numbers, and its operations work."""
        assert self.group is distlite.group.WORLD
        assert (distlite.get_rank(), distlite.get_world_size()) == (rank, size)
        assert distlite.get_process_group_ranks(self.group) == list(range(size))
        assert self.group.get_error() == ErrorType.SUCCESS
        values = np.full(4, rank + 1.0)
        distlite.all_reduce(values)
        assert values.tolist() == [sum(range(1, size + 1))] * 4
        if size > 1:
            got = np.zeros(2)
            to, of = (rank + 1) % size, (rank - 1) % size
            works = [distlite.isend(values[:2] + rank, to), distlite.irecv(got, of)]
            distlite.wait_all(works)
            assert got.tolist() == [values[0] + of] * 2
        last = np.full(3, float(rank))
        distlite.broadcast(last, src=size - 1)
        assert last.tolist() == [size - 1.0] * 3
        everybody = [None] * size
        distlite.all_gather_object(everybody, ("rank", rank))
        assert everybody == [("rank", r) for r in range(size)]
        part = distlite.new_group([size - 1])
        if rank == size - 1:
            distlite.barrier(part)
        assert distlite.agree(True) == (True, ())


def go_through_all(rank: int, world_size: int, place: str, apart: int) -> None:
    """The scenarios of torch's test of fault tolerance, one after the other."""
    here = Process(rank, world_size, place, apart)
    last, middle = world_size - 1, world_size // 2
    assert _supports_reconfigure() and here.group.supports_reconfigure
    # Nothing works before.
    assert (distlite.get_rank(), distlite.get_world_size()) == (rank, world_size)
    assert "no members before the first _reconfigure()" in error_of(distlite.barrier)
    handles = here.collect()
    assert len(set(handles)) == world_size
    assert _reconfigure(100, handles, timeout=timedelta(seconds=LIMIT)).wait()
    here.check(rank, world_size)
    # The same members.
    before, handles = handles, here.collect()
    assert not set(handles) & set(before)
    _reconfigure(101, handles, hints={"kind": "same"})
    here.check(rank, world_size)
    # Without the last one, which then comes back; without one in the middle.
    uuid = 200
    for dropped in (last, middle, 0):
        handles = here.collect()
        rest = [n for n in range(world_size) if n != dropped]
        if rank != dropped:
            _reconfigure(uuid, [handles[n] for n in rest])
            here.check(rest.index(rank), world_size - 1)
        order = [*rest, dropped]
        _reconfigure(uuid + 1, here.collect(order))
        here.check(order.index(rank), world_size)
        uuid += 2
    # Each alone, all together, each alone.
    for turn in range(2):
        _reconfigure(300 + 10 * turn + rank, [_get_reconfigure_handle()])
        here.check(0, 1)
        _reconfigure(309 + 10 * turn, here.collect())
        here.check(rank, world_size)
    # Two halves, and a set, whose order is that of the handles.
    handles = here.collect()
    mine = range(middle) if rank < middle else range(middle, world_size)
    _reconfigure(400 + (rank < middle), [handles[n] for n in mine])
    here.check(mine.index(rank), len(mine))
    handles = here.collect()
    opts = ReconfigureOptions()
    opts.uuid, opts.handles = 402, set(handles)
    assert here.group.reconfigure(opts).is_completed()
    here.check(sorted(handles).index(handles[rank]), world_size)
    # After an abort.
    here.group.abort()
    assert here.group.get_error() == ErrorType.COMM_ERROR
    _reconfigure(403, here.collect())
    here.check(rank, world_size)
    # After a timeout of one of them.
    here.meet("before the timeout")
    if rank == middle:
        here.group.set_timeout(timedelta(milliseconds=50))
        work = distlite.all_reduce(np.ones(4), async_op=True)
        assert "timed out" in error_of(work.wait)
        assert here.group.get_error() == ErrorType.TIMEOUT
        assert "timed out" in error_of(distlite.all_reduce, np.ones(4))
        here.group.set_timeout(timedelta(seconds=LIMIT))
    here.meet("after the timeout")
    _reconfigure(404, here.collect())
    here.check(rank, world_size)
    assert here.group.timeout == timedelta(seconds=LIMIT)
    here.meet("over")


def use_twice(rank: int, world_size: int, place: str) -> tuple[str, str]:
    """A number that was used before is refused, and the group stays as it was."""
    here = Process(rank, world_size, place)
    _reconfigure(1, here.collect())
    again = error_of(_reconfigure, 1, here.collect())
    here.check(rank, world_size)
    _reconfigure(10 + rank, [_get_reconfigure_handle()])
    alone = error_of(_reconfigure, 10 + rank, [_get_reconfigure_handle()])
    here.check(0, 1)
    here.meet("over")
    return again, alone


def differ(rank: int, world_size: int, place: str) -> dict[str, Any]:
    """One process has another list."""
    here = Process(rank, world_size, place)
    _reconfigure(0, here.collect())
    here.check(rank, world_size)
    handles = here.collect()
    pids = [handle.split(":")[1] for handle in handles]
    if rank == world_size - 1:
        handles.reverse()
    here.meet("with their lists")
    began = time.monotonic()
    found = {"error": error_of(_reconfigure, 1, handles), "pids": pids}
    found["took"] = time.monotonic() - began
    found["after"] = error_of(distlite.barrier)
    found["kind"] = here.group.get_error()
    assert set(handles).isdisjoint(here.collect())
    _reconfigure(2, here.collect())
    here.check(rank, world_size)
    here.meet("over")
    return found


def die_before(rank: int, world_size: int, place: str, apart: int) -> dict[str, Any]:
    """A member of the list ends while the others wait for it, and they go on."""
    here = Process(rank, world_size, place, apart)
    _reconfigure(1, here.collect())
    here.check(rank, world_size)
    handles = here.collect()
    last = world_size - 1
    if rank == last:
        mark("waiting")
        here.store.wait(["reconfigure/2/arrived/0"], LIMIT)
        os.kill(os.getpid(), signal.SIGKILL)
    found = {"error": error_of(_reconfigure, 2, handles)}
    found["after"] = error_of(distlite.barrier)
    _reconfigure(3, here.collect(range(last)))
    here.check(rank, last)
    found["rank"] = distlite.get_rank()
    return found


def come_late(rank: int, world_size: int, place: str) -> str:
    """One process does not come before the others have given up."""
    here = Process(rank, world_size, place)
    handles, error = here.collect(), ""
    if rank != 1:
        error = error_of(_reconfigure, 1, handles, timeout=0.3)
    here.meet("given up")
    if rank == 1:
        error = error_of(_reconfigure, 1, handles)
    _reconfigure(2, here.collect())
    here.check(rank, world_size)
    here.meet("over")
    return error


def replace_one(rank: int, world_size: int, place: str) -> float:
    """A process that was not there before takes the place of one that was killed, while
    another thread waits in the group."""
    if rank == world_size - 1:
        here = Process(0, 1, place)
        here.store.get("killed", timeout=LIMIT)
    else:
        here = Process(rank, world_size - 1, place)
        _reconfigure(1, here.collect())
        here.check(rank, world_size - 1)
        here.meet("first")
        if rank == 0:
            here.store.set("killed", "")
            os.kill(os.getpid(), signal.SIGKILL)
        errors: list[str] = []
        values = np.ones(3)
        thread = threading.Thread(
            target=lambda: errors.append(error_of(distlite.all_reduce, values))
        )
        thread.start()
        thread.join()
        assert "rank 0" in errors[0], errors
    here.number, here.count, here.turn = rank, world_size, 100
    _reconfigure(2, here.collect(range(1, world_size)))
    here.check(rank - 1, world_size - 1)
    return distlite.get_rank()


def churn(rank: int, world_size: int, place: str, seed: int) -> int:
    """Random lists, some of which fail, one after the other."""
    here = Process(rank, world_size, place)
    choice = random.Random(seed)
    good = 0
    for uuid in range(30):
        who = choice.sample(range(world_size), choice.randrange(1, world_size + 1))
        kind = choice.choice(["good", "good", "good", "differ", "absent", "abort"])
        odd = choice.choice(who)
        handles = here.collect()
        mine = [handles[n] for n in who]
        if rank in who:
            error = ""
            if kind == "differ" and rank == odd and len(who) > 1:
                mine.reverse()
            if kind == "abort":
                here.group.abort()
            if kind != "absent" or rank != odd:
                limit = 0.1 if kind == "absent" else LIMIT
                error = error_of(_reconfigure, uuid, mine, timeout=limit)
            fails = kind in ("differ", "absent") and len(who) > 1
            assert bool(error) == (fails and (kind, rank) != ("absent", odd)), error
            if not fails and kind != "absent":
                here.check(who.index(rank), len(who))
                good += 1
        here.meet(f"turn {uuid}")
    with suppress(distlite.DistError):
        distlite.destroy_process_group()
    return good


def serve_devices(rank: int, world_size: int, place: str, backend: str) -> list[Any]:
    """Each reconfiguration makes a communicator of its own, also after an operation
    that a rank never came to."""
    kit, found = FakeKit(), []
    options = distlite.ProcessGroupNCCL.Options()
    options.config.max_ctas = 8
    here = Process(rank, world_size, place, 1, backend, options)
    error = error_of(distlite.all_reduce, kit.put(np.ones(2)))
    assert "no members before" in error, error
    last = world_size - 1
    for uuid in range(0, 8, 2):
        _reconfigure(uuid, here.collect())
        tensor = kit.put(np.full(3, rank + 1.0))
        distlite.all_reduce(tensor)
        found.append(kit.get(tensor)[0])
        assert here.group.options.config.max_ctas == 8
        here.meet(f"turn {uuid}")
        if uuid == 4 and rank != last:
            distlite.all_reduce(kit.put(np.ones(3)), async_op=True)
        handles = here.collect()
        if rank != last:
            _reconfigure(uuid + 1, handles[:last])
            tensor = kit.put(np.full(3, rank + 1.0))
            distlite.all_reduce(tensor)
            found.append(kit.get(tensor)[0])
    here.meet("over")
    return found


def communicators() -> tuple[int, int]:
    """How many this process has made by shrinking and by growing; the double knows."""
    if "DISTLITE_NCCL_LIBRARY" not in os.environ:
        return 0, 0
    library = ctypes.CDLL(os.environ["DISTLITE_NCCL_LIBRARY"])
    names = ("double_shrinks", "double_grows")
    shrinks, grows = (ctypes.c_int.in_dll(library, name).value for name in names)
    return shrinks, grows


class OnDevice(Process):
    """A process with arrays on a device, and what its communicators were made of."""

    def __init__(
        self, rank: int, size: int, place: str, device_id: str | None = "cuda:0"
    ) -> None:
        self.kit = kit_of("cuda", rank)
        super().__init__(rank, size, place, 1, "nccl", None, device_id)

    def change(self, uuid: int, who: list[int]) -> str:
        """Gives the group these members; returns what of their communicator was made
        of, with "" where this process is none of them."""
        handles, before = self.collect(), communicators()
        if self.number not in who:
            return ""
        _reconfigure(uuid, [handles[n] for n in who])
        self.reduce(who)
        shrinks, grows = np.subtract(communicators(), before)
        assert shrinks + grows <= 1
        return "shrunk" if shrinks else "grown" if grows else "new"

    def reduce(self, who: list[int]) -> None:
        tensor = self.kit.put(np.full(3, self.number + 1.0))
        distlite.all_reduce(tensor)
        assert self.kit.get(tensor).tolist() == [sum(who) + len(who)] * 3


def follow(
    rank: int,
    world_size: int,
    place: str,
    changes: list[list[int]],
    device_id: str | None = "cuda:0",
    old: int | None = None,
) -> list[str]:
    """One list of members after the other; rank `old` has an old library."""
    if rank == old:
        os.environ.update(nccl_doubles("-DOLD"))
    here = OnDevice(rank, world_size, place, device_id)
    found = []
    for uuid, who in enumerate(changes):
        found.append(here.change(uuid, who))
        here.meet(f"turn {uuid}")
    here.meet("over")
    distlite.destroy_process_group()
    if "DISTLITE_NCCL_LIBRARY" in os.environ:
        assert communicators_left() == 0
    return found


def follow_busy(rank: int, world_size: int, place: str) -> list[str]:
    """Short operations in progress are waited for; with one that does not end, the
    group gets a new communicator."""
    here = OnDevice(rank, world_size, place)
    found = [here.change(0, [0, 1, 2])]
    large = here.kit.put(np.ones(300_000))
    works = [distlite.all_reduce(large, async_op=True) for _ in range(3)]
    found.append(here.change(1, [0, 1]))
    for work in works:
        work.wait(timedelta(seconds=LIMIT))
    assert here.kit.get(large)[-1] == 27
    if rank == 0:
        distlite.all_reduce(large, async_op=True)
    found.append(here.change(2, [0]))
    here.meet("over")
    return found


def lose_one(rank: int, world_size: int, place: str, busy: bool) -> dict[str, Any]:
    """A process is killed, and the others go on."""
    here = OnDevice(rank, world_size, place)
    assert here.change(1, list(range(world_size))) == "new"
    here.meet("first")
    if rank == 1:
        mark("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    found: dict[str, Any] = {}
    rest = [n for n in range(world_size) if n != 1]
    if busy:
        tensor = here.kit.put(np.ones(3))
        found["error"] = error_of(lambda: here.kit.get(_reduced(tensor)))
        here.store.set(f"noticed/{rank}", "")
        here.store.wait([f"noticed/{n}" for n in rest], LIMIT)
    handles, before = here.collect(rest), communicators()
    _reconfigure(2, handles)
    here.reduce(rest)
    found["shrunk"] = communicators()[0] - before[0]
    return found


def _reduced(tensor: Any) -> Any:
    distlite.all_reduce(tensor, async_op=True).wait(timedelta(seconds=LIMIT))
    return tensor


def fail_to_follow(
    rank: int, world_size: int, place: str, way: str, odd: int, trouble: int
) -> dict[str, Any]:
    """In NCCL's call one of them is killed, gets an error or does not come; then the
    others go on, with it if it lives."""
    here = OnDevice(rank, world_size, place)
    parts = [list(range(world_size - 1)), list(range(world_size))]
    first, second = parts if way == "grow" else parts[::-1]
    here.change(0, first)
    handles = here.collect()
    if rank == odd:
        mark("in trouble")
        change_double("DISTLITE_NCCL_LIBRARY", DOUBLE_NCCL_TROUBLE=trouble)
    found: dict[str, Any] = {"error": ""}
    if rank in second:
        began = time.monotonic()
        limit = 2.0 if trouble == 3 else LIMIT
        found["error"] = error_of(
            _reconfigure, 1, [handles[n] for n in second], timeout=limit
        )
        found["took"] = time.monotonic() - began
        found["after"] = error_of(distlite.barrier)
    rest = [n for n in range(world_size) if trouble != 1 or n != odd]
    before = communicators()
    _reconfigure(2, here.collect(rest))
    here.reduce(rest)
    found["is_new"] = communicators() == before
    change_double("DISTLITE_NCCL_LIBRARY", DOUBLE_NCCL_TROUBLE="")
    here.store.set(f"over/{rank}", "")
    here.store.wait([f"over/{n}" for n in rest], LIMIT)
    return found
