# SPDX-License-Identifier: BSD-3-Clause
"""Whether the cores of two ranks are near each other, that is, share a cache.

In a virtual machine this changes by itself, and with it the time of everything that
goes through shared memory, up to nine times.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path

import numpy as np

NEAR, FAR, CHANGED = "near", "far", "changed"
KINDS = [NEAR, FAR, CHANGED]
BYTES = 64 << 10
TIMES = 12
# GB/s at which a core writes what another one has read: 7 and more where they share a
# cache, 2 where they do not.
LEAST_NEAR = 4.5
PATIENCE = 1.0
WORDS = 32  # of 8 bytes, two cache lines apart


class Placement:
    """The measurement, which only rank 0 and rank 1 make."""

    def __init__(self, path: Path, rank: int) -> None:
        """Rank 0 makes the file; others may open it when all have met after that."""
        size = 8 * WORDS + BYTES
        self._rank = rank
        flags = os.O_RDWR | (os.O_CREAT if rank == 0 else 0)
        handle = os.open(path, flags, 0o600)
        if rank == 0:
            os.truncate(handle, size)
        memory = mmap.mmap(handle, size)
        os.close(handle)
        self._turns = np.frombuffer(memory, np.int64, WORDS)[:: WORDS // 2]
        self._shared = np.frombuffer(memory, np.uint8, BYTES, 8 * WORDS)
        self._own = np.ones(BYTES, np.uint8)
        self._turn = 0

    def measure(self) -> str:
        """Returns near or far on rank 0, and an empty text on other ranks, or if rank 1
        does not answer."""
        fastest = 0.0
        for _ in range(TIMES if self._rank < 2 else 0):
            self._turn += 1
            if self._rank == 0:
                start = time.perf_counter()
                np.copyto(self._shared, self._own)
                fastest = max(fastest, BYTES / (time.perf_counter() - start) / 1e9)
                self._turns[0] = self._turn
            if not self._await(1 - self._rank):
                return ""
            if self._rank == 1:
                np.copyto(self._own, self._shared)
                self._turns[1] = self._turn
        if self._rank != 0:
            return ""
        return NEAR if fastest >= LEAST_NEAR else FAR

    def _await(self, rank: int) -> bool:
        end = time.perf_counter() + PATIENCE
        while self._turns[rank] < self._turn:
            if time.perf_counter() > end:
                return False
            os.sched_yield()
        return True


def of_both(before: str, after: str) -> str:
    """Returns the placement between two measurements: CHANGED if they differ."""
    return before if before == after else CHANGED
