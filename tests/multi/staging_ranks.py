# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of CUDA arrays by a backend for the CPU's memory.

A kit makes arrays on the device and reads them back; see `nccl_ranks.kit_of`.
"""

from __future__ import annotations

import ctypes
import os
from datetime import timedelta
from typing import Any

import nccl_ranks
import numpy as np
from collective_ranks import error_of
from fake_cuda import CudaArray, Runtime

import distlite
from distlite import ReduceOp


def everything(
    rank: int, world_size: int, init_method: str, kit: str, backend: str = "gloo"
) -> list[str]:
    """The collectives, with arrays on the device; returns the wrong ones."""
    used = nccl_ranks.kit_of(kit, rank)
    nccl_ranks.init(rank, world_size, init_method, backend)
    wrong = []
    for part in (
        nccl_ranks.reductions,
        nccl_ranks.movements,
        nccl_ranks.uneven,
        mixtures,
    ):
        wrong += [name for name, right in part(rank, world_size, used) if not right]
    distlite.destroy_process_group()
    if kit == "fake" and used.runtime.library.double_pinned_size():
        wrong.append("memory is left")
    return wrong


def mixtures(rank: int, size: int, kit: Any) -> Any:
    """What the CPU's side alone has, and one operation on arrays of both."""
    for dtype in ("int16", "uint32"):
        value = kit.put(np.full(3, rank + 1, dtype))
        distlite.all_reduce(value, ReduceOp.SUM)
        expected = np.full(3, size * (size + 1) // 2, dtype)
        yield f"sum of {dtype}", nccl_ranks.same(kit, value, expected)
    prefix = kit.put(np.array([rank + 1.0]))
    distlite.scan(prefix)
    expected = np.array([(rank + 1) * (rank + 2) / 2])
    yield "scan", nccl_ranks.same(kit, prefix, expected)
    here = np.full(4, rank + 1.0)
    there = kit.put(here)
    distlite.all_reduce(here if rank == 0 else there)
    got = here if rank == 0 else kit.get(there)
    yield "both memories", np.array_equal(got, np.full(4, size * (size + 1) / 2))
    works = []
    values = [kit.put(np.full(2, float(i + rank))) for i in range(5)]
    for value in values:
        works.append(distlite.all_reduce(value, async_op=True))
    for work in reversed(works):
        work.wait(timedelta(seconds=nccl_ranks.SECONDS))
    total = sum(range(size))
    for i, value in enumerate(values):
        expected = np.full(2, float(i * size + total))
        yield f"asynchronous {i}", nccl_ranks.same(kit, value, expected)
    empty = kit.put(np.zeros(0, "float32"))
    distlite.all_reduce(empty)
    yield "empty", kit.get(empty).shape == (0,)
    large = kit.put(np.full(3_000_001, rank + 1, "float32"))
    distlite.broadcast(large, size - 1)
    expected = np.full(3_000_001, size, "float32")
    yield "large", nccl_ranks.same(kit, large, expected)
    inputs = [kit.put(np.full(2, 1.0 + i)) for i in range(3)]
    with distlite._coalescing_manager():
        for each in inputs:
            distlite.all_reduce(each)
    right = all(
        nccl_ranks.same(kit, each, np.full(2, size * (1.0 + i)))
        for i, each in enumerate(inputs)
    )
    yield "coalesced", right


def host_order(
    runtime: Runtime, stream: int, array: np.ndarray, mine: np.ndarray, flag: np.ndarray
) -> dict[str, Any]:
    """Operations that run on the host, and what the array's stream does before and
    after them.  The first copy of `mine` waits for `flag`."""
    other, copy = runtime.stream(), np.zeros(4)
    found: dict[str, Any] = {}
    runtime.copy(stream, array, mine, flag)
    work = distlite.all_reduce(CudaArray(array, stream), async_op=True)
    found["at once"] = work.is_completed()
    flag[0] = 1
    work.wait()
    runtime.copy(other, copy, array)
    runtime.synchronize(other)
    found["after"] = copy.tolist()
    runtime.copy(stream, array, mine)
    distlite.all_reduce(CudaArray(array), stream=ctypes.c_void_p(stream))
    found["sync"] = array.tolist()
    future = distlite.all_reduce(CudaArray(array, stream), async_op=True).get_future()
    future.wait()
    found["future"] = array.tolist()
    runtime.begin_capture(stream)
    found["capture"] = error_of(distlite.all_reduce, CudaArray(array, stream))
    runtime.end_capture(stream)
    distlite.all_reduce(CudaArray(array, stream))
    found["then"] = array.tolist()
    return found


def streams(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    runtime = Runtime()
    nccl_ranks.init(rank, world_size, init_method, "cpu:gloo,cuda:gloo")
    array, mine, flag = np.zeros(4), np.full(4, rank + 1.0), np.zeros(1, np.int32)
    found = host_order(runtime, runtime.stream(), array, mine, flag)
    found["spoilt"] = runtime.spoilt_captures()
    distlite.destroy_process_group()
    found["left"] = [runtime.streams_alive(), runtime.events_alive()]
    return found


def refusals(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """What a group says of itself, and what it does not take."""
    nccl_ranks.init(rank, world_size, init_method, "gloo")
    group = distlite.group.WORLD
    array = CudaArray(np.ones(2))
    peer = 1 - rank
    ops = [
        distlite.P2POp(distlite.isend, array, peer),
        distlite.P2POp(distlite.irecv, CudaArray(np.ones(2)), peer),
    ]
    said = error_of
    found = {
        "config": distlite.get_backend_config(),
        "best": distlite.best_backend(array),
        "devices": group._device_types,
        "coalescing": group.supports_coalescing,
        "send": said(distlite.send, array, peer),
        "irecv": said(distlite.irecv, array, peer),
        "batch": said(distlite.batch_isend_irecv, ops),
        "strided": said(distlite.all_reduce, CudaArray(np.ones((4, 4))[:, ::2])),
        "read-only": said(distlite.all_reduce, read_only()),
        "function": said(distlite.all_reduce, array, np.hypot),
    }
    part = distlite.new_group(backend="cpu:gloo")
    found["not served"] = said(distlite.all_reduce, array, group=part)
    found["its config"] = distlite.get_backend_config(part)
    made = distlite.ProcessGroupGloo(
        distlite.PrefixStore("made", group.get_group_store()), rank, world_size
    )
    made.allreduce([array]).wait()
    found["by hand"] = array.array.tolist()
    distlite.destroy_process_group()
    return found


def mesh(rank: int, world_size: int, init_method: str) -> tuple[str, list[float]]:
    """A mesh that makes the default group, of one rank."""
    for name, value in (
        *(("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1")),
        ("MASTER_PORT", "0"),
    ):
        os.environ[name] = value
    made = distlite.init_device_mesh("cuda", (1,))
    array = CudaArray(np.ones(2))
    distlite.all_reduce(array, group=made.get_group())
    config = distlite.get_backend_config()
    distlite.destroy_process_group()
    return config, array.array.tolist()


def read_only() -> CudaArray:
    """An array of the device that says so."""
    array = np.ones(2)
    array.flags.writeable = False
    return CudaArray(array)
