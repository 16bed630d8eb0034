# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of the mpi backend; a script that mpirun starts, with the
name of a function.  Each writes a file of JSON: launchers may mix what ranks print."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent))

import deadlock_ranks
import numpy as np
from collective_ranks import error_of
from operations import interrupt_once_in

import distlite
from distlite import ReduceOp


def init(*ignored: Any, seconds: float = 60) -> tuple[int, int]:
    distlite.init_process_group("mpi", timeout=timedelta(seconds=seconds))
    return distlite.get_rank(), distlite.get_world_size()


def call(rank: int, world_size: int, name: str, words: Sequence[str] = ()) -> Any:
    """The function of that name, for ranks that no launcher of MPI has started."""
    return globals()[name](*words)


def same(left: Any, right: Any) -> bool:
    """Of complex zeros the sign may be another: MPI multiplies in its own order."""
    left, right = np.asarray(left), np.asarray(right)
    if np.iscomplexobj(left):
        return bool(np.array_equal(left, right))
    return left.tobytes() == right.tobytes()


def grids() -> list[Any]:
    """The grid of all backends; with the pieces small, also of what goes in pieces."""
    import collective_ranks

    rank, size = _world()
    collective_ranks.init = init  # type: ignore[assignment]
    collective_ranks.reductions.__defaults__ = (same,)
    return [
        *collective_ranks.movement_grid(rank, size, ""),
        *collective_ranks.reduction_grid(rank, size, ""),
    ]


def orders() -> list[bool]:
    """MIN and MAX of arrays that do not divide, with NaN, here and at a root."""
    rank, size = init()
    right = []
    for dtype in ("float32", "float64", "uint64"):
        for count in (size * 1000 + 1, 200_003):
            start = np.arange(count) * 7919 % 1000 + 1
            rows = np.stack([np.roll(start, 31 * r) for r in range(size)]).astype(dtype)
            if dtype != "uint64":
                rows[size - 1, ::501] = np.nan
            mine = rows[rank].copy()
            distlite.reduce(mine, size - 1, ReduceOp.MIN)
            expected = rows.min(axis=0) if rank == size - 1 else rows[rank]
            right.append(np.array_equal(mine, expected, equal_nan=dtype != "uint64"))
            mine = rows[rank].copy()
            distlite.all_reduce(mine, ReduceOp.MAX)
            expected = rows.max(axis=0)
            right.append(np.array_equal(mine, expected, equal_nan=dtype != "uint64"))
    distlite.destroy_process_group()
    return right


def specials() -> dict[str, Any]:
    import collective_ranks

    collective_ranks.init = init  # type: ignore[assignment]
    found = collective_ranks.special_values(*_world(), "")
    return {str(key): value for key, value in found.items()}


def _world() -> tuple[int, int]:
    from distlite import _C

    return _C._mpi_place()


def first_steps() -> list[bool]:
    """A few of everything."""
    rank, size = init()
    right = []
    total = np.array([rank + 1.0, np.nan if rank == 0 else 1.0], "float32")
    distlite.all_reduce(total, ReduceOp.MAX)
    right.append(bool(total[0] == size and np.isnan(total[1])))
    # More than what comes along when ranks meet, and not in a row.
    wide = np.full((2000, 4), rank + 1.0)
    distlite.all_reduce(wide[:, 1])
    expected = size * (size + 1) / 2
    right.append(
        bool((wide[:, 1] == expected).all() and (wide[:, 0] == rank + 1).all())
    )
    half = np.full(5000, 1 / 3, "float16")
    work = distlite.all_reduce(half, async_op=True)
    work.wait()
    right.append(bool(half[0] == np.float16(size * np.float32(np.float16(1 / 3)))))
    # Sums of small integers wrap around, where some MPIs saturate; the largest unsigned
    # ones are not negative.
    small = np.full(100_000, 200, "uint8")
    distlite.all_reduce(small)
    largest = np.full(100_000, 255 if rank == 0 else 1, "uint8")
    distlite.all_reduce(largest, ReduceOp.MAX)
    right.append(bool((small == 200 * size % 256).all() and (largest == 255).all()))
    pair = distlite.new_group([0, size - 1])
    if rank in (0, size - 1):
        distlite.broadcast(wide[:, 2], size - 1, group=pair)
        right.append(bool((wide[:, 2] == size).all()))
    objects: list[Any] = [None] * size
    distlite.all_gather_object(objects, {"rank": rank})
    right.append(objects == [{"rank": r} for r in range(size)])
    right += _messages(rank, size)
    distlite.barrier()
    distlite.destroy_process_group()
    return right


