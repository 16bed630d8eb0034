# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of one kind, collected in a `with` statement and run at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _C
from .._C import ProcessGroup, Work
from .group_methods import CoalescedWork
from .p2p import is_on_device
from .packing import (
    Coalesced,
    Target,
    gather_singles,
    reduce_all,
    reduce_scatter_singles,
)
from .reduce_op import ReduceOp
from .world import is_outside, world

Given = dict[str, Any]

__all__ = ["_CoalescingManager", "_IllegalWork", "_coalescing_manager"]

_COLLECTED = ("all_reduce", "all_gather_single", "reduce_scatter_single")


class _IllegalWork(Work):
    """The result of a collected operation: there is nothing to wait for yet."""

    def __getattribute__(self, name: str) -> Any:
        if name in (
            *("wait", "is_success", "exception", "result", "synchronize"),
            *("source_rank", "is_completed", "get_future"),
        ):
            raise ValueError(f"Illegal to call {name} on IllegalWork object")
        return object.__getattribute__(self, name)


class _CoalescingManager:
    """The value of the `with` statement, and after it the work of all operations."""

    def __init__(self) -> None:
        self.works: list[Any] = []

    def append(self, work: Any) -> None:
        """Adds a work that `wait` waits for."""
        if work:
            self.works.append(work)

    def wait(self) -> None:
        """Waits for all works."""
        for work in self.works:
            work.wait()


class _Collection:
    """The handler of a group while operations are collected."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Given]] = []

    def __call__(self, group: ProcessGroup, function: str, given: Given) -> Any:
        if function not in _COLLECTED:
            return NotImplemented
        kinds = {function, *(kind for kind, _ in self.calls)}
        if len(kinds) > 1:
            raise RuntimeError(
                "Coalescing manager requires all collectives to be the same type, but "
                f"got mixed types: {kinds}"
            )
        self.calls.append((function, given))
        return _IllegalWork() if given.get("async_op") else None

    def run(self, group: ProcessGroup) -> CoalescedWork:
        """Starts the collected operations in their order, as one operation where
        possible."""
        function, given = self.calls[0]
        if _C._device_name(group) is not None and is_on_device(
            next(iter(given.values()))
        ):
            from .nccl import batch

            with batch(group, is_async=True) as started:
                self._start()
            return CoalescedWork(Coalesced(self._outputs(), started.works))
        if any(given.get("stream") is not None for _, given in self.calls):
            return CoalescedWork(Coalesced(self._outputs(), self._start()))
        return CoalescedWork(self._start_packed(function, group))

    def _start_packed(self, function: str, group: ProcessGroup) -> Coalesced:
        limits = [each for each in self._all("_timeout") if each is not None]
        target = Target(group, True, limits[0] if limits else None)
        ops, outputs = self._all("op", ReduceOp.SUM), self._outputs()
        if function == "all_reduce":
            return reduce_all(outputs, ops, target)
        if function == "all_gather_single":
            inputs = self._all("input_tensor")
            return gather_singles(outputs, inputs, target)
        inputs = self._all("input")
        return reduce_scatter_singles(outputs, inputs, ops, target)

    def _all(self, name: str, otherwise: Any = None) -> list[Any]:
        return [given.get(name, otherwise) for _, given in self.calls]

    def _outputs(self) -> list[Any]:
        return [next(iter(given.values())) for _, given in self.calls]

    def _start(self) -> list[Any]:
        return [
            getattr(_C, function)(**{**given, "async_op": True})
            for function, given in self.calls
        ]


@contextmanager
def _coalescing_manager(
    group: ProcessGroup | None = None,
    device: Any | None = None,
    async_ops: bool = False,
) -> Iterator[_CoalescingManager]:
    """Collects the all_reduce, all_gather_single or reduce_scatter_single inside.

    They run at the end, as one operation for the small arrays of a dtype and
    reduction, and one for each large array, or, on a device, together in one call; with
    `async_ops` the object's wait() waits for them.
    All must be of one kind; whatever else is called inside, runs at once.  An exception
    inside drops what was collected.
    `device` means nothing here.
    """
    manager = _CoalescingManager()
    if is_outside(group):
        yield manager
        return
    used = world.require_default() if group is None else group
    collection = _Collection()
    former = used._set_handler(collection)
    if isinstance(former, _Collection):
        used._set_handler(former)
        raise ValueError(
            "ProcessGroup has non-empty op list at the start of coalescing"
        )
    try:
        yield manager
    finally:
        used._set_handler(former)
    if not collection.calls:
        return
    work = collection.run(used)
    manager.append(work)
    if not async_ops:
        work.wait()
