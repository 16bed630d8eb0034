# SPDX-License-Identifier: BSD-3-Clause
"""The process group that torch gets.

torch 2.13 takes a backend written in Python only as a whole process group.  So this
class is the group of all devices: tensors on the CPU go to a group of distlite, those
on other devices to the backends of torch that `init_process_group` was given for them.
Each of these is made when the first tensor of its device arrives.

torch calls the methods with lists of tensors and an object of options.  The most
frequent calls, those that wait at once and all_reduce, which DDP calls for each of its
buckets, call the extension directly; all others go through the methods of
`distlite.ProcessGroup`, which accept every form of torch's calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

import distlite
from distlite import _C
from distlite.groups.backends import backends_of
from distlite.groups.group_making import GroupRequest
from distlite.groups.reconfigure import make_reconfigurable
from distlite.groups.world import GroupInfo
from distlite.tools.profiler_events import name_backend

from .errors import as_torch, raises_as_torch
from .sparse import all_reduce_sparse
from .store import TorchStore
from .work import ENDED, EndedWork, WorkDistlite

__all__ = ["Options", "ProcessGroupDistlite", "create"]

_Ops = torch.distributed.ReduceOp
_OPS = {
    getattr(_Ops, op.name): op
    for op in distlite.ReduceOp.RedOpType
    if hasattr(_Ops, op.name)
}
_VERIFY_LIMIT = timedelta(seconds=0.5)
_UNSET = timedelta(milliseconds=-1)


def _op_of(op: Any) -> Any:
    """Returns distlite's reduction for one of torch's."""
    found = _OPS[getattr(op, "op", op)]
    return found(op.factor) if found.name == "PREMUL_SUM" else found


class _Options:
    """A copy of an object of options with distlite's reduction."""

    def __init__(self, opts: Any) -> None:
        self.asyncOp = opts.asyncOp
        self.timeout = opts.timeout
        if hasattr(opts, "rootRank"):
            self.rootRank = opts.rootRank
            self.rootTensor = getattr(opts, "rootTensor", 0)
        if hasattr(opts, "reduceOp"):
            self.reduceOp = _op_of(opts.reduceOp)


def _plain(tensor: Any) -> Any:
    """Returns the tensor without its graph, because an operation writes to it whether
    or not it requires a gradient; of a result that is still being computed, the
    result."""
    if hasattr(tensor, "trigger_wait"):
        tensor = tensor.trigger_wait()
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError("a conjugated or negated view: call resolve_conj() or clone()")
    return tensor.detach() if tensor.requires_grad else tensor


def _converted(given: Any) -> Any:
    if isinstance(given, torch.Tensor):
        return _plain(given)
    if isinstance(given, list | tuple):
        return [_converted(each) for each in given]
    if isinstance(given, _Ops | _Ops.RedOpType):
        return _op_of(given)
    return _Options(given) if hasattr(given, "asyncOp") else given


def _first_tensor(given: Any) -> Any:
    """Returns the first tensor among the arguments, which may be lists."""
    if isinstance(given, torch.Tensor):
        return given
    if isinstance(given, list | tuple):
        for each in given:
            found = _first_tensor(each)
            if found is not None:
                return found
    return None


def _given(*args: Any) -> tuple[Any, ...]:
    """Returns the arguments without those at the end that a call has left out or has
    passed by name."""
    count = len(args)
    while count > 0 and args[count - 1] is None:
        count -= 1
    return args[:count]


def _is_frequent(tensor: Any) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.is_cpu
        and not tensor.requires_grad
        and not tensor.is_sparse
        and not tensor.is_neg()
    )


class Options(torch._C._distributed_c10d.Backend.Options):
    """`pg_options` of the backend.

    Args:
        enable_reconfigure: Whether the members of the group may change, by
            `get_reconfigure_handle` and `reconfigure`. torch 2.13 has no argument of
            `init_process_group` for it.
    """

    def __init__(self, enable_reconfigure: bool = False) -> None:
        super().__init__("distlite")
        self.enable_reconfigure = enable_reconfigure


