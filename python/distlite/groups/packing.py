# SPDX-License-Identifier: BSD-3-Clause
"""Coalesced calls: several arrays in one operation.

All small arrays of one dtype go as one pack (`csrc/python/arrays/pack.h`), which the
core reads and writes as one array; a large array gains nothing from that, and goes
alone.  Which go together follows from sizes and dtypes alone, so that all ranks do the
same.  Such a call is one operation: all arrays are read before any of them is written
to, whatever memory they share.  `op` is of all arrays, or a list has one for each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any

from .. import _C
from .._C import ProcessGroup, Work, _find_shared, _pack, _pack_blocks, _plan_packs
from .reduce_op import has_kernel
from .world import world

__all__ = [
    *("Coalesced", "Target", "gather_lists", "gather_singles", "reduce_all"),
    *("reduce_scatter_singles", "send_to_all"),
]

# Bytes from which on an array goes alone: its copies into the pack and out of it cost
# as much as an operation of its own, on the CPU backend with two ranks of one host.
LARGE = 1 << 14


class Target:
    """The group of a coalesced call, whether it is asynchronous, and its own timeout;
    None is the group's.
    """

    def __init__(
        self, group: ProcessGroup | None, async_op: bool, timeout: Any = None
    ) -> None:
        self.group, self.async_op = group, async_op
        self.limit = {} if timeout is None else {"_timeout": timeout}

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a function of the core."""
        return function(
            *args, group=self.group, async_op=self.async_op, **self.limit, **named
        )

    def require_group(self) -> ProcessGroup:
        """Returns the group, which may be the default one."""
        return world.require_default() if self.group is None else self.group


class Coalesced:
    """The works of a coalesced call, and the copies to make once they have ended."""

    def __init__(
        self,
        outputs: Sequence[Any],
        works: Iterable[Work | None],
        copies: Sequence[tuple[Any, Any]] = (),
    ) -> None:
        self.outputs = list(outputs)
        self.works = [work for work in works if work is not None]
        self._copies = copies
        self._lock = RLock()

    def finish(self) -> None:
        """Copies results that were made in temporary arrays to the caller's arrays.

        If another thread does so, waits for it.  After Ctrl-C the next call does it
        again.
        """
        with self._lock:
            for array, result in self._copies:
                _assign(array, result)
            self._copies = ()


class _Copies:
    """A list of arrays in which those with an index in `shared` are replaced by copies;
    `pairs` has each of these arrays with its copy."""

    def __init__(self, arrays: Sequence[Any], shared: Iterable[int]) -> None:
        self.arrays = list(arrays)
        self.pairs: list[tuple[Any, Any]] = []
        for i in sorted(set(shared)):
            self.arrays[i] = _copy_of(arrays[i])
            self.pairs.append((arrays[i], self.arrays[i]))

    def take(self, indices: Sequence[int]) -> Any:
        """Returns the array of one index, or a pack of several."""
        if len(indices) == 1:
            return self.arrays[indices[0]]
        return _pack(self.some(indices))

    def some(self, indices: Sequence[int]) -> list[Any]:
        """Returns the arrays of these indices."""
        return [self.arrays[i] for i in indices]


def reduce_all(arrays: Sequence[Any], op: Any, target: Target) -> Coalesced:
    """Begins all_reduce of each array."""
    plan = _plan(arrays, op, target.group)
    # A single pack is read as a whole before it is written to.
    used = _Copies(arrays, _find_shared(arrays) if len(plan) > 1 else ())
    with _one_event("all_reduce", arrays, target, plan):
        works = [
            target.call(_C.all_reduce, used.take(indices), _at(op, indices[0]))
            for indices in plan
        ]
    return Coalesced(arrays, works, used.pairs)


def _one_event(
    operation: str, inputs: Sequence[Any], to: Target, plan: Sequence[Sequence[int]]
) -> AbstractContextManager[None]:
    """Makes the operations of a plan one event of torch's profiler if it is on."""
    module = sys.modules.get("torch._C._autograd")
    if len(plan) < 2 or module is None or not module._profiler_enabled():
        return nullcontext()
    from ..tools import profiler_events

    return profiler_events.as_one(to.require_group(), operation, inputs)


