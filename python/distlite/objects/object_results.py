# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of objects that return their results, for distlite.functional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _C
from .._C import (
    ProcessGroup,
    broadcast_object_list,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from ..groups.world import get_world_size, is_outside
from .object_call import GATHER, Call, begin_call
from .object_collectives import exchanged


def broadcast_object(
    obj: Any = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    *,
    group_src: int | None = None,
    safe: bool | None = None,
) -> Any:
    """Gives all ranks an object of one rank.

    Args:
        obj: The object on the source; it is ignored on the other ranks.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        group_src: The rank of the source in `group`, instead of `src`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Returns:
        On the source `obj` itself, on the other ranks a copy.

    Example:
        >>> dist.functional.broadcast_object({"rate": 0.1} if rank == 0 else None)
        {'rate': 0.1}
    """
    _require_member("functional.broadcast_object", group)
    found = [obj]
    broadcast_object_list(found, src, group, group_src=group_src, safe=safe)
    return found[0]


def all_gather_object(
    obj: Any, group: ProcessGroup | None = None, *, safe: bool | None = None
) -> list[Any]:
    """Collects an object of each rank, on every rank.

    Args:
        obj: The object that this rank contributes.
        group: The group; None is the default group.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Returns:
        The objects by rank, copies of all.

    Example:
        >>> dist.functional.all_gather_object(f"worker {rank}")
        ['worker 0', 'worker 1']
    """
    _require_member("functional.all_gather_object", group)
    found: list[Any] = [None] * get_world_size(group)
    _C.all_gather_object(found, obj, group, safe=safe)
    return found


def gather_object(
    obj: Any,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    *,
    group_dst: int | None = None,
    safe: bool | None = None,
) -> list[Any] | None:
    """Collects an object of each rank, on one rank.

    Args:
        obj: The object that this rank contributes.
        dst: The global rank of the destination, 0 by default.
        group: The group; None is the default group.
        group_dst: The rank of the destination in `group`, instead of `dst`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Returns:
        On the destination the objects by rank, copies of all; None on the other ranks.

    Example:
        >>> found = dist.functional.gather_object({"rank": rank}, dst=0)
        >>> if rank == 0:
        ...     print(found)
        [{'rank': 0}, {'rank': 1}]
    """
    _require_member("functional.gather_object", group)
    call: Call | None = _C._kept_call(GATHER, group, dst, group_dst, safe)
    call = call or begin_call(GATHER, "gather_object", group, (dst, group_dst), safe)
    assert call is not None
    got = exchanged(call, obj)
    return got if call.rank == call.root else None


def scatter_object(
    objects: Sequence[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    *,
    group_src: int | None = None,
    safe: bool | None = None,
) -> Any:
    """Gives each rank one object of one rank.

    Args:
        objects: On the source a list with an object for each rank; it is ignored on the
            other ranks.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        group_src: The rank of the source in `group`, instead of `src`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Returns:
        A copy of this rank's object.

    Example:
        >>> shards = ["even", "odd"] if rank == 0 else None
        >>> dist.functional.scatter_object(shards) == ["even", "odd"][rank]
        True
    """
    _require_member("functional.scatter_object", group)
    found: list[Any] = [None]
    scatter_object_list(found, objects, src, group, group_src=group_src, safe=safe)
    return found[0]


def send_object(
    obj: Any,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    *,
    group_dst: int | None = None,
    safe: bool | None = None,
) -> None:
    """Sends an object to one rank, which calls `functional.recv_object`.

    Args:
        obj: The object.
        dst: The global rank of the receiver.
        group: The group; None is the default group.
        group_dst: The rank of the receiver in `group`, instead of `dst`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Example:
        >>> if rank == 0:
        ...     dist.functional.send_object({"step": 3}, dst=1)
        ... else:
        ...     print(dist.functional.recv_object(src=0))
        {'step': 3}
    """
    _require_member("functional.send_object", group)
    send_object_list([obj], dst, group, group_dst=group_dst, safe=safe)


def recv_object(
    src: int | None = None,
    group: ProcessGroup | None = None,
    *,
    group_src: int | None = None,
    safe: bool | None = None,
) -> Any:
    """Receives an object that one rank sends with `functional.send_object`.

    Args:
        src: The global rank of the sender.
        group: The group; None is the default group.
        group_src: The rank of the sender in `group`, instead of `src`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Returns:
        The object.

    Example:
        >>> if rank == 0:
        ...     dist.functional.send_object({"step": 3}, dst=1)
        ... else:
        ...     print(dist.functional.recv_object(src=0))
        {'step': 3}
    """
    _require_member("functional.recv_object", group)
    found: list[Any] = [None]
    recv_object_list(found, src, group, group_src=group_src, safe=safe)
    return found[0]


def _require_member(name: str, group: ProcessGroup | None) -> None:
    if is_outside(group):
        raise ValueError(
            f"{name}: this process is not a member of the group, and would have no "
            "result"
        )
