# SPDX-License-Identifier: BSD-3-Clause
"""Private names of torch.distributed.distributed_c10d that other libraries use.

Trainers, model servers and meshes use them to make a group outside of the default
group, to find a group by its name, or to read its configuration.  Arguments, results
and errors are torch's.
"""

from __future__ import annotations

import io
import os
import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from .. import _C
from .._C import PrefixStore, ProcessGroup, Store
from ..constants import default_pg_timeout
from .backends import (
    Backend,
    BackendConfig,
    DeviceBackends,
    backends_of,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from .group_making import GroupRequest, make_group, remember
from .lifecycle import _limit_of
from .p2p import P2POp
from .subgroups import new_group
from .world import (
    GroupInfo,
    GroupMember,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    info_of,
    is_outside,
    world,
)

PG_WRAPPER_STORE_PREFIX = "pg_wrapper"
STORE_BASED_BARRIER_PREFIX = "store_based_barrier_key"

_pickler = pickle.Pickler
_unpickler = pickle.Unpickler


T = TypeVar("T")


class _OfGroups(MutableMapping[ProcessGroup, T]):
    """One fact of each group.  An assignment is remembered, also for a group that was
    unknown, which gets the global ranks 0 to size - 1; a deletion forgets the group."""

    def __init__(
        self,
        read: Callable[[ProcessGroup, GroupInfo], T],
        write: Callable[[ProcessGroup, GroupInfo, T], None],
    ) -> None:
        self._read = read
        self._write = write

    def __getitem__(self, group: ProcessGroup) -> T:
        return self._read(group, world.groups[group])

    def __setitem__(self, group: ProcessGroup, value: T) -> None:
        if not isinstance(group, ProcessGroup):
            raise TypeError(f"a ProcessGroup is needed, not {group!r}")
        info = world.groups.get(group)
        if info is None:
            name = ProcessGroup.name(group)
            info = GroupInfo(backends_of(name), list(range(group.size())))
        self._write(group, info, value)
        world.groups[group] = info

    def __delitem__(self, group: ProcessGroup) -> None:
        # Not an error if it is gone: torch's are separate dicts, which a library
        # empties one after another.
        world.groups.pop(group, None)

    def __iter__(self) -> Iterator[ProcessGroup]:
        return iter(world.groups)

    def __len__(self) -> int:
        return len(world.groups)

    def __repr__(self) -> str:
        return repr(dict(self))


def _write_backend(
    group: ProcessGroup, info: GroupInfo, value: tuple[str | None, Store | None]
) -> None:
    """Sets the backend's name; the store remains the one that the group was made
    with."""
    backend, _ = value
    by_device = info.backends.by_device
    info.backends = DeviceBackends(backend or info.backends.name, by_device)


def _write_name(group: ProcessGroup, info: GroupInfo, name: str) -> None:
    group._set_group_name(name)


def _write_config(group: ProcessGroup, info: GroupInfo, config: object) -> None:
    served = BackendConfig(str(config)).get_device_backend_map()
    info.backends = DeviceBackends(info.backends.name, served)


def _write_tag(group: ProcessGroup, info: GroupInfo, tag: str) -> None:
    info.tag = "" if tag.startswith("ptd:") else tag.removeprefix("user:")


def _write_ranks(group: ProcessGroup, info: GroupInfo, ranks: dict[int, int]) -> None:
    if sorted(ranks.values()) != list(range(group.size())):
        raise ValueError(f"{ranks} does not number the {group.size()} ranks")
    info.ranks = sorted(ranks, key=ranks.__getitem__)
    group._set_global_ranks(info.ranks)


def _tag_of(group: ProcessGroup, info: GroupInfo) -> str:
    return f"user:{info.tag}" if info.tag else f"ptd:{group.group_name}"


class _WorldView:
    """The groups of this process, by torch's names for them."""

    def __init__(self) -> None:
        # The backend and the store of each group.
        self.pg_map: _OfGroups[Any] = _OfGroups(
            lambda group, info: (info.backends.name, group.get_group_store()),
            _write_backend,
        )
        self.pg_names: _OfGroups[str] = _OfGroups(
            lambda group, _: group.group_name, _write_name
        )
        self.pg_group_ranks: _OfGroups[dict[int, int]] = _OfGroups(
            lambda _, info: {rank: i for i, rank in enumerate(info.ranks)}, _write_ranks
        )
        # The backends of each group by device.
        self.pg_backend_config: _OfGroups[Any] = _OfGroups(
            lambda _, info: str(info.backends), _write_config
        )
        self.pg_to_tag: _OfGroups[str] = _OfGroups(_tag_of, _write_tag)
        self.pg_coalesce_state: dict[ProcessGroup, Any] = {}
        self.pg_default_device: dict[ProcessGroup, Any] = {}

    @property
    def default_pg(self) -> ProcessGroup | None:
        """The default group, which may be assigned."""
        return world.default

    @default_pg.setter
    def default_pg(self, group: ProcessGroup | None) -> None:
        world.set_default(group)

    @property
    def group_count(self) -> int:
        """The number of groups that have been made."""
        return world.group_count

    @group_count.setter
    def group_count(self, count: int) -> None:
        world.group_count = count

    @property
    def tags_to_pg(self) -> dict[str, list[ProcessGroup]]:
        """The groups of each tag; those that no user tagged have the empty one too."""
        found: dict[str, list[ProcessGroup]] = {}
        for group, tag in self.pg_to_tag.items():
            found.setdefault(tag, []).append(group)
            if not tag.startswith("user:"):
                found.setdefault("", []).append(group)
        return found

    @property
    def pg_config_info(self) -> list[dict[str, Any]]:
        """The configuration of each group; without its ranks where these are all."""
        everybody = get_world_size()
        return [
            {
                "pg_name": group.group_name,
                "pg_desc": group.group_desc,
                "backend_config": str(info.backends),
                "ranks": [] if len(info.ranks) == everybody else list(info.ranks),
                "group_size": len(info.ranks),
                "group_count": self.group_count,
            }
            for group, info in world.groups.items()
        ]


_world = _WorldView()


# What torch keeps in variables of its module, some libraries read from there.
_WORLD_NAMES = (
    "_group_count",
    "_pg_backend_config",
    "_pg_group_ranks",
    "_pg_map",
    "_pg_names",
    "_pg_to_tag",
    "_tags_to_pg",
)


def _of_world(name: str) -> Any:
    """A member of `_world`.  The dict of tags is made when it is asked for, so an
    assignment to it would be lost: it raises TypeError."""
    found = getattr(_world, name.removeprefix("_"))
    return MappingProxyType(found) if type(found) is dict else found


def __getattr__(name: str) -> Any:
    if name in _WORLD_NAMES:
        return _of_world(name)
    known = {
        "_GLOO_AVAILABLE": is_gloo_available,
        "_MPI_AVAILABLE": is_mpi_available,
        "_NCCL_AVAILABLE": is_nccl_available,
        "_UCC_AVAILABLE": is_ucc_available,
        "_XCCL_AVAILABLE": is_xccl_available,
    }
    if name not in known:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return known[name]()


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
    info.tag = pg_tag or ""
    keys = PrefixStore(f"{group_name}/", store)
    request = GroupRequest(info, keys, group_rank, _limit_of(timeout, backends))
    request.label, request.description = group_name, group_desc or "undefined"
    request.pg_options, request.device_id = backend_options, device_id
    group = make_group(request)
    remember(group, info)
    return group, keys


def _register_process_group(group_name: str, group: ProcessGroup) -> None:
    """Gives a group a name.  A group that is new here gets the global ranks 0 to size -
    1."""
    if group.group_name != group_name:
        raise ValueError(f"group {group.group_name} cannot be registered as another")
    if group not in world.groups:
        _world.pg_group_ranks[group] = {rank: rank for rank in range(group.size())}


def _unregister_process_group(group_name: str) -> None:
    """Forgets a group without leaving it."""
    for group in list(world.groups):
        if group.group_name == group_name:
            del world.groups[group]


def _unregister_all_process_groups() -> None:
    """Forgets all groups, which are not left."""
    world.groups.clear()


def _update_default_pg(pg: ProcessGroup | None) -> None:
    world.set_default(pg)


def _resolve_process_group(group_name: Any) -> ProcessGroup:
    """Returns the group of this name; raises RuntimeError if there is none."""
    if isinstance(group_name, ProcessGroup):
        return group_name
    for group in world.groups:
        if group.group_name == group_name:
            return group
    raise RuntimeError(
        f"Could not resolve the process group registered under the name {group_name}"
    )


def _get_group_size_by_name(group_name: Any) -> int:
    return _resolve_process_group(group_name).size()


def _find_pg_by_ranks_and_tag(tag: str, ranks: list[int]) -> ProcessGroup | None:
    """Returns the first group of a tag with these global ranks."""
    if tag and not tag.startswith(("ptd:", "user:")):
        tag = f"user:{tag}"
    for group in _world.tags_to_pg.get(tag, []):
        if sorted(world.groups[group].ranks) == sorted(ranks):
            return group
    return None


def _resolve_group_name_by_ranks_and_tag(ranks: list[int], tag: str) -> str:
    group = _find_pg_by_ranks_and_tag(tag, ranks)
    if group is None:
        raise ValueError(f"no group of tag {tag!r} has the ranks {ranks}")
    return str(group.group_name)


def _find_or_create_pg_by_ranks_and_tag(
    tag: str, ranks: list[int], stride: int
) -> ProcessGroup:
    """Returns the group of a tag and ranks, and makes it if there is none.

    `ranks` has the ranks of all such groups, `stride` for each; the result is the group
    of this process.
    """
    if len(ranks) % stride != 0:
        raise ValueError(
            f"Ranks length ({len(ranks)}) must be divisible by stride ({stride})"
        )
    own = world.require_default().rank()
    start = ranks.index(own) // stride * stride
    chosen = ranks[start : start + stride]
    found = _find_pg_by_ranks_and_tag(tag, chosen)
    if found is not None:
        return found
    if tag == "":
        raise ValueError("Cannot automatically create PG with empty tag")
    made: ProcessGroup = _new_group_with_tag(chosen, pg_tag=tag)
    return made


def _new_group_with_tag(
    ranks: list[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    backend_options: Any = None,
    pg_tag: str | None = None,
    use_local_synchronization: bool = False,
) -> Any:
    """Makes a group as `new_group` does, with a tag by which it is found again."""
    made = new_group(
        ranks, timeout, backend, backend_options, use_local_synchronization
    )
    if isinstance(made, ProcessGroup):
        world.groups[made].tag = (pg_tag or "").removeprefix("user:")
    return made


def _get_group_tag(pg: ProcessGroup) -> str:
    return _tag_of(pg, info_of(pg)).removeprefix("user:")


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
        del world.groups[ended]
        ended.shutdown()


def _set_pg_timeout(timeout: timedelta, group: ProcessGroup | None = None) -> None:
    """Sets the time that operations may take from now on."""
    _check_valid_timeout(timeout)
    if is_outside(group):
        raise ValueError("Invalid process group specified")
    _group_or_default_group(group).set_timeout(timeout)


def _group_or_default_group(group: ProcessGroup | None = None) -> ProcessGroup:
    return world.require_default() if group is None else group


def _get_group_size(group: ProcessGroup | None) -> int:
    return _group_or_default_group(group).size()


def _get_global_rank(group: ProcessGroup | None, rank: int) -> int:
    return get_global_rank(group, rank)


def _broadcast_coalesced(
    process_group: ProcessGroup, tensors: Sequence[Any], buffer_size: int, src: int = 0
) -> None:
    """Copies the arrays of the group's rank `src` to all of its ranks.

    `buffer_size` is accepted as in torch: which arrays travel together follows from
    their sizes.
    """
    from .packing import send_to_all

    send_to_all(list(tensors), src, process_group)


def _get_process_group_store(pg: ProcessGroup) -> Store:
    return pg.get_group_store()


def _get_process_group_uid(pg: ProcessGroup) -> int:
    return -1


def _get_pg_config(group: ProcessGroup | None = None) -> dict[str, Any]:
    pg = _group_or_default_group(group)
    return {
        "pg_name": pg.group_name,
        "pg_desc": pg.group_desc,
        "backend_config": get_backend_config(pg),
        "pg_size": pg.size(),
        "ranks": get_process_group_ranks(pg),
    }


def _get_all_pg_configs() -> list[dict[str, Any]]:
    return [_get_pg_config(group) for group in world.groups]


def _device_capability(group: ProcessGroup | None = None) -> list[str]:
    return list(_group_or_default_group(group)._device_types)


def _get_object_coll_device(group: ProcessGroup | None = None) -> str:
    devices = _device_capability(group)
    return "cpu" if "cpu" in devices else devices[0]


def _get_pg_default_device(group: ProcessGroup | None = None) -> Any:
    """Returns the only device of the group; of several, "cpu" if it is one of them."""
    device = _get_object_coll_device(group)
    try:
        import torch
    except ImportError:
        return device
    return torch.device(device)


def _get_split_source(pg: ProcessGroup) -> ProcessGroup | None:
    """What communicators of devices are split from: the group, if it has a device."""
    try:
        found = pg._get_backend(pg.bound_device_id or "cuda")
    except RuntimeError:
        return None
    is_meant = pg.bound_device_id is not None or pg is world.default
    return found if is_meant and found.supports_splitting else None


def _is_safe_to_split() -> bool:
    return world.require_default().bound_device_id is not None


@contextmanager
def _time_estimator(
    group: ProcessGroup | None = None, device: Any = None
) -> Iterator[Any]:
    """Raises NotImplementedError: no backend estimates the time of its operations."""
    meant = _group_or_default_group(group)
    backend = meant._get_backend(device or _get_pg_default_device(meant))
    raise NotImplementedError(
        "collective time estimator is not supported in the current version of backend "
        f"{backend}"
    )
    yield


def _get_backend_from_str(backend: str | None = None) -> str:
    return str(Backend(backend or get_backend()))


def _get_default_timeout(backend: str) -> timedelta:
    if backend == Backend.NCCL:
        from .nccl import default_timeout

        return default_timeout()
    return default_pg_timeout


def _is_barrier_after_init() -> int:
    return int(os.environ.get("TORCH_DIST_INIT_BARRIER", "0"))


def _hash_ranks_to_str(ranks: Iterable[int]) -> str:
    """Returns a name for a group of these ranks that no earlier group of this process
    has."""
    import hashlib

    text = "_".join([*(str(rank) for rank in ranks), str(len(world.groups))])
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def _process_group_name(ranks: Iterable[int], use_hashed_name: bool) -> str:
    if use_hashed_name:
        return _hash_ranks_to_str(ranks)
    return str(world.numbers.take())


def _canonicalize_group_rank(
    group: ProcessGroup,
    global_rank: int | None = None,
    group_rank: int | None = None,
    return_global: bool = False,
) -> int:
    """Returns the global rank or the rank in the group, given either of them."""
    if group_rank is not None:
        if global_rank is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        if return_global:
            return info_of(group).ranks[group_rank]
        return group_rank
    if global_rank is None:
        raise ValueError("Must specify global_rank or group_rank")
    return global_rank if return_global else get_group_rank(group, global_rank)


def _object_to_tensor(obj: Any, device: Any, group: Any = None) -> tuple[Any, Any]:
    """Returns the pickle of an object as an array of bytes, and its length as one of
    int64.

    They are torch's tensors on `device` where torch is installed, else NumPy's arrays.
    """
    stream = io.BytesIO()
    _pickler(stream).dump(obj)
    data = np.frombuffer(bytearray(stream.getvalue()), dtype=np.uint8)
    size = np.array([data.size], dtype=np.int64)
    try:
        import torch
    except ImportError:
        return data, size
    return torch.from_numpy(data).to(device), torch.from_numpy(size).to(device)


def _tensor_to_object(tensor: Any, tensor_size: Any, group: Any = None) -> Any:
    """Returns the object whose pickle the first bytes of an array are.

    Reading a pickle runs code that its sender chose; docs/objects.md describes the safe
    mode.
    """
    if hasattr(tensor, "cpu"):
        tensor = tensor.cpu().numpy()
    size = int(np.asarray(tensor_size).reshape(-1)[0])
    return _unpickler(io.BytesIO(np.asarray(tensor).tobytes()[:size])).load()


def _check_valid_timeout(timeout: Any) -> None:
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout}"
        )


