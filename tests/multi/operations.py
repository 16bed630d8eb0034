# SPDX-License-Identifier: BSD-3-Clause
"""Waits until other ranks are in an operation, as their recordings say, or until their
processes have ended or stopped, as the kernel says: what a test needs that is about to
end a rank "while the others wait", or that acts when another rank is gone."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

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

    return ranks <= _ranks_with(is_ahead)


def _ranks_with(is_wanted: Callable[[recording.Operation], bool]) -> set[int]:
    """The ranks of this job that have an unfinished operation of that kind."""
    own = recording.own()
    assert own is not None
    return {
        each.rank
        for each in recording.read_all()
        if each.job == own.job and any(is_wanted(o) for o in each.unfinished())
    }


def _wait_until(is_true: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not is_true():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.01)


def wait_until_ahead(ranks: Iterable[int]) -> None:
    """Returns once each of `ranks` is in a message, or a collective that this one has
    not begun."""
    wanted = set(ranks)
    _wait_until(lambda: _are_ahead(wanted), f"ranks {wanted} are in no operation")


def wait_until_in(ranks: Iterable[int], group: str) -> None:
    """Returns once each of `ranks`, which this one may be among, runs an operation of
    the group of that name."""
    wanted = set(ranks)

    def is_of_group(operation: recording.Operation) -> bool:
        is_its_own = operation.group is not None and operation.group.name == group
        return is_its_own and operation.state == "running"

    _wait_until(
        lambda: wanted <= _ranks_with(is_of_group),
        f"ranks {wanted} are in no operation of group {group}",
    )


def once_in(group: str, act: Callable[[], object]) -> threading.Thread:
    """Calls `act` on another thread, which it returns, once this rank runs an operation
    of the group of that name."""
    own = recording.own()
    assert own is not None

    def run() -> None:
        wait_until_in([own.rank], group)
        act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def interrupt_once_in(group: str) -> threading.Thread:
    """Ctrl-C for this process once it runs an operation of the group of that name."""
    return once_in(group, lambda: os.kill(os.getpid(), signal.SIGINT))


def _state_of(pid: int) -> str:
    """As in /proc/<pid>/stat; empty: there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(")")[2].split()[0]


def wait_until_ended(pid: int) -> None:
    _wait_until(lambda: _state_of(pid) in ("", "Z", "X"), f"process {pid} lives")


def wait_until_stopped(pid: int) -> None:
    _wait_until(lambda: _state_of(pid) == "T", f"process {pid} is not stopped")
