# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do to find out which functions a backend has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

import distlite


def supported(
    rank: int, world_size: int, init_method: str, backend: str, device: str
) -> dict[str, bool]:
    """By function, whether it did its work on arrays of that device.

    What is lacking says so with NotImplementedError, before anything is sent; any other
    error fails the rank.
    """
    limit = timedelta(seconds=20)
    distlite.init_process_group(
        backend, init_method, limit, world_size=world_size, rank=rank
    )
    put = maker(device, rank)
    found = {}
    for name, call in calls(rank, world_size, put).items():
        try:
            call()
            found[name] = True
        except NotImplementedError:
            found[name] = False
    distlite.destroy_process_group()
    return found


def maker(device: str, rank: int) -> Callable[[float], Any]:
    """Makes arrays of two equal numbers."""
    if device == "cpu":
        return lambda value: np.full(2, value)
    from nccl_ranks import kit_of

    kit = kit_of("fake", rank)
    return lambda value: kit.put(np.full(2, value))


def calls(
    rank: int, size: int, put: Callable[[float], Any]
) -> dict[str, Callable[[], object]]:
    """The functions, each with all that it needs, for two ranks."""
    d = distlite
    other = 1 - rank

    def many() -> list[Any]:
        return [put(float(r)) for r in range(size)]

    def at_root(value: Any) -> Any:
        return value if rank == 0 else None

    def batch() -> None:
        ops = [
            d.P2POp(d.isend, put(1.0), other),
            d.P2POp(d.irecv, put(0.0), other),
        ]
        for work in d.batch_isend_irecv(ops):
            work.wait()

    def message() -> None:
        if rank == 0:
            d.send(put(1.0), 1)
        else:
            d.recv(put(0.0), 0)

    def from_anybody() -> None:
        if rank == 0:
            d.send(put(1.0), 1)
        else:
            d.recv(put(0.0))

    def probe() -> None:
        if not isinstance(put(1.0), np.ndarray):
            raise NotImplementedError("it sees messages in the CPU's memory")
        if rank == 0:
            d.send(put(1.0), 1)
        else:
            message = d.probe(0, tag=0)
            assert message is not None and (message.tag, message.nbytes) == (0, 16)
            d.recv(put(0.0), 0)

    def later() -> None:
        work = d.all_reduce(put(1.0), async_op=True)
        assert work is not None
        work.wait()

    def window() -> None:
        with d.Window(2) as win:
            win.put(put(1.0), other)

    return {
        "broadcast": lambda: d.broadcast(put(1.0), 0),
        "all_reduce": lambda: d.all_reduce(put(1.0)),
        "reduce": lambda: d.reduce(put(1.0), 0),
        "all_gather": lambda: d.all_gather(many(), put(1.0)),
        "gather": lambda: d.gather(put(1.0), at_root(many()), 0),
        "scatter": lambda: d.scatter(put(1.0), at_root(many()), 0),
        "reduce_scatter": lambda: d.reduce_scatter(put(1.0), many()),
        "scan": lambda: d.scan(put(1.0)),
        "exscan": lambda: d.exscan(put(1.0)),
        "MINLOC, MAXLOC": lambda: d.all_reduce(put(1.0), d.ReduceOp.MAXLOC),
        "op=np.hypot": lambda: d.all_reduce(put(1.0), np.hypot),
        "all_to_all": lambda: d.all_to_all(many(), many()),
        "barrier": d.barrier,
        "async_op=True": later,
        "all_gather_object": lambda: d.all_gather_object([None] * size, rank),
        "monitored_barrier": d.monitored_barrier,
        "new_group": lambda: d.barrier(d.new_group()),
        "split": lambda: d.barrier(d.split(0, -rank)),
        "send, recv": message,
        "batch_isend_irecv": batch,
        "recv from anybody": from_anybody,
        "window": window,
        "probe, iprobe": probe,
    }
