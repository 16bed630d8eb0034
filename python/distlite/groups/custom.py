# SPDX-License-Identifier: BSD-3-Clause
"""Groups whose operations are written in Python: torch's interface for third parties.

The module's functions ask a group's handler before the core.  For a subclass of
ProcessGroup the handler is handle(), which calls the subclass's method as torch would:
lists of arrays and an option struct, answered with a Work.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from .._C import ProcessGroup
from . import options
from .backends import BackendType
from .dispatch import NO_BACKEND, device_of, global_rank
from .reduce_op import ReduceOp
from .world import get_group_rank

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .backends import BackendPlugin
    from .group_making import GroupRequest

    Given = dict[str, Any]

__all__ = ["DistributedBackendOptions", "handle", "make_registered"]


class DistributedBackendOptions:
    """Describes the group to a creator with the extended interface."""

    def __init__(self, asked: GroupRequest) -> None:
        self.store = asked.store
        self.group_rank = asked.rank
        self.group_size = len(asked.info.ranks)
        self.timeout = asked.timeout
        self.group_id = asked.label
        # Empty means all ranks, as in torch's default group.
        is_world = asked.description == "default_pg"
        self.global_ranks_in_group = [] if is_world else list(asked.info.ranks)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


def make_registered(asked: GroupRequest) -> ProcessGroup | None:
    """Makes the group if a registered backend serves one of its devices; else returns
    None.

    A backend that serves a device beside the core's gets the arrays of that device
    only.
    """
    served, plugins = asked.info.backends.by_device, asked.info.backends.plugins
    if not plugins:
        return None
    by_name: dict[str, ProcessGroup] = {}
    try:
        for device, plugin in plugins.items():
            if served[device] not in by_name:
                by_name[served[device]] = _create(plugin, asked)
        if len(plugins) == len(served) and len(by_name) == 1:
            return next(iter(by_name.values()))
        made = {device: by_name[served[device]] for device in plugins}
        return _dispatching(asked, served, made)
    except BaseException:
        for each in by_name.values():
            _leave(each)
        raise


def _leave(group: ProcessGroup) -> None:
    """Ends a group that could not be completed.

    The exception's traceback would keep it and its threads alive, and the other ranks
    would wait for this one in it."""
    with contextlib.suppress(Exception):  # another error is being raised
        group.shutdown()


def _create(plugin: BackendPlugin, asked: GroupRequest) -> ProcessGroup:
    if plugin.extended_api:
        told = DistributedBackendOptions(asked)
        made = plugin.creator_fn(told, asked.pg_options)
    else:
        made = plugin.creator_fn(
            asked.store, asked.rank, len(asked.info.ranks), asked.timeout
        )
    if not isinstance(made, ProcessGroup):
        raise TypeError(f"a backend's creator must return a ProcessGroup, not {made!r}")
    # A native group that the user made already has its name.
    if ProcessGroup.name(made) == "custom":
        try:
            made._adopt(
                asked.store,
                asked.rank,
                len(asked.info.ranks),
                asked.timeout,
                asked.label,
                asked.description,
                "custom",
            )
        except BaseException:
            _leave(made)
            raise
    return made


def _dispatching(
    asked: GroupRequest, served: dict[str, str], made: dict[str, ProcessGroup]
) -> ProcessGroup:
    """Makes the core's group, which passes calls for other devices on."""
    is_ours = "cpu" in served and "cpu" not in made
    group = ProcessGroup(
        asked.store,
        asked.rank,
        len(asked.info.ranks),
        asked.timeout,
        asked.label,
        asked.description,
        asked.info.backends.engine if is_ours else "custom",
    )
    try:
        for device, backend in made.items():
            group._register_backend(device, BackendType.CUSTOM, backend)
    except BaseException:
        _leave(group)
        raise
    return group


def handle(
    group: ProcessGroup,
    function: str,
    given: Given,
    numbering: ProcessGroup | None = None,
) -> Any:
    """Answers the module's `function` with the method of a subclass.

    `numbering` is the group whose ranks the arguments name, if it is another one.
    """
    if function == "monitored_barrier":
        # The core carries it out through the store, whatever the backend.
        return NotImplemented
    if function == "_probe":
        raise NotImplementedError(f"{type(group).__name__} has no probe")
    call = Call(group, given, numbering or group)
    if function in ("send", "isend", "recv", "irecv"):
        return call.message(function)
    work = _METHODS[function](call)
    if given.get("async_op"):
        return work
    if work is not None:
        work.wait()
    return None


