# SPDX-License-Identifier: BSD-3-Clause
"""Windows: memory of each rank that all ranks of a group read, write and update.

The owner of the memory takes no part in an access.  The methods that move arrays are
the extension's; here are those that make and return them.
"""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any, Literal

import numpy as np

from . import _C
from ._C import DistError, ProcessGroup, recv, send
from .groups.reduce_op import RedOpType, ReduceOp
from .groups.world import is_outside, world
from .shared import sizes_of

Timeout = timedelta | float | None
Update = ReduceOp | RedOpType | Literal["replace", "no_op"]

__all__ = ["Window", "WindowLock"]


class WindowLock:
    """The lock of one rank's memory, as a context manager that releases it.

    `Window.lock` returns it.

    Args:
        window: The window.
        rank: The rank whose memory it is.

    Example:
        >>> with dist.Window(1) as win:
        ...     with win.lock(0) as held:
        ...         print(held.rank)
        0
    """

    def __init__(self, window: Window, rank: int) -> None:
        self.window = window
        self.rank = rank

    def __repr__(self) -> str:
        return f"WindowLock(rank={self.rank}, window={self.window!r})"

    def __enter__(self) -> WindowLock:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.window.unlock(self.rank)
        except DistError:
            # The exception of the body is more important.
            if error is None:
                raise


