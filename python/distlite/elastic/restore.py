# SPDX-License-Identifier: BSD-3-Clause
"""The state of a member, from those that have it to those that do not."""

from __future__ import annotations

import time
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from .._C import (
    DistBackendError,
    ProcessGroup,
    Work,
    all_reduce,
    broadcast,
    broadcast_object_list,
    irecv,
    recv_object_list,
    send,
    send_object_list,
)
from ..groups.backends import backends_of
from ..groups.group_making import child_request, make_group
from ..groups.reduce_op import ReduceOp
from ..groups.world import GroupInfo

# Loaded now, because the members wait for what a source imports.
from ..objects import object_collectives  # noqa: F401

if TYPE_CHECKING:
    from .member import View

__all__ = ["send_state"]

# Bytes of a state for which groups of the sources are not made.
SMALL = 1 << 20
# The tag of the message that all stripes are there.
ALL_THERE = 0x7374
# Seconds between two looks at the peers of a stripe.
LOOK = 0.1
# Seconds that a peer may need longer to tell that it has all stripes: its own error
# names whose stripe is missing.
LONGER = 1.0


def send_state(
    view: View, state: dict[str, Any] | None, deadline: float
) -> dict[str, Any]:
    """Returns the state on every member; `state` is None on those that are behind.

    It leaves the group with a timeout that ends at the deadline.

    Every source and all that are behind are a group, in which the source broadcasts its
    stripe of each array: so more sources share the work, and several that are behind
    receive the same stripe at once."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    others: dict[str, Any] = {}
    for name, value in (state or {}).items():
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        else:
            others[name] = value
    _bound(view.group, deadline)
    _compare(view, None if state is None else arrays)
    # Arrays without elements carry dtypes, also those that `dtype.str` does not tell.
    kinds = {name: np.empty(0, each.dtype) for name, each in arrays.items()}
    shapes = {name: each.shape for name, each in arrays.items()}
    # A small state is sent with them, by one source.
    is_small = sum(each.nbytes for each in arrays.values()) <= SMALL
    told: list[Any] = [kinds, shapes, others, arrays if is_small else None]
    _bound(view.group, deadline)
    _send_list(view, told)
    kinds, shapes, others, small = told
    if state is None:
        arrays = {n: np.empty(shapes[n], each.dtype) for n, each in kinds.items()}
    if small is not None:
        return {**others, **small}
    # Sources may have them in orders of their own.
    _send_stripes(view, [flat(arrays[name]) for name in sorted(arrays)], deadline)
    return {**arrays, **others}


def _compare(view: View, arrays: dict[str, np.ndarray[Any, Any]] | None) -> None:
    """Raises on all members if the arrays of the sources differ."""
    digest = -(1 << 62)  # of those that are behind, less than any
    if arrays is not None:
        kinds = sorted((name, *_kind_of(each)) for name, each in arrays.items())
        digest = int.from_bytes(sha256(repr(kinds).encode()).digest()[:7], "big")
    ends = np.array([digest, digest if arrays is None else -digest])
    all_reduce(ends, op=ReduceOp.MAX, group=view.group)
    if ends[0] != -ends[1]:
        raise DistBackendError(
            "the members that have the state differ in their arrays: dump() must "
            "return the same names, shapes and dtypes on all of them"
        )


def _kind_of(array: np.ndarray[Any, Any]) -> tuple[Any, ...]:
    dtype = array.dtype
    # The text of a type that has fields takes longer than all else.
    fields = repr(dtype) if dtype.names or dtype.subdtype else ""
    return array.shape, dtype.str, dtype.type.__name__, fields


def _send_list(view: View, told: list[Any]) -> None:
    """Sends a list of objects from sources to those that are behind."""
    group, rank, count = view.group, view.group.rank(), len(view.sources)
    if len(view.behind) > count:
        broadcast_object_list(told, group=group, group_src=view.sources[0])
    elif rank in view.sources:
        for each in view.behind[view.sources.index(rank) :: count]:
            send_object_list(told, group=group, group_dst=each)
    else:
        source = view.sources[view.behind.index(rank) % count]
        recv_object_list(told, group=group, group_src=source)


def flat(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the bytes of an array, in its own memory."""
    return array.reshape(-1).view(np.uint8)


def _bound(group: ProcessGroup, deadline: float) -> None:
    """Lets the operations of a group that follow end by a deadline."""
    if deadline < float("inf"):
        group.set_timeout(max(0.001, deadline - time.monotonic()))


def _send_stripes(
    view: View, blocks: list[np.ndarray[Any, Any]], deadline: float
) -> None:
    count = len(view.sources)
    is_source = view.group.rank() in view.sources
    works, groups = [], []
    # One who leaves ends `view.group`, and not the groups of stripes: the others learn
    # it from these messages, which say that all stripes are there.
    peers = view.behind if is_source else view.sources
    _bound(view.group, deadline + LONGER)
    ends = [
        irecv(np.empty(0), None, view.group, ALL_THERE, group_src=each)
        for each in peers
    ]
    _bound(view.group, deadline)
    try:
        for turn, source in enumerate(view.sources):
            ranks = sorted([source, *view.behind])
            if view.group.rank() not in ranks:
                continue
            group = _stripe_group(view, ranks, turn)
            groups.append(group)
            for block in blocks:
                first, last = (block.size * t // count for t in (turn, turn + 1))
                if first < last:
                    stripe, root = block[first:last], ranks.index(source)
                    work = broadcast(stripe, None, group, True, group_src=root)
                    works.append(work)
        for work in works:
            _wait(work, ends)
        for each in peers:
            send(np.empty(0), None, view.group, ALL_THERE, group_dst=each)
        for end in ends:
            end.wait()
    finally:
        for group in groups:
            group.shutdown()


def _wait(work: Work, ends: list[Work]) -> None:
    """Waits for a stripe, or until a peer has left the epoch, which it raises."""
    while not work.is_completed():
        for each in ends:
            if each.is_completed():
                each.wait()
        with suppress(DistBackendError):
            work.wait(LOOK)
    work.wait()


def _stripe_group(view: View, ranks: list[int], turn: int) -> ProcessGroup:
    info = GroupInfo(backends_of(None), ranks)
    label = f"{view.group.group_name}.stripe.{turn}"
    request = child_request(view.group, ranks, info, view.group.timeout, label)
    request.description = f"stripe {turn} of {len(view.sources)} of the state"
    return make_group(request)