def _messages(rank: int, size: int) -> list[bool]:
    """Around in a ring: sync, async, by any source, and with gaps."""
    after, before = (rank + 1) % size, (rank - 1) % size
    got = np.zeros(3)
    if rank == 0:
        distlite.send(np.full(3, 7.0), after)
        distlite.recv(got, before)
    else:
        distlite.recv(got, before)
        distlite.send(got + 1, after)
    sent = np.arange(200_000.0)[:: 2 if rank % 2 else 1]
    room = np.zeros(400_000)[::2]
    works = [distlite.isend(sent, after, tag=5), distlite.irecv(room, before, tag=5)]
    for work in works:
        work.wait()
    stride = 2 if before % 2 else 1
    expected = np.arange(200_000.0)[::stride]
    any_room = np.zeros(1)
    sends = distlite.isend(np.array([rank]), after, tag=6)
    source = distlite.recv(any_room.view("int64"), tag=6)
    sends.wait()
    return [
        bool((got == (7 + (rank - 1) % size)).all()),
        bool((room[: len(expected)] == expected).all()),
        source == before == int(any_room.view("int64")[0]),
    ]


def windows() -> list[int]:
    """Tickets, and a window of another group while this one is open."""
    rank, size = init()
    win = distlite.Window(2, np.int64)
    drawn = [int(win.fetch_and_op(1, 0)) for _ in range(100)]
    last = distlite.new_group([size - 1])
    if rank == size - 1:
        with distlite.Window(1, group=last) as own:
            own.accumulate(np.ones(1), 0)
            assert own.local[0] == 1
    win.put(np.array([rank]), (rank + 1) % size, 1)
    win.fence()
    assert win.local[1] == (rank - 1) % size
    win.close()
    distlite.destroy_process_group()
    return drawn


def failures() -> dict[str, str]:
    """A rank that calls something else; then a group of its own that one rank leaves
    alone; each of the errors, and whether the other groups still work."""
    rank, _ = init(seconds=60)
    first, second = distlite.new_group(), distlite.new_group()
    found: dict[str, str] = {}
    other = [distlite.all_reduce, distlite.barrier][rank]
    given = [(np.ones(3),), ()][rank]
    found["mismatch"] = error_of(other, *given, group=first)
    found["again"] = error_of(distlite.barrier, group=first)
    if rank == 0:
        second.set_timeout(timedelta(seconds=0.3))
        began = time.monotonic()
        found["late"] = error_of(distlite.all_reduce, np.ones(100_000), group=second)
        found["took"] = str(time.monotonic() - began < 20)
    third = distlite.new_group()
    # Also before the wait: rank 1 does not come.
    waiting = threading.Timer(0.2, third.abort)
    if rank == 0:
        waiting.start()
        found["abort"] = error_of(distlite.barrier, group=third)
    one = np.ones(1)
    distlite.all_reduce(one)
    found["then"] = str(one[0])
    distlite.destroy_process_group()
    return found


def latecomers() -> dict[str, Any]:
    """Rank 0 gives up in each way, and then rank 1 comes: its errors, and how long they
    took altogether."""
    rank, _ = init(seconds=60)
    store = distlite.distributed_c10d._get_default_store()
    groups = {how: distlite.new_group() for how in ("timeout", "interrupt", "abort")}
    found: dict[str, Any] = {}
    values = np.ones(100_000)
    if rank == 0:
        groups["timeout"].set_timeout(timedelta(seconds=0.3))
        found["timeout"] = error_of(
            distlite.all_reduce, values, group=groups["timeout"]
        )
        try:
            interrupt_once_in(groups["interrupt"].group_name)
            distlite.all_reduce(values, group=groups["interrupt"])
        except KeyboardInterrupt:
            found["interrupt"] = "KeyboardInterrupt"
        groups["abort"].abort()
        brief = timedelta(seconds=0.3)
        found["new group"] = error_of(distlite.new_group, timeout=brief)
        store.set("given up", "")
    else:
        store.wait(["given up"])
        began = time.monotonic()
        for how, group in groups.items():
            found[how] = error_of(distlite.all_reduce, values, group=group)
        found["new group"] = error_of(distlite.new_group)
        found["seconds"] = time.monotonic() - began
    total = np.full(100_000, rank + 1.0)
    distlite.all_reduce(total)
    found["then"] = float(total[0])
    distlite.destroy_process_group()
    return found