class Window(_C._Window):
    """Memory of every rank of a group that all ranks read, write and update.

    All ranks of the group construct it together. Their memory may differ in size, but
    not in dtype. Ranks of one host access each other's memory in place; ranks of other
    hosts send requests, which a thread of the owner carries out.

    Ranks are ranks in the group. Offsets and numbers of elements are those of the
    window's dtype, in C order. An access that would reach beyond a rank's memory, or an
    array of another dtype, raises ValueError before anything is written. Every method
    raises DistBackendError if the rank has ended or has closed the window, or the
    timeout has passed.

    `put` and `get` move bytes, and are not atomic. Updates (`accumulate`,
    `get_accumulate`, `fetch_and_op`, `compare_and_swap`) are atomic, element by
    element, with respect to all other updates of the window, even with other
    reductions. Accesses of one thread to one rank take effect in the order of the
    calls. A rank sees what others have written after a
    `fence`; within the same `lock`; after a `wait_signal` for the writer's `signal`; or
    when a writer has called `flush` and then told it so, by a message for example.

    A with statement closes the window at its end, which all ranks have to reach; an
    exception closes it on this rank only.

    Args:
        shape: The shape of this rank's memory, a number or a tuple, for zeros; or an
            array to copy into it.
        dtype: The dtype, float64 by default, or that of the array.
        group: The group; None is the default group. Its backend has to be
            gloo, mpi or ucc.
        timeout: How long to wait for the other ranks; None is the group's timeout.

    Attributes:
        group: The group.
        dtype: The dtype of the elements.
        shape: The shape of this rank's memory.
        counts: The number of elements of each rank's memory, by rank.

    Raises:
        TypeError: The dtype holds Python objects.
        ValueError: A dimension is negative, or this process is not in the group.
        MemoryError: There is too little memory.
        NotImplementedError: The backend has no windows.
        DistBackendError: The ranks disagree on the dtype, or one of them failed.

    Example:
        >>> win = dist.Window(4, dtype=np.int64)
        >>> win.accumulate(np.full(4, 2), 1 - rank)
        >>> win.fence()
        >>> win.local
        array([2, 2, 2, 2])
        >>> win.close()
    """

    group: ProcessGroup
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    counts: tuple[int, ...]
    _tag: int  # of signals

    def __new__(
        cls,
        shape: Any,
        dtype: Any = None,
        group: ProcessGroup | None = None,
        *,
        timeout: Timeout = None,
    ) -> Window:
        content = shape if isinstance(shape, np.ndarray) else None
        if content is None:
            sizes, kind = sizes_of(shape), np.dtype(float if dtype is None else dtype)
        else:
            sizes, kind = content.shape, np.dtype(dtype or content.dtype)
        if kind.hasobject:
            raise TypeError(f"a window cannot hold {kind}: it holds Python objects")
        if is_outside(group):
            raise ValueError("this process is not in the group of the window")
        if any(size < 0 for size in sizes):
            raise ValueError("negative dimensions are not allowed")
        wanted = world.require_default() if group is None else group
        model, count = np.empty(1, kind), math.prod(sizes)
        made = super().__new__(cls, wanted, model, count, timeout)
        made.group, made.dtype, made.shape = wanted, kind, sizes
        made.counts = made._counts()
        # Alike on all ranks, also on those that have joined the group later.
        number: int = wanted._get_sequence_number_for_group()
        made._tag = _C._SIGNAL_TAG + number % (1 << 32)
        if content is not None:
            made.local[...] = content
        # Before the barrier, another rank might read memory that is still being copied.
        made.fence(timeout)
        return made

    @property
    def local(self) -> np.ndarray:
        """This rank's memory, as an array.

        The array can be read even after `close`.
        """
        memory: Any = self
        return np.ndarray(self.shape, self.dtype, buffer=memory)

    def get_accumulate(
        self,
        array: Any,
        rank: int,
        op: Update = ReduceOp.SUM,
        offset: int = 0,
        *,
        out: Any = None,
        timeout: Timeout = None,
    ) -> Any:
        """Updates elements of a rank's memory, and returns their old values.

        Each element is read and written in one atomic step.

        Args:
            array: The array to combine them with, as in `accumulate`; "no_op" uses its
                shape only.
            rank: The rank whose memory it is.
            op: A reduction but AVG, "replace" or "no_op".
            offset: The first element.
            out: The array to read into; a new one by default.
            timeout: How long to wait for other updates; None is the group's.

        Returns:
            `out`, or a NumPy array of the shape of `array`.

        Example:
            >>> with dist.Window(2) as win:
            ...     before = win.get_accumulate(np.ones(2), rank, "replace")
            ...     print(before, win.local)
            [0. 0.] [1. 1.]
        """
        result = np.empty(np.shape(array), self.dtype) if out is None else out
        self._fetch(array, result, rank, op, offset, timeout)
        return result

    def fetch_and_op(
        self,
        value: Any,
        rank: int,
        op: Update = ReduceOp.SUM,
        offset: int = 0,
        *,
        timeout: Timeout = None,
    ) -> Any:
        """Updates one element of a rank's memory, and returns its old value.

        Args:
            value: The number to combine it with; "no_op" ignores it.
            rank: The rank whose memory it is.
            op: A reduction but AVG, "replace" or "no_op".
            offset: The element.
            timeout: How long to wait for other updates; None is the group's.

        Returns:
            The old value, a NumPy scalar.

        Raises:
            ValueError: The value is not one of the window's dtype.

        Example:
            >>> with dist.Window(1, dtype=int) as win:
            ...     tickets = [int(win.fetch_and_op(1, 0)) for _ in range(3)]
            ...     win.fence()
            ...     print(win.fetch_and_op(0, 0, "no_op"))
            6
        """
        result = np.empty((), self.dtype)
        self._fetch(self._element(value), result, rank, op, offset, timeout)
        return result[()]

    def compare_and_swap(
        self,
        value: Any,
        compare: Any,
        rank: int,
        offset: int = 0,
        *,
        timeout: Timeout = None,
    ) -> Any:
        """Replaces one element by `value` if it is `compare`, in one atomic step.

        Elements are compared byte by byte: of floats, 0.0 and -0.0 differ, and a NaN
        is equal to itself.

        Args:
            value: The new value.
            compare: The value to compare the element with.
            rank: The rank whose memory it is.
            offset: The element.
            timeout: How long to wait for other updates; None is the group's.

        Returns:
            The old value, a NumPy scalar; if it is `compare`, the element was replaced.

        Raises:
            ValueError: A value is not one of the window's dtype.

        Example:
            >>> with dist.Window(1, dtype=int) as win:
            ...     first = win.compare_and_swap(rank + 1, 0, rank)
            ...     second = win.compare_and_swap(7, 0, rank)
            ...     print(first, second == rank + 1, win.local == rank + 1)
            0 True [ True]
        """
        result = np.empty((), self.dtype)
        new, old = self._element(value), self._element(compare)
        self._swap(new, old, result, rank, offset, timeout)
        return result[()]

    def lock(
        self, rank: int, shared: bool = False, *, timeout: Timeout = None
    ) -> WindowLock:
        """Takes the lock of a rank's memory, and waits for it if necessary.

        The lock is granted in the order of the requests. It excludes only ranks that
        take it as well; accesses do not need it. A rank cannot take a lock twice. If a
        rank is killed while it holds the lock, the waiting ranks raise an error, and
        the lock is never granted again, because the memory may be half written.

        Args:
            rank: The rank whose memory it is.
            shared: Whether other ranks may share the lock.
            timeout: How long to wait; None is the group's timeout.

        Returns:
            A context manager that releases the lock at its end; `unlock` does so, too.

        Raises:
            ValueError: This rank holds the lock already.
            DistBackendError: The holder was killed, or the timeout has passed; the
                error names the holder.

        Example:
            >>> with dist.Window(2) as win:
            ...     with win.lock(0):
            ...         mine = np.empty(2)
            ...         win.get(mine, 0)
            ...         win.put(mine + rank, 0)
        """
        self._lock(rank, shared, timeout)
        return WindowLock(self, rank)

    def signal(self, rank: int) -> None:
        """Tells a rank that this rank's accesses to its memory have taken effect.

        It calls `flush` first, and then continues at once. The rank receives as many
        signals as were sent, each by one `wait_signal`; those of other windows are
        apart.

        Args:
            rank: The rank whose memory was accessed.

        Raises:
            ValueError: The rank is this one, or is not in the group.

        Example:
            >>> with dist.Window(2) as win:
            ...     if rank == 0:
            ...         win.put(np.ones(2), 1)
            ...         win.signal(1)
            ...     else:
            ...         win.wait_signal(0)
            ...         print(win.local)
            [1. 1.]
        """
        self.flush(rank)
        send(np.empty(0), group=self.group, tag=self._tag, group_dst=rank)

    def wait_signal(self, rank: int) -> None:
        """Waits for one `signal` of a rank, and then sees what it had written.

        Args:
            rank: The rank that signals.

        Raises:
            ValueError: The rank is this one, or is not in the group.
            DistBackendError: The rank has ended, or the group's timeout has passed.

        Example:
            See `signal`.
        """
        self.flush(rank)
        recv(np.empty(0), group=self.group, tag=self._tag, group_src=rank)

    def _element(self, value: Any) -> np.ndarray:
        """Converts a number to the window's dtype; raises an error if that changes
        it."""
        given = np.asarray(value)
        if given.dtype != self.dtype:
            with np.errstate(invalid="ignore", over="ignore"):
                converted = given.astype(self.dtype)
            if not np.array_equal(given, converted, equal_nan=given.dtype.kind in "fc"):
                raise ValueError(f"{value!r} is not a value of dtype {self.dtype}")
            given = converted
        if given.ndim > 0:
            raise ValueError(f"takes one number, not an array of shape {given.shape}")
        return given

    def __enter__(self) -> Window:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()
        else:
            self._end()

    def __repr__(self) -> str:
        return f"<distlite.Window {self.shape} of {self.dtype}>"
