# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of windows.  Does not import pytest: every rank pays."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
from group_ranks import init

import distlite
from distlite import ReduceOp

FOLDS: dict[Any, Any] = {
    ReduceOp.SUM: np.add,
    ReduceOp.PRODUCT: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BXOR: np.bitwise_xor,
    "replace": lambda old, new: new,
}


def begin(rank: int, size: int, method: str, places: Any = None) -> None:
    """`places`: by rank, which host it is on; or the backend mpi."""
    if places == "mpi":
        distlite.init_process_group("mpi", timeout=timedelta(seconds=30))
        return
    if places is not None:
        os.environ["DISTLITE_HOST_HINT"] = str(places[rank])
    init(rank, size, method, seconds=30)


def moves(rank: int, world_size: int, init_method: str, places: Any = None) -> None:
    """Puts and gets of every shape, by all ranks."""
    begin(rank, world_size, init_method, places)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    for count in (1, 1000, 300_001):
        with distlite.Window(count + rank, np.float32) as win:
            assert win.counts == tuple(count + each for each in range(world_size))
            assert not win.local.any()
            win.fence()
            values = (np.arange(count) * 7 + rank).astype(np.float32)
            win.put(values, after)
            win.fence()
            expected = (np.arange(count) * 7 + before).astype(np.float32)
            assert (win.local[:count] == expected).all()
            for peer in range(world_size):
                got = np.zeros(count, np.float32)
                win.get(got, peer)
                source = (peer - 1) % world_size
                assert (got == (np.arange(count) * 7 + source)).all()
            win.fence()
    with_strides(rank, world_size)
    other_dtypes(rank, world_size)


def signals(rank: int, world_size: int, init_method: str, places: Any = None) -> None:
    """Each rank writes to the next one and tells it so, in two windows."""
    begin(rank, world_size, init_method, places)
    after, before = (rank + 1) % world_size, (rank - 1) % world_size
    # Messages are not counted among the operations by which windows are told apart.
    if rank == 0:
        distlite.send(np.ones(1), 1)
    elif rank == 1:
        distlite.recv(np.ones(1), 0)
    with distlite.Window(70_000) as win, distlite.Window(1, int) as other:
        assert win._tag != other._tag
        for step in range(20):
            win.put(np.full(70_000, 10.0 * step + rank), after)
            win.signal(after)
            other.accumulate(np.ones(1, int), after)
            other.signal(after)
            if step == 0:
                assert distlite.iprobe() is None
            # In the other order: the signals of the two are apart.
            other.wait_signal(before)
            assert other.local[0] == step + 1
            win.wait_signal(before)
            assert (win.local == 10.0 * step + before).all()
            # Not before all have read what the next step overwrites.
            win.fence()
        for use in (win.signal, win.wait_signal):
            assert error_of(use, rank).startswith("ValueError")
            assert "is not in group" in error_of(use, world_size)
    for use in (win.signal, win.wait_signal):
        assert "was closed" in error_of(use, after)


def with_strides(rank: int, size: int) -> None:
    with distlite.Window((300, 500), np.int32) as win:
        values = np.arange(150_000, dtype=np.int32).reshape(500, 300) + rank
        win.put(values.T, (rank + 1) % size)
        win.fence()
        assert (win.local == values.T - rank + (rank - 1) % size).all()
        got = np.zeros((500, 600), np.int32)
        win.get(got[:, ::2].T, rank)
        assert (win.local == got[:, ::2].T).all() and not got[:, 1::2].any()
        win.fence()
        win.accumulate(values.T, rank, ReduceOp.MAX)
        shift = (rank - 1) % size - rank
        assert (win.local == values.T + max(0, shift)).all()
        # A part of the own window, to an overlapping part.
        flat = win.local.reshape(-1)
        shifted = flat.copy()
        shifted[10:1010] = flat[:1000]
        win.put(flat[:1000], rank, 10)
        assert (flat == shifted).all()


