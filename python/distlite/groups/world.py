# SPDX-License-Identifier: BSD-3-Clause
"""The process's groups: which there are, which is the default group, and their ranks.

The only module with global state.  The extension keeps a second reference to the
default group, so that collectives find it without calling this module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from threading import get_ident
from types import TracebackType
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from .. import _C
from .._C import ProcessGroup, Store
from .backends import DeviceBackends
from .check_in import Presence

ExceptHook = Callable[
    [type[BaseException], BaseException, TracebackType | None], object
]

__all__ = [
    "GroupMember",
    "get_backend",
    "get_backend_config",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "is_available",
    "is_initialized",
    "is_torchelastic_launched",
]

NOT_INITIALIZED = (
    "Default process group has not been initialized, "
    "please make sure to call init_process_group."
)


class Numbers:
    """Gives out numbers one after the other, each once, to any threads and without a
    lock, which an interrupt might leave locked."""

    __slots__ = ("_given", "next")

    def __init__(self, first: int = 0) -> None:
        self.next = first
        self._given: dict[int, object] = {}

    def take(self) -> int:
        number, mine = self.next, object()
        while self._given.setdefault(number, mine) is not mine:
            number += 1
            self.next = number  # after an interrupt, counting goes on from here
        self.next = number + 1
        return number


class GroupInfo:
    """The record of a group in the world."""

    __slots__ = (
        "backends",
        "bound_device",
        "children",
        "disputes",
        "ranks",
    )

    def __init__(
        self, backends: DeviceBackends, ranks: list[int], device_id: object = None
    ) -> None:
        self.backends = backends
        self.ranks = ranks  # global ranks, in group order
        self.bound_device: str | None = None  # "cuda:0", if it was given
        self.children = Numbers()  # of its splits
        self.disputes = 0  # how often its ranks did not agree on how to shrink it
        if device_id is not None:
            from .nccl import index_of

            self.bound_device = f"cuda:{index_of(device_id)}"


class World:
    """The state of the module; `world` below is that of the process."""

    is_of_thread = False

    def __init__(self) -> None:
        self.default: ProcessGroup | None = None
        self.groups: dict[ProcessGroup, GroupInfo] = {}
        # The number of groups since the default group was made, which is counted as
        # well.
        self.numbers = Numbers()
        # A default group that has replaced another one counts anew, with names of its
        # own: its ranks need not have made equally many groups before.
        self.name_prefix, self.name_base = "", 0
        # The numbers of groups that only their members made, by ranks.
        self.local_groups: dict[tuple[int, ...], Numbers] = {}
        # The store whose server a peer may already use for the next initialisation.
        self.hosted_store: Store | None = None
        # Shows a second process with the same rank that this one is in a default group.
        self.presence: Presence | None = None
        # The attempts of groups to agree (agreement.py).
        self.agreements: WeakKeyDictionary[ProcessGroup, Any] = WeakKeyDictionary()
        # distlite's exception hook and the one that it replaced, while a default group
        # exists.
        self.except_hook: ExceptHook | None = None
        self.replaced_except_hook: ExceptHook | None = None

    def set_default(self, default: ProcessGroup | None) -> None:
        """Sets the default group, also in the extension, where collectives find it."""
        _C._set_default_group(default)
        self.default = default

    def require_default(self) -> ProcessGroup:
        default = self.default
        if default is None:
            raise ValueError(NOT_INITIALIZED)
        return default

    def drop(self, group: ProcessGroup) -> None:
        """Takes a group out of the world, and drops its calls on objects, which were
        described by its place there."""
        self.groups.pop(group, None)
        _C._forget_calls(group)

    @property
    def group_count(self) -> int:
        return self.numbers.next

    @group_count.setter
    def group_count(self, count: int) -> None:
        self.numbers = Numbers(count)


class ThreadWorld(World):
    """The world of one thread, which acts as a rank (distlite.testing.world)."""

    is_of_thread = True

    def set_default(self, default: ProcessGroup | None) -> None:
        """Sets the world of the calling thread."""
        _C._set_thread_group(default)
        self.default = default


class RoutedWorld(World):
    """The world of the calling thread if it has one of its own, else the process's.

    `world` becomes one of these only while there are such threads, so that programs
    without them are not slowed down.
    """

    of_threads: ClassVar[dict[int, ThreadWorld]] = {}  # by the thread's number

    def __getattribute__(self, name: str) -> Any:
        own = RoutedWorld.of_threads.get(get_ident(), self)
        return object.__getattribute__(own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = RoutedWorld.of_threads.get(get_ident(), self)
        object.__setattr__(own, name, value)


world = World()


class _WorldProperty(type):
    """Gives a class the attribute WORLD, which may be assigned."""

    @property
    def WORLD(cls) -> ProcessGroup | None:
        return world.default

    @WORLD.setter
    def WORLD(cls, default: ProcessGroup | None) -> None:
        world.set_default(default)


class group(metaclass=_WorldProperty):
    """The holder of the default group.

    `group.WORLD` is the default group, and None before `init_process_group`.

    Example:
        >>> dist.group.WORLD.size()
        2
    """


class GroupMember(metaclass=_WorldProperty):
    """The default group, and the object that stands for groups of other processes.

    `GroupMember.WORLD` is the default group. `GroupMember.NON_GROUP_MEMBER` is what
    `new_group` returns to processes that are not members; operations on it do nothing.

    Example:
        >>> group = dist.new_group([0])
        >>> (group is dist.GroupMember.NON_GROUP_MEMBER) == (rank == 1)
        True
    """

    # A number, as in torch; it may be passed where a function takes a group.
    NON_GROUP_MEMBER: ProcessGroup = -100  # type: ignore[assignment]


def is_outside(group: object) -> bool:
    """Returns whether `group` stands for one that this process is not in."""
    outside: object = GroupMember.NON_GROUP_MEMBER
    return type(group) is int and group == outside


def info_of(group: ProcessGroup | None) -> GroupInfo:
    """Returns the record of `group` (None: the default one); ValueError if unknown."""
    wanted = world.require_default() if group is None else group
    info = world.groups.get(wanted)
    if info is None:
        raise ValueError(
            f"Process group {wanted} is not initialized in the world group map. "
            "Please initialize the group first."
        )
    return info


def _registered(group: ProcessGroup | None) -> ProcessGroup:
    default = world.require_default()
    if group is None:
        return default
    if group not in world.groups and group is not default:
        raise ValueError(
            f"Group {group} is not registered, "
            "please create group with distlite.new_group API"
        )
    return group


def is_available() -> bool:
    """Returns whether the package works on this machine.

    Returns:
        True, always; torch has builds where it is False.

    Example:
        >>> dist.is_available()
        True
    """
    return True


def is_initialized() -> bool:
    """Returns whether there is a default group.

    Returns:
        True after `init_process_group`, until `destroy_process_group`.

    Example:
        >>> dist.is_initialized()
        False
        >>> dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        >>> dist.is_initialized()
        True
    """
    return world.default is not None


def is_torchelastic_launched() -> bool:
    """Returns whether `distlite run` or torchrun has started this process.

    Returns:
        True if TORCHELASTIC_RUN_ID is set.

    Example:
        >>> dist.is_torchelastic_launched()
        False
    """
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_rank(group: ProcessGroup | None = None) -> int:
    """Returns the rank of this process in a group.

    Args:
        group: The group; None is the default group.

    Returns:
        A number from 0 to the size of the group - 1; -1 if this process is not a
        member.

    Raises:
        ValueError: There is no default group, or the group is not known.

    Example:
        >>> dist.get_rank() == rank
        True
    """
    return -1 if is_outside(group) else _registered(group).rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Returns the number of processes in a group.

    Args:
        group: The group; None is the default group.

    Returns:
        The number; -1 if this process is not a member.

    Raises:
        ValueError: There is no default group, or the group is not known.

    Example:
        >>> dist.get_world_size()
        2
    """
    return -1 if is_outside(group) else _registered(group).size()


