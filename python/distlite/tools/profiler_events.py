# SPDX-License-Identifier: BSD-3-Clause
"""Events of torch's profiler for operations on torch's tensors.

The extension imports this module when a profiler of torch is on; the program, which has
made the tensors, has imported torch.  Events are like those of torch's backends: named
after backend and operation, with the shapes of the inputs, and asynchronous, which is
what torch calls an event that ends on another thread than the one it began on.  So the
events of operations that wait are ended by `call_elsewhere`, and the others by the
thread of callbacks.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from .. import _C, futures
from .._C import ProcessGroup, Work
from ..launch.rank_process import call_elsewhere

__all__ = ["Event", "as_one", "begin", "name_backend"]

_names: WeakKeyDictionary[ProcessGroup, str] = WeakKeyDictionary()


def name_backend(group: ProcessGroup, name: str) -> None:
    """Sets the backend's name in the events of a group that is part of a backend of
    torch."""
    _names[group] = name


def begin(group: ProcessGroup, operation: str, inputs: Any) -> Event | _Part | None:
    """Returns the event of an operation that is about to begin; None if no array is
    torch's."""
    joint: _Joint | None = getattr(_current, "joint", None)
    if joint is not None:
        return joint.part()
    arrays = _arrays_of(inputs)
    tensors = [array for array in arrays if _is_of_torch(array)]
    if arrays and not tensors:
        return None
    if operation not in _OF_ANY_TYPE:
        tensors = [_as_real(tensor) for tensor in tensors]
    return Event(f"{_name_of(group, tensors)}:{operation}", tensors)


# Operations that torch hands complex tensors to as they are.
_OF_ANY_TYPE = ("gather", "reduce", "reduce_scatter")


def _as_real(tensor: Any) -> Any:
    """Returns what torch hands to its other operations: of complex numbers, pairs of
    real ones."""
    is_pairs = tensor.is_complex() and not tensor.is_conj()
    return sys.modules["torch"].view_as_real(tensor) if is_pairs else tensor


def _arrays_of(inputs: Any) -> list[Any]:
    if inputs is None:
        return []
    if isinstance(inputs, list | tuple):
        return [array for each in inputs for array in _arrays_of(each)]
    if isinstance(inputs, _C._Pack):
        return list(_C._pack_arrays(inputs))
    return [inputs]


def _is_of_torch(array: Any) -> bool:
    return isinstance(array, sys.modules["torch"].Tensor)


def _name_of(group: ProcessGroup, tensors: list[Any]) -> str:
    if any(not tensor.is_cpu for tensor in tensors):
        return _C._device_name(group) or group.name()
    return _names.get(group) or group.name()


class Event:
    """One event, until its end."""

    def __init__(self, name: str, tensors: list[Any]) -> None:
        torch: Any = sys.modules["torch"]
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._end = torch.futures.Future()
        # The end is recorded by the profiler that is on in this thread.
        torch.ops.profiler._call_end_callbacks_on_jit_fut._RecordFunction(
            torch._C._autograd._record_function_with_args_enter(name, *tensors),
            self._end,
        )

    def end(self, _: object = None) -> None:
        """Ends the event, and returns when the profiler has recorded it.  Further calls
        do nothing."""
        with self._lock:
            if self._end.done():
                return
            if threading.get_ident() != self._thread:
                self._end.set_result(None)
            else:
                call_elsewhere(lambda: self._end.set_result(None))

    def end_with(self, work: Work) -> None:
        """Ends the event when an operation has ended, whether or not the program waits
        for it."""
        futures._call_when_done(work, lambda _: self.end())


class _Joint:
    """One event for several operations, which ends with the last of them."""

    def __init__(self, event: Event | _Part) -> None:
        self._event = event
        self._lock = threading.Lock()
        self._running = 1  # the block that begins them counts as one

    def part(self) -> _Part:
        with self._lock:
            self._running += 1
        return _Part(self)

    def end_one(self) -> None:
        with self._lock:
            self._running -= 1
            is_last = self._running == 0
        if is_last:
            self._event.end()


class _Part:
    """What an operation has in place of an event of its own."""

    def __init__(self, joint: _Joint) -> None:
        self._joint: _Joint | None = joint
        self._lock = threading.Lock()

    def end(self, _: object = None) -> None:
        """Further calls do nothing."""
        with self._lock:
            joint, self._joint = self._joint, None
        if joint is not None:
            joint.end_one()

    def end_with(self, work: Work) -> None:
        """Ends the part when an operation has ended."""
        futures._call_when_done(work, lambda _: self.end())


_current = threading.local()


@contextmanager
def as_one(group: ProcessGroup, operation: str, inputs: Any) -> Iterator[None]:
    """Makes the operations that this thread begins in the block one event."""
    event = begin(group, operation, inputs)
    if event is None:
        yield
        return
    joint = _Joint(event)
    outer = getattr(_current, "joint", None)
    _current.joint = joint
    try:
        yield
    finally:
        _current.joint = outer
        joint.end_one()
