# SPDX-License-Identifier: BSD-3-Clause
"""The compiled core: the reviewed interface of the extension module.

Every name here is public as distlite.<name>.  Timeouts are a timedelta, or seconds as a
number; 0 looks once, negative waits for ever, None is the store's (or group's) own.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import timedelta
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Protocol, TypeAlias, final, overload

from typing_extensions import Self, disjoint_base

from .backends import BackendType as _BackendType
from .futures import Future
from .group_methods import CoalescedWork
from .options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from .reduce_op import RedOpType, ReduceOp
from .store_lock import StoreLock

# What keys and values may be; str stands for its UTF-8.
_Bytes: TypeAlias = str | bytes | bytearray | memoryview
_Timeout: TypeAlias = timedelta | float | None

class DistError(RuntimeError): ...
class DistBackendError(DistError): ...
class DistNetworkError(DistError): ...
class DistStoreError(DistError): ...
class QueueEmptyError(DistStoreError): ...

@disjoint_base
class Store:
    def __init__(self) -> None: ...
    def set(self, key: _Bytes, value: _Bytes) -> None: ...
    def get(self, key: _Bytes) -> bytes: ...
    def add(self, key: _Bytes, amount: int) -> int: ...
    def compare_set(self, key: _Bytes, expected: _Bytes, desired: _Bytes) -> bytes: ...
    def delete_key(self, key: _Bytes) -> bool: ...
    def append(self, key: _Bytes, value: _Bytes) -> None: ...
    def queue_push(self, key: _Bytes, value: _Bytes) -> None: ...
    def queue_pop(self, key: _Bytes, block: bool = True) -> bytes: ...
    def queue_len(self, key: _Bytes) -> int: ...
    def check(self, keys: Iterable[_Bytes]) -> bool: ...
    def wait(self, keys: Iterable[_Bytes], timeout: _Timeout = None) -> None: ...
    def num_keys(self) -> int: ...
    def list_keys(self) -> list[str]: ...
    def multi_get(self, keys: Iterable[_Bytes]) -> list[bytes]: ...
    def multi_set(self, keys: Iterable[_Bytes], values: Iterable[_Bytes]) -> None: ...
    def barrier(
        self, key: _Bytes, world_size: int, timeout: _Timeout = None
    ) -> None: ...
    def has_extended_api(self) -> bool: ...
    def clone(self) -> Store: ...
    @property
    def timeout(self) -> timedelta: ...
    def set_timeout(self, timeout: timedelta | float) -> None: ...
    def close(self) -> None: ...
    def lock(self, name: str, timeout: _Timeout = None) -> StoreLock: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def __getitem__(self, key: _Bytes, /) -> bytes: ...
    def __setitem__(self, key: _Bytes, value: _Bytes, /) -> None: ...
    def __delitem__(self, key: _Bytes, /) -> None: ...
    def __contains__(self, key: _Bytes, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...

class HashStore(Store):
    def __init__(self) -> None: ...

class FileStore(Store):
    def __init__(
        self,
        file_name: str | bytes | PathLike[str] | PathLike[bytes],
        world_size: int = -1,
    ) -> None: ...
    @property
    def path(self) -> str: ...

class PrefixStore(Store):
    def __init__(self, prefix: _Bytes, store: Store) -> None: ...
    @property
    def underlying_store(self) -> Store: ...
    @property
    def _underlying_non_prefix_store(self) -> Store: ...

class TCPStore(Store):
    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: _Timeout = None,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def libuvBackend(self) -> bool: ...

class _SupportsDLPack(Protocol):
    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object: ...

class _SupportsArrayInterface(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

# A numpy.ndarray is both.
_Array: TypeAlias = _SupportsDLPack | _SupportsArrayInterface | bytearray | memoryview
_Group: TypeAlias = ProcessGroup | None

# Asked first: the group, the function's name, and what it was given, by name.  Its
# answer is the function's; NotImplemented has the core do it.
_Handler: TypeAlias = Callable[[ProcessGroup, str, dict[str, Any]], Any]

@disjoint_base
class ProcessGroup:
    # (store, rank, size, timeout=None, group_name="0", group_desc="undefined",
    # backend="cpu", parent=None, ranks=None, is_compared=False); subclasses that write
    # the operations have
    # arguments of their own, and call __init__ with (rank, size).
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def rank(self) -> int: ...
    def size(self) -> int: ...
    def name(self) -> str: ...
    @property
    def group_name(self) -> str: ...
    @property
    def group_desc(self) -> str: ...
    @property
    def timeout(self) -> timedelta: ...
    def set_timeout(self, timeout: _Timeout, /) -> None: ...
    def get_group_store(self) -> Store: ...
    def abort(self) -> None: ...
    def _settle(self, timeout: timedelta, /) -> None: ...
    def shutdown(self) -> None: ...
    # Of backends and devices (group_devices.py).
    BackendType: TypeAlias = _BackendType
    UNDEFINED: _BackendType
    GLOO: _BackendType
    NCCL: _BackendType
    UCC: _BackendType
    MPI: _BackendType
    XCCL: _BackendType
    CUSTOM: _BackendType
    supports_shrinking: bool
    supports_splitting: bool
    supports_time_estimate: bool
    @property
    def supports_coalescing(self) -> bool: ...
    @property
    def bound_device_id(self) -> str | None: ...
    @property
    def _device_types(self) -> list[str]: ...
    def _get_backend(self, device: Any) -> ProcessGroup: ...
    def _get_backend_name(self) -> str: ...
    def _register_backend(
        self,
        device: Any,
        backend_type: _BackendType,
        backend: ProcessGroup | None = None,
    ) -> None: ...
    def monitored_barrier(
        self, timeout: timedelta | float | None = None, wait_all_ranks: bool = False
    ) -> None: ...
    def _get_sequence_number_for_group(self) -> int: ...
    def _set_global_ranks(self, ranks: list[int], /) -> None: ...
    # Operations as methods (group_methods.py): torch's, which take an array or a list
    # of one, and return a Work; words of the module's function, such as async_op, mean
    # that one.
    def allreduce(
        self,
        tensors: Any,
        opts: AllreduceOptions | _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    @overload
    def broadcast(
        self,
        tensors: Any,
        opts: BroadcastOptions | int | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    @overload
    def broadcast(
        self,
        tensor: _Array,
        *,
        src: int | None = None,
        group_src: int | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def broadcast(
        self,
        tensor: _Array,
        *,
        src: int | None = None,
        group_src: int | None = None,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def reduce(
        self,
        tensors: Any,
        opts: ReduceOptions | int | None = None,
        op: _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    @overload
    def reduce(
        self,
        tensor: _Array,
        *,
        dst: int | None = None,
        op: _Op = ...,
        group_dst: int | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def reduce(
        self,
        tensor: _Array,
        *,
        dst: int | None = None,
        op: _Op = ...,
        group_dst: int | None = None,
        async_op: Literal[False] = False,
    ) -> None: ...
    def allgather(
        self,
        output_tensors: Sequence[Any],
        input_tensors: Any,
        opts: AllgatherOptions | _Timeout = None,
    ) -> Work: ...
    @overload
    def gather(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: GatherOptions | int | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    @overload
    def gather(
        self,
        tensor: _Array,
        *,
        gather_list: _Arrays | None = None,
        dst: int | None = None,
        group_dst: int | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def gather(
        self,
        tensor: _Array,
        *,
        gather_list: _Arrays | None = None,
        dst: int | None = None,
        group_dst: int | None = None,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def scatter(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: ScatterOptions | int | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    @overload
    def scatter(
        self,
        tensor: _Array,
        *,
        scatter_list: _Arrays | None = None,
        src: int | None = None,
        group_src: int | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def scatter(
        self,
        tensor: _Array,
        *,
        scatter_list: _Arrays | None = None,
        src: int | None = None,
        group_src: int | None = None,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def reduce_scatter(
        self,
        output_tensors: Any,
        input_tensors: Any = None,
        opts: ReduceScatterOptions | _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    @overload
    def reduce_scatter(
        self,
        output: _Array,
        *,
        input_list: _Arrays,
        op: _Op = ...,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def reduce_scatter(
        self,
        output: _Array,
        *,
        input_list: _Arrays,
        op: _Op = ...,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def all_gather_single(
        self,
        output: _Array,
        input: _Array,
        opts: AllgatherOptions | _Timeout = None,
    ) -> Work: ...
    @overload
    def all_gather_single(
        self,
        output_tensor: _Array,
        input_tensor: _Array,
        *,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def all_gather_single(
        self,
        output_tensor: _Array,
        input_tensor: _Array,
        *,
        async_op: Literal[False],
    ) -> None: ...
    def _allgather_base(
        self, output: _Array, input: _Array, opts: AllgatherOptions | _Timeout = None
    ) -> Work: ...
    @overload
    def reduce_scatter_single(
        self,
        output: _Array,
        input: _Array,
        opts: ReduceScatterOptions | _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    @overload
    def reduce_scatter_single(
        self,
        output: _Array,
        input: _Array,
        *,
        op: _Op = ...,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def reduce_scatter_single(
        self,
        output: _Array,
        input: _Array,
        *,
        op: _Op = ...,
        async_op: Literal[False],
    ) -> None: ...
    def _reduce_scatter_base(
        self,
        outputTensor: _Array,
        inputTensor: _Array,
        opts: ReduceScatterOptions | _Op | None = None,
        timeout: _Timeout = None,
    ) -> Work: ...
    def alltoall(
        self,
        output_tensors: _Arrays,
        input_tensors: _Arrays,
        opts: AllToAllOptions | _Timeout = None,
    ) -> Work: ...
    @overload
    def all_to_all_single(
        self,
        output: _Array,
        input: _Array,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: AllToAllOptions | _Timeout = None,
    ) -> Work: ...
    @overload
    def all_to_all_single(
        self,
        output: _Array,
        input: _Array,
        *,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def all_to_all_single(
        self,
        output: _Array,
        input: _Array,
        *,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        async_op: Literal[False],
    ) -> None: ...
    def alltoall_base(
        self,
        output: _Array,
        input: _Array,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        opts: AllToAllOptions | _Timeout = None,
    ) -> Work: ...
    @overload
    def barrier(
        self,
        opts: BarrierOptions | _Timeout = None,
    ) -> Work: ...
    @overload
    def barrier(
        self,
        *,
        device_ids: object = None,
        timeout: _Timeout = None,
        async_op: Literal[True],
    ) -> Work: ...
    @overload
    def barrier(
        self,
        *,
        device_ids: object = None,
        timeout: _Timeout = None,
        async_op: Literal[False] = False,
    ) -> None: ...
    @overload
    def send(self, tensors: Any, dstRank: int, tag: int = 0) -> Work: ...
    @overload
    def send(
        self,
        tensor: _Array,
        *,
        dst: int | None = None,
        group_dst: int | None = None,
        tag: int = 0,
    ) -> None: ...
    @overload
    def recv(self, tensors: Any, srcRank: int | None = None, tag: int = 0) -> Work: ...
    @overload
    def recv(
        self,
        tensor: _Array,
        *,
        src: int | None = None,
        group_src: int | None = None,
        tag: int = 0,
    ) -> int: ...
    def recv_anysource(self, tensors: Any, tag: int = 0) -> Work: ...
    def allreduce_coalesced(
        self, tensors: Sequence[Any], opts: AllreduceCoalescedOptions | None = None
    ) -> CoalescedWork: ...
    def allgather_coalesced(
        self,
        output_lists: Sequence[Sequence[Any]],
        input_list: Sequence[Any],
        opts: AllgatherOptions | None = None,
    ) -> CoalescedWork: ...
    def all_gather_single_coalesced(
        self,
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        opts: AllgatherOptions | None = None,
    ) -> CoalescedWork: ...
    def allgather_into_tensor_coalesced(
        self,
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        opts: AllgatherOptions | None = None,
    ) -> CoalescedWork: ...
    def reduce_scatter_single_coalesced(
        self,
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        opts: ReduceScatterOptions | None = None,
    ) -> CoalescedWork: ...
    def reduce_scatter_tensor_coalesced(
        self,
        outputs: Sequence[Any],
        inputs: Sequence[Any],
        opts: ReduceScatterOptions | None = None,
    ) -> CoalescedWork: ...
    # The module's functions, with the group filled in.
    @overload
    def all_gather(
        self,
        tensor_list: _Arrays,
        tensor: _Array,
        async_op: Literal[False] = False,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def all_gather(
        self,
        tensor_list: _Arrays,
        tensor: _Array,
        *,
        async_op: Literal[True],
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def all_gather(
        self,
        tensor_list: _Arrays,
        tensor: _Array,
        async_op: bool = False,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    @overload
    def all_gather_into_tensor(
        self,
        output_tensor: _Array,
        input_tensor: _Array,
        async_op: Literal[False] = False,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def all_gather_into_tensor(
        self,
        output_tensor: _Array,
        input_tensor: _Array,
        *,
        async_op: Literal[True],
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def all_gather_into_tensor(
        self,
        output_tensor: _Array,
        input_tensor: _Array,
        async_op: bool = False,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    @overload
    def all_gather_v(
        self,
        tensor_list: _Arrays,
        tensor: _Array,
        async_op: Literal[False] = False,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def all_gather_v(
        self,
        tensor_list: _Arrays,
        tensor: _Array,
        *,
        async_op: Literal[True],
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def all_gather_v(
        self,
        tensor_list: _Arrays,
        tensor: _Array,
        async_op: bool = False,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    @overload
    def all_reduce(
        self,
        tensor: _Array,
        op: _Op = ...,
        async_op: Literal[False] = False,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def all_reduce(
        self,
        tensor: _Array,
        op: _Op = ...,
        *,
        async_op: Literal[True],
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def all_reduce(
        self,
        tensor: _Array,
        op: _Op = ...,
        async_op: bool = False,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    @overload
    def all_to_all(
        self,
        output_tensor_list: _Arrays,
        input_tensor_list: _Arrays,
        async_op: Literal[False] = False,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def all_to_all(
        self,
        output_tensor_list: _Arrays,
        input_tensor_list: _Arrays,
        *,
        async_op: Literal[True],
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def all_to_all(
        self,
        output_tensor_list: _Arrays,
        input_tensor_list: _Arrays,
        async_op: bool = False,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    @overload
    def gather_v(
        self,
        tensor: _Array,
        gather_list: _Arrays | None = None,
        dst: int | None = None,
        async_op: Literal[False] = False,
        group_dst: int | None = None,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def gather_v(
        self,
        tensor: _Array,
        gather_list: _Arrays | None = None,
        dst: int | None = None,
        *,
        async_op: Literal[True],
        group_dst: int | None = None,
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def gather_v(
        self,
        tensor: _Array,
        gather_list: _Arrays | None = None,
        dst: int | None = None,
        async_op: bool = False,
        group_dst: int | None = None,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    def irecv(
        self,
        tensor: _Array,
        src: int | None = None,
        tag: int = 0,
        group_src: int | None = None,
        *,
        stream: _Stream = None,
    ) -> Work: ...
    def isend(
        self,
        tensor: _Array,
        dst: int | None = None,
        tag: int = 0,
        group_dst: int | None = None,
        *,
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def reduce_scatter_tensor(
        self,
        output: _Array,
        input: _Array,
        op: _Op = ...,
        async_op: Literal[False] = False,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def reduce_scatter_tensor(
        self,
        output: _Array,
        input: _Array,
        op: _Op = ...,
        *,
        async_op: Literal[True],
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def reduce_scatter_tensor(
        self,
        output: _Array,
        input: _Array,
        op: _Op = ...,
        async_op: bool = False,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    @overload
    def reduce_scatter_v(
        self,
        output: _Array,
        input_list: _Arrays,
        op: _Op = ...,
        async_op: Literal[False] = False,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def reduce_scatter_v(
        self,
        output: _Array,
        input_list: _Arrays,
        op: _Op = ...,
        *,
        async_op: Literal[True],
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def reduce_scatter_v(
        self,
        output: _Array,
        input_list: _Arrays,
        op: _Op = ...,
        async_op: bool = False,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    @overload
    def scatter_v(
        self,
        tensor: _Array,
        scatter_list: _Arrays | None = None,
        src: int | None = None,
        async_op: Literal[False] = False,
        group_src: int | None = None,
        *,
        stream: _Stream = None,
    ) -> None: ...
    @overload
    def scatter_v(
        self,
        tensor: _Array,
        scatter_list: _Arrays | None = None,
        src: int | None = None,
        *,
        async_op: Literal[True],
        group_src: int | None = None,
        stream: _Stream = None,
    ) -> Work: ...
    @overload
    def scatter_v(
        self,
        tensor: _Array,
        scatter_list: _Arrays | None = None,
        src: int | None = None,
        async_op: bool = False,
        group_src: int | None = None,
        *,
        stream: _Stream = None,
    ) -> Work | None: ...
    def _set_handler(self, handler: _Handler | None, /) -> _Handler | None: ...
    def _adopt(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: _Timeout = None,
        group_name: str = "0",
        group_desc: str = "undefined",
        backend: str = "custom",
    ) -> None: ...

@disjoint_base
class Work:
    # Without arguments; subclasses, which backends in Python return, have their own.
    def __new__(cls, *args: Any, **kwargs: Any) -> Self: ...
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def wait(self, timeout: _Timeout = None) -> Literal[True]: ...
    def is_completed(self) -> bool: ...
    def is_success(self) -> bool: ...
    def exception(self) -> BaseException | None: ...
    def result(self) -> list[Any]: ...
    def source_rank(self) -> int: ...
    def _source_rank(self) -> int: ...
    def synchronize(self) -> None: ...
    def get_future(self) -> Future: ...
    def __await__(self) -> Generator[Any, None, list[Any]]: ...
    def _get_op_type(self) -> int: ...
    def _ended_at(self) -> float | None: ...
    def _call_when_done(self, callback: Callable[[Work], object], /) -> None: ...
    def _take_callbacks(self) -> list[Callable[[Work], object]]: ...

_Arrays: TypeAlias = list[Any]
_Op: TypeAlias = RedOpType | ReduceOp
# The number of a cudaStream_t, or an object that has it.
_Stream: TypeAlias = Any

@overload
def all_reduce(
    tensor: _Array,
    op: _Op = ...,
    group: _Group = None,
    async_op: Literal[False] = False,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def all_reduce(
    tensor: _Array,
    op: _Op = ...,
    group: _Group = None,
    *,
    async_op: Literal[True],
    stream: _Stream = None,
) -> Work: ...
@overload
def all_reduce(
    tensor: _Array,
    op: _Op = ...,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def broadcast(
    tensor: _Array,
    src: int | None = None,
    group: _Group = None,
    async_op: Literal[False] = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def broadcast(
    tensor: _Array,
    src: int | None = None,
    group: _Group = None,
    *,
    async_op: Literal[True],
    group_src: int | None = None,
    stream: _Stream = None,
) -> Work: ...
@overload
def broadcast(
    tensor: _Array,
    src: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def reduce(
    tensor: _Array,
    dst: int | None = None,
    op: _Op = ...,
    group: _Group = None,
    async_op: Literal[False] = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def reduce(
    tensor: _Array,
    dst: int | None = None,
    op: _Op = ...,
    group: _Group = None,
    *,
    async_op: Literal[True],
    group_dst: int | None = None,
    stream: _Stream = None,
) -> Work: ...
@overload
def reduce(
    tensor: _Array,
    dst: int | None = None,
    op: _Op = ...,
    group: _Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def all_gather(
    tensor_list: _Arrays,
    tensor: _Array,
    group: _Group = None,
    async_op: Literal[False] = False,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def all_gather(
    tensor_list: _Arrays,
    tensor: _Array,
    group: _Group = None,
    *,
    async_op: Literal[True],
    stream: _Stream = None,
) -> Work: ...
@overload
def all_gather(
    tensor_list: _Arrays,
    tensor: _Array,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def all_gather_single(
    output_tensor: _Array,
    input_tensor: _Array,
    group: _Group = None,
    async_op: Literal[False] = False,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def all_gather_single(
    output_tensor: _Array,
    input_tensor: _Array,
    group: _Group = None,
    *,
    async_op: Literal[True],
    stream: _Stream = None,
) -> Work: ...
@overload
def all_gather_single(
    output_tensor: _Array,
    input_tensor: _Array,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def gather(
    tensor: _Array,
    gather_list: _Arrays | None = None,
    dst: int | None = None,
    group: _Group = None,
    async_op: Literal[False] = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def gather(
    tensor: _Array,
    gather_list: _Arrays | None = None,
    dst: int | None = None,
    group: _Group = None,
    *,
    async_op: Literal[True],
    group_dst: int | None = None,
    stream: _Stream = None,
) -> Work: ...
@overload
def gather(
    tensor: _Array,
    gather_list: _Arrays | None = None,
    dst: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def gather_v(
    tensor: _Array,
    gather_list: _Arrays | None = None,
    dst: int | None = None,
    group: _Group = None,
    async_op: Literal[False] = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def gather_v(
    tensor: _Array,
    gather_list: _Arrays | None = None,
    dst: int | None = None,
    group: _Group = None,
    *,
    async_op: Literal[True],
    group_dst: int | None = None,
    stream: _Stream = None,
) -> Work: ...
@overload
def gather_v(
    tensor: _Array,
    gather_list: _Arrays | None = None,
    dst: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def scatter(
    tensor: _Array,
    scatter_list: _Arrays | None = None,
    src: int | None = None,
    group: _Group = None,
    async_op: Literal[False] = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def scatter(
    tensor: _Array,
    scatter_list: _Arrays | None = None,
    src: int | None = None,
    group: _Group = None,
    *,
    async_op: Literal[True],
    group_src: int | None = None,
    stream: _Stream = None,
) -> Work: ...
@overload
def scatter(
    tensor: _Array,
    scatter_list: _Arrays | None = None,
    src: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def scatter_v(
    tensor: _Array,
    scatter_list: _Arrays | None = None,
    src: int | None = None,
    group: _Group = None,
    async_op: Literal[False] = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def scatter_v(
    tensor: _Array,
    scatter_list: _Arrays | None = None,
    src: int | None = None,
    group: _Group = None,
    *,
    async_op: Literal[True],
    group_src: int | None = None,
    stream: _Stream = None,
) -> Work: ...
@overload
def scatter_v(
    tensor: _Array,
    scatter_list: _Arrays | None = None,
    src: int | None = None,
    group: _Group = None,
    async_op: bool = False,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def reduce_scatter(
    output: _Array,
    input_list: _Arrays,
    op: _Op = ...,
    group: _Group = None,
    async_op: Literal[False] = False,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def reduce_scatter(
    output: _Array,
    input_list: _Arrays,
    op: _Op = ...,
    group: _Group = None,
    *,
    async_op: Literal[True],
    stream: _Stream = None,
) -> Work: ...
@overload
def reduce_scatter(
    output: _Array,
    input_list: _Arrays,
    op: _Op = ...,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def reduce_scatter_single(
    output: _Array,
    input: _Array,
    op: _Op = ...,
    group: _Group = None,
    async_op: Literal[False] = False,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def reduce_scatter_single(
    output: _Array,
    input: _Array,
    op: _Op = ...,
    group: _Group = None,
    *,
    async_op: Literal[True],
    stream: _Stream = None,
) -> Work: ...
@overload
def reduce_scatter_single(
    output: _Array,
    input: _Array,
    op: _Op = ...,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def all_to_all(
    output_tensor_list: _Arrays,
    input_tensor_list: _Arrays,
    group: _Group = None,
    async_op: Literal[False] = False,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def all_to_all(
    output_tensor_list: _Arrays,
    input_tensor_list: _Arrays,
    group: _Group = None,
    *,
    async_op: Literal[True],
    stream: _Stream = None,
) -> Work: ...
@overload
def all_to_all(
    output_tensor_list: _Arrays,
    input_tensor_list: _Arrays,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def all_to_all_single(
    output: _Array,
    input: _Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: _Group = None,
    async_op: Literal[False] = False,
    *,
    stream: _Stream = None,
) -> None: ...
@overload
def all_to_all_single(
    output: _Array,
    input: _Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: _Group = None,
    *,
    async_op: Literal[True],
    stream: _Stream = None,
) -> Work: ...
@overload
def all_to_all_single(
    output: _Array,
    input: _Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: _Group = None,
    async_op: bool = False,
    *,
    stream: _Stream = None,
) -> Work | None: ...
@overload
def barrier(
    group: _Group = None,
    async_op: Literal[False] = False,
    device_ids: object = None,
    timeout: _Timeout = None,
) -> None: ...
@overload
def barrier(
    group: _Group = None,
    *,
    async_op: Literal[True],
    device_ids: object = None,
    timeout: _Timeout = None,
) -> Work: ...
@overload
def barrier(
    group: _Group = None,
    async_op: bool = False,
    device_ids: object = None,
    timeout: _Timeout = None,
) -> Work | None: ...
def monitored_barrier(
    group: _Group = None, timeout: _Timeout = None, wait_all_ranks: bool = False
) -> None: ...
def _deadlock_configure() -> None: ...
def _get_debug_level() -> int: ...
def _set_debug_level(level: int, /) -> None: ...
def _set_debug_level_from(text: str | None, /) -> None: ...
def send(
    tensor: _Array,
    dst: int | None = None,
    group: _Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> None: ...
def recv(
    tensor: _Array,
    src: int | None = None,
    group: _Group = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> int: ...
def isend(
    tensor: _Array,
    dst: int | None = None,
    group: _Group = None,
    tag: int = 0,
    group_dst: int | None = None,
    *,
    stream: _Stream = None,
) -> Work: ...
def irecv(
    tensor: _Array,
    src: int | None = None,
    group: _Group = None,
    tag: int = 0,
    group_src: int | None = None,
    *,
    stream: _Stream = None,
) -> Work: ...

@final
class _SharedMemory:
    def __new__(cls, group: ProcessGroup, size: int) -> Self: ...

@final
class _SpareMemory:
    def __new__(cls, size: int, /) -> Self: ...

@final
class _Pack: ...

def _pack(arrays: Sequence[Any], /) -> _Pack: ...
def _pack_blocks(arrays: Sequence[Any], parts: int, /) -> list[_Pack]: ...
def _plan_packs(
    arrays: Sequence[Any], limit: int, group: object, /
) -> list[list[int]]: ...
def _find_shared(
    arrays: Sequence[Any], others: Sequence[Any] | None = None, /
) -> list[int]: ...
def _add_group_methods(methods: dict[str, Callable[..., Any]], /) -> None: ...
def _clear_spare_memory() -> None: ...
def _exchange_cards(
    group: ProcessGroup,
    op: int,
    root: int,
    card: bytes,
    size: int,
    root_size: int,
    head: int,
    /,
) -> tuple[bool, list[bytes]]: ...

_OBJECT_TAG: int
_SAFE_DEPTH_LIMIT: int

def _put_plain(
    out: bytearray,
    value: object,
    beside: int,
    depth: int,
    other: Callable[[Any, int], object],
    /,
) -> None: ...
def _take_plain(
    data: bytes | bytearray | memoryview,
    at: int,
    depth: int,
    other: Callable[[int, int], tuple[Any, int]],
    /,
) -> tuple[Any, int]: ...
def _set_default_group(group: ProcessGroup | None, /) -> None: ...
def _set_thread_group(group: ProcessGroup | None, /) -> None: ...
def _recording() -> bytes | None: ...
def _read_recording(path: str, /) -> bytes: ...
def _recording_folders() -> list[str]: ...
def _recording_identify(job: str, rank: int, size: int, /) -> None: ...
def _recordings_sweep() -> None: ...
def _finish_report() -> None: ...
def _addresses(connected: str | None, /) -> str: ...
def _set_call_label(label: str | None, /) -> str | None: ...
def _group_refuse(
    parent: ProcessGroup,
    ranks: list[int],
    rank: int,
    name: str,
    backend: str,
    reason: str,
    /,
) -> None: ...
def _set_custom_handler(handler: _Handler, /) -> None: ...
def _set_reduce_op_types(
    members: type[RedOpType], wrapper: type[ReduceOp], /
) -> None: ...
def _set_future_of_work(factory: Callable[[Work], Future], /) -> None: ...
def _nccl_version() -> int: ...
def _mpi_library() -> tuple[str, str]: ...
def _mpi_place() -> tuple[int, int]: ...
def _mpi_tell(text: str, timeout: timedelta, /) -> str: ...
def _mpi_give_up() -> None: ...
def _ucc_version() -> int: ...
def _check_cuda() -> None: ...
def _device_serve(
    group: ProcessGroup,
    name: str,
    options: tuple[Any, ...] | None,
    takes_barriers: bool,
    /,
) -> None: ...
def _device_connect(group: ProcessGroup, index: int, /) -> None: ...
def _device_split(
    parent: ProcessGroup, color: int, key: int, child: ProcessGroup | None, /
) -> None: ...
def _device_shrink(
    parent: ProcessGroup, excluded: list[int], flags: int, child: ProcessGroup, /
) -> None: ...
def _device_name(group: ProcessGroup, /) -> str | None: ...
def _set_cuda_stream(stream: _Stream, /) -> int | None: ...
def _batch_begin(group: ProcessGroup, /) -> None: ...
def _batch_end(group: ProcessGroup, is_dropped: bool, /) -> Work | None: ...
def _next_finished() -> Work | None: ...
def _stop_completions() -> None: ...
