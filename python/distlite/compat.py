# SPDX-License-Identifier: BSD-3-Clause
"""Rare names of torch.distributed: annotations, works of one's own, labels."""

from __future__ import annotations

from contextlib import contextmanager
from typing import NewType

from . import _C
from ._C import Work, all_gather_single, reduce_scatter_single

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from typing import Any, Literal

    from .futures import Future

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
        """True once the future has a value; raises its exception."""
        self._future.wait()
        return True

    def is_completed(self) -> bool:
        """Whether the future is done."""
        return bool(self._future.done())

    def is_success(self) -> bool:
        """Whether the future has a value."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What the future failed with, or None."""
        if not self.is_completed():
            return None
        try:
            self._future.value()
        except BaseException as error:
            return error
        return None

    def result(self) -> Any:
        """The future's value."""
        return self._future.value()

    def get_future(self) -> Future:
        """The future."""
        return self._future


def _create_work_from_future(future: Future) -> FutureWork:
    """What a backend in Python returns whose operations end with futures."""
    return FutureWork(future)


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Operations called inside, on this thread, are recorded as called in `name`.

    The recorder and the messages of debug levels show it in place of the Python
    function's name.
    """
    former = _C._set_call_label(name)
    try:
        yield
    finally:
        _C._set_call_label(former)