class ProcessGroupDistlite(torch.distributed.ProcessGroup):
    """A process group of torch whose ranks communicate by distlite."""

    def __init__(
        self,
        store: Any,
        rank: int,
        size: int,
        timeout: timedelta,
        name: str = "0",
        ranks: list[int] | None = None,
        enable_reconfigure: bool = False,
    ) -> None:
        # The constructor that takes a store cannot make objects of subclasses.
        super().__init__(rank, size)
        self._store = store
        self._timeout = timeout
        self._group_name, self._group_desc = name, "undefined"
        self._others: dict[str, Any] = {}
        self.options = torch._C._distributed_c10d.Backend.Options("distlite", timeout)
        self.options.group_name = name
        self.options.global_ranks_in_group = ranks or []
        make = self._make_reconfigurable if enable_reconfigure else self._make
        self._own = make(store, rank, size, timeout, name)
        name_backend(self._own, "distlite")
        if ranks:
            self._own._set_global_ranks(ranks)

    @staticmethod
    @raises_as_torch
    def _make(store: Any, rank: int, size: int, timeout: timedelta, name: str) -> Any:
        return distlite.ProcessGroup(TorchStore(store), rank, size, timeout, name)

    @staticmethod
    @raises_as_torch
    def _make_reconfigurable(
        store: Any, rank: int, size: int, timeout: timedelta, name: str
    ) -> Any:
        info = GroupInfo(backends_of("gloo"), list(range(size)))
        request = GroupRequest(info, TorchStore(store), rank, timeout)
        request.label = name
        return make_reconfigurable(request)

    def __repr__(self) -> str:
        own = self.__dict__.get("_own")
        return f"<distlite.torch.ProcessGroupDistlite: {own!r}>"

    # Names and descriptions.  torch's class would store them in its backends written in
    # C++, of which there is none.  C++ calls the methods, and Python reads the
    # properties.
    def setGroupName(self, name: str) -> None:
        """Stores the name that torch gives the group."""
        self._group_name = name

    def getGroupName(self) -> str:
        """Returns the name of the group."""
        return self._group_name

    def setGroupDesc(self, desc: str) -> None:
        """Stores the description of the group."""
        self._group_desc = desc

    def getGroupDesc(self) -> str:
        """Returns the description of the group."""
        return self._group_desc

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    def getBackendName(self) -> str:
        """Returns the name of the backend for torch's C++ code."""
        return "distlite"

    def name(self) -> str:
        """Returns the name of the backend."""
        return "distlite"

    def _get_backend_name(self) -> str:
        return "distlite"

    @property
    def supports_splitting(self) -> bool:
        """Returns True: split_group() needs no communicator of all ranks."""
        return True

    supports_coalescing = False
    supports_shrinking = False
    supports_time_estimate = False

    def get_group_store(self) -> Any:
        """Returns the store of torch over which the ranks have met."""
        return self._store

    def _names(self) -> dict[str, str]:
        """Returns the backend of each device."""
        try:
            config = torch.distributed.get_backend_config(self)
        except (KeyError, TypeError, ValueError):
            # torch has not registered the group, or it was made by hand.
            return {"cpu": "distlite"}
        return torch.distributed.BackendConfig(config).get_device_backend_map()

    @property
    def _device_types(self) -> list[Any]:
        return [torch.device(device) for device in self._names()]

    def _get_backend(self, device: Any) -> Any:
        """Returns the group itself for the CPU, and a backend of torch for other
        devices."""
        device = torch.device(device)
        if device.type == "cpu":
            return self
        other = self._elsewhere(device)
        is_backend = isinstance(other, ProcessGroupDistlite)
        return other if is_backend else other._get_backend(device)

    def _elsewhere(self, device: Any) -> Any:
        """Returns the group of torch that serves a device other than the CPU."""
        made = self._others.get(device.type)
        if made is None:
            name = self._names().get(device.type)
            if name is None or name == "distlite":
                raise RuntimeError(
                    f"No backend type associated with device type {device.type}: "
                    f'name one, as in init_process_group("cpu:distlite,cuda:nccl")'
                )
            made = _make_other(self, device.type, name)
            self._others[device.type] = made
        return made

    # Ending the group, and its timeout.
    def abort(self) -> None:
        """Makes running and later operations fail at once, on all ranks."""
        self._own.abort()
        for other in self._others.values():
            other.abort()

    def shutdown(self) -> None:
        """Leaves the group.

        Raises DistBackendError if this rank went ahead of others, as the root of a
        small broadcast does, and these called another operation.
        """
        different = None
        try:
            self._own._verify_calls(_VERIFY_LIMIT)
        except distlite.DistBackendError as error:
            different = as_torch(error)
        self._own.shutdown()
        for other in self._others.values():
            other.shutdown()
        if different is not None:
            raise different

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the time that an operation may take from now on."""
        self._timeout = self.options._timeout = timeout
        self._own.set_timeout(timeout)
        for other in self._others.values():
            other.set_timeout(timeout)

    _set_default_timeout = set_timeout

    # Groups whose members change: torch 2.14 calls these methods.
    @property
    def supports_reconfigure(self) -> bool:
        """Whether the group was made with `enable_reconfigure`."""
        self._check_single()
        return bool(self._own.supports_reconfigure)

    @raises_as_torch
    def get_reconfigure_handle(self) -> str:
        """Names this process for the next `reconfigure`."""
        self._check_single()
        return str(self._own.get_reconfigure_handle())

    @raises_as_torch
    def reconfigure(self, opts: Any) -> Any:
        """Makes the group one of the processes with the handles in `opts`, which is
        torch's `ReconfigureOptions` or distlite's."""
        self._check_single()
        self._own.reconfigure(opts)
        known = torch.distributed.distributed_c10d._world.pg_group_ranks
        if self in known:
            known[self] = {rank: rank for rank in range(self.size())}
        return EndedWork([])

    def get_error(self) -> Any:
        """Returns whether an earlier failure has broken the group."""
        kind = self._own.get_error().name
        return getattr(torch._C._distributed_c10d.ErrorType, kind)

    def _check_single(self) -> None:
        if len(self._names()) > 1:
            raise RuntimeError(
                "a group with multiple backends cannot be reconfigured, but "
                f"{self.group_name} has {self._names()}"
            )

    def rank(self) -> int:
        """Returns the rank of this process, which a reconfiguration may change."""
        return self._own.rank()

    def size(self) -> int:
        """Returns the number of ranks, which a reconfiguration may change."""
        return self._own.size()

    getRank, getSize = rank, size

    def _set_sequence_number_for_group(self) -> None:
        """Does nothing: distlite numbers operations from the start."""

    def _get_sequence_number_for_group(self) -> int:
        return self._own._get_sequence_number_for_group()

    def split_group(
        self,
        new_ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroupDistlite | None:
        """Makes a group of some of the ranks, which alone call it; returns None on
        others."""
        if self.rank() not in new_ranks:
            return None
        name = group_name or f"{self.group_name}:split:" + "_".join(map(str, new_ranks))
        made = ProcessGroupDistlite(
            torch.distributed.PrefixStore(f"{name}/", self.get_group_store()),
            new_ranks.index(self.rank()),
            len(new_ranks),
            self._timeout if timeout is None else timeout,
            name,
        )
        made._set_group_name(name)
        made._set_group_desc(group_desc or f"{self.group_desc}:split")
        return made

    splitGroup = split_group

    @raises_as_torch
    def monitored_barrier(
        self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
    ) -> None:
        """Waits for all ranks, and says which have not arrived."""
        limit = self._timeout if timeout is None else timeout
        self._own.monitored_barrier(limit, wait_all_ranks)

    # Operations whose calls are frequent.
    def allreduce(
        self, tensors: Any = None, opts: Any = None, *rest: Any, **named: Any
    ) -> Any:
        """Combines a tensor with those of all ranks, in place."""
        if type(opts) is torch.distributed.AllreduceOptions and len(tensors) == 1:
            tensor = tensors[0]
            if _is_frequent(tensor) and opts.timeout == _UNSET:
                reduction = _op_of(opts.reduceOp)
                try:
                    work = _C.all_reduce(tensor, reduction, self._own, opts.asyncOp)
                except distlite.DistError as error:
                    raise as_torch(error) from error
                return ENDED if work is None else WorkDistlite(work)
        tensor = _first_tensor([tensors, *named.values()])
        if tensor is not None and tensor.is_sparse and tensor.is_cpu:
            if tensor is not tensors and len(tensors) != 1:
                raise ValueError(
                    "allreduce of several sparse tensors is not supported: call it for "
                    "each of them"
                )
            return EndedWork([all_reduce_sparse(self._own, tensor, opts)])
        return self._begin("allreduce", _given(tensors, opts, *rest), named)

    def broadcast(
        self, tensors: Any = None, opts: Any = None, *rest: Any, **named: Any
    ) -> Any:
        """Copies the tensor of one rank to all others."""
        if type(opts) is torch.distributed.BroadcastOptions and len(tensors) == 1:
            tensor = tensors[0]
            if not opts.asyncOp and _is_frequent(tensor) and opts.timeout == _UNSET:
                try:
                    _C.broadcast(tensor, None, self._own, False, opts.rootRank)
                except distlite.DistError as error:
                    raise as_torch(error) from error
                return ENDED
        return self._begin("broadcast", _given(tensors, opts, *rest), named)

    def _begin(self, name: str, args: Any, named: dict[str, Any]) -> Any:
        """Begins an operation by the method of that name, of distlite's group or
        torch's."""
        tensor = _first_tensor([*args, *named.values()])
        if tensor is not None and not tensor.is_cpu:
            return getattr(self._elsewhere(tensor.device), name)(*args, **named)
        given = [_converted(each) for each in args]
        words = {word: _converted(each) for word, each in named.items()}
        return self._run(name, given, words)

    @raises_as_torch
    def _run(self, name: str, given: list[Any], words: dict[str, Any]) -> Any:
        return WorkDistlite(getattr(self._own, name)(*given, **words))


