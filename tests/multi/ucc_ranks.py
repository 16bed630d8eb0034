# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of UCC; each returns what was wrong, or what it saw."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from collective_ranks import (
    HALVES,
    error_of,
    gathers,
    later,
    operands,
    pairs,
    reductions,
    same,
    scatters,
    sync,
    uneven,
)
from doubles_build import change_double
from many_hosts_ranks import count_sent
from operations import interrupt_once_in

import distlite
from distlite import ReduceOp


def init(rank: int, world_size: int, init_method: str, seconds: float = 60) -> None:
    distlite.init_process_group(
        "ucc",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=seconds),
    )


def equal(left: Any, right: Any) -> bool:
    """But for the signs of zeroes, which depend on the order of multiplications."""
    return left.dtype == right.dtype and bool((left == right).all())


def everything(rank: int, world_size: int, init_method: str) -> list[Any]:
    """All collectives, dtypes, ops and forms beside NumPy."""
    init(rank, world_size, init_method)
    assert distlite.get_backend() == "ucc"
    wrong: list[Any] = []

    def note(*case: Any) -> None:
        wrong.append(case)

    dtypes = ("float32", "bool", "complex128", "S3", "i4,f8")
    moves = [(dtype, count) for dtype in dtypes for count in (0, 1, 3, 1001)]
    for turn, (dtype, count) in enumerate([*moves, ("float32", 100_003)]):
        call = (sync, later)[turn % 3 == 1]
        for form in (gathers, scatters, uneven):
            for kind, is_right in form(rank, world_size, count, dtype, call):
                is_right or note(kind, dtype, count)
    folds = [(*pair, count) for pair in pairs() for count in (0, 1, 67)]
    large = [(dtype, "SUM", 100_003) for dtype in ("float32", "int64", HALVES[1])]
    for turn, (dtype, op, count) in enumerate([*folds, *large]):
        call = (sync, later)[turn % 5 == 0]
        inputs = operands(world_size, count, dtype)
        for kind, is_right in reductions(rank, inputs, op, call, equal):
            is_right or note(kind, str(dtype), op, count)
    for kind, is_right in (*strided(rank, world_size), *ordered(rank, world_size)):
        is_right or note(kind)
    for kind, is_right in (*objects(rank, world_size), *sub_groups(rank, world_size)):
        is_right or note(kind)
    for kind, is_right in messages(rank, world_size):
        is_right or note(kind)
    distlite.destroy_process_group()
    return wrong


def strided(rank: int, size: int) -> list[tuple[str, bool]]:
    """Arrays with gaps, turned round, and not aligned."""
    found = []
    for dtype in ("float64", "float16"):
        whole = np.zeros((6, 8), dtype)
        part = whole[::2, ::-2]
        part[:] = rank + 1
        distlite.all_reduce(part)
        total = size * (size + 1) / 2
        is_right = (part == total).all() and whole.sum() == total * part.size
        found.append((f"all_reduce {dtype} with gaps", bool(is_right)))
    whole = np.full((4, 4), float(rank))
    distlite.broadcast(whole.T[1:3], 1)
    expected = np.full((4, 4), float(rank))
    expected.T[1:3] = 1.0
    found.append(("broadcast with gaps", same(whole, expected)))
    raw = np.zeros(8 * 5 + 1, np.uint8)
    shifted = raw[1:].view("float64")
    shifted[:] = np.arange(5)
    distlite.all_reduce(shifted, ReduceOp.MAX)
    found.append(("not aligned", shifted.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]))
    scaled = np.ones(3)
    distlite.all_reduce(scaled, ReduceOp.PREMUL_SUM(0.5 * (rank + 1)))
    found.append(("PREMUL_SUM", scaled.tolist() == [size * (size + 1) / 4] * 3))
    blocks = [np.full(r + 1, rank + r, "int32") for r in range(size)]
    output = np.zeros(rank + 1, "int32")
    distlite.reduce_scatter(output, blocks)
    total = sum(r + rank for r in range(size))
    found.append(("reduce_scatter_v", output.tolist() == [total] * (rank + 1)))
    return found


