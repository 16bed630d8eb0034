# SPDX-License-Identifier: BSD-3-Clause
"""Threads that carry out calls, and that no end of a program waits for.

Those of `concurrent.futures` are joined before the interpreter ends, so that a program
would wait as long as the longest of its calls, whose callers may have given up.
"""

from __future__ import annotations

import atexit
import os
import threading
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]

__all__ = ["DaemonPool", "finish_before_end"]

# How long the end of the interpreter may wait for calls that others depend on.
GRACE_SECONDS = 1.0


class DaemonPool:
    """At most `limit` threads, which start as they are needed."""

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        # Calls that are in the queue or on a thread; at most as many threads are busy.
        self._unfinished = 0

    def submit(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Returns the future of a call."""
        future: Future[Any] = Future()
        with self._lock:
            if self._unfinished >= self._threads < self._limit:
                self._start()
            self._unfinished += 1
        self._calls.put((future, function, args))
        return future

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # There is no room for another thread: those that run do more.
            if self._threads == 0:
                raise
            return
        self._threads += 1

    def _work(self) -> None:
        while True:
            _carry_out(*self._calls.get())
            with self._lock:
                self._unfinished -= 1


def _carry_out(
    future: Future[Any], function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*args)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


# Calls of this process that give back what others wait for.
_returns: set[Future[Any]] = set()


def finish_before_end(call: Future[Any]) -> None:
    """Lets the end of the interpreter wait for a call, but no longer than a second."""
    _returns.add(call)
    call.add_done_callback(_returns.discard)


@atexit.register
def _finish() -> None:
    wait(list(_returns), GRACE_SECONDS)


os.register_at_fork(after_in_child=_returns.clear)
