# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of faults.  Does not import pytest."""

from __future__ import annotations

import os
import threading
import time

import numpy as np

import distlite

OPERATIONS = 10


def add_up(rank: int) -> float:
    total = 0.0
    for _ in range(OPERATIONS):
        x = np.array([1.0])
        distlite.all_reduce(x)
        total += float(x[0])
    return total


def longest_pauses(rank: int) -> tuple[float, float, float]:
    """The longest operation, all of them, and the longest pause of another thread."""
    pauses, is_over = [0.0], threading.Event()

    def tick() -> None:
        last = time.monotonic()
        while not is_over.wait(0.001):
            now = time.monotonic()
            pauses.append(now - last)
            last = now

    thread = threading.Thread(target=tick)
    thread.start()
    spans = []
    for _ in range(OPERATIONS):
        began = time.monotonic()
        distlite.all_reduce(np.array([1.0]))
        spans.append(time.monotonic() - began)
    is_over.set()
    thread.join()
    return max(spans), sum(spans), max(pauses)


def on_hosts(rank: int, world_size: int, init_method: str) -> list[str]:
    """The error of a rank on a host of its own, and whether it reaches the store."""
    os.environ["DISTLITE_HOST_HINT"] = f"host{rank}"
    store = distlite.TCPStore(
        "127.0.0.1", int(init_method), world_size, False, timeout=30
    )
    distlite.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=30
    )
    try:
        add_up(rank)
        return []
    except distlite.DistError as error:
        store.add("told", 1)
        return [str(error), str(store.add("told", 0) >= 1)]