def ordered(rank: int, size: int) -> list[tuple[str, bool]]:
    """Many operations at once, done in the order of the calls."""
    arrays = [np.full(1 + turn * 50, float(rank + turn)) for turn in range(20)]
    works = [distlite.all_reduce(each, async_op=True) for each in arrays]
    base = size * (size - 1) / 2
    for turn in reversed(range(20)):
        works[turn].wait()
    is_right = all((a == base + size * t).all() for t, a in enumerate(arrays))
    told: list[int] = []
    works = []
    for turn in range(6):
        work = distlite.broadcast(arrays[turn], turn % size, async_op=True)
        work.get_future().add_done_callback(lambda _, turn=turn: told.append(turn))
        works.append(work)
    works[-1].wait()
    deadline = time.monotonic() + 60
    while len(told) < 6 and time.monotonic() < deadline:
        time.sleep(0.001)
    # Without anybody who waits.
    alone = distlite.all_reduce(arrays[0], async_op=True)
    while not alone.is_completed() and time.monotonic() < deadline:
        time.sleep(0.001)
    return [
        ("many at once", is_right),
        ("order", told == list(range(6))),
        ("nobody waits", alone.is_completed()),
    ]


def objects(rank: int, size: int) -> list[tuple[str, bool]]:
    """What goes by all_gather inside."""
    gathered: list[Any] = [None] * size
    distlite.all_gather_object(gathered, {"rank": rank, "text": "x" * rank * 100})
    expected = [{"rank": r, "text": "x" * r * 100} for r in range(size)]
    listed = [["first", 2]] if rank == 0 else [None]
    distlite.broadcast_object_list(listed, 0)
    distlite.barrier()
    return [
        ("all_gather_object", gathered == expected),
        ("broadcast_object_list", listed == [["first", 2]]),
    ]


def sub_groups(rank: int, size: int) -> list[tuple[str, bool]]:
    """Teams of one context, in use at the same time."""
    pairs_of = [distlite.new_group([r, (r + 1) % size]) for r in range(size)]
    alone = distlite.new_group([rank], use_local_synchronization=True)
    found = []
    for first, group in enumerate(pairs_of):
        members = sorted({first, (first + 1) % size})
        if rank in members:
            array = np.full(3, float(rank))
            distlite.all_reduce(array, group=group)
            found.append((f"pair {first}", array.tolist() == [sum(members)] * 3))
    array = np.full(3, float(rank))
    distlite.all_reduce(array, group=alone)
    found.append(("alone", array.tolist() == [rank] * 3))
    mine = np.full(70_000, float(rank))
    other = distlite.new_group()

    def in_other() -> None:
        for _ in range(20):
            distlite.all_reduce(mine, ReduceOp.MAX, group=other)

    thread = threading.Thread(target=in_other)
    thread.start()
    world = np.ones(70_000)
    for _ in range(4):
        distlite.all_reduce(world)
    thread.join()
    found.append(("two groups at once", bool((world == size**4).all())))
    found.append(("the other of them", bool((mine == size - 1).all())))
    return found


def messages(rank: int, size: int) -> list[tuple[str, bool]]:
    """Between two ranks, with tags and from any source, beside collectives."""
    sources = [r for r in range(size) if r != rank]
    sent = np.arange(3) + 10.0 * rank
    works = [distlite.isend(sent + tag, r, tag=tag) for r in sources for tag in (2, 1)]
    total = np.ones(2)
    distlite.all_reduce(total)
    found = [("all_reduce among messages", total.tolist() == [size] * 2)]
    for source in sources:
        taken = np.zeros(3)
        distlite.irecv(taken, source, tag=1).wait()
        is_right = taken.tolist() == (np.arange(3) + 10 * source + 1).tolist()
        found.append((f"message from {source}", is_right))
    seen = []
    for _ in sources:
        taken = np.zeros(3)
        source = distlite.recv(taken, tag=2)
        is_right = taken.tolist() == (np.arange(3) + 10 * source + 2).tolist()
        found.append(("message from any", is_right))
        seen.append(source)
    for work in works:
        work.wait()
    found.append(("from all", sorted(seen) == sources))
    return found