def _check_single_tensor(param: Any, param_name: str) -> None:
    if not _is_array(param):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{param_name}` to be an "
            f"array but got {type(param)} instead."
        )


def _check_tensor_list(param: Any, param_name: str) -> None:
    if not isinstance(param, list):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{param_name}` to be a "
            f"list of arrays but got {type(param)} instead."
        )
    if not all(map(_is_array, param)):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{param_name}` to be a "
            f"list of arrays but got {type(param)} with elements of type "
            f"{[type(each) for each in param]}."
        )


def _is_array(value: object) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")


def _as_iterable(obj: Any) -> Iterable[Any]:
    return obj if isinstance(obj, list) else (obj,)


def _ensure_all_tensors_same_dtype(*tensors: Any) -> None:
    last = None
    for tensor in (each for several in tensors for each in _as_iterable(several)):
        if last is not None and last != tensor.dtype:
            raise ValueError(
                "Invalid usage of tensors with different dtypes: found "
                f"{last} and {tensor.dtype}"
            )
        last = tensor.dtype


def _check_op(op: object) -> None:
    if op not in (_C.isend, _C.irecv):
        raise ValueError(
            "Invalid ``op``. Expected ``op`` to be ``isend`` or ``irecv``."
        )


def _check_p2p_op_list(p2p_op_list: Any) -> None:
    if not isinstance(p2p_op_list, list) or not all(
        isinstance(each, P2POp) for each in p2p_op_list
    ):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to be of type ``P2POp``."
        )
    if any(each.group != p2p_op_list[0].group for each in p2p_op_list):
        raise ValueError("All ops need to use the same group.")


def _check_not_self_rank(group: ProcessGroup, rank: int, rank_type: str) -> None:
    if group.rank() == rank:
        raise ValueError(
            f"Invalid {rank_type} rank: {rank_type} rank should not be the same as the "
            "rank of the current process."
        )


def _validate_output_list_for_rank(my_rank: int, dst: int, gather_list: Any) -> None:
    if dst == my_rank and not gather_list:
        raise ValueError(
            "Argument ``gather_list`` must be specified on destination rank."
        )
    if dst != my_rank and gather_list:
        raise ValueError(
            "Argument ``gather_list`` must NOT be specified on non-destination ranks."
        )


def _warn_not_in_group(op_name: str) -> None:
    rank = -1 if world.default is None else world.default.rank()
    warnings.warn(
        f"Running {op_name} on global rank {rank} which does not belong to the given "
        "group.",
        stacklevel=2,
    )