def other_dtypes(rank: int, size: int) -> None:
    peer = (rank + 1) % size
    with distlite.Window(3, "datetime64[s]") as win:
        win.put(np.arange(3).astype("datetime64[s]"), peer)
        win.fence()
        assert (win.local == np.arange(3).astype("datetime64[s]")).all()
        win.fence()
        old = win.get_accumulate(np.array([9], "datetime64[s]"), peer, "replace", 2)
        assert old[0] == np.datetime64(2, "s")
    with distlite.Window(np.full((2, 2), rank, np.int16)) as win:
        assert (win.local == rank).all()
        got = np.empty((2, 2), np.int16)
        win.get(got, peer)
        assert (got == peer).all()
    with distlite.Window(0) as win:
        win.put(np.empty(0), peer)
        win.get(np.empty(0), peer)
        assert win.local.shape == (0,)


def updates(rank: int, world_size: int, init_method: str, places: Any = None) -> None:
    """All ranks update all memory with reductions whose order does not matter."""
    begin(rank, world_size, init_method, places)
    rounds, count = 3, 40_001
    for dtype in ("int8", "int64", "float16", "float32", "float64", "complex128"):
        with distlite.Window(count, dtype) as win:
            for _ in range(rounds):
                for peer in range(world_size):
                    win.accumulate((np.arange(count) % 5 + rank).astype(dtype), peer)
            win.fence()
            total = sum(np.arange(count) % 5 + each for each in range(world_size))
            assert (win.local == (rounds * total).astype(dtype)).all(), dtype
    with distlite.Window(2, np.uint8) as win:
        win.accumulate(np.array([1 << rank, 0], np.uint8), 0, ReduceOp.BOR)
        win.accumulate(np.array([0, rank + 1], np.uint8), 0, ReduceOp.MAX)
        win.fence()
        got = np.empty(2, np.uint8)
        win.get(got, 0)
        assert got.tolist() == [(1 << world_size) - 1, world_size]
    with distlite.Window(1, np.float16) as win:
        win.accumulate(np.array([2], np.float16), 0, ReduceOp.PREMUL_SUM(0.5))
        win.fence()
        assert rank != 0 or win.local.tolist() == [world_size]


def tickets(rank: int, world_size: int, init_method: str, places: Any = None) -> Any:
    """Each rank draws a thousand numbers, and no number is drawn twice."""
    begin(rank, world_size, init_method, places)
    with distlite.Window(2, np.int64) as win:
        drawn = [int(win.fetch_and_op(1, 0)) for _ in range(1000)]
        assert drawn == sorted(drawn)
        for _ in range(200):
            # The same by comparing and swapping.
            seen = win.fetch_and_op(0, 0, "no_op", 1)
            while (now := win.compare_and_swap(seen + 1, seen, 0, 1)) != seen:
                seen = now
        win.fence()
        if rank == 0:
            assert win.local.tolist() == [1000 * world_size, 200 * world_size]
    return drawn