def get_backend(group: ProcessGroup | None = None) -> str:
    """Returns the name of the backend of a group, as it was requested.

    Args:
        group: The group; None is the default group.

    Returns:
        The name in lower case, "undefined" if none was requested.

    Raises:
        ValueError: This process is not a member of the group, or the group is not
            known.

    Example:
        >>> dist.get_backend()
        'gloo'
    """
    if is_outside(group):
        raise ValueError("Invalid process group specified")
    return info_of(group).backends.name


def get_backend_config(group: ProcessGroup | None = None) -> str:
    """Returns which backend serves which device in a group.

    Args:
        group: The group; None is the default group.

    Returns:
        Pairs of a device and a backend, separated by commas.

    Raises:
        ValueError: This process is not a member of the group, or the group is not
            known.

    Example:
        >>> dist.get_backend_config()
        'cpu:gloo,cuda:gloo'
    """
    if is_outside(group):
        raise ValueError("Invalid process group specified")
    return str(info_of(group).backends)


def get_pg_count() -> int:
    """Returns the number of groups that have been made, the default group included.

    Example:
        >>> before = dist.get_pg_count()
        >>> group = dist.new_group()
        >>> dist.get_pg_count() - before
        1
    """
    return world.group_count


def get_process_group_ranks(group: ProcessGroup | None) -> list[int]:
    """Returns the global ranks of the members of a group.

    Args:
        group: The group; None is the default group.

    Returns:
        A list, in the order of the ranks in the group.

    Raises:
        ValueError: The group is not known.

    Example:
        >>> dist.get_process_group_ranks(None)
        [0, 1]
    """
    return list(info_of(group).ranks)