def send_to_all(arrays: Sequence[Any], root: int, group: Any) -> None:
    """Copies each array of the group's rank `root` to all ranks."""
    for indices in _plan_packs(arrays, LARGE, group):
        some = [arrays[i] for i in indices]
        whole: Any = some[0] if len(some) == 1 else _pack(some)
        _C.broadcast(whole, group_src=root, group=group)


def gather_lists(
    outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], target: Target
) -> Coalesced:
    """Begins all_gather of each input; outputs[rank][i] is for the rank's array i."""
    count = len(inputs)
    every = [array for of_rank in outputs for array in of_rank]
    read, written = _for_gather(inputs, every)
    plan = _plan_packs(inputs, LARGE, target.group)
    works = []
    with _one_event("all_gather", inputs, target, plan):
        for indices in plan:
            lists = [
                written.take([start + i for i in indices])
                for start in range(0, len(every), count)
            ]
            works.append(target.call(_C.all_gather, lists, read.take(indices)))
    return Coalesced(every, works, written.pairs)


def gather_singles(
    outputs: Sequence[Any], inputs: Sequence[Any], target: Target
) -> Coalesced:
    """Begins all_gather_single of each pair."""
    read, written = _for_gather(inputs, outputs)
    size, works = target.require_group().size(), []
    for indices in _plan_packs(inputs, LARGE, target.group):
        source = read.take(indices)
        if len(indices) == 1:
            whole = written.take(indices)
            works.append(target.call(_C.all_gather_single, whole, source))
        else:
            blocks = _pack_blocks(written.some(indices), size)
            works.append(target.call(_C.all_gather, blocks, source))
    return Coalesced(outputs, works, written.pairs)


def reduce_scatter_singles(
    outputs: Sequence[Any], inputs: Sequence[Any], op: Any, target: Target
) -> Coalesced:
    """Begins reduce_scatter_single of each pair."""
    # Outputs are smaller than inputs, so the outputs are replaced by copies.
    shared = [*_find_shared(outputs), *_find_shared(outputs, inputs)]
    written, read = _Copies(outputs, shared), _Copies(inputs, ())
    size, works = target.require_group().size(), []
    for indices in _plan(outputs, op, target.group):
        its, part = _at(op, indices[0]), written.take(indices)
        if len(indices) == 1:
            source = read.take(indices)
            works.append(target.call(_C.reduce_scatter_single, part, source, its))
        else:
            blocks = _pack_blocks(read.some(indices), size)
            works.append(target.call(_C.reduce_scatter, part, blocks, its))
    return Coalesced(outputs, works, written.pairs)


def _for_gather(
    inputs: Sequence[Any], outputs: Sequence[Any]
) -> tuple[_Copies, _Copies]:
    return (
        _Copies(inputs, _find_shared(inputs, outputs)),
        _Copies(outputs, _find_shared(outputs)),
    )


def _at(op: Any, index: int) -> Any:
    return op[index] if isinstance(op, list) else op


def _plan(arrays: Sequence[Any], op: Any, group: Any) -> list[list[int]]:
    """Returns lists of the indices that go together in one operation.

    Only this rank knows whether its factors are equal: with several reductions, arrays
    whose reduction has a factor go alone, as do those whose reduction has no kernel.
    """
    if not isinstance(op, list):
        if not has_kernel(op):
            return [[i] for i in range(len(arrays))]
        return _plan_packs(arrays, LARGE, group)
    by_op: dict[Any, list[int]] = {}
    for i, each in enumerate(op):
        is_alone = not has_kernel(each) or getattr(each, "factor", None) is not None
        by_op.setdefault(i if is_alone else str(each), []).append(i)
    plan = []
    for chosen in by_op.values():
        some = [arrays[i] for i in chosen]
        plan += [[chosen[i] for i in each] for each in _plan_packs(some, LARGE, group)]
    return plan


def _copy_of(array: Any) -> Any:
    if hasattr(array, "clone"):
        return array.detach().clone()
    if hasattr(array, "copy"):
        return array.copy()
    raise ValueError(
        f"arrays of a coalesced call share memory, and {type(array).__name__} has no "
        "copy(): pass copies"
    )


def _assign(array: Any, result: Any) -> None:
    if hasattr(array, "copy_"):
        array.detach().copy_(result)
    else:
        array[...] = result
