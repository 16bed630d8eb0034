# SPDX-License-Identifier: BSD-3-Clause
"""Operations that are prepared once with their arguments, and started many times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from . import _C

__all__ = ["Persistent"]

_COLLECTIVES = (
    *("all_reduce", "scan", "exscan", "broadcast", "reduce", "barrier"),
    *("all_gather", "all_gather_single", "gather", "gather_v", "scatter", "scatter_v"),
    *("reduce_scatter", "reduce_scatter_single", "all_to_all", "all_to_all_single"),
)
# What begins each function's operation.
_BEGINNING: dict[Callable[..., Any], Callable[..., Any]] = {
    **{getattr(_C, name): getattr(_C, name) for name in _COLLECTIVES},
    **{_C.send: _C.isend, _C.isend: _C.isend, _C.recv: _C.irecv, _C.irecv: _C.irecv},
}


class Persistent:
    """An operation that is called many times with the same arguments.

    The arguments are converted and checked now, and nothing is sent. Each `start()`
    then begins the operation on what the arrays hold at that time, as `async_op=True`
    or `isend` would. Ranks may mix: one may start what another calls. The object keeps
    the arrays. On a process that is not a member of the group it does nothing.

    Args:
        function: A collective of arrays, such as `distlite.all_reduce`, or `send`,
            `isend`, `recv` or `irecv`.
        *args: Its arguments, without `async_op`.
        **kwargs: More of them, by name.

    Raises:
        TypeError: An argument is not what `function` takes.
        ValueError: An argument is refused, as by `function`, or `function` is another
            one.
        NotImplementedError: An array is not in the CPU's memory, or the group is one
            whose operations are written in Python.

    Example:
        >>> values = np.zeros(2)
        >>> sums = dist.Persistent(dist.all_reduce, values, op=dist.ReduceOp.SUM)
        >>> for step in range(3):
        ...     values[:] = [rank, step]
        ...     done = sums.start().wait()
        >>> values
        array([1., 4.])
        >>> other, inbox = 1 - rank, np.zeros(1)
        >>> both = [
        ...     dist.Persistent(dist.irecv, inbox, other),
        ...     dist.Persistent(dist.isend, np.array([rank + 1.0]), other),
        ... ]
        >>> for step in range(2):
        ...     for each in both:
        ...         started = each.start()
        ...     for each in both:
        ...         done = each.wait()
        >>> bool(inbox[0] == other + 1)
        True
    """

    __slots__ = ("_prepared", "name", "work")

    def __init__(
        self, function: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> None:
        begin = _BEGINNING.get(function)
        if begin is None:
            raise ValueError(
                f"{function!r} cannot be persistent; these can: "
                f"{', '.join(_COLLECTIVES)}, send, isend, recv and irecv"
            )
        if "async_op" in kwargs:
            raise TypeError("persistent operations are asynchronous: omit `async_op`")
        self.name = function.__name__
        # None outside of the group.
        self._prepared: _C._Prepared | None = begin(*args, _prepare=True, **kwargs)
        self.work: _C.Work | None = None

    def start(self) -> Persistent:
        """Begins the operation; the arrays must not be used until it has completed.

        Returns:
            This object.

        Raises:
            RuntimeError: The operation was started before and has not completed.
            DistBackendError: The group is broken or was closed, or an array has been
                resized or given other memory.
        """
        if self.work is not None and not self.work.is_completed():
            raise RuntimeError(
                f"the persistent {self.name} was started and has not completed: wait() "
                "for it first"
            )
        if self._prepared is not None:
            self.work = self._prepared.start()
        return self

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Waits until the operation that was started last has completed.

        Args:
            timeout: How long to wait, a `timedelta` or seconds; None is the time that
                the operation may take.

        Returns:
            True.

        Raises:
            RuntimeError: It was not started.
            DistBackendError: The operation failed or timed out.
        """
        work = self._started()
        if work is not None:
            work.wait() if timeout is None else work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        """Tells whether the operation that was started last has ended, well or not;
        RuntimeError if none was."""
        work = self._started()
        return work is None or work.is_completed()

    def _started(self) -> _C.Work | None:
        if self.work is None and self._prepared is not None:
            raise RuntimeError(f"the persistent {self.name} was not started")
        return self.work

    def __repr__(self) -> str:
        return f"<distlite.Persistent {self.name}: {self.work or 'not started'}>"
