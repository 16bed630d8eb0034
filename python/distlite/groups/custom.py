# SPDX-License-Identifier: BSD-3-Clause
"""Groups whose operations are written in Python: torch's interface for third parties.

The module's functions ask a group's handler before the core.  For a subclass of
ProcessGroup the handler is handle(), which calls the subclass's method as torch would:
lists of arrays and an option struct, answered with a Work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

from .._C import ProcessGroup
from . import options
from .backends import BackendPlugin, BackendType
from .dispatch import NO_BACKEND, device_of, global_rank
from .group_making import GroupRequest
from .reduce_op import ReduceOp
from .world import get_group_rank

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
    served, plugins = (
        asked.info.backends.device_backend_map,
        asked.info.backends.plugins,
    )
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
    work = call.collective(_FORMS[function])
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

    def collective(self, form: Form) -> Any:
        """Calls the method of a collective with its arrays and an option struct."""
        return self.method(*form.methods.split())(
            *(self._argument(word) for word in form.arguments.split()),
            self._options(form),
        )

    def _argument(self, word: str) -> Any:
        """Returns an argument, or a list of it; an empty list if it is missing."""
        value = self.given.get(word.strip("[]"))
        if value is None:
            return []
        return [value] if word.startswith("[") else value

    def _options(self, form: Form) -> Any:
        made = form.options()
        made.asyncOp = bool(self.given.get("async_op"))
        if form.root:
            made.rootRank = self.required_rank(form.root, form.default_root)
        if hasattr(made, "reduceOp"):
            op = self.given.get("op", ReduceOp.SUM)
            made.reduceOp = op if type(op) is ReduceOp else ReduceOp(op)
        if hasattr(made, "device_ids"):
            made.device_ids = self.given.get("device_ids") or []
        if self.given.get("timeout") is not None:
            made.timeout = self.given["timeout"]
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


class Form(NamedTuple):
    """How a function of the module becomes a call of torch's method.

    `methods` has the names of the method, of which the first is called that the class
    defines, and `arguments` those of the function's parameters, in brackets for a list.
    """

    methods: str
    options: type[Any]
    arguments: str = ""
    root: str = ""
    default_root: int | None = None


_GATHER = Form("gather", options.GatherOptions, "[gather_list] [tensor]", "dst", 0)
_SCATTER = Form("scatter", options.ScatterOptions, "[tensor] [scatter_list]", "src", 0)
_FORMS = {
    "all_reduce": Form("allreduce", options.AllreduceOptions, "[tensor]"),
    "scan": Form("scan", options.AllreduceOptions, "[tensor]"),
    "exscan": Form("exscan", options.AllreduceOptions, "[tensor]"),
    "broadcast": Form("broadcast", options.BroadcastOptions, "[tensor]", "src"),
    "reduce": Form("reduce", options.ReduceOptions, "[tensor]", "dst"),
    "all_gather": Form("allgather", options.AllgatherOptions, "[tensor_list] [tensor]"),
    "all_gather_single": Form(
        "all_gather_single _allgather_base",
        options.AllgatherOptions,
        "output_tensor input_tensor",
    ),
    "gather": _GATHER,
    "gather_v": _GATHER,
    "scatter": _SCATTER,
    "scatter_v": _SCATTER,
    "reduce_scatter": Form(
        "reduce_scatter", options.ReduceScatterOptions, "[output] [input_list]"
    ),
    "reduce_scatter_single": Form(
        "reduce_scatter_single _reduce_scatter_base",
        options.ReduceScatterOptions,
        "output input",
    ),
    "all_to_all": Form(
        "alltoall", options.AllToAllOptions, "output_tensor_list input_tensor_list"
    ),
    "all_to_all_single": Form(
        "alltoall_base all_to_all_single",
        options.AllToAllOptions,
        "output input output_split_sizes input_split_sizes",
    ),
    "barrier": Form("barrier", options.BarrierOptions),
}
