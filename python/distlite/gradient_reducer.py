# SPDX-License-Identifier: BSD-3-Clause
"""Gradients averaged over the ranks, while the backward pass computes others."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import NamedTuple

from ._C import all_reduce, broadcast
from .gradient_buckets import MEBIBYTE, Bucket, Parameter, is_read_only, plan
from .gradient_check import explain_missing, same_everywhere, unused_everywhere
from .reduce_op import ReduceOp
from .world import is_outside, world

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeAlias

    from ._C import ProcessGroup

    Key: TypeAlias = int | str
    Arrays: TypeAlias = Mapping[Any, Any] | Sequence[Any]

__all__ = ["GradientReducer", "ReducerStatistics"]


class ReducerStatistics(NamedTuple):
    """Of the last step that was reduced, as this rank saw it; times in seconds."""

    steps: int  # how many there were
    bucket_names: tuple[tuple[int | str, ...], ...]  # in the order of reduction
    bucket_bytes: tuple[int, ...]
    compute_seconds: float  # begin() (or the first ready()) to the last ready()
    communication_seconds: float  # buckets on their way, waits for peers included
    waiting_seconds: float  # of those, the part that finish() had to wait for
    copying_seconds: float  # in ready() and finish(), beside the waiting

    @property
    def overlap(self) -> float:
        """The part of the communication that went on beside something else, 0 to 1."""
        if self.communication_seconds <= 0:
            return 0.0
        return max(0.0, 1 - self.waiting_seconds / self.communication_seconds)


class GradientReducer:
    """Averages gradients over the ranks of a group, in buckets, in the background.

    ::

        reducer = GradientReducer(parameters)  # a dict or list of arrays
        for batch in batches:
            for name, gradient in backward(batch):  # from the last layer to the first
                reducer.ready(name, gradient)
            reducer.finish()  # each `gradient` is the average now

    `parameters` are NumPy arrays or torch tensors on the CPU.  They are set to rank 0's
    unless `broadcast` is false.  Every rank has to have the same names, shapes and
    dtypes in the same order; if not, all raise the same ValueError.

    A gradient has the parameter's shape and dtype, and is found in one of three places:

    - in the array that ready() is given;
    - in `gradients`, if those are given here, with the keys of `parameters`;
    - in ``reducer.gradients[key]``, where nothing needs to be copied.

    Buckets have up to `bucket_cap_mb` MiB, the first one up to `first_bucket_mb`; they
    are expected to fill up from the last parameter to the first.  If the first step
    shows another order, they are made anew in that of rank 0, once, unless `rebuild` is
    false or some rank has asked for `reducer.gradients`, which then stay in place.

    With `find_unused`, steps may leave gradients out: they count as zero.  Arrays of
    those that no rank has stay as they are, and `unused` names them.  `average=False`
    adds up and does not divide.  The constructor and finish() are collective: all ranks
    call them, in the same order among the group's operations.  Not for several threads
    at once.
    """

    unused: tuple[Key, ...] = ()
    _is_fixed = False  # somebody has the arrays in the buckets
    _is_syncing = True
    _steps = 0
    _statistics: ReducerStatistics | None = None

    def __init__(
        self,
        parameters: Arrays,
        gradients: Arrays | None = None,
        *,
        group: ProcessGroup | None = None,
        bucket_cap_mb: float = 25.0,
        first_bucket_mb: float = 1.0,
        find_unused: bool = False,
        average: bool = True,
        broadcast: bool = True,
        rebuild: bool = True,
    ) -> None:
        arrays = _by_key(parameters)
        self._group = _member_of(group)
        self._parameters = _known(arrays, average, broadcast)
        self._numbers = {each.key: each.number for each in self._parameters}
        self._given = None if gradients is None else self._check_given(gradients)
        self._caps = bucket_cap_mb * MEBIBYTE, first_bucket_mb * MEBIBYTE
        self._finds_unused = find_unused
        self._op = ReduceOp.AVG if average else ReduceOp.SUM
        self._shall_rebuild = rebuild
        settings = {
            **{"bucket_cap_mb": bucket_cap_mb, "first_bucket_mb": first_bucket_mb},
            **{"find_unused": find_unused, "average": average},
            **{"broadcast": broadcast, "rebuild": rebuild},
        }
        same_everywhere(self._parameters, settings, self._group)
        _broadcast(arrays.values() if broadcast else (), self._group)
        self._make_buckets(self._parameters[::-1])

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
            Bucket(parameters, self._group)
            for parameters in plan(expected, *self._caps)
        ]
        self._bucket_of = {i: bucket for bucket in self._buckets for i in bucket.views}
        self._begin_step()

    def _begin_step(self) -> None:
        for bucket in self._buckets:
            bucket.begin_step()
        self._next = 0  # the bucket to be launched next
        self._seen: dict[int, Any] = {}  # where the gradient is, in the order of ready
        self._began_at: float | None = None
        self._last_ready_at = 0.0
        self._copying = 0.0

    @property
    def gradients(self) -> dict[Key, Any]:
        """Arrays in the buckets, by key: whoever writes there saves the copies.

        They stay where they are from the first time that anybody asks.
        """
        self._is_fixed = True
        return {
            each.key: self._bucket_of[each.number].views[each.number]
            for each in self._parameters
        }

    @property
    def statistics(self) -> ReducerStatistics | None:
        """Of the last step that was reduced; None before the first."""
        return self._statistics

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Steps inside are not reduced: ready() and finish() return at once.

        Their gradients are the caller's to add up, in the same arrays; the next step
        outside reduces what is in them then.  All ranks do this in the same steps.
        """
        before, self._is_syncing = self._is_syncing, False
        try:
            yield
        finally:
            self._is_syncing = before

    def begin(self) -> None:
        """The backward pass begins; only the statistics need to know."""
        self._began_at = time.monotonic()

    def ready(self, key: Key, gradient: Any = None) -> None:
        """A gradient is done: here, in the constructor's, or in `gradients[key]`.

        It is not to be touched until finish().  When it is the last of its bucket, and
        those before have gone, the bucket goes on its way.  KeyError, TypeError or
        ValueError if it is not this parameter's; RuntimeError the second time.
        """
        if not self._is_syncing:
            return
        now = time.monotonic()
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
        if self._began_at is None:
            self._began_at = now
        # Before this call's own work: that is not the backward pass's.
        self._last_ready_at = now - self._copying
        if gradient is not view:
            view[...] = gradient
        self._seen[number] = gradient
        bucket.waiting -= 1
        if not bucket.waiting:
            self._launch_full_ones()
        self._copying += time.monotonic() - now

    def _launch_full_ones(self) -> None:
        # In the same order on all ranks, whatever the order in which they fill up.
        while self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            if bucket.waiting:
                return
            bucket.launch(all_reduce, self._op, self._group)
            self._next += 1

    def finish(self) -> None:
        """Waits for all reductions, and puts each average where the gradient was.

        What this rank has not computed and others have is in `gradients[key]`.  Without
        `find_unused` all ranks raise the same RuntimeError if a gradient is missing on
        any of them; gradients are then worth nothing, and the next step begins anew.
        """
        if not self._is_syncing:
            return
        try:
            self._launch_rest()
            self._take_averages()
        finally:
            seen = list(self._seen)
            self._begin_step()
        if self._shall_rebuild:
            self._shall_rebuild = False
            self._rebuild(seen)

    def _launch_rest(self) -> None:
        if self._began_at is None:
            self._began_at = self._last_ready_at = time.monotonic()
        for bucket in self._buckets[self._next :]:
            for number, view in bucket.views.items():
                if number not in self._seen:
                    view[...] = 0
            bucket.launch(all_reduce, self._op, self._group)
        self._next = len(self._buckets)

    def _take_averages(self) -> None:
        began = time.monotonic()
        waiting = 0.0
        partial = []
        for bucket in self._buckets:
            before = time.monotonic()
            bucket.wait()
            waiting += time.monotonic() - before
            if bucket.is_whole():
                self._write_back(bucket, ())
            else:
                partial.append(bucket)
        self.unused = ()
        if partial:
            self._take_partial(partial)
        self._copying += time.monotonic() - began - waiting
        self._steps += 1
        self._statistics = self._measured(waiting)

    def _take_partial(self, partial: Iterable[Bucket]) -> None:
        """Some rank had not all gradients of these."""
        import numpy as np

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

    def _measured(self, waiting: float) -> ReducerStatistics:
        assert self._began_at is not None
        busy = end = 0.0
        for bucket in self._buckets:
            busy += max(0.0, bucket.ended_at - max(bucket.launched_at, end))
            end = max(end, bucket.ended_at)
        return ReducerStatistics(
            steps=self._steps,
            bucket_names=tuple(
                tuple(each.key for each in bucket.parameters)
                for bucket in self._buckets
            ),
            bucket_bytes=tuple(bucket.size for bucket in self._buckets),
            compute_seconds=max(0.0, self._last_ready_at - self._began_at),
            communication_seconds=busy,
            waiting_seconds=waiting,
            copying_seconds=self._copying,
        )

    def _rebuild(self, seen: Sequence[int]) -> None:
        """Collective: buckets in the order of rank 0's first step, if nobody minds."""
        import numpy as np

        expected = list(reversed(range(len(self._parameters))))
        # One sum tells everybody rank 0's order, and how many mind.
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
                f"GradientReducer: {each.key!r} is {each.describe()}, which has no "
                "averages; average=False adds up"
            )
        # Rank 0 only reads its own: it would be alone in a broadcast.
        if broadcast and is_read_only(arrays[each.key]):
            raise ValueError(
                f"GradientReducer: parameter {each.key!r} is read-only and cannot "
                "become rank 0's: make a copy, or, if all ranks have the same, say "
                "broadcast=False"
            )
    return found


def _by_key(arrays: Arrays) -> dict[Key, Any]:
    if hasattr(arrays, "keys"):
        return dict(arrays)
    return dict(enumerate(arrays))


def _broadcast(arrays: Iterable[Any], group: ProcessGroup) -> None:
    """Makes all arrays those of the group's first rank."""
    plain = (a.detach() if hasattr(a, "detach") else a for a in arrays)
    works = [broadcast(a, group=group, async_op=True, group_src=0) for a in plain]
    for work in works:
        work.wait()
