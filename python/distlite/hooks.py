# SPDX-License-Identifier: BSD-3-Clause
"""Functions of the program that are called around operations.

While there are any, the extension makes an event of each operation (csrc/python/record/
events.h); otherwise an operation costs nothing more.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from . import _C
from ._C import ProcessGroup, Work
from .futures import _call_when_done

__all__ = ["Hooks", "Operation", "register_hooks"]


class Operation:
    """An operation, as the functions of `register_hooks` see it.

    It has two more attributes: `error`, the exception with which it has ended, or None,
    and `data`, a dict in which `before` can leave values for `after`.

    Args:
        name: Its name in recordings, such as "all_reduce".
        group: The group.
        arrays: Its inputs: an array, a sequence of arrays, or None.

    Example:
        >>> seen = []
        >>> with dist.register_hooks(after=seen.append):
        ...     dist.barrier()
        >>> print(seen[0], seen[0].error)
        <barrier in group 0> None
    """

    __slots__ = ("arrays", "data", "error", "group", "name")

    def __init__(self, name: str, group: ProcessGroup, arrays: Any) -> None:
        self.name, self.group, self.arrays = name, group, arrays
        self.error: BaseException | None = None
        self.data: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{self.name} in group {self.group.group_name}>"


Around = Callable[[Operation], object]
AtAbort = Callable[[ProcessGroup, str], object]


class Hooks:
    """The functions of one call of `register_hooks`.

    They are called until `remove` is called, or a with statement ends.

    Args:
        before: The function called before each operation, or None.
        after: The function called after each operation, or None.
        abort: The function called before a group is aborted, or None.

    Example:
        >>> with dist.register_hooks(before=lambda operation: None) as hooks:
        ...     dist.barrier()
        >>> hooks.remove()  # once more does nothing
    """

    def __init__(
        self, before: Around | None, after: Around | None, abort: AtAbort | None
    ) -> None:
        self.before, self.after, self.abort = before, after, abort

    def __repr__(self) -> str:
        given = [name for name in ("before", "after", "abort") if getattr(self, name)]
        return f"<distlite.Hooks: {', '.join(given) or 'none'}>"

    def remove(self) -> None:
        """Ends the calls; operations that have begun call `after` nevertheless."""
        global _registered
        with _lock:
            _registered = tuple(each for each in _registered if each is not self)
            _C._set_hooked(bool(_registered))

    def __enter__(self) -> Hooks:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.remove()


_lock = threading.Lock()
_registered: tuple[Hooks, ...] = ()


def register_hooks(
    before: Around | None = None,
    after: Around | None = None,
    abort: AtAbort | None = None,
) -> Hooks:
    """Registers functions to be called before and after each operation of this process.

    They see collectives and messages of arrays, in all groups. They must not call
    operations. If one raises an exception, it is printed and ignored. Without hooks,
    operations cost no more.

    Args:
        before: It is called with the `Operation` in the thread of the call, before
            anything is sent.
        after: It is called with the same `Operation` when it has ended, and its `error`
            is set: in the thread of the call or, for a `Work`, in the thread of
            callbacks.
        abort: It is called with the group and the reason before a group is aborted in
            this process, by `abort()` or a with statement that ends with an exception.

    Returns:
        `Hooks`, whose `remove()`, or with statement, ends the calls.

    Raises:
        TypeError: An argument cannot be called.

    Example:
        >>> names = []
        >>> with dist.register_hooks(after=lambda operation: names.append(operation)):
        ...     dist.all_reduce(np.array([1.0]))
        >>> len(names) > 0
        True
    """
    global _registered
    given = {"before": before, "after": after, "abort": abort}
    for name, function in given.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function, not {function!r}")
    hooks = Hooks(before, after, abort)
    with _lock:
        _registered = (*_registered, hooks)
        _C._set_hooked(True)
    return hooks


class Event:
    """What the extension ends when the operation has ended."""

    def __init__(self, operation: Operation, called: tuple[Hooks, ...]) -> None:
        self._operation = operation
        self._called = called  # none of them any more once it has ended
        self._work: Work | None = None
        self._other: Any = None  # the event of torch's profiler, if it is on

    def end(self, error: BaseException | None = None) -> None:
        """Calls the hooks, the first time."""
        with _lock:
            called, self._called = self._called, ()
            work, self._work = self._work, None
        if self._other is not None:
            self._other.end()
        if error is None and work is not None:
            error = work.exception()
        self._operation.error = error
        for hooks in called:
            _call(hooks.after, self._operation)

    def end_with(self, work: Work) -> None:
        self._work = work
        _call_when_done(work, lambda _: self.end())


def begin(group: ProcessGroup, name: str, arrays: Any) -> Event:
    called = _registered
    # A receive from any rank has the name of the other receives.
    name_here = "recv" if name == "recvAnySource" else name
    event = Event(Operation(name_here, group, arrays), called)
    for hooks in called:
        _call(hooks.before, event._operation)
    torch = sys.modules.get("torch")
    if torch is not None and torch.autograd._profiler_enabled():
        from .tools import profiler_events

        event._other = profiler_events.begin(group, name, arrays)
    return event


def call_abort(group: ProcessGroup, reason: str) -> None:
    for hooks in _registered:
        _call(hooks.abort, group, reason)


def _call(function: Callable[..., object] | None, *arguments: object) -> None:
    if function is None:
        return
    try:
        function(*arguments)
    except Exception:
        import traceback

        print("exception in a hook of distlite.register_hooks:", file=sys.stderr)
        traceback.print_exc()
