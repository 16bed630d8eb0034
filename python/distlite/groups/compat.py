# SPDX-License-Identifier: BSD-3-Clause
"""Rare names of torch.distributed: works made of futures, names of operations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal, NewType

from .. import _C
from .._C import DistBackendError, Work, all_gather_single, reduce_scatter_single
from ..futures import Future
from .lifecycle import _limit_of

__all__ = [
    "FutureWork",
    "GroupName",
    "_all_gather_base",
    "_create_work_from_future",
    "_reduce_scatter_base",
    "record_comm",
]

# The oldest names.
_all_gather_base = all_gather_single
_reduce_scatter_base = reduce_scatter_single

GroupName = NewType("GroupName", str)


class FutureWork(Work):
    """The Work of an operation that is done when a future is."""

    def __init__(self, future: Future) -> None:
        super().__init__()
        self._future = future

    def wait(self, timeout: timedelta | float | None = None) -> Literal[True]:
        """Waits for the future and returns True; raises the future's exception."""
        seconds = 0.0 if timeout is None else _limit_of(timeout).total_seconds()
        if seconds > 0 and not _ends_within(self._future, seconds):
            raise DistBackendError(
                f"waiting for a future timed out after {round(seconds * 1000)}ms; it "
                "has not ended"
            )
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        """Returns whether the future is done."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Returns whether the future has a value."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """Returns the exception of the future, or None."""
        if not self.is_completed():
            return None
        try:
            self._future.value()
        except BaseException as error:
            return error
        return None

    def result(self) -> Any:
        """Returns the future's value."""
        return self._future.value()

    def get_future(self) -> Future:
        """Returns the future."""
        return self._future


def _ends_within(future: Future, seconds: float) -> bool:
    from threading import TIMEOUT_MAX, Event

    has_ended = Event()
    future.add_done_callback(lambda _: has_ended.set())
    return has_ended.wait(min(seconds, TIMEOUT_MAX))


def _create_work_from_future(future: Future) -> FutureWork:
    """Returns a Work for a backend in Python whose operations end with futures."""
    return FutureWork(future)


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Names the operations that this thread calls within a with statement.

    The recorder and the messages of the debug levels show the name in place of that of
    the function, for the first 30 names or so that a line has.

    Args:
        name: The name.

    Example:
        >>> with dist.record_comm("average of the losses"):
        ...     dist.all_reduce(np.zeros(1))
    """
    former = _C._set_call_label(name)
    try:
        yield
    finally:
        _C._set_call_label(former)
