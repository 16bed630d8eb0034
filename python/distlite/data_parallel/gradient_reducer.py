# SPDX-License-Identifier: BSD-3-Clause
"""Averages gradients over the ranks, while the backward pass computes others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np

from .._C import ProcessGroup, all_reduce, broadcast
from ..groups.reduce_op import ReduceOp
from ..groups.world import is_outside, world
from .gradient_buckets import MEBIBYTE, Bucket, Parameter, is_read_only, plan
from .gradient_check import explain_missing, same_everywhere, unused_everywhere

Key: TypeAlias = int | str
Arrays: TypeAlias = Mapping[Any, Any] | Sequence[Any]

__all__ = ["GradientReducer"]


class GradientReducer:
    """Averages gradients over the ranks of a group, in buckets, in the background.

    The constructor and `finish` are collective: all ranks call them, in the same order
    among the operations of the group. Only one thread at a time may use a reducer.

    A gradient has the shape and the dtype of its parameter, and is in one of three
    places:

    - in the array that is passed to `ready`;
    - in `gradients`, if it is passed to the constructor;
    - in the attribute `gradients` of the reducer, where nothing needs to be copied.

    Args:
        parameters: The parameters, a dict or a list of arrays: NumPy arrays, or torch
            tensors on the CPU. Every rank has the same names, shapes and dtypes, in the
            same order.
        gradients: The arrays of the gradients, with the keys of `parameters`.
        group: The group; None is the default group.
        bucket_cap_mb: The size of a bucket in MiB; the first one has at most 1 MiB.
            Buckets are expected to fill up from the last parameter to the first. If
            gradients become ready in another order in the first step, the buckets are
            rebuilt once, in the order of rank 0, unless a rank has used the attribute
            `gradients`.
        find_unused: If True, steps may leave gradients out, which then count as zero.
            The attribute `unused` names gradients that no rank has; their arrays are
            not changed.
        average: If False, gradients are added up and not divided.
        broadcast: If True, the parameters are set to those of rank 0.

    Raises:
        ValueError: The parameters or the arguments differ between the ranks; all ranks
            raise the same error.

    Example:
        >>> from distlite.data_parallel import GradientReducer
        >>> parameters = {"weight": np.zeros(2), "bias": np.zeros(1)}
        >>> reducer = GradientReducer(parameters)
        >>> bias, weight = np.full(1, rank + 1.0), np.full(2, 10.0 * rank)
        >>> reducer.ready("bias", bias)
        >>> reducer.ready("weight", weight)
        >>> reducer.finish()
        >>> bias, weight
        (array([1.5]), array([5., 5.]))
    """

    unused: tuple[Key, ...] = ()
    _is_fixed = False  # the program has the arrays in the buckets
    _is_syncing = True
    _steps = 0

    def __init__(
        self,
        parameters: Arrays,
        gradients: Arrays | None = None,
        *,
        group: ProcessGroup | None = None,
        bucket_cap_mb: float = 25.0,
        find_unused: bool = False,
        average: bool = True,
        broadcast: bool = True,
    ) -> None:
        arrays = _by_key(parameters)
        self._group = _member_of(group)
        self._parameters = _known(arrays, average, broadcast)
        self._numbers = {each.key: each.number for each in self._parameters}
        self._given = None if gradients is None else self._check_given(gradients)
        self._cap = bucket_cap_mb * MEBIBYTE
        self._finds_unused = find_unused
        self._op = ReduceOp.AVG if average else ReduceOp.SUM
        settings = {
            **{"bucket_cap_mb": bucket_cap_mb, "find_unused": find_unused},
            **{"average": average, "broadcast": broadcast},
        }
        same_everywhere(self._parameters, settings, self._group)
        _broadcast(arrays.values() if broadcast else (), self._group)
        self._make_buckets(self._parameters[::-1])

    def __repr__(self) -> str:
        known = vars(self)
        if "_next" not in known:
            return f"<{type(self).__name__} at {id(self):#x}, before __init__()>"
        count = len(self._buckets)
        size = sum(bucket.size for bucket in self._buckets) / MEBIBYTE
        total = len(self._parameters)
        return (
            f"<{type(self).__name__}: {total} parameters, {count} "
            f"bucket{'' if count == 1 else 's'}, {size:.1f} MiB, in group "
            f"{self._group.group_name!r}; step {self._steps + 1}, {len(self._seen)} of "
            f"{total} gradients ready>"
        )

    def _check_given(self, gradients: Arrays) -> list[Any]:
        given = _by_key(gradients)
        if list(given) != list(self._numbers):
            raise ValueError(
                "GradientReducer: gradients need the keys of the parameters, in the "
                f"same order: {list(self._numbers)}, not {list(given)}"
            )
        for parameter, gradient in zip(self._parameters, given.values(), strict=True):
            parameter.check(gradient)
        return list(given.values())

    def _make_buckets(self, expected: Sequence[Parameter]) -> None:
        self._buckets = [
            Bucket(parameters, self._group) for parameters in plan(expected, self._cap)
        ]
        self._bucket_of = {i: bucket for bucket in self._buckets for i in bucket.views}
        self._begin_step()

    def _begin_step(self) -> None:
        for bucket in self._buckets:
            bucket.begin_step()
        self._next = 0  # the bucket to be launched next
        self._seen: dict[int, Any] = {}  # where the gradient is, in the order of ready

    @property
    def gradients(self) -> dict[Key, Any]:
        """The arrays in the buckets, by key; gradients written there need no copy.
        After the first use of this attribute, buckets are not rebuilt.
        """
        self._is_fixed = True
        return {
            each.key: self._bucket_of[each.number].views[each.number]
            for each in self._parameters
        }

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Leaves out the reduction of the steps within a with statement.

        There `ready` and `finish` return at once. The caller adds up the gradients in
        the same arrays, and the next step outside reduces the sums. All ranks use it in
        the same steps.
        """
        before, self._is_syncing = self._is_syncing, False
        try:
            yield
        finally:
            self._is_syncing = before

    def ready(self, key: Key, gradient: Any = None) -> None:
        """Marks a gradient as computed.

        It must not be used until `finish`. If it is the last one of its bucket, and the
        reductions of the buckets before have begun, the reduction of the bucket begins.

        Args:
            key: The name or the index of the parameter.
            gradient: The array, unless it was passed to the constructor or is in the
                attribute `gradients`.

        Raises:
            KeyError: There is no such parameter.
            TypeError: The gradient is not an array of the parameter's library.
            ValueError: The gradient has another shape or dtype.
            RuntimeError: The gradient was already marked in this step.
        """
        if not self._is_syncing:
            return
        number = self._numbers.get(key)
        if number is None:
            raise KeyError(f"GradientReducer: there is no parameter {key!r}")
        if number in self._seen:
            raise RuntimeError(
                f"GradientReducer: {key!r} is ready for the second time since finish()"
            )
        bucket = self._bucket_of[number]
        view = bucket.views[number]
        if gradient is not None:
            gradient = self._parameters[number].check(gradient)
        elif self._given is not None:
            gradient = self._given[number]
        else:
            gradient = view
        if gradient is not view:
            view[...] = gradient
        self._seen[number] = gradient
        bucket.waiting -= 1
        if not bucket.waiting:
            self._launch_full_ones()

    def _launch_full_ones(self) -> None:
        # Buckets are sent in the same order on all ranks, whatever the order in which
        # they fill up.
        while self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            if bucket.waiting:
                return
            bucket.launch(all_reduce, self._op, self._group)
            self._next += 1

    def finish(self) -> None:
        """Waits for all reductions, and puts each average where the gradient was.

        Gradients that only other ranks have computed are in the attribute `gradients`.

        Raises:
            RuntimeError: A gradient is missing on a rank, and `find_unused` is False.
                All ranks raise it. The gradients of this step cannot be used.
            DistBackendError: A peer failed or did not arrive in time.
        """
        if not self._is_syncing:
            return
        try:
            self._launch_rest()
            self._take_averages()
        finally:
            seen = list(self._seen)
            self._begin_step()
        self._steps += 1
        if self._steps == 1:
            self._rebuild(seen)

    def _launch_rest(self) -> None:
        for bucket in self._buckets[self._next :]:
            for number, view in bucket.views.items():
                if number not in self._seen:
                    view[...] = 0
            bucket.launch(all_reduce, self._op, self._group)
        self._next = len(self._buckets)

    def _take_averages(self) -> None:
        partial = []
        for bucket in self._buckets:
            bucket.wait()
            if bucket.is_whole():
                self._write_back(bucket, ())
            else:
                partial.append(bucket)
        self.unused = ()
        if partial:
            self._take_partial(partial)

    def _take_partial(self, partial: Iterable[Bucket]) -> None:
        """Completes buckets of which some rank did not have all gradients."""
        used = np.zeros(len(self._parameters), np.uint8)
        used[list(self._seen)] = 1
        if not self._finds_unused:
            raise explain_missing(used, self._parameters, self._group)
        unused = unused_everywhere(used, self._group)
        self.unused = tuple(self._parameters[i].key for i in sorted(unused))
        for bucket in partial:
            self._write_back(bucket, unused)

    def _write_back(self, bucket: Bucket, unused: Iterable[int]) -> None:
        for number, view in bucket.views.items():
            target = self._seen.get(number)
            if target is None and self._given is not None and number not in unused:
                target = self._given[number]
            if target is not None and target is not view:
                target[...] = view

    def _rebuild(self, seen: Sequence[int]) -> None:
        """Makes the buckets anew in the order of rank 0's first step, unless the
        program of some rank has the arrays in the buckets.  It is collective."""
        expected = list(reversed(range(len(self._parameters))))
        # One sum tells all ranks rank 0's order, and how many ranks have fixed buckets.
        message = np.zeros(len(expected) + 1, np.int64)
        if self._group.rank() == 0:
            message[:-1] = [*seen, *(i for i in expected if i not in set(seen))]
        message[-1] = self._is_fixed
        all_reduce(message, ReduceOp.SUM, self._group)
        *order, fixed = message.tolist()
        if not fixed and order != expected:
            self._make_buckets([self._parameters[i] for i in order])


