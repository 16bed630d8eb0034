# SPDX-License-Identifier: BSD-3-Clause
"""What ranks of either library do in test_debug.py."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

# A group is made within it, also on a busy machine.
LIMIT = timedelta(seconds=2)


def error_of(call: Callable[..., Any]) -> str:
    try:
        call()
    except RuntimeError as error:
        return str(error)
    return "no error"


def debug(rank: int, world_size: int, init_method: str, library: str) -> dict[str, str]:
    dist = importlib.import_module(library)
    if library == "distlite":
        import numpy as arrays
    else:
        import torch as arrays
    dist.init_process_group("gloo", init_method, world_size=world_size, rank=rank)
    store = (
        dist.distributed_c10d._get_default_store()
        if library != "distlite"
        else (dist._get_default_store())
    )
    groups = [dist.new_group(timeout=timedelta(seconds=60)) for _ in range(4)]
    short = dist.new_group(timeout=LIMIT)
    data = arrays.ones(4 + rank, dtype=arrays.float32)
    reports = {"shape": error_of(lambda: dist.all_reduce(data, group=groups[0]))}
    data = arrays.ones(4, dtype=arrays.float32)
    reports["operation"] = error_of(
        (lambda: dist.all_reduce(data, group=groups[1]))
        if rank == 0
        else (lambda: dist.broadcast(data, 0, group=groups[1]))
    )
    if rank == 0:
        reports["monitored"] = error_of(
            lambda: dist.monitored_barrier(groups[2], LIMIT)
        )
        reports["monitored all"] = error_of(
            lambda: dist.monitored_barrier(groups[3], LIMIT, wait_all_ranks=True)
        )
        reports["missing"] = error_of(lambda: dist.barrier(group=short))
        store.set("over", "1")
    else:
        reports |= {"monitored": "", "monitored all": ""}
        store.wait(["over"])
    return reports