def with_mpi4py(first: str) -> list[Any]:
    """Both in one process; whoever is first starts MPI, and ends it."""
    if first == "mpi4py":
        from mpi4py import MPI

        rank, size = init()
    else:
        rank, size = init()
        from mpi4py import MPI
    results = []
    for _ in range(3):
        ours, theirs = np.array([rank + 1.0]), np.array([rank + 1.0])
        work = distlite.all_reduce(ours, async_op=True)
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, theirs)
        work.wait()
        results += [float(ours[0]), float(theirs[0])]
    distlite.destroy_process_group()
    return [MPI.COMM_WORLD.size == size, *results]


def after_a_lower_level() -> str:
    import mpi4py

    mpi4py.rc.thread_level = "funneled"
    from mpi4py import MPI

    assert MPI.Query_thread() == MPI.THREAD_FUNNELED
    return error_of(init)


def one_dies() -> None:
    """The launcher ends the others, which wait for it."""
    rank, _ = init(seconds=600)
    if rank == 1:
        raise ValueError("on purpose")
    distlite.barrier()


def one_is_killed(what: str) -> None:
    """As the other waits for it: in a barrier, among collectives, or for a message."""
    rank, _ = init(seconds=600)
    distlite.barrier()
    if rank == 1:
        if what == "large":
            threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGKILL]).start()
            while True:
                distlite.all_reduce(np.ones(1_000_000))
        os.kill(os.getpid(), signal.SIGKILL)
    while what == "large":
        distlite.all_reduce(np.ones(1_000_000))
    if what == "receive":
        distlite.recv(np.ones(3), 1)
    distlite.barrier()
    print("survived", flush=True)


def death(what: str) -> Any:
    """The last rank is killed, which another finds out in one way; it ends as usual."""
    rank, size = init(seconds=40)
    last = size - 1
    window = distlite.Window(3) if what == "window" else None
    pids: list[Any] = [None] * size
    distlite.all_gather_object(pids, os.getpid())
    end = None if rank == last else os.pidfd_open(pids[last])
    distlite.barrier()
    if end is None:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    said = "nothing"
    if what == "nothing":
        select.select([end], [], [])
    elif window is not None:
        while said in ("nothing", "no error"):
            said = error_of(window.fetch_and_op, 1, last)
    else:
        calls: dict[str, Callable[[], object]] = {
            "barrier": distlite.barrier,
            "monitored_barrier": distlite.monitored_barrier,
            "recv": lambda: distlite.recv(np.ones(3), last),
            "irecv": lambda: distlite.irecv(np.ones(3), last).wait(),
            "send": lambda: distlite.send(np.ones(1_000_000), last),
        }
        said = error_of(calls[what])
    return said, time.monotonic() - started


def one_leaves(how: str) -> dict[str, Any]:
    """Rank 1 destroys its groups, or is at its end; the other still waits for it."""
    rank, _ = init()
    second, third = distlite.new_group(), distlite.new_group()
    for group in (second, third):
        group.set_timeout(timedelta(seconds=0.5))
    if rank == 1:
        if how == "destroy":
            distlite.destroy_process_group()
        return {}
    began = time.monotonic()
    found: dict[str, Any] = {
        "barrier": error_of(distlite.barrier, group=second),
        "receive": error_of(distlite.recv, np.ones(3), 1, group=third),
    }
    found["seconds"] = time.monotonic() - began
    return found


def ended() -> str:
    """MPI is ended by another part of the program before the groups are."""
    from mpi4py import MPI

    return _ended_by(MPI.Finalize)


def ended_in_c() -> str:
    """As ended; rank 0 waits for rank 1 there, while nothing of ours may call MPI."""

    def finalize() -> None:
        if distlite.get_rank() == 1:
            time.sleep(0.3)
        ctypes.CDLL(os.environ["DISTLITE_MPI_LIBRARY"]).MPI_Finalize()

    return _ended_by(finalize)