def locks(rank: int, world_size: int, init_method: str, places: Any = None) -> None:
    """Counts without atomic updates, under the lock; readers see whole states."""
    begin(rank, world_size, init_method, places)
    rounds = 60
    with distlite.Window(100, np.int64) as win:
        for turn in range(rounds):
            mine = np.empty(100, np.int64)
            if turn % 3 == 2:
                with win.lock(0, shared=True):
                    win.get(mine, 0)
                assert (mine == mine[0]).all()
                continue
            with win.lock(0):
                win.get(mine, 0)
                win.put(mine + 1, 0)
        win.fence()
        assert rank != 0 or (win.local == world_size * rounds * 2 // 3).all()


def random_program(
    rank: int, world_size: int, init_method: str, seed: int, places: Any = None
) -> None:
    """All ranks make the same random calls of all ranks on a model of the memory.

    Between two fences each element is touched by one rank, or by updates that commute.
    """
    begin(rank, world_size, init_method, places)
    draw = random.Random(seed)
    dtype = draw.choice(["int32", "uint8", "int64"])
    sizes = [draw.randrange(1, 3000) for _ in range(world_size)]
    model = [np.zeros(size, dtype) for size in sizes]
    with distlite.Window(sizes[rank], dtype) as win:
        for _ in range(40):
            one_round(draw, rank, world_size, win, model)
            win.fence()
            assert (win.local == model[rank]).all()
            win.fence()


def one_round(draw: Any, rank: int, size: int, win: Any, model: list[Any]) -> None:
    commutes = draw.choice([None, ReduceOp.SUM, ReduceOp.BXOR, ReduceOp.MAX])
    for target in range(size):
        cuts = sorted(draw.randrange(len(model[target]) + 1) for _ in range(size - 1))
        for actor, (first, last) in enumerate(
            zip([0, *cuts], [*cuts, len(model[target])], strict=True)
        ):
            noise = np.random.default_rng(draw.randrange(1 << 30))
            if commutes is not None:
                first, last = 0, len(model[target])
            values = noise.integers(0, 100, last - first).astype(model[target].dtype)
            part = model[target][first:last]
            op = draw.choice([*FOLDS, "put", "fetch", "get"])
            op = op if commutes is None else commutes
            if op == "get":
                if actor == rank:
                    win.get(values, target, first)
                    assert (values == part).all()
                continue
            if actor == rank:
                act(win, op, values, target, first, part)
            folded = FOLDS[{"fetch": ReduceOp.SUM, "put": "replace"}.get(op, op)]
            model[target][first:last] = folded(part, values)


def act(win: Any, op: Any, values: Any, target: int, first: int, part: Any) -> None:
    if op == "put":
        win.put(values, target, first)
    elif op == "fetch":
        old = win.get_accumulate(values, target, ReduceOp.SUM, first)
        assert (old == part).all()
    else:
        win.accumulate(values, target, op, first)


def error_of(function: Any, *args: Any, **kwargs: Any) -> str:
    try:
        function(*args, **kwargs)
    except (ValueError, TypeError, distlite.DistError) as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("no error")


def refusals(rank: int, world_size: int, init_method: str, places: Any = None) -> Any:
    begin(rank, world_size, init_method, places)
    peer = (rank + 1) % world_size
    frozen = np.zeros(1)
    frozen.flags.writeable = False
    with distlite.Window(4) as win:
        said = {
            "beyond": error_of(win.put, np.zeros(3), peer, 2),
            "negative": error_of(win.get, np.zeros(1), peer, -1),
            "far": error_of(win.get, np.zeros(1), peer, 1 << 62),
            "dtype": error_of(win.put, np.zeros(1, np.int32), peer),
            "rank": error_of(win.put, np.zeros(1), world_size),
            "read-only": error_of(win.get, frozen, peer),
            "no array": error_of(win.put, 3, peer),
            "op": error_of(win.accumulate, np.zeros(1), peer, "sum"),
            "average": error_of(win.accumulate, np.zeros(1), peer, ReduceOp.AVG),
            "pairs": error_of(win.accumulate, np.zeros(1), peer, ReduceOp.MINLOC),
            "function": error_of(win.accumulate, np.zeros(1), peer, np.hypot),
            "bits": error_of(win.accumulate, np.zeros(1), peer, ReduceOp.BOR),
            "out": error_of(win.get_accumulate, np.zeros(2), peer, out=np.zeros(1)),
            "same": error_of(win.get_accumulate, mine := np.zeros(2), peer, out=mine),
            "value": error_of(win.fetch_and_op, "x", peer),
            "unlock": error_of(win.unlock, peer),
        }
        assert not win.local.any()
        with win.lock(rank):
            said["nested"] = error_of(win.lock, rank)
    said["closed"] = error_of(win.put, np.zeros(1), peer)
    said["fence"] = error_of(win.fence)
    win.close()
    dtype = np.int64 if rank == 0 else np.int32
    said["dtypes"] = error_of(distlite.Window, 3, dtype)
    return said


def put_and_flush(win: Any, rank: int) -> None:
    win.put(np.zeros(1), rank)
    win.flush(rank)


def closed_alone(
    rank: int, world_size: int, init_method: str, places: Any = None
) -> Any:
    """Rank 1 leaves the window by an exception, while it has a lock."""
    begin(rank, world_size, init_method, places)
    win = distlite.Window(4)
    store = distlite.distributed_c10d._get_default_store()
    said = None
    if rank == 1:
        try:
            with win:
                win.lock(0)
                raise KeyError("left")
        except KeyError:
            store.set("left", "")
    else:
        store.wait(["left"])
        said = error_of(put_and_flush, win, 1)
        with win.lock(0, timeout=5):
            win.put(np.ones(4), 0)
    distlite.barrier()
    return said


def freed_alone(
    rank: int, world_size: int, init_method: str, places: Any = None
) -> Any:
    """Rank 1 closes the window by an exception, and drops it."""
    begin(rank, world_size, init_method, places)
    win: Any = distlite.Window(4)
    store = distlite.distributed_c10d._get_default_store()
    said = None
    put_and_flush(win, 1 - rank)
    distlite.barrier()
    if rank == 1:
        win.__exit__(KeyError, KeyError("left"), None)
        win = None
        gc.collect()
        store.set("left", "")
    else:
        store.wait(["left"])
        said = [error_of(put_and_flush, win, 1) for _ in range(3)]
    distlite.barrier()
    return said


def ended_group(
    rank: int, world_size: int, init_method: str, places: Any = None
) -> Any:
    begin(rank, world_size, init_method, places)
    group = distlite.new_group()
    win = distlite.Window(np.full(3, rank), group=group)
    distlite.destroy_process_group(group)
    said = error_of(win.get, np.zeros(3, np.int64), rank)
    win.close()
    assert win.local.tolist() == [rank] * 3
    distlite.barrier()
    return said


def left_alone(rank: int, world_size: int, init_method: str, places: Any = None) -> Any:
    """Rank 1 leaves the group, with its windows open."""
    begin(rank, world_size, init_method, places)
    group = distlite.new_group()
    win = distlite.Window(4, group=group)
    store = distlite.distributed_c10d._get_default_store()
    said = None
    put_and_flush(win, 1 - rank)
    distlite.barrier()
    if rank == 1:
        distlite.destroy_process_group(group)
        store.set("left", "")
    else:
        store.wait(["left"])
        said = [error_of(put_and_flush, win, 1) for _ in range(2)]
    distlite.barrier()
    win._end()
    return said


def ended_wait(rank: int, world_size: int, init_method: str, places: Any = None) -> Any:
    """Rank 1 waits for a lock in a thread, while its main thread ends the group."""
    begin(rank, world_size, init_method, places)
    group = distlite.new_group()
    win = distlite.Window(3, group=group)
    said: list[str] = []
    if rank == 0:
        win.lock(0)
    win.fence()
    if rank == 1:
        waiter = threading.Thread(target=lambda: said.append(error_of(win.lock, 0)))
        waiter.start()
        time.sleep(0.3)  # so that it usually waits; nothing depends on it
        group.abort()
        waiter.join()
    distlite.barrier()
    win._end()
    return said


def killed_holder(
    rank: int, world_size: int, init_method: str, places: Any = None
) -> Any:
    """Rank 1 is killed while it has the lock of rank 0's memory, and rank 2 waits."""
    begin(rank, world_size, init_method, places)
    win = distlite.Window(3)
    if rank == 1:
        win.lock(0)
    win.fence()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    said = error_of(win.lock, 0)
    seconds = time.monotonic() - started
    distlite.distributed_c10d._get_default_store().barrier("told", 2)
    return said, seconds


def killed_target(
    rank: int, world_size: int, init_method: str, places: Any = None
) -> Any:
    begin(rank, world_size, init_method, places)
    win = distlite.Window(3)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    started = time.monotonic()
    said = ""
    while not said:
        try:
            win.fetch_and_op(1, 1)
        except distlite.DistError as error:
            said = str(error)
    again = error_of(put_and_flush, win, 1)
    return said, again, time.monotonic() - started


def late_holder(
    rank: int, world_size: int, init_method: str, places: Any = None, holder: int = 1
) -> Any:
    """The other rank waits too briefly for the lock of rank 0's memory."""
    begin(rank, world_size, init_method, places)
    said = ""
    with distlite.Window(3) as win:
        if rank == holder:
            win.lock(0)
        win.fence()
        if rank != holder:
            said = error_of(win.lock, 0, timeout=0.2)
        win.fence()
        if rank == holder:
            win.unlock(0)
        with win.lock(0):
            pass
    return said


def late_elsewhere(rank: int, world_size: int, init_method: str, places: Any) -> Any:
    """The lock that the owner has, and a rank on another host wants."""
    return late_holder(rank, world_size, init_method, places, holder=0)


def interrupted(
    rank: int, world_size: int, init_method: str, places: Any = None, holder: int = 1
) -> Any:
    """Ctrl-C ends a wait for a lock, which can be taken afterwards."""
    begin(rank, world_size, init_method, places)
    with distlite.Window(3) as win:
        if rank == holder:
            win.lock(0)
        win.fence()
        if rank != holder:
            main = threading.main_thread().ident
            assert main is not None
            timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
            timer.start()
            try:
                win.lock(0)
                raise AssertionError("not interrupted")
            except KeyboardInterrupt:
                timer.join()
        win.fence()
        if rank == holder:
            win.unlock(0)
        with win.lock(0):
            win.accumulate(np.ones(3), 0)
        win.fence()
        got = np.zeros(3)
        win.get(got, 0)
        return got.tolist()


def interrupted_elsewhere(
    rank: int, world_size: int, init_method: str, places: Any
) -> Any:
    return interrupted(rank, world_size, init_method, places, holder=0)


def forked(rank: int, world_size: int, init_method: str) -> Any:
    begin(rank, world_size, init_method)
    with distlite.Window(3) as win:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, error_of(win.put, np.zeros(1), rank).encode())
            os._exit(0)
        os.close(write)
        said = os.read(read, 4096).decode()
        os.waitpid(child, 0)
        win.fence()
    return said


