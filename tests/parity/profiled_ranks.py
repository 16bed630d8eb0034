# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do under torch's profilers in test_profiler.py.

Each program runs over torch's gloo, over distlite as a backend of torch, and over
distlite itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed

import distlite
import distlite.torch

Program = Callable[[ModuleType, int, bool], Any]
PROGRAMS: dict[str, Program] = {}
PROFILERS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "profiler": lambda: torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True
    ),
    "autograd": lambda: torch.autograd.profiler.profile(record_shapes=True),
}


def program(function: Program) -> Program:
    PROGRAMS[function.__name__] = function
    return function


def pair(*shape: int) -> list[torch.Tensor]:
    return [torch.zeros(*shape) for _ in range(2)]


@program
def all_reduce(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.all_reduce(torch.ones(4, 3), async_op=is_async)


@program
def average(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.all_reduce(torch.ones(()), dist.ReduceOp.AVG, async_op=is_async)


@program
def broadcast(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.broadcast(torch.ones(2, 3), 0, async_op=is_async)


@program
def reduce(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.reduce(torch.ones(2), 1, async_op=is_async)


@program
def all_gather(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.all_gather(pair(5), torch.ones(5), async_op=is_async)


@program
def all_gather_single(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.all_gather_single(torch.zeros(10), torch.ones(5), async_op=is_async)


@program
def gather(dist: ModuleType, rank: int, is_async: bool) -> Any:
    outputs = pair(5) if rank == 0 else None
    return dist.gather(torch.ones(5), outputs, 0, async_op=is_async)


@program
def scatter(dist: ModuleType, rank: int, is_async: bool) -> Any:
    inputs = pair(5) if rank == 0 else None
    return dist.scatter(torch.ones(5), inputs, 0, async_op=is_async)


@program
def all_to_all(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.all_to_all(pair(2), pair(2), async_op=is_async)


@program
def all_to_all_single(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.all_to_all_single(torch.zeros(4), torch.ones(4), async_op=is_async)


@program
def barrier(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.barrier(async_op=is_async)


@program
def coalesced(dist: ModuleType, rank: int, is_async: bool) -> Any:
    tensors = [torch.ones(4), torch.ones(2, 3)]
    return dist.all_reduce_coalesced(tensors, async_op=is_async)


@program
def coalesced_of_several_types(dist: ModuleType, rank: int, is_async: bool) -> Any:
    tensors = [torch.ones(4), torch.ones(2, 3, dtype=torch.complex64), torch.ones(9000)]
    return dist.all_reduce_coalesced(tensors, async_op=is_async)


@program
def gathered_of_several_sizes(dist: ModuleType, rank: int, is_async: bool) -> Any:
    tensors = [torch.ones(4), torch.ones(9000)]
    lists = [[torch.zeros_like(each) for each in tensors] for _ in range(2)]
    return dist.all_gather_coalesced(lists, tensors, async_op=is_async)


@program
def manager(dist: ModuleType, rank: int, is_async: bool) -> Any:
    with dist._coalescing_manager(async_ops=is_async) as works:
        for shape in (4,), (2, 3):
            dist.all_reduce(torch.ones(shape))
    return works if is_async else None


@program
def complex_numbers(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.all_reduce(torch.ones(4, dtype=torch.complex64), async_op=is_async)


@program
def complex_reduce(dist: ModuleType, rank: int, is_async: bool) -> Any:
    return dist.reduce(torch.ones(4, dtype=torch.complex64), 1, async_op=is_async)


@program
def complex_message(dist: ModuleType, rank: int, is_async: bool) -> Any:
    tensor = torch.ones(3, dtype=torch.complex64)
    if rank == 0:
        return (dist.isend if is_async else dist.send)(tensor, 1)
    return (dist.irecv if is_async else dist.recv)(tensor, 0)


@program
def message(dist: ModuleType, rank: int, is_async: bool) -> Any:
    if rank == 0:
        return (dist.isend if is_async else dist.send)(torch.ones(3), 1)
    return (dist.irecv if is_async else dist.recv)(torch.zeros(3), 0)


@program
def from_any(dist: ModuleType, rank: int, is_async: bool) -> Any:
    if rank == 0:
        return (dist.isend if is_async else dist.send)(torch.ones(3), 1)
    return (dist.irecv if is_async else dist.recv)(torch.zeros(3))


@program
def batch(dist: ModuleType, rank: int, is_async: bool) -> Any:
    ops = [
        dist.P2POp(dist.isend, torch.ones(6), 1 - rank),
        dist.P2POp(dist.irecv, torch.zeros(6), 1 - rank),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


@program
def several(dist: ModuleType, rank: int, is_async: bool) -> Any:
    works = [dist.all_reduce(torch.ones(n), async_op=is_async) for n in (1, 2, 2)]
    for work in works if is_async else []:
        work.wait()


def finish(work: Any) -> None:
    if work is not None and hasattr(work, "wait"):
        work.wait()


def row_of(event: Any) -> list[Any]:
    return [
        event.name,
        event.input_shapes,
        event.is_async,
        event.is_user_annotation,
        event.count,
    ]


def rows_of(profiler: Any) -> list[list[Any]]:
    """The events of operations, in an order that does not depend on times."""
    events = getattr(profiler, "function_events", None) or profiler.events()
    return sorted(
        row_of(event)
        for event in events
        if ":" in event.name[:9] and "::" not in event.name
    )


def run_programs(dist: ModuleType, rank: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, function in PROGRAMS.items():
        for is_async in False, True:
            for kind, make in PROFILERS.items():
                with make() as profiler:
                    finish(function(dist, rank, is_async))
                found[f"{name} {is_async} {kind}"] = rows_of(profiler)
    return found


def averages(dist: ModuleType) -> list[Any]:
    """Of one operation that waits and one that is waited for, as a table shows them."""
    with PROFILERS["profiler"]() as profiler:
        dist.all_reduce(torch.ones(4))
        dist.all_reduce(torch.ones(4), async_op=True).wait()
    (row,) = [
        each
        for each in profiler.key_averages(group_by_input_shape=True)
        if each.key.endswith(":all_reduce")
    ]
    is_in_table = row.key in profiler.key_averages().table()
    return [
        *(row.key, row.count, row.input_shapes, row.self_cpu_time_total),
        *(row.cpu_time_total > 0, row.is_async, is_in_table),
    ]


def exported(dist: ModuleType, path: Path) -> list[Any]:
    """The event of an exported trace, but for times and numbers."""
    with PROFILERS["profiler"]() as profiler:
        dist.all_reduce(torch.ones(4, 3, dtype=torch.float64))
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    (event,) = [each for each in events if each["name"].endswith(":all_reduce")]
    told = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    return [
        *(event["name"], event["ph"], event["cat"], event["dur"] > 0),
        *(event["args"][name] for name in told),
    ]


def without_shapes(dist: ModuleType) -> list[Any]:
    with torch.profiler.profile() as profiler:
        dist.all_reduce(torch.ones(4))
    return rows_of(profiler)


def elsewhere(dist: ModuleType) -> list[Any]:
    """A thread that is not profiled makes no events."""
    with PROFILERS["profiler"]() as profiler:
        thread = threading.Thread(target=dist.all_reduce, args=(torch.ones(2),))
        thread.start()
        thread.join()
        dist.all_reduce(torch.ones(3))
    return rows_of(profiler)


def only_looked_at(dist: ModuleType) -> list[Any]:
    """Whoever sees that an operation has ended finds its event."""
    with PROFILERS["profiler"]() as profiler:
        work = dist.all_reduce(torch.ones(2), async_op=True)
        while not work.is_completed():
            pass
    return rows_of(profiler)


def by_future(dist: ModuleType) -> list[Any]:
    with PROFILERS["profiler"]() as profiler:
        dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()
    return rows_of(profiler)


def of_a_failure(rank: int) -> list[Any]:
    """Operations that fail have their events as well, and raise what they would."""
    alone = distlite.new_group(timeout=0.2)
    said: list[str] = []
    if rank == 1:
        return []
    with PROFILERS["profiler"]() as profiler:
        for is_async in False, True:
            try:
                finish(
                    distlite.all_reduce(torch.ones(1), group=alone, async_op=is_async)
                )
            except distlite.DistError as error:
                said.append(type(error).__name__)
    return [said, rows_of(profiler)]


def of_numpy() -> list[Any]:
    import numpy as np

    with PROFILERS["profiler"]() as profiler:
        distlite.all_reduce(np.ones(3))
        distlite.all_reduce_coalesced([np.ones(3), np.ones(2)])
        distlite.all_gather([np.zeros(3), np.zeros(3)], np.ones(3))
    return rows_of(profiler)


def of_own_operations() -> list[Any]:
    """Those that gloo carries out as others."""
    with PROFILERS["profiler"]() as profiler:
        distlite.reduce_scatter(torch.zeros(3), pair(3))
        distlite.reduce_scatter_single(torch.zeros(3), torch.ones(6))
    return rows_of(profiler)


def profile(
    rank: int, world_size: int, init_method: str, folder: str
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    place = Path(folder)
    for backend in "gloo", "distlite", "own":
        dist = distlite if backend == "own" else torch.distributed
        name, where = (
            ("gloo", init_method)
            if backend == "own"
            else (backend, f"file://{place}/store-{backend}")
        )
        dist.init_process_group(
            name, init_method=where, rank=rank, world_size=world_size
        )
        own = found[backend] = run_programs(dist, rank)
        own["averages"] = averages(dist)
        own["exported"] = exported(dist, place / f"trace-{backend}-{rank}.json")
        own["without shapes"] = without_shapes(dist)
        own["elsewhere"] = elsewhere(dist)
        own["only looked at"] = only_looked_at(dist)
        own["by future"] = by_future(dist)
        if backend == "own":
            own["of numpy"] = of_numpy()
            own["of own operations"] = of_own_operations()
            own["of a failure"] = of_a_failure(rank)
        dist.barrier()
        dist.destroy_process_group()
    return found
