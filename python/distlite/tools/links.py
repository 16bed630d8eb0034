# SPDX-License-Identifier: BSD-3-Clause
"""Tests the link of each pair of ranks for ``distlite doctor``: whether they can
connect, and how fast they are.

The connections are plain sockets to addresses from the store, so that problems are also
found if no group can be made.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import statistics
import time
from typing import Any

import numpy as np

import distlite as dist

CONNECT_SECONDS = 3.0
# Bytes and rounds of the messages for the latency and for the bandwidth.
SMALL, LARGE = (8, 50), (4 << 20, 3)
# All pairs of more ranks would take minutes: then each rank is measured with its
# neighbour and with rank 0.
ALL_PAIRS_UNTIL = 12


def pairs_of(size: int) -> list[tuple[int, int]]:
    """Returns the pairs of ranks whose links are measured, one after the other."""
    if size <= ALL_PAIRS_UNTIL:
        return list(itertools.combinations(range(size), 2))
    chosen = {(0, rank) for rank in range(1, size)}
    return sorted(chosen | {(rank, rank + 1) for rank in range(size - 1)})


def listen(address: str | None) -> socket.socket | None:
    """Returns a socket that others try to connect to, of which the kernel accepts the
    connections."""
    if address is None:
        return None
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError):
        return socket.create_server((address, 0), family=family, backlog=128)
    return None


def connect(where: list[Any] | None) -> dict[str, Any]:
    """Returns the milliseconds that connecting took, or why it failed."""
    if where is None:
        return {"connect_ms": None, "error": "it has no address to listen on"}
    began = time.perf_counter()
    try:
        with socket.create_connection((where[0], where[1]), CONNECT_SECONDS):
            span = time.perf_counter() - began
    except OSError as error:
        text = f"connecting to {where[0]}:{where[1]}: {error.strerror or error}"
        return {"connect_ms": None, "error": text}
    return {"connect_ms": round(span * 1e3, 3), "error": None}


def exchange(store: dist.Store, key: str, who: tuple[int, int], mine: Any) -> list[Any]:
    """Returns the values of all ranks through the store; raises DistStoreError if a
    rank does not come."""
    rank, size = who
    store.set(f"doctor/{key}/{rank}", json.dumps(mine))
    keys = [f"doctor/{key}/{peer}" for peer in range(size)]
    return [json.loads(store.get(key)) for key in keys]


def leave(store: dist.Store, who: tuple[int, int]) -> None:
    """Lets the first rank, which may serve the store, wait for the others and leave
    last."""
    rank, size = who
    if rank == 0:
        store.wait([f"doctor/done/{peer}" for peer in range(1, size)])
        return
    with contextlib.suppress(dist.DistNetworkError):  # the store has just ended
        store.set(f"doctor/done/{rank}", "")


def measure(who: tuple[int, int], found: list[dict[str, Any]]) -> None:
    """Measures one pair at a time over the default group, while the others wait, and
    adds the numbers to what was found of the links from this rank."""
    rank, size = who
    by_peer = {link["to"]: link for link in found}
    for pair in pairs_of(size):
        if rank in pair:
            peer = pair[0] + pair[1] - rank
            small, large = (_ping_pong(rank < peer, peer, *x) for x in (SMALL, LARGE))
            by_peer[peer]["latency_us"] = round(small * 1e6, 2)
            by_peer[peer]["mb_per_s"] = round(LARGE[0] / large / 1e6, 1)
        dist.barrier()


def _ping_pong(is_first: bool, peer: int, size: int, rounds: int) -> float:
    """Returns the seconds of one way, the median of the rounds."""
    array, spans = np.zeros(size, np.uint8), []
    for _ in range(rounds + 2):
        began = time.perf_counter()
        if is_first:
            dist.send(array, peer)
            dist.recv(array, peer)
        else:
            dist.recv(array, peer)
            dist.send(array, peer)
        spans.append(time.perf_counter() - began)
    return statistics.median(spans[2:]) / 2  # the first ones connect and touch memory
