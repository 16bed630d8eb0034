# SPDX-License-Identifier: BSD-3-Clause
"""One rank of benchmarks/objects.py: `objects_peer.py KIND RANK SIZE FOLDER PLAN`."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from collectives_peer import MODULES, Dist, Mpi
from measure import microseconds_of

# An object as programs send them: settings and results.
SMALL = {"step": 17, "loss": 0.25, "name": "run", "sizes": [1, 2, 3]}
# Calls that are not measured: memory that is kept from one call to the next, results
# included, exists after the second one.
WARM_UP = 3
OPS = ["broadcast", "all_gather", "gather", "scatter", "messages"]


def make(item: str) -> Any:
    """Returns a small dict, a list of so many numbers, or an array of so many bytes."""
    kind, _, size = item.partition(":")
    if kind == "dict":
        return SMALL
    if kind == "list":
        return [float(i) for i in range(int(size))]
    return np.ones(int(size) // 4, np.float32)


def bind_messages(send: Callable, recv: Callable, rank: int) -> Callable:
    """A message of rank 0 to rank 1, and one back."""
    steps = {0: [send, recv], 1: [recv, send]}.get(rank, [])

    def call() -> None:
        for step in steps:
            step()

    return call


def bind_dist(library: str, op: str, item: Any, rank: int, size: int) -> Callable:
    """One call; distlite-safe is distlite in safe mode."""
    module = importlib.import_module(MODULES[library.removesuffix("-safe")])
    more = {"safe": True} if library.endswith("-safe") else {}
    is_root = rank == 0
    slots = [None] * size
    if op == "messages":
        send = partial(module.send_object_list, [item], 1 - rank, **more)
        return bind_messages(
            send, partial(module.recv_object_list, [None], 1 - rank, **more), rank
        )
    name, *arguments = {
        "broadcast": ("broadcast_object_list", [item] if is_root else [None], 0),
        "all_gather": ("all_gather_object", slots, item),
        "gather": ("gather_object", item, slots if is_root else None, 0),
        "scatter": (
            "scatter_object_list",
            [None],
            [item] * size if is_root else None,
            0,
        ),
    }[op]
    return partial(getattr(module, name), *arguments, **more)


def bind_mpi(op: str, item: Any, rank: int, size: int) -> Callable:
    """One call."""
    world = importlib.import_module("mpi4py.MPI").COMM_WORLD
    if op == "messages":
        send = partial(world.send, item, 1 - rank)
        return bind_messages(send, partial(world.recv, None, 1 - rank), rank)
    name, argument = {
        "broadcast": ("bcast", item if rank == 0 else None),
        "all_gather": ("allgather", item),
        "gather": ("gather", item),
        "scatter": ("scatter", [item] * size if rank == 0 else None),
    }[op]
    return partial(getattr(world, name), argument)


def main(kind: str, rank: str, size: str, folder: str, plan_text: str) -> None:
    """Every cell of the plan."""
    plan = json.loads(plan_text)
    library = kind.removesuffix("-safe")
    peer = Mpi() if kind == "mpi" else Dist(library, int(rank), int(size), folder)
    gc.disable()
    with open(f"{folder}/said" if peer.rank == 0 else os.devnull, "w") as said:
        for op, item in plan["cells"]:
            value = make(item)
            if kind == "mpi":
                call = bind_mpi(op, value, peer.rank, peer.size)
            else:
                call = bind_dist(kind, op, value, peer.rank, peer.size)
            for _ in range(0 if plan["first"] else WARM_UP):
                call()
            for name, value in microseconds_of(peer, call, plan).items():
                print(json.dumps([op + name, item, value]), file=said, flush=True)
    peer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