def threads(rank: int, world_size: int, init_method: str, places: Any = None) -> None:
    """Several threads of each rank use one window."""
    begin(rank, world_size, init_method, places)
    with distlite.Window(8, np.int64) as win:

        def work(number: int) -> None:
            got = np.empty(8, np.int64)
            for turn in range(100):
                win.accumulate(np.ones(8, np.int64), turn % world_size)
                win.get(got, (turn + number) % world_size)

        all_threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in all_threads:
            thread.start()
        for thread in all_threads:
            thread.join()
        win.fence()
        total = sum(1 for turn in range(100) if turn % world_size == rank)
        assert (win.local == 3 * world_size * total).all()


def churn(rank: int, world_size: int, init_method: str) -> Any:
    """Descriptors and shared memory do not grow with windows."""
    begin(rank, world_size, init_method)

    def used() -> tuple[int, int]:
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), sum(1 for _ in maps)

    def some() -> None:
        for _ in range(30):
            with distlite.Window(10_000) as win:
                win.put(np.ones(10_000), (rank + 1) % world_size)

    some()
    before = used()
    some()
    distlite.barrier()
    return before, used()


def detail(rank: int, world_size: int, init_method: str, places: Any = None) -> None:
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    tickets(rank, world_size, init_method, places)


def alone_in_a_window(
    rank: int, world_size: int, init_method: str, places: Any = None
) -> str:
    """Rank 1 calls something else than the making of a window."""
    begin(rank, world_size, init_method, places)
    return error_of(distlite.barrier if rank == 1 else lambda: distlite.Window(3))


def outlive_a_rank(rank: int, world_size: int, init_method: str, places: Any) -> str:
    """Accesses to a rank that dies."""
    begin(rank, world_size, init_method, places)
    win = distlite.Window(3)
    win.fence()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    said = ""
    while not said:
        try:
            win.get_accumulate(np.zeros(3), 1)
        except distlite.DistError as error:
            said = str(error)
    return said
