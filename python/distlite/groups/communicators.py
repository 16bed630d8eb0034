# SPDX-License-Identifier: BSD-3-Clause
"""How a group's communicator for devices follows from that of its members' last group.

The members tell each other what they have, and so decide alike: where they are some of
the last group's, in its order, the communicator is shrunk, and where they are all of
these and newcomers after them, it grows.  Otherwise the group gets a new one.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np

from .._C import (
    ProcessGroup,
    _device_connect,
    _device_grow,
    _device_name,
    _device_shrink,
    _device_ways,
    all_gather_single,
    barrier,
)
from ..stores.timeouts import time_left

__all__ = ["Row", "connect_members", "ranks_to_exclude"]

# Of `Row.has`; the first three are the core's.
CAN_SHRINK, CAN_GROW, IS_READY, SAW_DEATH = 1, 2, 4, 8


@dataclass(frozen=True)
class Row:
    """What a member has.

    Args:
        number: What identifies its last group, if that is ready.
        rank: Its rank there.
        size: The size of that group.
        has: The numbers above.
        device: The device that it was told to use, or -1.
    """

    number: int
    rank: int
    size: int
    has: int
    device: int


def connect_members(
    made: ProcessGroup,
    former: ProcessGroup,
    number: int | None,
    device_id: object,
    until: float,
) -> None:
    """Makes the communicator of `made`, if it follows from that of `former` or the
    members have a `device_id`; else the first operation does.  All members call it.

    `number` identifies `former` among the members, and is None if it has none. The
    timeout of `made` becomes what is left of the time `until`."""
    made.set_timeout(time_left(until))
    if _device_name(made) is None:
        barrier(made)
        return
    own = _own_row(made, former, number, device_id)
    rows = _exchange(made, own)
    made.set_timeout(time_left(until))
    excluded = ranks_to_exclude(rows)
    if excluded:
        saw_death = any(row.has & SAW_DEATH for row in rows)
        _device_shrink(former, excluded, int(saw_death), made)
    elif excluded is not None:
        is_old = made.rank() < rows[0].size
        _device_grow(former if is_old else None, own.device, made)
    elif all(row.device >= 0 for row in rows):
        _device_connect(made, own.device)
    else:
        return
    made.set_timeout(time_left(until))
    _exchange(made, own)


def _own_row(
    made: ProcessGroup, former: ProcessGroup, number: int | None, device_id: object
) -> Row:
    from .nccl import index_of

    device = -1 if device_id is None else index_of(device_id)
    has = _device_ways(made) | _device_ways(former) & IS_READY
    if any(former._has_ended(rank) for rank in range(former.size())):
        has |= SAW_DEATH
    return Row(number or 0, former.rank(), former.size(), has, device)


def _exchange(made: ProcessGroup, own: Row) -> list[Row]:
    mine = np.array([astuple(own)], np.int64)
    rows = np.empty((made.size(), mine.size), np.int64)
    all_gather_single(rows, mine, made)
    return [Row(*row) for row in rows.tolist()]


def ranks_to_exclude(rows: list[Row]) -> list[int] | None:
    """Returns the ranks by which a communicator is shrunk, [] if it grows, and None if
    the group gets a new one."""
    first = rows[0]
    old = [
        row.rank if row.has & IS_READY and row.number == first.number else None
        for row in rows
    ]
    everybody = list(range(first.size))
    newcomers = rows[first.size :]
    if not newcomers and all(row.has & CAN_SHRINK for row in rows):
        excluded = [rank for rank in everybody if rank not in old]
        is_in_order = old == [rank for rank in everybody if rank in old]
        return excluded if excluded and is_in_order else None
    can_grow = newcomers and all(row.has & CAN_GROW for row in rows)
    is_known = all(row.device >= 0 for row in newcomers)
    return [] if can_grow and is_known and old[: first.size] == everybody else None
