# SPDX-License-Identifier: BSD-3-Clause
"""Attributes of torch's ProcessGroup that describe backends and devices.

A group is its own backend object where no other group is registered for a device.
"""

from __future__ import annotations

from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from .. import _C
from .._C import ProcessGroup, Store, Work, monitored_barrier
from .backends import BackendType
from .world import info_of, world

if TYPE_CHECKING:
    from .nccl import NCCLOptions
    from .process_group_gloo import GlooOptions
    from .reconfigure import ReconfigureOptions


def _get_backend(self: ProcessGroup, device: Any) -> ProcessGroup:
    """Returns the group for arrays on `device` ("cpu", "cuda:0"), which may be this
    one; raises RuntimeError if no group serves the device.
    """
    from .dispatch import backend_for

    return backend_for(self, device)


def _register_backend(
    self: ProcessGroup,
    device: Any,
    backend_type: BackendType,
    backend: ProcessGroup | None = None,
) -> None:
    """Lets `backend`, a group of the same ranks, serve arrays on `device` from now on.

    None is the group that is already registered with that type.
    """
    from .dispatch import register

    register(self, device, backend_type, backend)


def _set_default_backend(self: ProcessGroup, backend_type: BackendType) -> None:
    """Checks the type, and changes nothing: each array goes to the backend of its
    device, and the group serves the rest itself."""
    BackendType(backend_type)


def _set_sequence_number_for_group(self: ProcessGroup) -> None:
    """Does nothing: the ranks count from 0 when they have met."""


class ErrorType(IntEnum):
    """What kind of failure has broken a group, with torch's numbers."""

    SUCCESS = 0
    TIMEOUT = 1
    COMM_ERROR = 2
    REMOTE_ERROR = 3  # another rank was lost


def get_error(self: ProcessGroup) -> ErrorType:
    """Returns the kind of failure that has broken the group, without asking a peer.

    The next operation raises the error itself. For a group that was aborted or left, it
    is COMM_ERROR.
    """
    return ErrorType(self._error_kind())


def __init_subclass__(cls: type[ProcessGroup]) -> None:
    """A backend that is written in Python names itself by getBackendName(), as in
    torch."""
    if "getBackendName" in vars(cls):

        def name(self: Any) -> str:
            return str(self.getBackendName())

        cls.name = cls._get_backend_name = name  # type: ignore[method-assign]


def options(self: ProcessGroup) -> GlooOptions | NCCLOptions:
    """A copy of the backend's options; NotImplementedError if the backend has none."""
    told: GlooOptions | NCCLOptions
    if _C._device_name(self) == "nccl":
        from .nccl import options_of

        told = options_of(self)
    elif self.name() in ("gloo", "cpu"):
        from .process_group_gloo import GlooOptions

        told = GlooOptions()
    else:
        raise NotImplementedError(f"backend {self.name()} has no options")
    info = world.groups.get(self)
    told._timeout, told.group_name = self.timeout, self.group_name
    told.global_ranks_in_group = [] if info is None else list(info.ranks)
    return told


def _device_types(self: ProcessGroup) -> list[str]:
    """Kinds of devices whose arrays the group takes: "cpu", "cuda"."""
    from .dispatch import devices_of

    return devices_of(self)


def bound_device_id(self: ProcessGroup) -> str | None:
    """The `device_id` that the group was made with, such as "cuda:0", or None.

    Assigning it has no effect on operations, which run on the device of their arrays.
    """
    info = world.groups.get(self)
    return None if info is None else info.bound_device


def _set_bound_device_id(self: ProcessGroup, device: Any) -> None:
    from .nccl import index_of

    info_of(self).bound_device = None if device is None else f"cuda:{index_of(device)}"


def supports_coalescing(self: ProcessGroup) -> bool:
    """Whether several operations can begin in one call, as on devices."""
    return _C._device_name(self) is not None


def _monitored_barrier(
    self: ProcessGroup,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """Waits until every rank has called it, and names the ranks that have not.

    It is the function `distlite.monitored_barrier` in this group.
    """
    monitored_barrier(self, timeout, wait_all_ranks)


def split_group(
    self: ProcessGroup,
    ranks: list[int],
    timeout: timedelta | float | None = None,
    opts: Any = None,
    group_name: str | None = None,
    group_desc: str | None = None,
    device_types: Any = None,
) -> ProcessGroup | None:
    """Makes a group of some ranks of this one; only these ranks call it.

    The members pass the same ranks of this group and the same name, if any.
    `distlite.split_group` makes several groups at once, also for arrays on devices.
    """
    from .regroup import split_off

    return split_off(self, ranks, timeout, group_name, group_desc)


def merge_remote_group(
    self: ProcessGroup,
    store: Store,
    size: int,
    timeout: timedelta | float | None = None,
    group_name: str | None = None,
    group_desc: str | None = None,
) -> ProcessGroup:
    """Makes one group of this and other groups, whose ranks meet at a store.

    All ranks of all these groups call it, with one store and name. `size` is the number
    of all ranks; the ranks of each group are consecutive, in the order of the groups.
    """
    from .regroup import merge

    return merge(self, store, size, timeout, group_name, group_desc)


def supports_reconfigure(self: ProcessGroup) -> bool:
    """Whether the group was made with `enable_reconfigure=True`."""
    from .reconfigure import supports

    return supports(self)


def get_reconfigure_handle(self: ProcessGroup) -> str:
    """Returns the name of this process for the next `reconfigure`, which changes it."""
    from .reconfigure import handle_of

    return handle_of(self)


def reconfigure(self: ProcessGroup, opts: ReconfigureOptions) -> Work:
    """Gives the group other members: the processes with the handles in `opts`.

    It is the function `distlite.distributed_c10d._reconfigure`, with its arguments as
    an object.
    """
    from .reconfigure import reconfigure

    return reconfigure(self, opts)


_monitored_barrier.__name__ = "monitored_barrier"

attributes: dict[str, Any] = {
    "BackendType": BackendType,
    **BackendType.__members__,
    "__init_subclass__": classmethod(__init_subclass__),
    "_device_types": property(_device_types),
    "_get_backend": _get_backend,
    "_get_backend_name": ProcessGroup.name,
    "_register_backend": _register_backend,
    "_set_default_backend": _set_default_backend,
    "_set_default_timeout": ProcessGroup.set_timeout,
    "_set_sequence_number_for_group": _set_sequence_number_for_group,
    "bound_device_id": property(bound_device_id, _set_bound_device_id),
    "get_error": get_error,
    "get_reconfigure_handle": get_reconfigure_handle,
    "merge_remote_group": merge_remote_group,
    "monitored_barrier": _monitored_barrier,
    "options": property(options),
    "reconfigure": reconfigure,
    "split_group": split_group,
    "supports_coalescing": property(supports_coalescing),
    "supports_reconfigure": property(supports_reconfigure),
    "supports_shrinking": True,
    "supports_splitting": True,
    "supports_time_estimate": False,
}
