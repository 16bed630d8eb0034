# SPDX-License-Identifier: BSD-3-Clause
"""Rare names of torch.distributed: types for annotations, works made of futures, names
of operations."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NewType

from .. import _C
from .._C import (
    DistBackendError,
    PrefixStore,
    ProcessGroup,
    Work,
    all_gather_single,
    reduce_scatter_single,
)
from ..constants import default_pg_timeout
from .lifecycle import _limit_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from typing import Any, Literal

    from .._C import Store
    from ..futures import Future

__all__ = [
    "FutureWork",
    "GroupName",
    "_ProcessGroupWrapper",
    "_all_gather_base",
    "_create_process_group_wrapper",
    "_create_work_from_future",
    "_reduce_scatter_base",
    "record_comm",
]

# The oldest names.
_all_gather_base = all_gather_single
_reduce_scatter_base = reduce_scatter_single

GroupName = NewType("GroupName", str)


class _ProcessGroupWrapper(ProcessGroup):
    """A group whose ranks compare what they call, at every debug level."""

    wrapped_pg: ProcessGroup

    def __new__(
        cls, wrapped_pg: ProcessGroup, store: Store, timeout: timedelta
    ) -> _ProcessGroupWrapper:
        rank, size = wrapped_pg.rank(), wrapped_pg.size()
        name, backend = f"{wrapped_pg.group_name}:compared", wrapped_pg.name()
        made = super().__new__(
            cls, store, rank, size, timeout, name, backend=backend, is_compared=True
        )
        made.wrapped_pg = wrapped_pg
        return made


def _create_process_group_wrapper(
    wrapped_pg: ProcessGroup,
    store_prefix: str,
    store: Store,
    rank: int,
    world_size: int,
    timeout: timedelta = default_pg_timeout,
) -> _ProcessGroupWrapper:
    """Makes a group of `wrapped_pg`'s ranks that compares each call before it is
    carried out.

    All groups do so at TORCH_DISTRIBUTED_DEBUG=DETAIL. Every rank calls it, with the
    same `store`.  Operations of the new group do not affect `wrapped_pg`.
    """
    if (rank, world_size) != (wrapped_pg.rank(), wrapped_pg.size()):
        raise ValueError(
            f"rank {rank} of {world_size} was given, but the group to be wrapped has "
            f"rank {wrapped_pg.rank()} of {wrapped_pg.size()} here"
        )
    if ProcessGroup.name(wrapped_pg) == "custom" or _C._device_name(wrapped_pg):
        raise NotImplementedError(
            f"group {wrapped_pg.group_name} does not run on the CPU alone: set "
            "TORCH_DISTRIBUTED_DEBUG=DETAIL before it is created"
        )
    return _ProcessGroupWrapper(wrapped_pg, PrefixStore(store_prefix, store), timeout)


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
    the function.

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