def _method(name: str) -> Callable[..., Any]:
    def method(self: ProcessGroupDistlite, *args: Any, **named: Any) -> Any:
        return self._begin(name, args, named)

    method.__name__ = name
    method.__qualname__ = f"ProcessGroupDistlite.{name}"
    method.__doc__ = getattr(distlite.ProcessGroup, name).__doc__
    return method


for _name in (
    *("reduce", "allgather", "all_gather_single", "_allgather_base", "gather"),
    *("scatter", "reduce_scatter", "reduce_scatter_single", "_reduce_scatter_base"),
    *("alltoall", "all_to_all_single", "alltoall_base", "barrier"),
    *("send", "recv", "recv_anysource"),
    *("allreduce_coalesced", "allgather_coalesced", "all_gather_single_coalesced"),
    *("allgather_into_tensor_coalesced", "reduce_scatter_single_coalesced"),
    "reduce_scatter_tensor_coalesced",
):
    setattr(ProcessGroupDistlite, _name, _method(_name))


def _make_other(group: ProcessGroupDistlite, device: str, name: str) -> Any:
    """Makes torch's group for the tensors of one device.

    `name` is one of torch's backends, or another that was registered.
    """
    c10d = torch.distributed.distributed_c10d
    parent, rank, size = group.get_group_store(), group.rank(), group.size()
    store = torch.distributed.PrefixStore(f"{device}/", parent)
    ranks = torch.distributed.get_process_group_ranks(group)
    kind = torch.distributed.ProcessGroup.BackendType.CUSTOM
    if name == "gloo":
        backend = c10d.ProcessGroupGloo(store, rank, size, timeout=group._timeout)
        kind = torch.distributed.ProcessGroup.BackendType.GLOO
    elif name in ("nccl", "xccl"):
        of_torch = getattr(c10d, f"ProcessGroup{name.upper()}")
        options = of_torch.Options()
        options._timeout = group._timeout
        options.global_ranks_in_group = ranks
        options.group_name = group.group_name
        backend = of_torch(store, rank, size, options)
        kind = getattr(torch.distributed.ProcessGroup.BackendType, name.upper())
    else:
        plugin = torch.distributed.Backend._plugins[name.upper()]
        if plugin.extended_api:
            told = c10d._DistributedBackendOptions()
            told.store, told.timeout = store, group._timeout
            told.group_rank, told.group_size = rank, size
            told.group_id, told.global_ranks_in_group = group.group_name, ranks
            backend = plugin.creator_fn(told, None)
        else:
            backend = plugin.creator_fn(store, rank, size, group._timeout)
        if isinstance(backend, torch.distributed.ProcessGroup):
            return backend
    made = torch.distributed.ProcessGroup(store, rank, size)
    made._set_default_backend(kind)
    made._register_backend(torch.device(device), kind, backend)
    return made


def create(told: Any, options: Any) -> ProcessGroupDistlite:
    """Makes a group of the backend; called by torch."""
    name = "enable_reconfigure"
    return ProcessGroupDistlite(
        told.store,
        told.group_rank,
        told.group_size,
        told.timeout,
        told.group_id,
        told.global_ranks_in_group,
        bool(getattr(told, name, False) or getattr(options, name, False)),
    )


def _leave_to_python() -> None:
    """Makes torch.compile run the methods, and all that they call, as plain Python.

    torch.compiler.disable() has the same effect, but adds more time to each call than a
    small all_reduce takes, and imports torch's compiler.
    """
    evaluation = torch._C._dynamo.eval_frame
    skip = evaluation._FrameAction.SKIP
    for kind in (ProcessGroupDistlite, WorkDistlite, EndedWork):
        for each in vars(kind).values():
            for function in (each, inspect.unwrap(each)):
                code = getattr(function, "__code__", None)
                if code is not None:
                    strategy = evaluation._FrameExecStrategy(skip, skip)
                    evaluation.set_code_exec_strategy(code, strategy)


_leave_to_python()
