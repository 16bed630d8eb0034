# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of one kind, collected in a `with` statement and run at its end."""

from __future__ import annotations

from contextlib import contextmanager

from . import _C
from ._C import Work
from .aliasing import Packed, apart
from .group_methods import CoalescedWork
from .p2p import is_on_device
from .world import is_outside, world

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ._C import ProcessGroup

    Given = dict[str, Any]

__all__ = ["_CoalescingManager", "_IllegalWork", "_coalescing_manager"]

_COLLECTED = ("all_reduce", "all_gather_single", "reduce_scatter_single")


class _IllegalWork(Work):
    """What a collected operation returns: there is nothing to wait for yet."""

    def __getattribute__(self, name: str) -> Any:
        if name in (
            *("wait", "is_success", "exception", "result", "synchronize"),
            *("source_rank", "is_completed", "get_future"),
        ):
            raise ValueError(f"Illegal to call {name} on IllegalWork object")
        return object.__getattribute__(self, name)


class _CoalescingManager:
    """What the `with` statement gives: after it, the work of all operations."""

    def __init__(self) -> None:
        self.works: list[Any] = []

    def append(self, work: Any) -> None:
        """Wait for this one, too."""
        if work:
            self.works.append(work)

    def wait(self) -> None:
        """Return when all have ended."""
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
        """Starts them all, in their order; on a device, in one call."""
        first = next(iter(self.calls[0][1].values()))
        packed = self._pack()
        if _C._device_name(group) is None or not is_on_device(first):
            return CoalescedWork(self._start(), packed)
        from .nccl import batch

        with batch(group, is_async=True) as started:
            self._start()
        return CoalescedWork(started.works, packed)

    def _pack(self) -> Packed | None:
        """Lets no operation read what one before it has written."""
        function, _ = self.calls[0]
        if function == "all_reduce":
            packed = Packed([given["tensor"] for _, given in self.calls])
            for (_, given), used in zip(self.calls, packed.used, strict=True):
                given["tensor"] = used
            return packed
        gathers = function == "all_gather_single"
        name = "input_tensor" if gathers else "input"
        outputs = [
            given["output_tensor" if gathers else "output"] for _, given in self.calls
        ]
        for i, (_, given) in enumerate(self.calls):
            (given[name],) = apart([given[name]], outputs[:i])
        return None

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

    They run at the end, one after the other without waiting in between, or, on a
    device, together in one call; with `async_ops` the object's wait() waits for them.
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