class Call:
    """One call of a function of the module, on its way to a method."""

    def __init__(self, group: ProcessGroup, given: Given, known: ProcessGroup) -> None:
        self.group = group
        self.given = given
        self.known = known

    def method(self, *names: str) -> Callable[..., Any]:
        """Returns the first of these methods that the group's class defines itself."""
        for name in names:
            found = getattr(type(self.group), name, None)
            if found is not None and found is not getattr(ProcessGroup, name, None):
                method: Callable[..., Any] = getattr(self.group, name)
                return method
        kind, device = type(self.group).__name__, device_of(self.given)
        known = " or ".join(f"{name}()" for name in names)
        raise RuntimeError(f"{NO_BACKEND} {device}: {kind} does not define {known}")

    def rank(self, name: str, otherwise: int | None = None) -> int | None:
        """Returns the rank in the group that the argument `name` or group_`name`
        means."""
        in_world, in_group = self.given.get(name), self.given.get(f"group_{name}")
        if in_world is not None and in_group is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        if in_group is not None:
            return int(in_group)
        return otherwise if in_world is None else get_group_rank(self.known, in_world)

    def required_rank(self, name: str, otherwise: int | None = None) -> int:
        """Returns the same rank; raises ValueError without one."""
        rank = self.rank(name, otherwise)
        if rank is None:
            raise ValueError("Must specify global_rank or group_rank")
        return rank

    def options(self, kind: type[Any], root: int | None = None) -> Any:
        """Returns an option struct of that kind with the call's values."""
        made = kind()
        made.asyncOp = bool(self.given.get("async_op"))
        if root is not None:
            made.rootRank = root
        if hasattr(made, "reduceOp"):
            op = self.given.get("op", ReduceOp.SUM)
            made.reduceOp = op if type(op) is ReduceOp else ReduceOp(op)
        return made

    def message(self, function: str) -> Any:
        """Carries out send, recv, isend or irecv."""
        tensors, tag = [self.given["tensor"]], self.given.get("tag", 0)
        if function.endswith("send"):
            work = self.method("send")(tensors, self.required_rank("dst"), tag)
            return work if function == "isend" else _wait(work)
        source = self.rank("src")
        if source is None:
            work = self.method("recv_anysource")(tensors, tag)
        else:
            work = self.method("recv")(tensors, source, tag)
        if function == "irecv":
            return work
        _wait(work)
        found = work._source_rank() if source is None else source
        return global_rank(self.known, found)


def _wait(work: Any) -> None:
    if work is not None:
        work.wait()


def _all_reduce(call: Call) -> Any:
    opts = call.options(options.AllreduceOptions)
    return call.method("allreduce")([call.given["tensor"]], opts)


def _scan(call: Call) -> Any:
    opts = call.options(options.AllreduceOptions)
    return call.method("scan")([call.given["tensor"]], opts)


def _exscan(call: Call) -> Any:
    opts = call.options(options.AllreduceOptions)
    return call.method("exscan")([call.given["tensor"]], opts)


def _broadcast(call: Call) -> Any:
    opts = call.options(options.BroadcastOptions, call.required_rank("src"))
    return call.method("broadcast")([call.given["tensor"]], opts)


def _reduce(call: Call) -> Any:
    opts = call.options(options.ReduceOptions, call.required_rank("dst"))
    return call.method("reduce")([call.given["tensor"]], opts)


def _all_gather(call: Call) -> Any:
    opts = call.options(options.AllgatherOptions)
    outputs, inputs = [call.given["tensor_list"]], [call.given["tensor"]]
    return call.method("allgather")(outputs, inputs, opts)


def _all_gather_single(call: Call) -> Any:
    method = call.method("all_gather_single", "_allgather_base")
    opts = call.options(options.AllgatherOptions)
    return method(call.given["output_tensor"], call.given["input_tensor"], opts)


def _gather(call: Call) -> Any:
    opts = call.options(options.GatherOptions, call.required_rank("dst", 0))
    filled = call.given.get("gather_list")
    outputs = [] if filled is None else [filled]
    return call.method("gather")(outputs, [call.given["tensor"]], opts)


def _scatter(call: Call) -> Any:
    opts = call.options(options.ScatterOptions, call.required_rank("src", 0))
    filled = call.given.get("scatter_list")
    inputs = [] if filled is None else [filled]
    return call.method("scatter")([call.given["tensor"]], inputs, opts)


def _reduce_scatter(call: Call) -> Any:
    opts = call.options(options.ReduceScatterOptions)
    outputs, inputs = [call.given["output"]], [call.given["input_list"]]
    return call.method("reduce_scatter")(outputs, inputs, opts)


def _reduce_scatter_single(call: Call) -> Any:
    method = call.method("reduce_scatter_single", "_reduce_scatter_base")
    opts = call.options(options.ReduceScatterOptions)
    return method(call.given["output"], call.given["input"], opts)


def _all_to_all(call: Call) -> Any:
    opts = call.options(options.AllToAllOptions)
    outputs, inputs = call.given["output_tensor_list"], call.given["input_tensor_list"]
    return call.method("alltoall")(outputs, inputs, opts)


def _all_to_all_single(call: Call) -> Any:
    given = call.given
    return call.method("alltoall_base", "all_to_all_single")(
        given["output"],
        given["input"],
        given.get("output_split_sizes") or [],
        given.get("input_split_sizes") or [],
        call.options(options.AllToAllOptions),
    )


def _barrier(call: Call) -> Any:
    opts = call.options(options.BarrierOptions)
    opts.device_ids = call.given.get("device_ids") or []
    if call.given.get("timeout") is not None:
        opts.timeout = call.given["timeout"]
    return call.method("barrier")(opts)


_METHODS: dict[str, Callable[[Call], Any]] = {
    "all_reduce": _all_reduce,
    "scan": _scan,
    "exscan": _exscan,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "all_gather": _all_gather,
    "all_gather_single": _all_gather_single,
    "gather": _gather,
    "gather_v": _gather,
    "scatter": _scatter,
    "scatter_v": _scatter,
    "reduce_scatter": _reduce_scatter,
    "reduce_scatter_single": _reduce_scatter_single,
    "all_to_all": _all_to_all,
    "all_to_all_single": _all_to_all_single,
    "barrier": _barrier,
}
