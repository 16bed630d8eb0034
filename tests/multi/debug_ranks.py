# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in test_debug.py."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

import distlite as dist


def error_of(call: Callable[..., Any], *args: Any, **keywords: Any) -> str:
    try:
        call(*args, **keywords)
    except dist.DistBackendError as error:
        return str(error)
    return "no error"


def differ(rank: int) -> dict[str, str]:
    """One group for each way to differ: a failure breaks it."""
    data = np.full(4, float(rank), np.float32)
    is_odd = rank == 1
    reports = {}
    group = dist.new_group()
    reports["operation"] = (
        error_of(lambda: dist.broadcast(data, 0, group))
        if is_odd
        else error_of(lambda: dist.all_reduce(data, group=group))
    )
    wrong = data[:3] if is_odd else data
    reports["size"] = error_of(dist.all_reduce, wrong, group=dist.new_group())
    wrong = data.reshape(2, 2) if is_odd else data
    reports["shape"] = error_of(dist.all_reduce, wrong, group=dist.new_group())
    wrong = data.view(np.int32) if is_odd else data
    reports["dtype"] = error_of(dist.broadcast, wrong, 0, dist.new_group())
    op = dist.ReduceOp.MAX if is_odd else dist.ReduceOp.SUM
    reports["reduction"] = error_of(dist.all_reduce, data, op, dist.new_group())
    reports["root"] = error_of(dist.broadcast, data, rank % 2, dist.new_group())
    works = [
        dist.all_reduce(data[: 2 + is_odd], group=group, async_op=True)
        for group in [dist.new_group()]
    ]
    reports["queued"] = error_of(works[0].wait)
    assert data.tolist() == [rank] * 4
    return reports


def stay_away(rank: int) -> dict[str, str]:
    """Rank 1 leaves the others waiting, and comes when they have given up."""
    # Within it the two others come, who begin at the same time.
    limit = timedelta(seconds=1)
    store = dist._get_default_store()
    group = dist.new_group()
    group.set_timeout(limit)
    reports = {}
    for name, call in {
        "barrier": lambda: dist.barrier(group),
        "monitored": lambda: dist.monitored_barrier(timeout=limit),
        "monitored all": lambda: dist.monitored_barrier(None, limit, True),
    }.items():
        store.barrier(f"before {name}", 3)
        if rank == 1:
            store.wait([f"{name}/0", f"{name}/2"])
        reports[name] = error_of(call)
        store.set(f"{name}/{rank}", "")
    at_once = dist.new_group()
    if rank == 0:
        reports["monitored at once"] = error_of(
            lambda: dist.monitored_barrier(at_once, timedelta(0))
        )
    dist.monitored_barrier()
    return reports


def stop_here(rank: int) -> list[str]:
    """What the debugger of rank 2 prints goes to its output."""
    said, said_end = os.pipe()
    os.write(said_end, b"up\np 'the answer is', answer\nc\n")
    os.close(said_end)
    os.dup2(said, 0)
    group = dist.new_group(timeout=timedelta(seconds=60))
    answer = 40 + rank
    dist.breakpoint(rank=2, skip=1)
    dist.breakpoint(rank=2, skip=1)
    limits = [str(group.timeout)]
    assert answer == 40 + rank
    # The pipe is empty now, then there is nothing to read from, then no such rank.
    dist.breakpoint(rank=2, timeout_s=None)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    dist.breakpoint(rank=2, timeout_s=60)
    dist.breakpoint(rank=7)
    return [*limits, str(group.timeout)]


def debug(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    dist.init_process_group("gloo", init_method, world_size=world_size, rank=rank)
    reports = {"level": dist.get_debug_level().name}
    reports.update(differ(rank))
    reports.update(stay_away(rank))
    reports["stopped"] = stop_here(rank)
    dist.destroy_process_group()
    return reports
