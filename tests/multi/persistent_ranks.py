# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of persistent operations: see test_persistent.py."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy as np
from collective_ranks import error_of
from reducer_ranks import join

import distlite
from distlite import Persistent, ReduceOp


def rounds(rank: int, world_size: int, init_method: str, places: str) -> list[Any]:
    """Every function, started three times with other values; what came out wrong."""
    join(rank, world_size, init_method, places)
    size, ranks = world_size, range(world_size)
    x, one = np.zeros(600), np.zeros(1)
    many = np.zeros((size, 600))
    blocks = [np.zeros(2) for _ in ranks]
    out = np.zeros(2)
    left, right = (rank - 1) % size, (rank + 1) % size
    inbox = np.zeros((3, 5)).T[:, 1]
    outbox = np.zeros(5)
    root: Any = blocks if rank == 0 else None
    whole = np.arange(float(size * (size + 1) // 2))
    column, row, share = many[:, :1], many[:, 1:2].copy(), whole[:size]
    exchange, scatter = distlite.all_to_all_single, distlite.reduce_scatter_single
    calls: dict[str, Any] = {
        "all_reduce": Persistent(distlite.all_reduce, x, op=ReduceOp.MAX),
        "scan": Persistent(distlite.scan, x),
        "function": Persistent(distlite.all_reduce, one, np.subtract),
        "broadcast": Persistent(distlite.broadcast, x, 1),
        "reduce": Persistent(distlite.reduce, x, 0, ReduceOp.SUM),
        "barrier": Persistent(distlite.barrier),
        "all_gather": Persistent(distlite.all_gather, list(many), x),
        "all_gather_single": Persistent(distlite.all_gather_single, many, x),
        "gather": Persistent(distlite.gather, out, root, 0),
        "scatter": Persistent(distlite.scatter, out, root, 0),
        "all_to_all_single": Persistent(exchange, column, row),
        "reduce_scatter_single": Persistent(scatter, one, share),
    }
    del root
    wrong: list[Any] = []
    for step in range(3):
        x[:] = rank + 10 * step
        calls["all_reduce"].start().wait()
        wrong += [("all_reduce", step)] if (x != size - 1 + 10 * step).any() else []
        x[:] = step
        calls["scan"].start().wait()
        wrong += [("scan", step)] if (x != step * (rank + 1)).any() else []
        one[:] = rank + step
        calls["function"].start().wait()
        total = step - sum(r + step for r in ranks[1:])
        wrong += [("function", step)] if one[0] != total else []
        x[:] = rank * 7 + step
        calls["broadcast"].start().wait()
        wrong += [("broadcast", step)] if (x != 7 + step).any() else []
        calls["reduce"].start().wait()
        wrong += [("reduce", step)] if rank == 0 and x[0] != size * (7 + step) else []
        calls["barrier"].start().wait()
        for name in ("all_gather", "all_gather_single"):
            x[:] = rank + step
            calls[name].start().wait()
            if (many != np.arange(size)[:, None] + step).any():
                wrong.append((name, step))
        out[:] = rank - step
        calls["gather"].start().wait()
        if rank == 0 and any((blocks[r] != r - step).any() for r in ranks):
            wrong.append(("gather", step))
        calls["scatter"].start().wait()
        wrong += [("scatter", step)] if (out != rank - step).any() else []
        calls["all_to_all_single"].start().wait()
        calls["reduce_scatter_single"].start().wait()
        wrong += [("reduce_scatter", step)] if one[0] != size * rank else []
    pair = [
        Persistent(distlite.irecv, inbox, left, tag=3),
        Persistent(distlite.send, outbox, right, None, 3),
    ]
    for step in range(3):
        outbox[:] = rank * 100 + step
        works = [each.start() for each in pair]
        for each in works:
            each.wait(60)
        wrong += [("send", step)] if (inbox != left * 100 + step).any() else []
    # One rank starts what the others call.
    mixed = Persistent(distlite.all_reduce, one)
    one[:] = 1
    if rank == 0:
        mixed.start().wait()
    else:
        distlite.all_reduce(one)
    wrong += [("mixed",)] if one[0] != size else []
    distlite.barrier()
    return wrong


def wrong_calls(
    rank: int, world_size: int, init_method: str, places: str
) -> dict[str, Any]:
    join(rank, world_size, init_method, places)
    x, frozen = np.ones(3), np.ones(3)
    frozen.flags.writeable = False
    found: dict[str, Any] = {
        "object": error_of(Persistent, distlite.all_gather_object, [], 1),
        "asynchronous": error_of(Persistent, distlite.all_reduce, x, async_op=True),
        "read-only": error_of(Persistent, distlite.all_reduce, frozen),
        "average": error_of(
            Persistent, distlite.all_reduce, np.arange(3), ReduceOp.AVG
        ),
        "itself": error_of(Persistent, distlite.send, x, rank),
        "nobody": error_of(Persistent, distlite.send, x),
        "unknown": error_of(Persistent, distlite.recv, x, source=0),
        "no array": error_of(Persistent, distlite.broadcast, 3, 0),
    }
    nobodys = distlite.GroupMember.NON_GROUP_MEMBER
    with warnings.catch_warnings(record=True):
        outside = Persistent(distlite.all_reduce, x, group=nobodys)
    found["outside"] = outside.start().wait(), outside.is_completed(), x.tolist()
    call = Persistent(distlite.all_reduce, x)
    found["early"] = error_of(call.wait)
    if rank == 0:
        call.start()
        found["twice"] = error_of(call.start)
    distlite.barrier() if rank == 0 else None
    if rank == 1:
        call.start().wait()
        distlite.barrier()
    found["sum"] = (call.wait(), x.tolist())
    kept = weakref.ref(x)
    del x
    gc.collect()
    call.start()
    work = call.work
    assert work is not None
    del call
    work.wait()
    found["kept"] = kept() is not None
    del work
    gc.collect()
    found["freed"] = kept() is None
    moved = np.ones(3)
    call = Persistent(distlite.all_reduce, moved)
    moved.resize(30_000, refcheck=False)
    found["moved"] = error_of(call.start)
    distlite.barrier()
    return found
