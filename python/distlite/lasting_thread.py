# SPDX-License-Identifier: BSD-3-Clause
"""A thread that ends with the process and not before.

A child that asks for a signal at its parent's end (PR_SET_PDEATHSIG) gets it when the
thread that has started it ends. So children that are to live as long as the process are
started on this thread.
"""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn, TypeVar

    T = TypeVar("T")
    Wanted = SimpleQueue[Callable[[], None]]

# By process id, because a forked child does not have its parent's threads.
_threads: dict[int, Wanted] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    """Makes a new lock in a forked child: a thread that the child does not have may
    hold it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def call_lastingly(call: Callable[[], T]) -> T:
    """Returns or raises what the call does.  It runs on the main thread if that is the
    calling one, else on a thread that lasts as long as the process."""
    if threading.current_thread() is threading.main_thread():
        return call()
    with _lock:
        wanted = _threads.get(os.getpid())
        if wanted is None:
            wanted = SimpleQueue()
            # Where there is no room for a thread, the next call tries again.
            threading.Thread(
                target=_call_all, args=(wanted,), name="distlite-starter", daemon=True
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


def _call_all(wanted: Wanted) -> NoReturn:
    while True:
        wanted.get()()
