# SPDX-License-Identifier: BSD-3-Clause
"""Future, the result of an operation that may still run, and waiting for several.

Callbacks of a Work run on one daemon thread of this module, which starts with the first
callback; never on the threads that carry out operations.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from typing import Any

from . import _C
from ._C import Work

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A value, or an exception, that is set once and that any thread can wait for.

    It can be awaited under asyncio.

    Args:
        devices: Ignored; part of torch's signature.

    Example:
        >>> future = dist.Future()
        >>> future.set_result(3)
        >>> future.wait()
        3
    """

    def __init__(self, *, devices: object = None) -> None:
        self._condition = threading.Condition()
        self._is_done = False
        self._value: Any = None
        self._exception: BaseException | None = None
        self._callbacks: list[Callable[[Future], object]] = []
        self._work: Work | None = None

    def __repr__(self) -> str:
        # Without the value, which may be large, and without taking the lock.
        found = vars(self)
        if found.get("_is_done"):
            error = found["_exception"]
            ended = "returned" if error is None else "raised"
            state = (
                f"{ended} {type(found['_value'] if error is None else error).__name__}"
            )
        else:
            work = found.get("_work")
            state = "pending" if work is None else f"of {work!r}"
        return f"<distlite.Future at {id(self):#x}: {state}>"

    def done(self) -> bool:
        """Returns whether the value or an exception is set."""
        if self._work is not None and self._work.is_completed():
            self._take_from(self._work)
        return self._is_done

    def wait(self) -> Any:
        """Waits until the future is done.

        Returns:
            The value.

        Raises:
            Exception: The exception that was set instead of a value.

        Example:
            >>> work = dist.all_reduce(np.array([rank + 1.0]), async_op=True)
            >>> work.get_future().wait()
            [array([3.])]
        """
        return self._wait(None)

    def _wait(self, end: float | None) -> Any:
        """Waits until a time of `time.monotonic()` at most, unless it is None."""
        work = self._work
        if work is not None and not self._is_done:
            # The waiting thread carries the operation out itself, where it can.
            try:
                _wait_for_work(work, end)
            except Exception:
                if not work.is_completed():
                    raise
            self._take_from(work)
        with self._condition:
            if not self._is_done:
                self._wait_for_value(end)
        return self.value()

    def _wait_for_value(self, end: float | None) -> None:
        is_shown = _C._show_wait("Future.wait()")
        try:
            while not self._is_done:
                self._condition.wait(None if end is None else _left(end))
                if end is not None and not self._is_done and _left(end) == 0:
                    raise TimeoutError("the future is not done within the timeout")
        finally:
            if is_shown:
                _C._show_wait(None)

    def value(self) -> Any:
        """Returns the value of a future that is done.

        Raises:
            RuntimeError: The future is not done.
            Exception: The one that was set instead of a value.
        """
        if not self.done():
            raise RuntimeError("the future is not done: call wait() first")
        if self._exception is not None:
            raise self._exception
        return self._value

    def set_result(self, result: Any) -> None:
        """Sets the value.

        Args:
            result: The value.

        Raises:
            RuntimeError: The future is done already.

        Example:
            >>> future = dist.Future()
            >>> future.set_result("ready")
            >>> future.done()
            True
        """
        self._set(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Sets an exception, which `wait` and `value` then raise.

        Args:
            result: The exception.

        Raises:
            AssertionError: `result` is not an exception.
            RuntimeError: The future is done already.

        Example:
            >>> future = dist.Future()
            >>> future.set_exception(KeyError("step"))
            >>> future.wait()
            Traceback (most recent call last):
            KeyError: 'step'
        """
        if not isinstance(result, BaseException):
            raise AssertionError(
                f"{result} is of type {type(result)}, not an Exception."
            )
        self._set(None, result)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Returns a future of the result of a function that is called with this one.

        If the function raises an exception, the new future has it; Ctrl-C in the
        function also interrupts the main thread.

        Args:
            callback: The function, which is called with this future when it is done.

        Returns:
            The new `Future`.

        Example:
            >>> future = dist.Future()
            >>> doubled = future.then(lambda done: 2 * done.value())
            >>> future.set_result(3)
            >>> doubled.wait()
            6
        """
        following = Future()

        def run(future: Future) -> None:
            try:
                result = callback(future)
            except BaseException as error:
                following.set_exception(error)
                if _is_interrupt(error):
                    raise
            else:
                following.set_result(result)

        self.add_done_callback(run)
        return following

    def add_done_callback(self, callback: Callable[[Future], object]) -> None:
        """Calls a function when the future is done.

        Functions are called in the order in which they were added. If one raises an
        exception, it is printed and ignored; Ctrl-C in the main thread is raised after
        the other functions have been called.

        Args:
            callback: The function, which is called with this future.

        Example:
            >>> seen = []
            >>> future = dist.Future()
            >>> future.add_done_callback(lambda done: seen.append(done.value()))
            >>> future.set_result(3)
            >>> seen
            [3]
        """
        with self._condition:
            is_done = self._is_done
            if not is_done:
                self._callbacks.append(callback)
        if is_done:
            _call_each([callback], self)
        elif self._work is not None:
            _call_when_done(self._work, self._take_from)

    def __await__(self) -> Generator[Any, None, Any]:
        import asyncio

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake(_: Future) -> None:
            try:
                loop.call_soon_threadsafe(_finish_waiter, waiter)
            except RuntimeError:
                # The task was cancelled, and its loop has ended meanwhile.
                if not loop.is_closed():
                    raise

        self.add_done_callback(wake)
        yield from waiter
        return self.value()

    def _set(self, value: Any, exception: BaseException | None) -> None:
        if not self._try_set(value, exception):
            raise RuntimeError(
                "Attempting to mark a completed Future as complete again. Note that a "
                "Future can only be marked completed once."
            )

    def _try_set(self, value: Any, exception: BaseException | None) -> bool:
        with self._condition:
            if self._is_done:
                return False
            self._value, self._exception = value, exception
            self._is_done = True
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        _call_each(callbacks, self)
        return True

    def _take_from(self, work: Work) -> None:
        """Completes this future with the result or the exception of `work`."""
        error = work.exception()
        if error is not None:
            self._try_set(None, error)
        else:
            self._try_set(work.result(), None)


def collect_all(futures: Sequence[Future]) -> Future:
    """Returns a future that is done when all of several futures are.

    Args:
        futures: The futures.

    Returns:
        A `Future`, whose value is the list of the futures.

    Example:
        >>> first, second = dist.Future(), dist.Future()
        >>> every = dist.collect_all([first, second])
        >>> first.set_result(1)
        >>> second.set_result(2)
        >>> [future.value() for future in every.wait()]
        [1, 2]
    """
    every = Future()
    missing = len(futures)
    lock = threading.Lock()

    def count(_: Future) -> None:
        nonlocal missing
        with lock:
            missing -= 1
            is_last = missing == 0
        if is_last:
            every.set_result(list(futures))

    if not futures:
        every.set_result([])
    for future in futures:
        future.add_done_callback(count)
    return every


def wait_all(
    works: Sequence[Work | Future], timeout: timedelta | float | None = None
) -> list[Any]:
    """Waits until several works or futures have all ended, with or without an error.

    Args:
        works: What `async_op=True`, `isend` and `irecv` returned, or futures.
        timeout: The time to wait for all of them together, a `timedelta` or seconds;
            None is as long as each may take.

    Returns:
        The results of `wait`, in the same order: True for a `Work`, its value for a
        `Future`.

    Raises:
        Exception: That of the first failure in the list. The others are its notes,
            which tracebacks show from Python 3.11 on.
        DistBackendError: A `Work` has not completed within the timeout.
        TimeoutError: A `Future` is not done within the timeout.

    Example:
        >>> arrays = [np.array([rank + 1.0]), np.array([rank])]
        >>> works = [dist.all_reduce(array, async_op=True) for array in arrays]
        >>> dist.wait_all(works, timeout=5.0)
        [True, True]
        >>> arrays
        [array([3.]), array([1])]
    """
    from .stores.timeouts import end_after

    end = None if timeout is None else end_after(timeout)
    values: list[Any] = []
    first: Exception | None = None
    for i, work in enumerate(works):
        try:
            if isinstance(work, Future):
                values.append(work._wait(end))
            else:
                values.append(_wait_for_work(work, end))
        except Exception as error:
            if first is None:
                first = error
            else:
                text = f"{type(error).__name__}: {error}"
                _add_note(first, f"number {i} of the list failed as well: {text}")
    if first is not None:
        raise first
    return values


def _wait_for_work(work: Work, end: float | None) -> Any:
    # A timeout of 0 would be that of the operation.
    return work.wait() if end is None else work.wait(max(_left(end), 1e-6))


def _left(end: float) -> float:
    """Seconds until `end`, as few as a lock can wait for."""
    return min(max(end - time.monotonic(), 0.0), threading.TIMEOUT_MAX)


def _add_note(error: Exception, text: str) -> None:
    """Does what the method of exceptions does, which Python 3.10 has not."""
    notes = error.__dict__.setdefault("__notes__", [])
    if text not in notes:
        notes.append(text)


def _finish_waiter(waiter: Any) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C: signals are handled on the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and isinstance(error, KeyboardInterrupt)


def _call_each(callbacks: Sequence[Callable[[Any], object]], argument: object) -> None:
    """Calls all callbacks, even if some of them raise."""
    interrupt: BaseException | None = None
    for callback in callbacks:
        try:
            callback(argument)
        except BaseException as error:
            if _is_interrupt(error):
                interrupt = error
            else:
                _report()
    if interrupt is not None:
        raise interrupt


def _report() -> None:
    """Logs the exception that is being handled."""
    import logging

    from .tools.log_capture import say

    say(logging.ERROR, "exception in a callback of a Future:", exc_info=True)


_thread: threading.Thread | None = None
_thread_lock = threading.Lock()


def _call_when_done(work: Work, callback: Callable[[Work], object]) -> None:
    global _thread
    with _thread_lock:
        if _thread is None:
            thread = threading.Thread(
                target=_run_callbacks, name="distlite-callbacks", daemon=True
            )
            # Where there is no room for a thread, the next call tries again.
            thread.start()
            _thread = thread
    work._call_when_done(callback)


def _run_callbacks() -> None:
    while (work := _C._next_finished()) is not None:
        _call_each(work._take_callbacks(), work)
        del work  # its arrays must not live until the next one ends


def _stop() -> None:
    _C._stop_completions()
    if _thread is not None:
        _thread.join()


# A daemon thread inside the extension must not outlive the interpreter.
# One that starts after this ends at once.
threading._register_atexit(_stop)  # type: ignore[attr-defined]


def _renew() -> None:
    """A forked child has no thread, and another may have held the lock."""
    global _thread, _thread_lock
    _thread, _thread_lock = None, threading.Lock()
    _C._renew_completions()


os.register_at_fork(after_in_child=_renew)


def _future_of_work(work: Work) -> Future:
    future = Future()
    future._work = work
    return future


_C._set_future_of_work(_future_of_work)
