# SPDX-License-Identifier: BSD-3-Clause
"""Waits until other ranks are in an operation, as their recordings say: what a
test needs that is about to end a rank "while the others wait"."""

from __future__ import annotations

import time
from collections.abc import Iterable

from distlite.tools import recording

LIMIT = 60.0


def _are_in(op: str, ranks: set[int]) -> bool:
    own = recording.own()
    assert own is not None
    found = {
        each.rank
        for each in recording.read_all()
        if each.job == own.job and any(o.op == op for o in each.unfinished())
    }
    return ranks <= found


def wait_until_in(op: str, ranks: Iterable[int]) -> None:
    """Returns once each of `ranks` has begun an `op` that has not ended."""
    deadline = time.monotonic() + LIMIT
    while not _are_in(op, set(ranks)):
        assert time.monotonic() < deadline, f"ranks {ranks} do not come to {op}"
        time.sleep(0.01)
