# SPDX-License-Identifier: BSD-3-Clause
"""Groups with a backend of its own for some kinds of devices.

Such a group has a Dispatcher as its handler, which is asked before the core: it passes
a call on to the group that is registered for the device of the call's array, and leaves
the rest to what the group did before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from .. import _C
from .._C import ProcessGroup
from .backends import BackendType, dlpack_device_of
from .world import get_group_rank, world

if TYPE_CHECKING:
    from .._C import _Handler

Given = dict[str, Any]

__all__ = ["NO_BACKEND", "Dispatcher", "device_of", "global_rank", "kind_of"]

NO_BACKEND = "No backend type associated with device type"

# The dispatcher of each group that has one.
_dispatchers: WeakKeyDictionary[ProcessGroup, Dispatcher] = WeakKeyDictionary()


def kind_of(device: object) -> str:
    """Returns the kind of a device: "cuda" for "cuda:0" and for a torch.device."""
    kind = getattr(device, "type", device)
    if not isinstance(kind, str):
        raise TypeError(
            f'a device is a word such as "cpu" or "cuda:0", or a torch.device, not '
            f"{device!r}"
        )
    return kind.partition(":")[0]


def device_of(given: Given) -> str:
    """Returns the kind of device that the first array of a call is on."""
    for value in given.values():
        array = value[0] if isinstance(value, list) and value else value
        kind = getattr(getattr(array, "device", None), "type", None)
        if isinstance(kind, str):
            return kind
        found = dlpack_device_of(array)
        if found is not None:
            # The core says what it makes of a device without a name.
            return found if isinstance(found, str) else "cpu"
    return "cpu"


def global_rank(group: ProcessGroup, rank: int) -> int:
    """Returns the global rank of `rank`; in a group made by hand it is the same."""
    info = world.groups.get(group)
    return rank if info is None else info.ranks[rank]


class Dispatcher:
    """The handler of a group in which other groups serve some of the devices."""

    def __init__(self, group: ProcessGroup) -> None:
        self.own = _devices_of_core(group)
        self.made: dict[str, ProcessGroup] = {}
        self.types: dict[str, BackendType] = {}
        self.former: _Handler | None = group._set_handler(self)
        _dispatchers[group] = self

    def __call__(self, group: ProcessGroup, function: str, given: Given) -> Any:
        device = device_of(given)
        backend = self.made.get(device)
        if backend is None and function == "barrier" and device not in self.own:
            # A barrier has no array, so any of the groups can serve it.
            backend = next(iter(self.made.values()))
        if backend is not None:
            return _pass_on(backend, function, given, group)
        if self.former is not None:
            return self.former(group, function, given)
        if device not in self.own and function != "monitored_barrier":
            raise RuntimeError(f"{NO_BACKEND} {device}")
        return NotImplemented


def _devices_of_core(group: ProcessGroup) -> list[str]:
    """Returns the devices that the group itself supports."""
    if ProcessGroup.name(group) != "custom":
        return ["cpu", "cuda"] if _C._serves_devices(group) else ["cpu"]
    if type(group) is ProcessGroup:
        return []
    info = world.groups.get(group)
    return ["cpu"] if info is None else list(info.backends.device_backend_map)


def _pass_on(
    backend: ProcessGroup, function: str, given: Given, known: ProcessGroup
) -> Any:
    if ProcessGroup.name(backend) == "custom" and backend not in _dispatchers:
        from .custom import handle

        return handle(backend, function, given, known)
    told = dict(given)
    for word in ("src", "dst"):
        if told.get(word) is not None and told.get(f"group_{word}") is None:
            # The backend counts its own ranks.
            told[f"group_{word}"] = get_group_rank(known, told.pop(word))
    told["group"] = backend
    answer = getattr(_C, function)(**told)
    if function == "_probe" and answer is not None:
        return (global_rank(known, answer[0]), *answer[1:])
    return global_rank(known, answer) if function == "recv" else answer


def devices_of(group: ProcessGroup) -> list[str]:
    """Returns every kind of device that `group` serves."""
    known = _dispatchers.get(group)
    if known is None:
        return _devices_of_core(group)
    return [*known.own, *(kind for kind in known.made if kind not in known.own)]


def backend_for(group: ProcessGroup, device: object) -> ProcessGroup:
    """Returns the group for arrays on `device`: a registered one, or `group` itself."""
    kind = kind_of(device)
    known = _dispatchers.get(group)
    if known is not None and kind in known.made:
        return known.made[kind]
    if kind not in devices_of(group):
        raise RuntimeError(
            f"{NO_BACKEND} {kind}; group {group.group_name} supports "
            f"{', '.join(devices_of(group)) or 'none yet'}"
        )
    return group


def register(
    group: ProcessGroup, device: object, backend_type: int, backend: ProcessGroup | None
) -> None:
    """Lets `backend` serve arrays on `device`; None is the backend registered with that
    type."""
    kind, number = kind_of(device), BackendType(backend_type)
    known = _dispatchers.get(group)
    if backend is None:
        found = known.types.items() if known is not None else ()
        same = next((kind for kind, its in found if its == number), None)
        if known is None or same is None:
            raise ValueError(
                f"no backend of type {number.name} is registered in group "
                f"{group.group_name}: the first call must pass one"
            )
        backend = known.made[same]
    _check_backend(group, backend)
    known = known or Dispatcher(group)
    known.made[kind], known.types[kind] = backend, number


def _check_backend(group: ProcessGroup, backend: object) -> None:
    if not isinstance(backend, ProcessGroup):
        raise TypeError(f"a backend has to be a ProcessGroup, not {backend!r}")
    if backend is group:
        raise ValueError(f"group {group.group_name} cannot be its own backend")
    if (backend.rank(), backend.size()) != (group.rank(), group.size()):
        raise ValueError(
            f"the backend has rank {backend.rank()} of {backend.size()}, but group "
            f"{group.group_name} has rank {group.rank()} of {group.size()} here"
        )
