# SPDX-License-Identifier: BSD-3-Clause
"""Private names of torch.distributed.distributed_c10d that other libraries use.

Trainers and model servers make a group outside of the default group with them, or find
one by its name.  Arguments, results and errors are torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from .._C import PrefixStore, ProcessGroup, Store
from .backends import backends_of
from .group_making import GroupRequest, make_group, remember
from .lifecycle import _limit_of
from .packing import send_to_all
from .world import GroupInfo, GroupMember, get_rank, info_of, is_outside, world


class _GroupRanks:
    """The ranks of each group by global rank, as `{global rank: rank}`.

    An assignment is remembered, also for a group that was unknown."""

    def __getitem__(self, group: ProcessGroup) -> dict[int, int]:
        return {rank: i for i, rank in enumerate(info_of(group).ranks)}

    def __setitem__(self, group: ProcessGroup, ranks: dict[int, int]) -> None:
        if sorted(ranks.values()) != list(range(group.size())):
            raise ValueError(f"{ranks} is not a numbering of {group.size()} ranks")
        info = world.groups.get(group)
        if info is None:
            info = GroupInfo(backends_of(ProcessGroup.name(group)), [])
        info.ranks = sorted(ranks, key=ranks.__getitem__)
        remember(group, info)


class _WorldView:
    """What this process knows of its groups, by torch's names."""

    pg_group_ranks = _GroupRanks()

    @property
    def default_pg(self) -> ProcessGroup | None:
        """The default group."""
        return world.default


_world = _WorldView()


def _new_process_group_helper(
    group_size: int,
    group_rank: int,
    global_ranks_in_group: list[int],
    backend: str | None,
    store: Store,
    group_name: str,
    backend_options: Any = None,
    timeout: timedelta | None = None,
    pg_tag: str | None = None,
    device_id: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, Store | None]:
    """Makes a group of processes that meet at a store, and which need no default group.

    `global_ranks_in_group` are its ranks in the default group; empty if it has none of
    its own, as when two jobs are joined.  Returns the group and its store;
    `GroupMember.NON_GROUP_MEMBER` and None where this process is not a member.
    """
    if any(group.group_name == group_name for group in world.groups):
        raise ValueError(
            "The specified group name has already been created, please use a different "
            "group name"
        )
    default = world.default
    known = set(global_ranks_in_group) if default is not None else ()
    if known and get_rank() not in known:
        return GroupMember.NON_GROUP_MEMBER, None
    backends = backends_of(backend)
    ranks = list(global_ranks_in_group) or list(range(group_size))
    info = GroupInfo(backends, ranks, device_id)
    keys = PrefixStore(f"{group_name}/", store)
    request = GroupRequest(info, keys, group_rank, _limit_of(timeout, backends))
    request.label, request.description = group_name, group_desc or "undefined"
    request.pg_options, request.device_id = backend_options, device_id
    group = make_group(request)
    remember(group, info)
    return group, keys


def _register_process_group(group_name: str, group: ProcessGroup) -> None:
    """Lets a group be found by its name.

    One that is new here gets the global ranks 0 to size - 1."""
    if group.group_name != group_name:
        raise ValueError(f"group {group.group_name} cannot be registered as another")
    if group not in world.groups:
        _world.pg_group_ranks[group] = {rank: rank for rank in range(group.size())}


def _unregister_process_group(group_name: str) -> None:
    """Forgets a group without leaving it."""
    for group in list(world.groups):
        if group.group_name == group_name:
            world.drop(group)


def _resolve_process_group(group_name: str) -> ProcessGroup:
    """Returns the group of this name; raises RuntimeError if there is none."""
    for group in world.groups:
        if group.group_name == group_name:
            return group
    raise RuntimeError(
        f"Could not resolve the process group registered under the name {group_name}"
    )


def _abort_process_group(group: ProcessGroup | None = None) -> None:
    """Ends a group without waiting for other ranks; None is the default group, and with
    it all groups."""
    if is_outside(group):
        return
    ended = world.require_default() if group is None else group
    if ended not in world.groups:
        raise ValueError("Invalid process group specified or has been destroyed.")
    from .lifecycle import _forget_all

    for each in list(world.groups) if ended is world.default else [ended]:
        each.abort()
    if ended is world.default:
        _forget_all()
    else:
        world.drop(ended)
        ended.shutdown()


def _broadcast_coalesced(
    process_group: ProcessGroup, tensors: Sequence[Any], buffer_size: int, src: int = 0
) -> None:
    """Copies the arrays of the group's rank `src` to all of its ranks.

    `buffer_size` is accepted as in torch: which arrays travel together follows from
    their sizes.
    """
    send_to_all(list(tensors), src, process_group)