def _ended_by(finalize: Callable[[], object]) -> str:
    init()
    values = np.ones(3)
    distlite.all_reduce(values)
    finalize()
    said = error_of(distlite.all_reduce, values)
    distlite.destroy_process_group()
    return said


def mismatched() -> str:
    return error_of(init)


def around_pieces() -> list[str]:
    """Blocks a little shorter and longer than pieces of 4 KiB, each in an array of its
    own; what came out wrong."""
    rank, size = init()
    wrong = []
    for count in (4095, 4097, 5003, 8191, 8192, 8195, 20_001):
        rows = [np.arange(count) * 7 + 31 * r for r in range(size)]
        blocks = [row.astype("uint8") for row in rows]
        everyone = [np.zeros(count, "uint8") for _ in range(size)]
        for root in range(size):
            got, is_root = np.zeros(count, "uint8"), rank == root
            distlite.scatter(got, blocks if is_root else None, root)
            right = [np.array_equal(got, blocks[rank])]
            distlite.gather(blocks[rank], everyone if is_root else None, root)
            right.append(not is_root or np.array_equal(everyone, blocks))
            got[:] = blocks[rank]
            distlite.broadcast(got, root)
            right.append(np.array_equal(got, blocks[root]))
            got = rows[rank].astype("float32")
            distlite.reduce(got, root, ReduceOp.MAX)
            expected = np.max(rows, axis=0) if is_root else rows[rank]
            right.append(np.array_equal(got, expected))
            wrong += [f"{count} {root} {right}"] if not all(right) else []
        distlite.all_gather(everyone, blocks[rank])
        right = [np.array_equal(everyone, blocks)]
        distlite.all_to_all(everyone, [blocks[rank]] * size)
        right.append(np.array_equal(everyone, blocks))
        sums, total = [row.astype("complex128") for row in rows], rows[0] * 0j
        distlite.reduce_scatter(total, [sums[rank]] * size)
        right.append(np.array_equal(total, np.sum(sums, axis=0)))
        wrong += [f"{count} {right}"] if not all(right) else []
    distlite.destroy_process_group()
    return wrong


def apart(rank: int, world_size: int, variable: str) -> str:
    """Only rank 0 may share memory with the others."""
    os.environ[variable] = "1" if rank == 0 else "0"
    return error_of(init)


def regrouped() -> list[float]:
    """Sums over groups made out of groups, the last of which outlives the others."""
    rank, size = init()
    world = distlite.distributed_c10d._get_default_group()
    half = distlite.split(rank % 2)
    pair = distlite.new_group([0, size - 1])
    names = {distlite.get_backend(world), distlite.get_backend(half)}
    assert names == {"mpi"}, names
    found = []
    for group in (world, half, pair):
        value = np.array([rank + 1.0])
        if group is not distlite.GroupMember.NON_GROUP_MEMBER:
            distlite.all_reduce(value, group=group)
        found.append(float(value[0]))
    distlite.destroy_process_group()
    return found


def missized() -> str:
    return error_of(distlite.init_process_group, "mpi", world_size=3)


def deadlock(kind: str, *culprits: str) -> str:
    """What `culprits` are told of the deadlock of that name."""
    rank, size = init()
    return deadlock_ranks.hang_in(rank, size, kind, [int(each) for each in culprits])


def no_deadlock(kind: str) -> bool:
    """What ends well, after long waits."""
    rank, size = init()
    deadlock_ranks.finish_in(rank, size, kind)
    return True


def several(*names: str) -> dict[str, Any]:
    """What each of the functions returned, in one job, whose start takes long."""
    found = {}
    for name in names:
        found[name] = globals()[name]()
        if distlite.is_initialized():
            distlite.destroy_process_group()
    return found


SECONDS_FOR_OTHERS = 10.0


def main() -> None:
    name, *arguments = sys.argv[1:]
    result = json.dumps(globals()[name](*arguments))
    rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
    size = os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["PMI_SIZE"]
    folder = Path(os.environ["TEST_MPI_RESULTS"])
    (folder / rank).write_text(result)
    # A launcher ends the others once a process ends without MPI_Finalize, as one does
    # after a failed operation.
    limit = time.monotonic() + SECONDS_FOR_OTHERS
    while len(list(folder.iterdir())) < int(size) and time.monotonic() < limit:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
