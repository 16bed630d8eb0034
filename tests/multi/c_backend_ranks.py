# SPDX-License-Identifier: BSD-3-Clause
"""What ranks of test_c_backend.py do with the backend of examples/c_backend."""

from __future__ import annotations

import importlib.util
import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
from collective_ranks import error_of

import distlite as dist


def load(library: str) -> Any:
    """The example's extension module."""
    spec = importlib.util.spec_from_file_location("board", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def collectives(rank: int, size: int) -> dict[str, Any]:
    """Each operation of the example, with arrays that are not contiguous too."""
    found: dict[str, Any] = {}
    strided = np.arange(8.0)[::2] + rank
    dist.all_reduce(strided)
    found["strided"] = strided.tolist()
    for dtype in ("float32", "float16", "int64", "complex64"):
        array = np.full(300, rank + 1, dtype)
        dist.all_reduce(array)
        found[dtype] = [complex(array[0]).real, complex(array[-1]).real]
    average = np.full(3, float(rank))
    dist.all_reduce(average, dist.ReduceOp.AVG)
    scaled = np.ones(3, np.float16)
    dist.all_reduce(scaled, dist.ReduceOp.PREMUL_SUM(rank + 0.5))
    copied = np.full((2, 2), float(rank)).T
    dist.broadcast(copied, src=1)
    gathered = [np.zeros(2) for _ in range(size)]
    dist.all_gather(gathered, np.full(2, float(rank)))
    at_root = [np.zeros(2) for _ in range(size)] if rank == 1 else None
    dist.gather(np.full(2, float(rank)), at_root, dst=1)
    mine = np.zeros(4)[::2]
    parts = [np.full(2, 10.0 * i) for i in range(size)] if rank == 0 else None
    dist.scatter(mine, parts, src=0)
    swapped = np.zeros(size)
    dist.all_to_all_single(swapped, np.arange(size) + 10.0 * rank)
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    dist.barrier()
    work = dist.all_reduce(np.ones(2), async_op=True)
    work.wait()
    return found | {
        "average": average.tolist(),
        "scaled": scaled.tolist(),
        "copied": copied.tolist(),
        "gathered": [each.tolist() for each in gathered],
        "at root": None if at_root is None else [each.tolist() for each in at_root],
        "mine": mine.tolist(),
        "swapped": swapped.tolist(),
        "objects": objects,
    }


def abort_a_wait(group: Any) -> str:
    """A thread aborts the group while this one waits in the backend."""
    timer = threading.Timer(0.2, group.abort)
    timer.start()
    said = error_of(lambda: dist.barrier(group))
    timer.join()
    return said


def failures(rank: int) -> dict[str, Any]:
    late = dist.new_group(timeout=timedelta(seconds=0.4))
    aborted = dist.new_group()
    found = {
        "missing": error_of(lambda: dist.reduce(np.zeros(1), 0)),
    }
    if rank == 0:
        found["late"] = error_of(lambda: dist.all_reduce(np.zeros(3), group=late))
        found["again"] = error_of(lambda: dist.all_reduce(np.zeros(3), group=late))
        found["aborted"] = abort_a_wait(aborted)
    dist.barrier()
    return found


def messages(rank: int) -> dict[str, Any]:
    """One by one, at once, from any rank, in batches, not contiguous, and objects."""
    peer = 1 - rank
    found: dict[str, Any] = {}
    got = np.zeros(3)
    if rank == 0:
        dist.send(np.arange(3.0), peer, tag=7)
        dist.send(np.arange(6.0)[::2], peer)
        found["source"] = dist.recv(got)
    else:
        strided = np.zeros(6)
        dist.recv(strided[::2], peer)
        dist.recv(got, peer, tag=7)
        found["into strides"] = strided.tolist()
        dist.send(np.full(3, 5.0), peer)
    found["received"] = got.tolist()
    # Sends and receives of both at once; each receive gets the message of its turn.
    arrays = [np.zeros(1, np.int64) for _ in range(8)]
    operations = [
        *(dist.P2POp(dist.irecv, array, peer) for array in arrays),
        *(dist.P2POp(dist.isend, np.array([10 * rank + i]), peer) for i in range(8)),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    found["batch"] = [int(array[0]) for array in arrays]
    # One for which nobody waits.
    late = np.zeros(1)
    receipt = dist.irecv(late, peer, tag=9)
    assert receipt is not None
    dist.barrier()
    sent = dist.isend(np.array([4.0 + rank]), peer, tag=9)
    assert sent is not None
    while not (receipt.is_completed() and sent.is_completed()):
        time.sleep(0.001)
    found["unawaited"] = late.tolist()
    both = np.zeros(1)
    source = dist.sendrecv(both, np.array([7.0 + rank]), peer, peer)
    found["both ways"] = [source, *both.tolist()]
    objects: list[Any] = [{"from": rank}] if rank == 0 else [None]
    if rank == 0:
        dist.send_object_list(objects, peer)
    else:
        dist.recv_object_list(objects, peer)
    found["object"] = objects
    return found


def failing_messages(rank: int) -> dict[str, Any]:
    peer = 1 - rank
    short = dist.new_group(timeout=timedelta(seconds=0.3))
    sizes = dist.new_group()
    aborted = dist.new_group()
    found: dict[str, Any] = {}
    if rank == 0:
        found["timeout"] = error_of(lambda: dist.recv(np.zeros(2), peer, short))
        work = dist.irecv(np.zeros(2), peer, aborted)
        assert work is not None
        aborted.abort()
        found["aborted"] = error_of(work.wait)
        dist.send(np.zeros(3), peer, sizes, tag=1)
        dist.send(np.ones(2), peer, sizes, tag=2)
    else:
        found["size"] = error_of(lambda: dist.recv(np.zeros(2), peer, sizes, tag=1))
        # The group is as good as before.
        good = np.zeros(2)
        dist.recv(good, peer, sizes, tag=2)
        found["after"] = good.tolist()
    found["probe"] = error_of(lambda: dist.iprobe(peer))
    dist.barrier()
    return found


def without_messages(
    rank: int, world_size: int, init_method: str, library: str
) -> tuple[float, str]:
    """A backend that was built before there were any."""
    dist.Backend.register_backend("board", load(library).backend)
    dist.init_process_group("board", init_method, world_size=world_size, rank=rank)
    total = np.ones(1)
    dist.all_reduce(total)
    said = error_of(lambda: dist.isend(np.zeros(1), 1 - rank))
    dist.destroy_process_group()
    return float(total[0]), said


def use(rank: int, world_size: int, init_method: str, library: str) -> dict[str, Any]:
    dist.Backend.register_backend("Board", load(library).backend)
    dist.init_process_group("board", init_method, world_size=world_size, rank=rank)
    found: dict[str, Any] = {
        "names": [dist.get_backend(), dist.get_backend_config(), dist.Backend.BOARD]
    }
    found |= collectives(rank, world_size)
    pair = dist.new_group([1, 0], backend="cpu:board")
    total = np.ones(2)
    dist.all_reduce(total, group=pair)
    found["pair"] = total.tolist()
    found |= messages(rank)
    found |= failures(rank)
    found |= failing_messages(rank)
    dist.destroy_process_group()
    return found


def differ(rank: int, world_size: int, init_method: str, library: str) -> str:
    """Ranks give arrays of different sizes, which the backend itself tells."""
    dist.Backend.register_backend("board", load(library).backend)
    dist.init_process_group("board", init_method, world_size=world_size, rank=rank)
    return error_of(lambda: dist.all_reduce(np.zeros(2 + rank)))
