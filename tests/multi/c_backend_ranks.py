# SPDX-License-Identifier: BSD-3-Clause
"""What ranks of test_c_backend.py do with the backend of examples/c_backend."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

import distlite as dist


def load(library: str) -> Any:
    """The example's extension module."""
    spec = importlib.util.spec_from_file_location("board", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


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
        "no messages": error_of(lambda: dist.isend(np.zeros(1), 1 - rank)),
    }
    if rank == 0:
        found["late"] = error_of(lambda: dist.all_reduce(np.zeros(3), group=late))
        found["again"] = error_of(lambda: dist.all_reduce(np.zeros(3), group=late))
        found["aborted"] = abort_a_wait(aborted)
    dist.barrier()
    return found


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
    found |= failures(rank)
    dist.destroy_process_group()
    return found


def differ(rank: int, world_size: int, init_method: str, library: str) -> str:
    """Ranks give arrays of different sizes, which the backend itself tells."""
    dist.Backend.register_backend("board", load(library).backend)
    dist.init_process_group("board", init_method, world_size=world_size, rank=rank)
    return error_of(lambda: dist.all_reduce(np.zeros(2 + rank)))
