# SPDX-License-Identifier: BSD-3-Clause
"""Groups of some of the processes, and groups made by hand.

Subgroups are made from the default group, whose ranks know each other. The name of
each, by which its members find it, comes from a count that is the same on all ranks: of
all groups, if every process takes part in every call, or of the groups of just these
ranks, if only members do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from operator import index
from typing import Any, Literal, overload

from .. import _C
from .._C import ProcessGroup, Store
from .backends import backends_of
from .group_making import child_request, make_group, remember
from .lifecycle import _check_extras, _limit_of, _store_based_barrier
from .world import GroupInfo, GroupMember, Numbers, info_of, is_outside, world

__all__ = ["new_group", "new_subgroups", "new_subgroups_by_enumeration"]


@overload
def new_group(
    ranks: Iterable[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    use_local_synchronization: Literal[False] = False,
    group_desc: str | None = None,
    device_id: Any | None = None,
    sort_ranks: bool = True,
) -> ProcessGroup: ...
@overload
def new_group(
    ranks: Iterable[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any | None = None,
    sort_ranks: bool = True,
) -> ProcessGroup | None: ...
def new_group(
    ranks: Iterable[int] | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any | None = None,
    sort_ranks: bool = True,
) -> ProcessGroup | None:
    """Makes a group of some processes.

    All processes of the default group call it, members or not, and make groups in the
    same order. With `use_local_synchronization` only the members call it.

    Args:
        ranks: The global ranks of the members; None is all processes.
        timeout: The time that each operation may take, a `timedelta` or seconds; None
            is 30 minutes.
        backend: The backend, as in `init_process_group`; None is that of the default
            group.
        pg_options: Options of the backend NCCL, `ProcessGroupNCCL.Options`.
        use_local_synchronization: If True, only the members call it.
        group_desc: What the group is for, for messages.
        device_id: The CUDA device of this process: its communicator is made at once.
        sort_ranks: If False, the ranks in the group follow the order of `ranks`.

    Returns:
        The group. On the other processes it is `GroupMember.NON_GROUP_MEMBER`, or None
        with `use_local_synchronization`.

    Raises:
        TypeError: `ranks` is not a list of integers.
        ValueError: A rank is out of range or listed twice, the list is empty, or there
            is no default group.

    Example:
        >>> pair = dist.new_group([0, 1], group_desc="neighbours")
        >>> values = np.array([rank])
        >>> dist.all_reduce(values, group=pair)
        >>> int(values[0])
        1
    """
    default = world.require_default()
    known = info_of(default)
    backends = backends_of(backend) if backend else known.backends
    limit = _limit_of(timeout, backends)
    _check_extras(backends, pg_options, device_id)
    members = _members_of(ranks, default.size(), sort_ranks)
    if use_local_synchronization and default.rank() not in members:
        return None
    label = next_name(members, use_local_synchronization)
    made = GroupMember.NON_GROUP_MEMBER
    try:
        if default.rank() in members:
            info = GroupInfo(backends, members, device_id)
            request = child_request(default, members, info, limit, label)
            request.description = group_desc or "undefined"
            request.pg_options, request.device_id = pg_options, device_id
            made = make_group(request)
            # From here on _leave_unseen() leaves it.
            remember(made, info)
        if os.environ.get("TORCH_DIST_INIT_BARRIER") == "1":
            count = len(members) if use_local_synchronization else default.size()
            store = default.get_group_store()
            _store_based_barrier(default.rank(), store, label, count, limit)
    except BaseException:
        _leave_unseen(label)
        raise
    return made


def _leave_unseen(label: str) -> None:
    """Leaves the group of this name, whose constructor raised an exception.

    The program never gets it and so cannot abort it; the other members would wait for
    this rank until their timeout.
    """
    for group in list(world.groups):
        if group.group_name == label:
            world.drop(group)
            group.shutdown()


def _members_of(
    ranks: Iterable[int] | None, world_size: int, is_sorted: bool
) -> list[int]:
    """Returns the global ranks in group order; raises ValueError if they cannot be a
    group."""
    if ranks is None:
        return list(range(world_size))
    try:
        members = [index(rank) for rank in ranks]
    except TypeError:
        raise TypeError(f"ranks must be a list of integers, not {ranks!r}") from None
    if is_sorted:
        members.sort()
    if not members:
        raise ValueError("ranks list must not be empty")
    if len(members) > world_size:
        raise ValueError(
            "the new group's world size should be less or equal to "
            "the world size set by init_process_group"
        )
    for rank in members:
        if not 0 <= rank < world_size:
            raise ValueError(
                f"Rank {rank} is out of range. Valid ranks are 0 to {world_size - 1} "
                f"(world_size={world_size})"
            )
    if len(set(members)) != len(members):
        raise ValueError(
            f"ranks list must not contain duplicate entries, got {members}"
        )
    return members


def next_name(members: list[int], is_local: bool) -> str:
    """Returns the name of the next group of these ranks, the same on all of them."""
    if not is_local:
        return f"{world.name_prefix}{world.numbers.take() - world.name_base}"
    import hashlib

    # The count is not that of all groups, on which the members need not agree.
    turn = world.local_groups.setdefault(tuple(members), Numbers()).take()
    # The numbers belong to this default group; shrink_group() may make another one.
    text = f"{world.require_default().group_name}:{members}#{turn}"
    return hashlib.sha1(text.encode()).hexdigest()


def new_subgroups(
    group_size: int | None = None,
    group: ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Divides a group into groups of one size, in the order of the ranks.

    All processes of the group call it.

    Args:
        group_size: The number of ranks in each new group, a divisor of the size of
            `group`. It has no default, unlike torch's.
        group: The group; None is the default group.
        timeout: The time that each operation may take, as in `new_group`.
        backend: The backend, as in `new_group`.
        pg_options: Options of the backend, as in `new_group`.
        group_desc: What the groups are for, for messages.

    Returns:
        The group of this process, and a list of all groups, which has
        `GroupMember.NON_GROUP_MEMBER` in place of those of other processes.

    Raises:
        ValueError: `group_size` is missing or does not divide the size of the group.

    Example:
        >>> own, groups = dist.new_subgroups(1)
        >>> dist.get_process_group_ranks(own) == [rank], len(groups)
        (True, 2)
    """
    if group_size is None:
        raise ValueError("'group_size' has no default here: there are no accelerators")
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    ranks = info_of(group).ranks
    if group_size > len(ranks):
        raise ValueError(
            f"The arg 'group_size' ({group_size}) must not exceed the world size "
            f"({len(ranks)})"
        )
    if len(ranks) % group_size:
        raise ValueError(
            f"The world size ({len(ranks)}) must be divisible by '{group_size=}'"
        )
    parts = [ranks[i : i + group_size] for i in range(0, len(ranks), group_size)]
    # Only the members of `group` call this.
    is_local = len(ranks) < world.require_default().size()
    groups = [
        new_group(part, timeout, backend, pg_options, is_local, group_desc, None, False)
        for part in parts
    ]
    return _own_and_all(groups)


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Iterable[Iterable[int]],
    timeout: timedelta | float | None = None,
    backend: str | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    """Makes a group of each of several lists of ranks.

    All processes of the default group call it.

    Args:
        ranks_per_subgroup_list: The lists of global ranks; no rank is in two of them.
        timeout: The time that each operation may take, as in `new_group`.
        backend: The backend, as in `new_group`.
        pg_options: Options of the backend, as in `new_group`.
        group_desc: What the groups are for, for messages.

    Returns:
        The group of this process (None if it is in none of the lists), and a list of
        all groups, which has `GroupMember.NON_GROUP_MEMBER` in place of those of other
        processes.

    Raises:
        ValueError: There are no lists, or a rank is in two of them.

    Example:
        >>> own, groups = dist.new_subgroups_by_enumeration([[0], [1]])
        >>> dist.get_process_group_ranks(own) == [rank], len(groups)
        (True, 2)
    """
    # A list, because a generator can be iterated over only once.
    lists = [list(ranks) for ranks in ranks_per_subgroup_list]
    if not lists:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    listed: dict[int, Sequence[int]] = {}
    for ranks in lists:
        for rank in ranks:
            # new_group() refuses a rank that is twice in one list.
            if listed.setdefault(rank, ranks) is not ranks:
                raise ValueError(
                    f"Rank {rank} has appeared in both subgroup {listed[rank]} "
                    f"and {ranks}"
                )
    return _own_and_all(
        [
            new_group(ranks, timeout, backend, pg_options, False, group_desc)
            for ranks in lists
        ]
    )


def _own_and_all(
    groups: Sequence[ProcessGroup | None],
) -> tuple[ProcessGroup, list[ProcessGroup]]:
    outside = GroupMember.NON_GROUP_MEMBER
    all_of = [outside if group is None else group for group in groups]
    own: Any = next((group for group in all_of if not is_outside(group)), None)
    return own, all_of


def _ask_subclass(group: ProcessGroup, function: str, given: dict[str, Any]) -> Any:
    from .custom import handle

    return handle(group, function, given)


_C._set_custom_handler(_ask_subclass)


def _get_default_group() -> ProcessGroup:
    return world.require_default()


def _get_default_store() -> Store:
    return world.require_default().get_group_store()


def _get_process_group_name(pg: Any) -> str:
    is_known = isinstance(pg, ProcessGroup) and pg in world.groups
    return str(pg.group_name) if is_known else "None"


def _rank_not_in_group(group: object) -> bool:
    return is_outside(group)
