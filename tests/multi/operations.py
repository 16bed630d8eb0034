# SPDX-License-Identifier: BSD-3-Clause
"""Waits until other ranks are in an operation, as their recordings say: what a
test needs that is about to end a rank "while the others wait"."""

from __future__ import annotations

import time
from collections.abc import Iterable

from distlite.tools import recording

LIMIT = 60.0


def _are_ahead(ranks: set[int]) -> bool:
    own = recording.own()
    assert own is not None
    begun = {group.name: group.begun for group in own.groups}

    def is_ahead(operation: recording.Operation) -> bool:
        if operation.is_message:
            return True
        name = operation.group.name if operation.group else ""
        return (operation.sequence or 0) > begun.get(name, 0)

    found = {
        each.rank
        for each in recording.read_all()
        if each.job == own.job and any(is_ahead(o) for o in each.unfinished())
    }
    return ranks <= found


def wait_until_ahead(ranks: Iterable[int]) -> None:
    """Returns once each of `ranks` is in a message, or a collective that this one has
    not begun."""
    deadline = time.monotonic() + LIMIT
    while not _are_ahead(set(ranks)):
        assert time.monotonic() < deadline, f"ranks {ranks} are in no operation"
        time.sleep(0.01)
