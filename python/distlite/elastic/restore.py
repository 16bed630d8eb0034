# SPDX-License-Identifier: BSD-3-Clause
"""The state of a member, from those that have it to those that do not."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from .._C import (
    DistBackendError,
    ProcessGroup,
    Work,
    broadcast,
    broadcast_object_list,
    irecv,
    send,
)
from ..groups.backends import backends_of
from ..groups.group_making import child_request, make_group
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


def send_state(view: View, state: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the state on every member; `state` is None on those that are behind.

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
    # Arrays without elements carry dtypes, also those that `dtype.str` does not tell.
    kinds = {name: np.empty(0, each.dtype) for name, each in arrays.items()}
    shapes = {name: each.shape for name, each in arrays.items()}
    # A small state is sent with them, by one source.
    is_small = sum(each.nbytes for each in arrays.values()) <= SMALL
    small = arrays if is_small else None
    told: list[Any] = [kinds, shapes, others, small]
    broadcast_object_list(told, group=view.group, group_src=view.sources[0])
    if state is None:
        kinds, shapes, others, small = told
        arrays = {n: np.empty(shapes[n], each.dtype) for n, each in kinds.items()}
    elif told[1] != shapes or any(kinds[n].dtype != told[0][n].dtype for n in kinds):
        raise DistBackendError(
            "the members that have the state differ in their arrays: dump() must "
            "return the same names, shapes and dtypes on all of them"
        )
    if small is not None:
        return {**others, **small}
    # In the order of the first source: another one may have them in its own.
    _send_stripes(view, [flat(arrays[name]) for name in told[1]])
    return {**arrays, **others}


def flat(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the bytes of an array, in its own memory."""
    return array.reshape(-1).view(np.uint8)


def _send_stripes(view: View, blocks: list[np.ndarray[Any, Any]]) -> None:
    count = len(view.sources)
    is_source = view.group.rank() in view.sources
    works, groups = [], []
    # One who leaves ends `view.group`, and not the groups of stripes: the others learn
    # it from these messages, which say that all stripes are there.
    peers = view.behind if is_source else view.sources
    ends = [
        irecv(np.empty(0), None, view.group, ALL_THERE, group_src=each)
        for each in peers
    ]
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