def failures(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Ranks that differ or are late: their groups end, others of the context do not."""
    init(rank, world_size, init_method)
    one = np.ones(3)
    found: dict[str, Any] = {
        "BAND": error_of(distlite.all_reduce, one, ReduceOp.BAND),
        "AVG": error_of(distlite.all_reduce, np.ones(3, int), ReduceOp.AVG),
    }
    distlite.all_reduce(one)
    found["whole"] = one.tolist()
    groups = [distlite.new_group() for _ in range(6)]

    def fail(name: str, call: Any, *args: Any, **kwargs: Any) -> None:
        group = groups.pop()
        distlite.barrier()
        began = time.monotonic()
        found[name] = error_of(call, *args, group=group, **kwargs)
        found[f"{name} again"] = error_of(distlite.barrier, group)
        found[f"{name} took"] = time.monotonic() - began

    if rank == 0:
        fail("call", distlite.all_reduce, one)
        fail("op", distlite.all_reduce, one, op=ReduceOp.SUM)
        fail("root", distlite.broadcast, one, 0)
    else:
        fail("call", distlite.broadcast, one, 1)
        fail("op", distlite.all_reduce, one, op=ReduceOp.MAX)
        fail("root", distlite.broadcast, one, 1)
    splits = [1, 2]
    fail("sizes", distlite.all_to_all_single, np.ones(3), np.ones(3), splits, splits)
    block = np.ones(2 + rank)
    blocks = [np.ones(2), np.ones(2)] if rank == 0 else None
    fail("blocks", distlite.gather_v, block, blocks, 0)
    late = groups.pop()
    distlite.barrier()
    if rank == 0:
        late.set_timeout(timedelta(seconds=0.4))
        found["late"] = error_of(distlite.all_reduce, one, group=late)
        distlite.barrier()
    else:
        distlite.barrier()
        found["late"] = error_of(distlite.all_reduce, one, group=late)
    one[:] = 1
    distlite.all_reduce(one)
    found["then"] = one.tolist()
    distlite.destroy_process_group()
    return found


def stall(is_stalled: bool = True, how: str = "stalled") -> None:
    """From now on UCC moves nothing in this process, or does again."""
    import ctypes

    double = ctypes.CDLL(os.environ["DISTLITE_UCC_LIBRARY"])
    ctypes.c_int.in_dll(double, f"double_ucc_is_{how}").value = is_stalled


def double_count(what: str) -> int:
    import ctypes

    double = ctypes.CDLL(os.environ["DISTLITE_UCC_LIBRARY"])
    return ctypes.c_int.in_dll(double, f"double_ucc_{what}").value


def stuck(rank: int, world_size: int, init_method: str) -> dict[str, str]:
    """UCC does not complete what all ranks have begun."""
    init(rank, world_size, init_method)
    one = np.ones(3)
    other = distlite.new_group()
    distlite.all_reduce(one)
    if rank == 0:
        distlite.distributed_c10d._get_default_group().set_timeout(
            timedelta(seconds=0.4)
        )
    else:
        stall()
    found = {
        "stuck": error_of(distlite.all_reduce, one),
        "again": error_of(distlite.all_reduce, one),
        "shared": error_of(distlite.all_reduce, one, group=other),
    }
    distlite.destroy_process_group()
    return found


def given_up_beside(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Rank 0 gives up an operation with rank 1 while another group of its own waits for
    rank 2, which comes after that."""
    init(rank, world_size, init_method)
    stuck, late = distlite.new_group([0, 1]), distlite.new_group([0, 2])
    store = distlite.group.WORLD.get_group_store()
    array = np.ones(3)
    found: dict[str, Any] = {}
    if rank == 0:
        work = distlite.all_reduce(array, group=late, async_op=True)
        stuck.set_timeout(timedelta(seconds=0.3))
        found["stuck"] = error_of(distlite.all_reduce, array, group=stuck)
        before = double_count("progressed"), double_count("posted")
        store.set("given up", "yes")
        found["late"] = error_of(work.wait)
        after = double_count("progressed"), double_count("posted")
        found["driven"] = before != after
    elif rank == 1:
        stall()
        found["stuck"] = error_of(distlite.all_reduce, array, group=stuck)
    else:
        store.wait(["given up"])
        found["late"] = error_of(distlite.all_reduce, array, group=late)
    distlite.destroy_process_group()
    return found


def outlast_a_rank_that_leaves(
    rank: int, world_size: int, init_method: str, is_alone: bool
) -> list[float]:
    """Rank 0 has sent everything and leaves; what it sent takes longer than the time
    after which a wait gives up because of a lost rank."""
    if is_alone:
        os.environ["DISTLITE_HOST_HINT"] = f"host{rank}"
    init(rank, world_size, init_method)
    data = np.full(3, rank + 1.0)
    distlite.barrier()
    if rank == 1:
        stall()
        threading.Timer(1.5, stall, [False]).start()
    distlite.broadcast(data, src=0)
    distlite.destroy_process_group()
    return data.tolist()


def survive_lost_rank(
    rank: int, world_size: int, init_method: str, path: str, case: str
) -> dict[str, Any]:
    """Rank 1 dies while UCC is at work, or between operations."""
    import signal

    if case == "alone":
        os.environ["DISTLITE_HOST_HINT"] = f"host{rank}"
    init(rank, world_size, init_method)
    others = distlite.new_group([0, 2])
    waiting = distlite.new_group()
    one = np.ones(3)
    distlite.all_reduce(one)
    if rank == 1:
        stall()
        distlite.all_reduce(one, async_op=True)
        while len(os.listdir(path)) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    posted = double_count("posted")
    work = distlite.all_reduce(one, async_op=True)
    # Rank 1 goes no sooner than UCC has it here.
    deadline = time.monotonic() + 60
    while double_count("posted") == posted:
        assert time.monotonic() < deadline, "UCC was not asked"
        time.sleep(0.001)
    with open(os.path.join(path, str(rank)), "w"):
        pass
    stall(case == "cut", "cut")
    began = time.monotonic()
    found: dict[str, Any] = {
        "inside": error_of(work.wait),
        "between": error_of(distlite.barrier, waiting),
        "took": time.monotonic() - began,
        "others": error_of(distlite.barrier, others),
    }
    began = time.monotonic()
    distlite.destroy_process_group()
    found["left in"] = time.monotonic() - began
    return found


def separate(rank: int, world_size: int, init_method: str) -> dict[str, str]:
    """TORCH_UCC_SHARED_COMM=0: what ends one group leaves the others."""
    init(rank, world_size, init_method)
    other = distlite.new_group()
    one = np.ones(3)
    distlite.all_reduce(one, group=other)
    if rank == 0:
        other.set_timeout(timedelta(seconds=0.3))
    stall(rank == 1)
    found = {"stuck": error_of(distlite.all_reduce, one, group=other)}
    stall(False)
    one[:] = 1
    distlite.all_reduce(one)
    found["then"] = str(one[0])
    distlite.destroy_process_group()
    return found


def beside_nccl(rank: int, world_size: int, init_method: str) -> list[Any]:
    """UCC for the CPU's memory, NCCL for the device's, in one group."""
    from fake_cuda import CudaArray

    distlite.init_process_group(
        "cpu:ucc,cuda:nccl", init_method=init_method, rank=rank, world_size=world_size
    )
    here, there = np.ones(3), np.full(3, 2.0)
    distlite.all_reduce(here)
    distlite.all_reduce(CudaArray(there))
    distlite.barrier()
    distlite.destroy_process_group()
    return [here.tolist(), there.tolist()]


def on_devices(rank: int, world_size: int, init_method: str) -> list[str]:
    """Collectives of arrays on a device, which are copied for UCC."""
    import nccl_ranks

    kit = nccl_ranks.kit_of("fake", rank)
    nccl_ranks.init(rank, world_size, init_method, "ucc")
    wrong = [
        name
        for part in (nccl_ranks.movements, nccl_ranks.uneven)
        for name, right in part(rank, world_size, kit)
        if not right
    ]
    mean = kit.put(np.full(5, 2.0 * rank, "float16"))
    distlite.all_reduce(mean, ReduceOp.AVG)
    right = nccl_ranks.same(kit, mean, np.full(5, world_size - 1.0))
    distlite.destroy_process_group()
    return wrong if right else [*wrong, "AVG"]


def aborted(rank: int, world_size: int, init_method: str) -> dict[str, str]:
    """One rank waits; another thread of it aborts."""
    init(rank, world_size, init_method)
    distlite.barrier()
    store = distlite.group.WORLD.get_group_store()
    found = {}
    if rank == 0:
        group = distlite.distributed_c10d._get_default_group()
        work = distlite.all_reduce(np.ones(3), async_op=True)
        # Also before the wait: rank 1 does not come.
        threading.Timer(0.2, group.abort).start()
        found["abort"] = error_of(work.wait)
        found["again"] = error_of(distlite.barrier)
        store.set("over", "yes")
    else:
        store.wait(["over"])
    distlite.destroy_process_group()
    return found


def interrupted(rank: int, world_size: int, init_method: str) -> str:
    """Ctrl-C on a rank that waits for one that does not come."""
    init(rank, world_size, init_method)
    distlite.barrier()
    store = distlite.group.WORLD.get_group_store()
    said = ""
    if rank == 0:
        began = time.monotonic()
        try:
            interrupt_once_in("0")
            distlite.barrier()
        except KeyboardInterrupt:
            said = f"interrupted {time.monotonic() - began < 5}"
        store.set("over", "yes")
    else:
        store.wait(["over"])
    distlite.destroy_process_group()
    return said


def absent(rank: int, world_size: int, init_method: str) -> str:
    """One rank does not come at all."""
    if rank == 1:
        return ""
    return error_of(init, rank, world_size, init_method, 0.4)


def injured(rank: int, world_size: int, init_method: str) -> list[str]:
    """The library fails where the environment tells it to."""
    found = [error_of(init, rank, world_size, init_method)]
    if found == ["no error"]:
        array = np.ones(3)
        for _ in range(3):
            found.append(error_of(distlite.all_reduce, array))
        distlite.destroy_process_group()
    return found


def refused(
    rank: int,
    world_size: int,
    init_method: str,
    where: str,
    is_new: bool,
    is_alone: bool,
) -> tuple[str, float]:
    """Making the default group, or one out of it, fails on rank 1 alone."""
    if is_alone:
        os.environ["DISTLITE_HOST_HINT"] = f"host{rank}"
    if is_new:
        init(rank, world_size, init_method)
        distlite.barrier()
    if rank == 1:
        change_double("DISTLITE_UCC_LIBRARY", DOUBLE_UCC_FAIL=where)
    began = time.monotonic()
    if is_new:
        said = error_of(distlite.new_group)
        distlite.destroy_process_group()
    else:
        said = error_of(init, rank, world_size, init_method)
    return said, time.monotonic() - began


def unsupported(
    rank: int,
    world_size: int,
    init_method: str,
    is_alike: bool,
    is_alone: bool = False,
) -> dict[str, Any]:
    """UCC lacks an operation on rank 1 alone, or on all ranks; on one host, or with
    each rank on its own."""
    if is_alone:
        os.environ["DISTLITE_HOST_HINT"] = f"host {rank}"
    init(rank, world_size, init_method)
    one = np.ones(3)
    distlite.all_reduce(one)
    if rank == 1 or is_alike:
        change_double("DISTLITE_UCC_LIBRARY", DOUBLE_UCC_FAIL="collective")
    began = time.monotonic()
    found: dict[str, Any] = {"said": error_of(distlite.all_reduce, one)}
    found["then"] = error_of(distlite.all_reduce, one)
    found["took"] = time.monotonic() - began
    # Rank 1 stays, or rank 0 would notice that.
    store = distlite.distributed_c10d._get_default_store()
    store.set(f"over {rank}", "yes")
    store.wait([f"over {1 - rank}"])
    return found


def settings(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """How the library was called, as the double remembers it."""
    import ctypes

    # Programs set them once they run.
    os.environ.update(
        TORCH_UCC_TLS="self,ucp",
        TORCH_UCC_TL_UCP_TUNE="allreduce:0-4k:@0",
        TORCH_UCC_LOG_LEVEL="no such setting",
        UCC_TLS="cuda",
        UCC_CLS="basic",
        UCC_LOG_LEVEL="fatal",
        UCC_LOG_FILE="/tmp/ucc.log",
        UCC_CONFIG_FILE="/etc/ucc.conf",
    )
    refused = error_of(distlite.init_process_group, "cpu:gloo,xpu:ucc")
    init(rank, world_size, init_method)
    group = distlite.new_group()
    distlite.barrier(group)
    double = ctypes.CDLL(os.environ["DISTLITE_UCC_LIBRARY"])
    found = {
        "refused": refused,
        "prefix": ctypes.string_at(double.double_ucc_prefix).decode(),
        "settings": ctypes.string_at(double.double_ucc_settings).decode(),
        "threads": ctypes.c_int.in_dll(double, "double_ucc_thread_mode").value,
        "contexts": ctypes.c_int.in_dll(double, "double_ucc_contexts").value,
        "teams": ctypes.c_int.in_dll(double, "double_ucc_teams").value,
    }
    del group
    distlite.destroy_process_group()
    for name in ("contexts", "teams"):
        left = ctypes.c_int.in_dll(double, f"double_ucc_{name}").value
        found[f"{name} left"] = left
    return found


def versions(rank: int, world_size: int, init_method: str) -> str:
    """Rank 1 has another version of UCC."""
    if rank == 1:
        change_double("DISTLITE_UCC_LIBRARY", DOUBLE_UCC_VERSION=2)
    return error_of(init, rank, world_size, init_method)


def store_traffic(
    rank: int, world_size: int, port: int, prefix: str, backend: str
) -> list[tuple[int, int]]:
    """Requests, and bytes both ways, of joining, and of what comes then."""
    with distlite.TCPStore("127.0.0.1", port) as store:
        store.barrier(f"begin {prefix}", world_size)
        counts = [count_sent(port)]
        distlite.init_process_group(
            backend,
            store=distlite.PrefixStore(prefix, store),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=60),
        )
        counts.append(count_sent(port))
        part = distlite.new_group()
        distlite.barrier(part)
        distlite.barrier()
        distlite.destroy_process_group()
        counts.append(count_sent(port))
    return [
        (after[0] - before[0], after[1] - before[1])
        for before, after in pairwise(counts)
    ]


def windows(rank: int, world_size: int, init_method: str) -> list[int]:
    """Tickets, of the whole group and of a part of it."""
    init(rank, world_size, init_method)
    part = distlite.new_group([0, world_size - 1])
    drawn = []
    for group in (None, part):
        with distlite.Window(1, np.int64, group) as win:
            drawn += [int(win.fetch_and_op(1, 0)) for _ in range(50)]
            win.fence()
    distlite.destroy_process_group()
    return drawn
