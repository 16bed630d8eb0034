# SPDX-License-Identifier: BSD-3-Clause
"""What is common to starting ranks in the launcher, `spawn`, notebooks and `testing`.

It imports nothing of distlite: testing/rank_main.py loads this file by itself, so that
ranks of tests find distlite not yet imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
Wanted = SimpleQueue[Callable[[], None]]

# Signals that end a job; the ranks get the same signal.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# All that ranks find unblocked, also if a supervisor has started their program with
# signals blocked.
NEEDED = (*ENDING, signal.SIGCHLD, signal.SIGWINCH)
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37

_libc = ctypes.CDLL(None)
# By process id, because a forked child does not have its parent's threads.
_threads: dict[int, Wanted] = {}
_lock = threading.Lock()


def fork() -> int:
    """Forks without Python's warning of a fork beside threads: the child only waits, or
    runs another program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return os.fork()


def end_with_parent(parent: int | None, number: int = signal.SIGKILL) -> None:
    """Lets the kernel send a signal to this process when the thread that has started it
    ends (see `call_lastingly`), and sends it if `parent` has ended already.

    Args:
        parent: The process id of the parent; None where it is not known.
        number: The signal.
    """
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), number)


@contextlib.contextmanager
def subreaper() -> Iterator[None]:
    """Becomes the parent of the processes that ranks leave behind, to notice their
    end."""
    before = ctypes.c_int()
    _libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        # A program that goes on must not get the orphans of its other children.
        _libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def call_lastingly(call: Callable[[], T]) -> T:
    """Returns or raises what the call does, on a thread that lasts as long as the
    process: the main thread if that is the calling one.

    A child that ends with its parent (`end_with_parent`) ends with the thread that has
    started it.
    """
    if threading.current_thread() is threading.main_thread():
        return call()
    return call_elsewhere(call)


def call_elsewhere(call: Callable[[], T]) -> T:
    """Returns or raises what the call does, on a thread that lasts as long as the
    process and is never the main one."""
    with _lock:
        wanted = _threads.get(os.getpid())
        if wanted is None:
            wanted = SimpleQueue()
            # Where there is no room for a thread, the next call tries again.
            threading.Thread(
                target=_call_all, args=(wanted,), name="distlite-calls", daemon=True
            ).start()
            _threads[os.getpid()] = wanted
    results: list[T] = []
    errors: list[BaseException] = []
    is_over = threading.Event()

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)
        finally:
            is_over.set()

    wanted.put(run)
    is_over.wait()
    if errors:
        raise errors[0]
    return results[0]


def _call_all(wanted: Wanted) -> None:
    while True:
        wanted.get()()


def _renew_lock() -> None:
    """Makes a new lock in a forked child: a thread that the child does not have may
    hold it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)