def _member_of(group: ProcessGroup | None) -> ProcessGroup:
    if is_outside(group):
        raise ValueError("GradientReducer: this rank is not in the group")
    return world.require_default() if group is None else group


def _known(
    arrays: Mapping[Key, Any], average: bool, broadcast: bool
) -> list[Parameter]:
    if not arrays:
        raise ValueError("GradientReducer: there are no parameters")
    found = [Parameter(i, key, array) for i, (key, array) in enumerate(arrays.items())]
    for each in found:
        if average and not each.has_fractions():
            raise TypeError(
                f"GradientReducer: {each.key!r} is {each.describe()}, which cannot be "
                "averaged; pass average=False to sum"
            )
        # Rank 0 only reads its own, but must fail as well: the others would not take
        # part in the broadcast.
        if broadcast and is_read_only(arrays[each.key]):
            raise ValueError(
                f"GradientReducer: parameter {each.key!r} is read-only and cannot "
                "become rank 0's: make a copy, or, if all ranks have the same values, "
                "pass broadcast=False"
            )
    return found


def _by_key(arrays: Arrays) -> dict[Key, Any]:
    if hasattr(arrays, "keys"):
        return dict(arrays)
    return dict(enumerate(arrays))


def _broadcast(arrays: Iterable[Any], group: ProcessGroup) -> None:
    """Copies all arrays from the group's first rank."""
    plain = (a.detach() if hasattr(a, "detach") else a for a in arrays)
    works = [broadcast(a, group=group, async_op=True, group_src=0) for a in plain]
    for work in works:
        work.wait()
