# SPDX-License-Identifier: BSD-3-Clause
"""What ranks of either library do in the tests of collectives of objects."""

from __future__ import annotations

import importlib
import warnings
from datetime import timedelta
from typing import Any

import numpy as np

NAMES = (
    "broadcast_object_list",
    "all_gather_object",
    "gather_object",
    "scatter_object_list",
    "send_object_list",
    "recv_object_list",
)


def begin(library: str, rank: int, size: int, where: str) -> Any:
    dist = importlib.import_module(library)
    dist.init_process_group(
        "gloo",
        init_method=f"{where}-{library}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    return dist


def plain(value: Any) -> Any:
    """Comparable: arrays as dtype, whether they can be written to, and contents."""
    if isinstance(value, np.ndarray):
        return str(value.dtype), bool(value.flags.writeable), value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def complaint(call: Any) -> tuple[str, str]:
    try:
        call()
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def things(rank: int) -> list[Any]:
    frozen = np.arange(3.0) + rank
    frozen.flags.writeable = False
    return [
        {"rank": rank},
        ("text" * 200 * rank, {1, 2}, None),
        np.arange(30_000 * rank),
        frozen,
    ]


def results(rank: int, world_size: int, init_method: str, library: str) -> list[Any]:
    dist = begin(library, rank, world_size, init_method)
    found: list[Any] = []
    for thing in things(rank):
        slots = [None] * (world_size + 1)
        found.append(dist.all_gather_object(slots, thing))
        found.append(plain(slots))
        slots = [None] * world_size if rank == 1 else None
        found.append(dist.gather_object(thing, slots, 1))
        found.append(plain(slots))
        taken: list[Any] = [None]
        dist.scatter_object_list(taken, [thing, thing] if rank == 0 else None)
        found.append(plain(taken))
    sent = things(1) if rank == 0 else [None] * 4
    found.append(dist.broadcast_object_list(sent))
    dist.broadcast_object_list(sent, group_src=1)
    found.append(plain(sent))
    if rank == 0:
        found.append(dist.send_object_list(things(2), 1))
    else:
        taken = [None] * 4
        found += [dist.recv_object_list(taken, 0), plain(taken)]
    dist.destroy_process_group()
    return found


def complaints(rank: int, world_size: int, init_method: str, library: str) -> list[Any]:
    """Of what torch sees before anything is sent, on all ranks alike."""
    dist = begin(library, rank, world_size, init_method)
    other = 1 - rank
    found = [
        complaint(lambda: dist.gather_object(1, [0, 0] if rank else None)),
        complaint(lambda: dist.scatter_object_list([], [1, 2])),
        complaint(lambda: dist.scatter_object_list(0, [1, 2])),
        complaint(lambda: dist.send_object_list([1], rank)),
        complaint(lambda: dist.send_object_list([1])),
        complaint(lambda: dist.recv_object_list([1])),
        complaint(lambda: dist.recv_object_list([1], other, group_src=other)),
        complaint(lambda: dist.broadcast_object_list([1], 0, group_src=0)),
    ]
    dist.destroy_process_group()
    return found


def groups(rank: int, world_size: int, init_method: str, library: str) -> list[Any]:
    """Of one member; what the other process is told."""
    dist = begin(library, rank, world_size, init_method)
    group = dist.new_group([1])
    found: list[Any] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        slots = [None]
        found.append(dist.all_gather_object(slots, rank, group))
        found.append(dist.broadcast_object_list([rank], 1, group))
        taken = [None]
        found.append(dist.gather_object(rank, taken if rank else None, 1, group))
        found += [slots, taken]
        found += [
            str(each.message) for each in caught if "Running" in str(each.message)
        ]
    dist.barrier()
    dist.destroy_process_group()
    return found