def set_timeout(timeout: timedelta | float, group: ProcessGroup | None = None) -> None:
    """Sets the time that an operation of a group may take from now on.

    Args:
        timeout: A `timedelta` or seconds; negative is no limit.
        group: The group; None is the default group.

    Raises:
        ValueError: This process is not a member of the group, or there is no default
            group.

    Example:
        >>> group = dist.new_group([0, 1])
        >>> dist.set_timeout(60, group)
        >>> group.timeout
        datetime.timedelta(seconds=60)
    """
    if is_outside(group):
        raise ValueError("Invalid process group specified: this rank is not in it")
    (world.require_default() if group is None else group).set_timeout(timeout)


def get_group_rank(group: ProcessGroup | None, global_rank: int) -> int:
    """Returns the rank in a group of the process with a global rank.

    Args:
        group: The group; None is the default group.
        global_rank: The rank in the default group.

    Returns:
        The rank in `group`.

    Raises:
        ValueError: The process is not a member of the group.

    Example:
        >>> group = dist.new_group([1, 0], sort_ranks=False)
        >>> dist.get_group_rank(group, 1)
        0
    """
    if group is None or group is world.default:
        return global_rank
    ranks = info_of(_registered(group)).ranks
    if global_rank not in ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return ranks.index(global_rank)


def get_global_rank(group: ProcessGroup | None, group_rank: int) -> int:
    """Returns the global rank of the process with a rank in a group.

    Args:
        group: The group; None is the default group.
        group_rank: The rank in `group`.

    Returns:
        The rank in the default group.

    Raises:
        ValueError: The group has no such rank.

    Example:
        >>> group = dist.new_group([1, 0], sort_ranks=False)
        >>> dist.get_global_rank(group, 0)
        1
    """
    if group is None or group is world.default:
        return group_rank
    ranks = info_of(_registered(group)).ranks
    if not 0 <= group_rank < len(ranks):
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return ranks[group_rank]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Returns the rank of this process among those of its host.

    It comes from the launcher: LOCAL_RANK, or the variables of `srun` and `mpirun`.

    Args:
        fallback_rank: The result if the launcher has not set it.

    Returns:
        The rank.

    Raises:
        RuntimeError: The launcher has not set it, and `fallback_rank` is not given.
        ValueError: LOCAL_RANK is not a number.

    Example:
        >>> dist.get_node_local_rank(fallback_rank=0)
        0
    """
    if text := os.environ.get("LOCAL_RANK"):
        if not text.strip().isdecimal():
            raise ValueError(f"LOCAL_RANK must be a number, but is {text!r}")
        return int(text)
    if not os.environ.get("RANK"):
        from ..cluster import find_member

        if (member := find_member()) and member.local_rank >= 0:
            return member.local_rank
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank "
        "to allow `get_node_local_rank` to work, assuming you are not running in a "
        "multi-device context and want the code to run locally instead."
    )
