# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of dtypes that differ between them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from group_ranks import init

import distlite

A = [("a", "i4"), ("b", "f4")]
B = [("b", "f4"), ("a", "i4")]
# What each of two ranks passes: elements and dtype.
PAIRS: dict[str, tuple[tuple[int, Any], tuple[int, Any]]] = {
    "units": ((3, "M8[s]"), (3, "M8[ms]")),
    "multiples": ((3, "m8[25s]"), (3, "m8[s]")),
    "sizes": ((2, "S256"), (1, "S512")),
    "texts": ((3, "U3"), (3, "S12")),
    "long doubles": ((1, "longdouble"), (1, "V16")),
    "records": ((3, A), (3, B)),
    "subarrays": ((3, [("a", "i2", (2, 3))]), (3, [("a", "i2", (3, 2))])),
    "nested": ((3, [("r", A)]), (3, [("r", B)])),
    "orders": ((3, [("a", "<i4")]), (3, [("a", ">i4")])),
    "fields": ((3, [("t", "M8[s]")]), (3, [("t", "M8[us]")])),
    "numbers": ((3, "M8[ns]"), (3, "i8")),
}
# Dtypes that mean the same elements.
TWINS: list[tuple[Any, Any]] = [
    (A, np.dtype(A, align=True)),
    ([("a", "i4"), ("b", "f4")], [(("title", "a"), "i4"), ("b", "f4")]),
    ("M8[s]", np.dtype("M8[s]", metadata={"by": "me"})),
    ("M8[7D]", "M8[7D]"),
    ("S300", "S300"),
]


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except distlite.DistBackendError as error:
        return str(error)
    return "no error"


def collectives(mine: np.ndarray, group: Any) -> dict[str, Callable[[], Any]]:
    """By name; `group` makes one, as a failure breaks it."""
    rank = distlite.get_rank()
    size = distlite.get_world_size()
    like = [np.empty_like(mine) for _ in range(size)]
    blocks = [mine.copy() for _ in range(size)]

    def broadcast(g: Any) -> None:
        distlite.broadcast(mine, 0, g)

    def all_gather(g: Any) -> None:
        distlite.all_gather(like, mine, g)

    def gather(g: Any) -> None:
        distlite.gather(mine, like if rank == 0 else None, 0, g)

    def scatter(g: Any) -> None:
        distlite.scatter(mine, blocks if rank == 0 else None, 0, g)

    def all_to_all(g: Any) -> None:
        distlite.all_to_all(like, blocks, g)

    def both(call: Callable[[Any], None]) -> Callable[[], Any]:
        """A rank that only sends may hear of it in the call after."""
        made = group()
        return lambda: (call(made), distlite.barrier(made))

    return {
        call.__name__: both(call)
        for call in (broadcast, all_gather, gather, scatter, all_to_all)
    }


def messages(mine: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Each fails alone."""
    is_sender = distlite.get_rank() == 0

    def told(call: Callable[[], Any]) -> Callable[[], None]:
        """The ranks go on together."""

        def both() -> None:
            try:
                call()
            finally:
                distlite.barrier()

        return both

    if is_sender:
        return {
            "send": told(lambda: distlite.send(mine, 1)),
            "to anybody": told(lambda: distlite.send(mine, 1)),
            "isend": told(lambda: distlite.isend(mine, 1).wait()),
        }
    return {
        "send": told(lambda: distlite.recv(mine, 0)),
        "to anybody": told(lambda: distlite.recv(mine)),
        "isend": told(lambda: distlite.irecv(mine, 0).wait()),
    }


def array_of(count: int, dtype: Any, rank: int) -> np.ndarray:
    size = count * np.dtype(dtype).itemsize
    return np.full(size, rank + 1, np.uint8).view(dtype)


def start(rank: int, world_size: int, init_method: str, hints: str) -> None:
    if hints:
        os.environ["DISTLITE_HOST_HINT"] = hints[rank]
    init(rank, world_size, init_method)


def differ(
    rank: int, world_size: int, init_method: str, hints: str = ""
) -> dict[str, dict[str, str]]:
    """What each call raised, by pair and call."""
    start(rank, world_size, init_method, hints)
    found: dict[str, dict[str, str]] = {}
    for name, pair in PAIRS.items():
        mine = array_of(*pair[rank], rank)
        before = mine.tobytes()
        calls = collectives(mine, distlite.new_group) if name == "units" else {}
        if not calls:
            group = distlite.new_group()
            calls["all_gather"] = lambda group=group, mine=mine: distlite.all_gather(
                [np.empty_like(mine) for _ in range(2)], mine, group
            )
        calls |= messages(mine)
        found[name] = {kind: error_of(call) for kind, call in calls.items()}
        assert mine.tobytes() == before
    distlite.destroy_process_group()
    return found


def agree(
    rank: int, world_size: int, init_method: str, hints: str = ""
) -> list[tuple[bool, bool]]:
    """Whether what came is what was sent, in a collective and in a message."""
    start(rank, world_size, init_method, hints)
    good = []
    for pair in TWINS:
        mine = array_of(3, pair[rank], rank)
        distlite.broadcast(mine, 0)
        first = mine.tobytes() == array_of(3, pair[rank], 0).tobytes()
        mine = array_of(3, pair[rank], rank)
        if rank == 0:
            distlite.send(mine, 1)
        else:
            distlite.recv(mine, 0)
        good.append((first, mine.tobytes() == array_of(3, pair[rank], 0).tobytes()))
    distlite.destroy_process_group()
    return good
