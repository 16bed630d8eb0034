# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of NCCL, with the doubles or with a real device.

A kit makes arrays on the device and reads them back; see `kit_of`.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import numpy as np
from collective_ranks import error_of
from cuda_device import Device
from dlpack_producer import Producer
from doubles_build import change_double
from fake_cuda import CudaArray, Runtime
from wrapped_store import Wrapped

import distlite
from distlite import ReduceOp
from distlite.distributed_c10d import SHRINK_ABORT, SHRINK_DEFAULT

Case = tuple[str, bool]
SECONDS = 20.0


class NcclId(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char * 128),)


class FakeKit:
    """Device memory is NumPy's, the current stream is the default one."""

    def __init__(self) -> None:
        self.runtime = Runtime()
        # NumPy gives memory to the next one without regard to streams.
        self.kept: list[CudaArray] = []

    def put(self, array: np.ndarray) -> Any:
        self.kept.append(CudaArray(np.ascontiguousarray(array).copy()))
        return self.kept[-1]

    def get(self, array: Any) -> np.ndarray:
        self.runtime.synchronize(0)
        return array.array


class TorchKit:
    """Real memory, by way of torch."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.set_device(0)

    def put(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(np.ascontiguousarray(array).copy()).cuda()

    def get(self, array: Any) -> np.ndarray:
        return array.cpu().numpy()


def kit_of(name: str, rank: int) -> Any:
    """Of "fake", "cuda" or "torch"; ranks that share a device must look like hosts."""
    os.environ["NCCL_HOSTID"] = f"rank{rank}"
    return {"fake": FakeKit, "cuda": Device, "torch": TorchKit}[name]()


def init(
    rank: int, world_size: int, init_method: str, backend: str = "nccl", **more: Any
) -> None:
    limit = more.pop("timeout", timedelta(seconds=SECONDS))
    distlite.init_process_group(
        backend, init_method, limit, world_size=world_size, rank=rank, **more
    )


def reduce_and_wait(tensor: Any, group: Any) -> None:
    work = distlite.all_reduce(tensor, group=group, async_op=True)
    work.wait(timedelta(seconds=SECONDS))


def values(rank: int, count: int, dtype: Any) -> np.ndarray:
    return ((np.arange(count) * 5 + rank * 3) % 7).astype(dtype)


def same(kit: Any, got: Any, expected: Any) -> bool:
    return np.array_equal(kit.get(got), np.asarray(expected))


def reductions(rank: int, size: int, kit: Any) -> Iterator[Case]:
    numpy_of: dict[Any, Callable[..., Any]] = {
        ReduceOp.SUM: np.sum,
        ReduceOp.PRODUCT: np.prod,
        ReduceOp.MIN: np.min,
        ReduceOp.MAX: np.max,
    }
    for dtype in ("int8", "uint8", "int32", "int64", "float16", "float32", "float64"):
        every = np.stack([values(r, 11, dtype) for r in range(size)])
        for op, function in numpy_of.items():
            tensor = kit.put(every[rank])
            distlite.all_reduce(tensor, op)
            expected = function(every, axis=0).astype(dtype)
            yield f"all_reduce {dtype} {op}", same(kit, tensor, expected)
    every = np.stack([values(r, 5, "complex64") * (1 + 2j) for r in range(size)])
    tensor = kit.put(every[rank])
    distlite.all_reduce(tensor)
    yield "complex", same(kit, tensor, every.sum(0))
    flags = np.stack([values(r, 9, "int64") > 3 for r in range(size)])
    for op, expected in (
        (ReduceOp.SUM, flags.any(0)),
        (ReduceOp.PRODUCT, flags.all(0)),
        (ReduceOp.BOR, flags.any(0)),
        (ReduceOp.BAND, flags.all(0)),
    ):
        tensor = kit.put(flags[rank])
        distlite.all_reduce(tensor, op)
        yield f"bool {op}", same(kit, tensor, expected)
    whole = np.stack([values(r, 4, "float32") * size for r in range(size)])
    tensor = kit.put(whole[rank])
    distlite.all_reduce(tensor, ReduceOp.AVG)
    yield "AVG", same(kit, tensor, whole.sum(0) / size)


def factors(rank: int, size: int, kit: Any) -> Iterator[Case]:
    for dtype in ("float16", "float32", "float64"):
        tensor = kit.put(values(rank, 4, dtype))
        distlite.all_reduce(tensor, ReduceOp.PREMUL_SUM(0.5))
        expected = sum(values(r, 4, dtype) * 0.5 for r in range(size))
        yield f"PREMUL_SUM {dtype}", same(kit, tensor, expected)


def movements(rank: int, size: int, kit: Any) -> Iterator[Case]:
    for dtype in ("int16", "float32", "complex128", "bool"):
        mine = values(rank, 6, dtype)
        every = [values(r, 6, dtype) for r in range(size)]
        tensor = kit.put(mine)
        distlite.broadcast(tensor, size - 1)
        yield f"broadcast {dtype}", same(kit, tensor, every[-1])
        outputs = [kit.put(np.zeros_like(mine)) for _ in range(size)]
        distlite.all_gather(outputs, kit.put(mine))
        right = all(same(kit, o, e) for o, e in zip(outputs, every, strict=True))
        yield f"all_gather {dtype}", right
        whole = kit.put(np.zeros((size, 6), dtype))
        distlite.all_gather_single(whole, kit.put(mine))
        yield f"all_gather_single {dtype}", same(kit, whole, every)
        outputs = [kit.put(np.zeros_like(mine)) for _ in range(size)]
        root = size - 1
        distlite.gather(kit.put(mine), outputs if rank == root else None, root)
        if rank == root:
            right = all(same(kit, o, e) for o, e in zip(outputs, every, strict=True))
            yield f"gather {dtype}", right
        tensor = kit.put(np.zeros_like(mine))
        inputs = [kit.put(each) for each in every] if rank == 0 else None
        distlite.scatter(tensor, inputs, 0)
        yield f"scatter {dtype}", same(kit, tensor, mine)
        inputs = [kit.put(values(rank * 10 + r, 3, dtype)) for r in range(size)]
        outputs = [kit.put(np.zeros(3, dtype)) for _ in range(size)]
        distlite.all_to_all(outputs, inputs)
        expected = [values(r * 10 + rank, 3, dtype) for r in range(size)]
        right = all(same(kit, o, e) for o, e in zip(outputs, expected, strict=True))
        yield f"all_to_all {dtype}", right
    whole = kit.put(np.zeros(size * 2, "int64"))
    distlite.all_to_all_single(whole, kit.put(np.arange(size * 2) + 100 * rank))
    expected = [100 * r + 2 * rank + i for r in range(size) for i in range(2)]
    yield "all_to_all_single", same(kit, whole, expected)


def uneven(rank: int, size: int, kit: Any) -> Iterator[Case]:
    """Blocks of 1, 2, ... elements, and one that is empty."""
    counts = [*range(1, size), 0]
    every = [values(r, counts[r], "float32") for r in range(size)]
    outputs = [kit.put(np.zeros(n, "float32")) for n in counts]
    distlite.all_gather(outputs, kit.put(every[rank]))
    right = all(same(kit, o, e) for o, e in zip(outputs, every, strict=True))
    yield "all_gather uneven", right
    inputs = [kit.put(values(rank + 5 * r, counts[r], "float32")) for r in range(size)]
    tensor = kit.put(np.zeros(counts[rank], "float32"))
    distlite.reduce_scatter(tensor, inputs)
    expected = sum(values(r + 5 * rank, counts[rank], "float32") for r in range(size))
    yield "reduce_scatter uneven", same(kit, tensor, expected)
    tensor = kit.put(np.zeros(3, "int32"))
    whole = np.arange(size * 3, dtype="int32").reshape(size, 3) + rank
    distlite.reduce_scatter_single(tensor, kit.put(whole))
    expected = size * np.arange(rank * 3, rank * 3 + 3) + sum(range(size))
    yield "reduce_scatter_single", same(kit, tensor, expected)
    tensor = kit.put(values(rank, 4, "int64"))
    distlite.reduce(tensor, size - 1)
    summed = sum(values(r, 4, "int64") for r in range(size))
    expected = summed if rank == size - 1 else values(rank, 4, "int64")
    yield "reduce", same(kit, tensor, expected)
    large = kit.put(np.full(200_003, rank + 1, "float32"))
    distlite.all_reduce(large)
    yield "large", same(kit, large, np.full(200_003, size * (size + 1) / 2))


def messages(rank: int, size: int, kit: Any) -> Iterator[Case]:
    right, left = (rank + 1) % size, (rank - 1) % size
    out, back = kit.put(values(rank, 5, "int64")), kit.put(np.zeros(5, "int64"))
    works = distlite.batch_isend_irecv(
        [
            distlite.P2POp(distlite.isend, out, right),
            distlite.P2POp(distlite.irecv, back, left),
        ]
    )
    for work in works:
        work.wait()
    yield "batch is one work", len(works) == 1
    yield "batch", same(kit, back, values(left, 5, "int64"))
    if rank == 0:
        distlite.send(out, 1)
    elif rank == 1:
        yield "source", distlite.recv(back, 0) == 0
        yield "send", same(kit, back, values(0, 5, "int64"))


def bundles(rank: int, size: int, kit: Any) -> Iterator[Case]:
    first, second = kit.put(np.ones(3, "int32")), kit.put(np.full(2, rank, "int32"))
    with distlite.groups.nccl.batch(distlite.group.WORLD, is_async=True) as manager:
        distlite.all_reduce(first)
        assert distlite.all_reduce(second, async_op=True) is None
    manager.wait()
    yield "coalesced", same(kit, first, [size] * 3)
    yield "coalesced too", same(kit, second, [sum(range(size))] * 2)
    both = [kit.put(np.full(3, rank)), kit.put(np.full(1, 2.0))]
    with distlite._coalescing_manager(async_ops=True) as manager:
        for each in both:
            distlite.all_reduce(each)
    manager.wait()
    yield "manager", same(kit, both[0], [sum(range(size))] * 3)
    yield "manager too", same(kit, both[1], [2 * size])


def groups(rank: int, size: int, kit: Any) -> Iterator[Case]:
    pair = distlite.new_group([0, 1])
    if rank < 2:
        tensor = kit.put(np.full(2, rank + 1.0))
        distlite.all_reduce(tensor, group=pair)
        yield "new_group", same(kit, tensor, [3, 3])
    part = distlite.split_group(split_ranks=[[0, size - 1]])
    if part is not None:
        tensor = kit.put(np.full(2, rank + 1.0))
        distlite.all_reduce(tensor, group=part)
        yield "split_group", same(kit, tensor, [size + 1] * 2)
    objects: list[Any] = [None] * size
    distlite.all_gather_object(objects, {"rank": rank})
    yield "objects", objects == [{"rank": r} for r in range(size)]
    host = np.array([rank])
    distlite.all_reduce(host)
    yield "CPU arrays", host[0] == sum(range(size))
    distlite.barrier()


PARTS = (reductions, factors, movements, uneven, messages, bundles, groups)


def everything(
    rank: int, world_size: int, init_method: str, kit: str, **more: Any
) -> list[str]:
    """Names of the cases that went wrong."""
    made = kit_of(kit, rank)
    init(rank, world_size, init_method, **more)
    wrong = []
    for part in PARTS:
        wrong += [name for name, right in part(rank, world_size, made) if not right]
    if rank != world_size - 1:
        distlite.shrink_group([world_size - 1])
        tensor = made.put(np.ones(2))
        distlite.all_reduce(tensor)
        wrong += [] if same(made, tensor, [world_size - 1] * 2) else ["shrink_group"]
    distlite.destroy_process_group()
    return wrong


def ordering(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Between streams that are busy until a flag says otherwise, with the doubles."""
    runtime = Runtime()
    init(rank, world_size, init_method, "cpu:gloo,cuda:nccl")
    stream, other = runtime.stream(), runtime.stream()
    found: dict[str, Any] = {}
    array, mine, copy = np.zeros(4), np.full(4, rank + 1.0), np.zeros(4)
    flag = np.zeros(1, np.int32)
    # If the host waited for the stream, it would never set the flag.
    runtime.copy(stream, array, mine, flag)
    distlite.all_reduce(CudaArray(array, stream))
    runtime.copy(stream, copy, array)
    found["before"] = copy.tolist()
    flag[0] = 1
    runtime.synchronize(stream)
    found["after"] = copy.tolist()

    flag, second = np.zeros(1, np.int32), np.zeros(4)
    runtime.copy(stream, array, mine, flag)
    with distlite.cuda_stream(stream):
        work = distlite.all_reduce(CudaArray(array), async_op=True)
    with distlite.cuda_stream(other):
        work.wait()
    runtime.copy(other, second, array)
    found["completed at once"] = work.is_completed()
    flag[0] = 1
    runtime.synchronize(other)
    found["other stream"] = second.tolist()
    work.wait(timedelta(seconds=SECONDS))
    found["completed"] = (work.is_completed(), work.is_success())

    runtime.copy(stream, array, mine)
    os.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"
    distlite.all_reduce(CudaArray(array, stream))
    found["blocking"] = array.tolist()
    future = distlite.all_reduce(CudaArray(array, stream), async_op=True).get_future()
    future.wait()
    found["future"] = array.tolist()
    distlite.destroy_process_group()
    found["streams"] = runtime.streams_alive()
    return found


# What distlite asks of a tensor of torch before it writes to it.
PLAIN_TENSOR = {"requires_grad": False}


def library_streams(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Arrays whose libraries have a current stream: of a class of torch's, of one that
    a user has derived from it, and of one with DLPack's table of functions."""
    runtime = Runtime()
    init(rank, world_size, init_method, "cpu:gloo,cuda:nccl")
    stream = runtime.stream()
    current = SimpleNamespace(cuda_stream=stream)
    cuda = SimpleNamespace(current_stream=lambda device: current)
    sys.modules["torch"] = SimpleNamespace(cuda=cuda)  # type: ignore[assignment]
    versions: list[object] = []  # of the tensors that were written to
    graph = SimpleNamespace(increment_version=versions.append)
    sys.modules["torch.autograd.graph"] = graph  # type: ignore[assignment]
    tensor = type("Tensor", (CudaArray,), {"__module__": "torch", **PLAIN_TENSOR})
    parameter = type("Parameter", (tensor,), {"__module__": "of_a_user"})
    table = exchange_table(stream)
    tabled = type("Array", (CudaArray,), {"__dlpack_c_exchange_api__": table})
    found: dict[str, Any] = {}
    for kind in (tensor, parameter, tabled, type("Mine", (tabled,), {})):
        array, mine, copy = np.zeros(4), np.full(4, rank + 1.0), np.zeros(4)
        flag = np.zeros(1, np.int32)
        runtime.copy(stream, array, mine, flag)
        distlite.all_reduce(kind(array))
        runtime.copy(stream, copy, array)
        before = copy.tolist()
        flag[0] = 1
        runtime.synchronize(stream)
        found[kind.__name__] = (before, copy.tolist())
    assert [type(each) for each in versions] == [tensor, parameter]
    del sys.modules["torch"], sys.modules["torch.autograd.graph"]
    distlite.destroy_process_group()
    return found


_tables: list[Any] = []


def exchange_table(stream: int) -> object:
    """DLPack's table of a library that only tells its stream of device 0."""
    signature = ctypes.PYFUNCTYPE(
        ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
    )

    def current(kind: int, index: int, told: Any) -> int:
        assert (kind, index) == (2, 0)
        told[0] = stream
        return 0

    function = signature(current)
    address = ctypes.cast(function, ctypes.c_void_p).value
    table = (ctypes.c_void_p * 7)(1 | 3 << 32, None, None, None, None, None, address)
    _tables.extend((function, table))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    made: object = new(ctypes.addressof(table), b"dlpack_exchange_api", None)
    return made


class Immutable(Producer):
    """As JAX's arrays: nobody may write to them, their library has no current stream,
    and lets the one that it is told wait until they are computed, which is once `flag`
    is set."""

    def __init__(self, value: np.ndarray, **said: Any) -> None:
        super().__init__(np.zeros_like(value), device=2, flags=1, **said)
        self.value, self.flag = value, np.zeros(1, np.int32)
        self.is_exported = threading.Event()

    def __dlpack__(self, **keywords: Any) -> object:
        Runtime().copy(keywords["stream"], self.array, self.value, self.flag)
        self.is_exported.set()
        return super().__dlpack__(**keywords)


def immutable(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Arrays whose memory may be reused as soon as the call returns."""
    runtime = Runtime()
    init(rank, world_size, init_method, "cpu:gloo,cuda:nccl")
    stream = runtime.stream()
    found: dict[str, Any] = {}
    for name, chosen in (("default", None), ("chosen", stream)):
        lent = Immutable(np.full(4, rank + 1.0), stream=chosen or 1)
        whole = np.zeros((world_size, 4))
        setter = threading.Thread(target=_set_once_exported, args=[lent])
        setter.start()
        with distlite.cuda_stream(chosen):
            distlite.all_gather_single(CudaArray(whole), lent)
        found[name] = whole[:, 0].tolist(), lent.capsules
        setter.join()
        lent = Immutable(np.full(4, rank + 1.0), stream=chosen or 1)
        whole = np.zeros((world_size, 4))
        work = distlite.all_gather_single(
            CudaArray(whole), lent, async_op=True, stream=chosen
        )
        work.wait()
        held = lent.capsules
        lent.flag[0] = 1
        runtime.synchronize(chosen or 0)
        found[f"{name}, asynchronous"] = whole[:, 0].tolist(), held
    distlite.destroy_process_group()
    return found


def _set_once_exported(lent: Immutable) -> None:
    lent.is_exported.wait()
    lent.flag[0] = 1


def named_streams(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """`stream=` of single calls, with arrays that name no stream, or another one."""
    runtime = Runtime()
    init(rank, world_size, init_method, "cpu:gloo,cuda:nccl")
    stream, other = runtime.stream(), runtime.stream()
    found: dict[str, Any] = {}
    array, mine, copy = np.zeros(4), np.full(4, rank + 1.0), np.zeros(4)
    flag = np.zeros(1, np.int32)
    runtime.copy(stream, array, mine, flag)
    distlite.all_reduce(CudaArray(array, other), stream=stream)
    runtime.copy(stream, copy, array)
    found["before"] = copy.tolist()
    flag[0] = 1
    runtime.synchronize(stream)
    found["after"] = copy.tolist()
    # wait() orders the same stream; a block around the call counts less.
    runtime.copy(stream, array, mine)
    with distlite.cuda_stream(other):
        work = distlite.all_reduce(
            CudaArray(array), async_op=True, stream=ctypes.c_void_p(stream)
        )
    work.wait()
    runtime.copy(stream, copy, array)
    runtime.synchronize(stream)
    found["async"] = copy.tolist()
    right, left = (rank + 1) % world_size, (rank - 1) % world_size
    runtime.copy(stream, array, mine)
    with distlite.cuda_stream(stream):
        for each in distlite.batch_isend_irecv(
            [
                distlite.P2POp(distlite.isend, CudaArray(array), right),
                distlite.P2POp(distlite.irecv, CudaArray(copy), left),
            ]
        ):
            each.wait()
    runtime.synchronize(stream)
    found["messages"] = copy[0] == left + 1
    whole, blocks = np.zeros((world_size, 4)), np.zeros(4)
    distlite.all_gather_single(CudaArray(whole), CudaArray(array), stream=stream)
    distlite.scatter(
        CudaArray(blocks),
        [CudaArray(row) for row in whole] if rank == 0 else None,
        src=0,
        stream=stream,
    )
    runtime.synchronize(stream)
    found["scatter"] = blocks.tolist()
    host = np.ones(3)
    found["host"] = error_of(distlite.all_reduce, host, stream=stream)
    found["message"] = error_of(distlite.send, host, right, stream=stream)
    found["kind"] = error_of(distlite.all_reduce, CudaArray(array), stream="left")
    found["place"] = error_of(
        distlite.all_reduce, CudaArray(array), ReduceOp.SUM, None, False, stream
    )
    # What failed leaves nothing behind.
    distlite.all_reduce(host)
    found["none"] = host.tolist()
    distlite.all_reduce(host, stream=None)
    with distlite._coalescing_manager():
        distlite.all_reduce(CudaArray(array), stream=stream)
    runtime.synchronize(stream)
    found["collected"] = array.tolist()
    runtime.begin_capture(stream)
    distlite.all_reduce(CudaArray(array), stream=stream)
    work = distlite.all_reduce(CudaArray(array), async_op=True, stream=stream)
    work.wait(timedelta(seconds=SECONDS))
    found["capture"], graph = runtime.end_capture(stream)
    found["captured"] = (work.is_completed(), array.tolist())
    runtime.launch(graph, stream)
    runtime.synchronize(stream)
    found["launched"] = array.tolist(), runtime.spoilt_captures()
    distlite.destroy_process_group()
    return found


def many_streams(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Arrays of one call that name streams of their own: an input that comes late on
    one, outputs that are read on others; and reductions that go out together."""
    runtime = Runtime()
    init(rank, world_size, init_method)
    streams = [runtime.stream() for _ in range(world_size + 1)]
    found: dict[str, Any] = {}
    for way in ("sync", "async", "batch"):
        flag, value = np.zeros(1, np.int32), np.full(2, rank + 1.0)
        mine, late = np.zeros(2), np.zeros(2)
        outputs = [np.zeros(2) for _ in range(world_size)]
        copies = [np.zeros(2) for _ in range(world_size)]
        runtime.copy(streams[-1], mine, value, flag)
        arrays = list(map(CudaArray, outputs, streams[:-1]))
        if way == "batch":
            with distlite.groups.nccl.batch(distlite.group.WORLD):
                distlite.all_gather(arrays, CudaArray(mine, streams[-1]))
                distlite.all_reduce(CudaArray(late, streams[-1]))
        else:
            is_async = way == "async"
            work = distlite.all_gather(
                arrays, CudaArray(mine, streams[-1]), None, is_async
            )
            if work is not None:
                work.wait()
        for stream, copy, output in zip(streams, copies, outputs, strict=False):
            runtime.copy(stream, copy, output)
        flag[0] = 1
        for stream in streams:
            runtime.synchronize(stream)
        found[way] = [copy.tolist() for copy in copies]
    distlite.destroy_process_group()
    return found


def batches_of_two_groups(
    rank: int, world_size: int, init_method: str
) -> dict[str, list[tuple[bool, bool]]]:
    """What two batches that are open at once keep: whether it lived when only its batch
    had it, and whether it was dropped with the batch's Work.  One thread has both, or
    each has one of them."""
    init(rank, world_size, init_method)
    groups = [distlite.new_group(), distlite.new_group()]
    for group in groups:
        distlite.all_reduce(CudaArray(np.ones(3)), group=group)

    def reduced(group: Any, is_async: bool) -> weakref.ref[CudaArray]:
        array = CudaArray(np.full(3, rank + 1.0))
        distlite.all_reduce(array, group=group, async_op=is_async)
        return weakref.ref(array)

    def sent(group: Any, _is_async: bool) -> weakref.ref[CudaArray]:
        array = CudaArray(np.full(3, rank + 1.0))
        if rank == 0:
            distlite.send(array, group=group, group_dst=1)
        else:
            distlite.recv(array, group=group, group_src=0)
        return weakref.ref(array)

    def inner(entered: threading.Event, left: threading.Event) -> None:
        with distlite.groups.nccl.batch(groups[1]):
            reduced(groups[1], False)
            entered.set()
            left.wait(SECONDS)

    def results(begin: Callable[..., Any], in_thread: bool) -> list[tuple[bool, bool]]:
        entered, left = threading.Event(), threading.Event()
        thread = threading.Thread(target=inner, args=(entered, left), daemon=True)
        with distlite.groups.nccl.batch(groups[0], is_async=True) as manager:
            references = [begin(groups[0], False)]
            if in_thread:
                thread.start()
                entered.wait(SECONDS)
                references.append(begin(groups[0], True))
                left.set()
                thread.join(SECONDS)
            else:
                left.set()
                inner(entered, left)
            references += [begin(groups[0], is_async) for is_async in (False, True)]
            lived = [reference() is not None for reference in references]
        deadline = time.monotonic() + SECONDS
        while not manager.works[0].is_completed() and time.monotonic() < deadline:
            time.sleep(0.001)
        manager.works.clear()
        return [
            (had, reference() is None)
            for had, reference in zip(lived, references, strict=True)
        ]

    found = {
        f"{begin.__name__} {in_thread}": results(begin, in_thread)
        for begin in (reduced, sent)
        for in_thread in (False, True)
    }
    distlite.destroy_process_group()
    return found


def recorded(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """What `distlite ps` says while rank 1 stays away, and of ranks that differ."""
    from recorder_ranks import _ps, _wait_until

    init(rank, world_size, init_method)
    kit, found = FakeKit(), {}
    store = distlite.group.WORLD.get_group_store()
    tensor = kit.put(np.ones(10, np.float32))
    distlite.all_reduce(tensor)
    if rank == 0:
        work = distlite.all_reduce(tensor, async_op=True)
        facts = _wait_until(
            lambda facts: (
                [o["op"] for o in facts["ranks"][0]["current"]] == ["all_reduce"]
                and not facts["ranks"][1]["current"]
            )
        )
        found["rank"] = facts["ranks"][0]
        found["table"] = _ps("--job", facts["job"])
    store.barrier("looked", world_size)
    if rank == 1:
        work = distlite.all_reduce(tensor, async_op=True)
    work.wait(timedelta(seconds=SECONDS))
    facts = _wait_until(lambda facts: not facts["ranks"][rank]["current"])
    found["last"] = facts["ranks"][rank]["last"]["text"]
    distlite.set_debug_level(distlite.DebugLevel.DETAIL)
    detailed = distlite.new_group()
    distlite.all_reduce(tensor, group=detailed)
    wrong = kit.put(np.ones(3 + rank))
    found["mismatch"] = error_of(distlite.all_reduce, wrong, group=detailed)
    store.barrier("end", world_size)
    distlite.destroy_process_group()
    return found


def apart(rank: int, size: int, kit: Any) -> dict[str, Any]:
    """Blocks that follow each other on one rank and lie apart on others: all ranks have
    to make the same calls all the same."""

    def blocks(array: np.ndarray) -> list[Any]:
        if rank % 3 == 0:
            return kit.rows(kit.put(array))
        if rank % 3 == 1:
            return [kit.put(row) for row in array]
        return kit.rows(kit.put(array[::-1].copy()))[::-1]

    wrong = []
    every = np.stack([values(r, 5, "float32") for r in range(size)])
    outputs = blocks(np.zeros_like(every))
    distlite.all_gather(outputs, kit.put(every[rank]))
    wrong += [r for r in range(size) if not same(kit, outputs[r], every[r])]
    whole = np.arange(size * 3, dtype="int32").reshape(size, 3) + rank
    tensor = kit.put(np.zeros(3, "int32"))
    distlite.reduce_scatter(tensor, blocks(whole))
    expected = size * np.arange(rank * 3, rank * 3 + 3) + sum(range(size))
    wrong += [] if same(kit, tensor, expected) else ["reduce_scatter"]
    several = [blocks(np.zeros_like(every)) for _ in range(2)]
    with distlite.groups.nccl.batch(distlite.group.WORLD):
        for outputs in several:
            distlite.all_gather(outputs, kit.put(every[rank]))
    for outputs in several:
        wrong += [r for r in range(size) if not same(kit, outputs[r], every[r])]
    return {"wrong": wrong}


def hanging(rank: int, size: int, kit: Any) -> dict[str, Any]:
    """A first launch that the other ranks do not join: it times out, and an abort by
    another thread ends it."""
    store = distlite.group.WORLD.get_group_store()
    parent = distlite.new_group()
    tensor = kit.put(np.ones(4))
    distlite.all_reduce(tensor, group=parent)
    kit.get(tensor)
    everybody = [list(range(size))]
    late = distlite.split_group(parent, everybody)
    aborted = distlite.split_group(parent, everybody)
    assert late is not None
    assert aborted is not None
    found: dict[str, Any] = {}
    if rank == 0:
        late.set_timeout(timedelta(milliseconds=600))
        begun = time.monotonic()
        found["late"] = _failure_of(tensor, late)
        found["again"] = error_of(distlite.all_reduce, tensor, group=late)
        threading.Timer(0.3, aborted.abort).start()
        found["aborted"] = _failure_of(tensor, aborted)
        found["took"] = time.monotonic() - begun
    store.barrier("hanging", size)
    distlite.all_reduce(tensor, group=parent)
    found["parent"] = bool(kit.get(tensor)[0] == size**2)
    for group in (late, aborted, parent):
        distlite.destroy_process_group(group)
    return found


def _failure_of(tensor: Any, group: Any) -> str:
    """Of an operation that fails in its launch, or later."""
    works: list[Any] = []

    def begin() -> None:
        works.append(distlite.all_reduce(tensor, group=group, async_op=True))
        works[0].wait(timedelta(seconds=SECONDS))

    return error_of(begin)


def threads(rank: int, size: int, kit: Any) -> dict[str, Any]:
    """Two communicators, each used by a thread of its own, begun in opposite orders.

    Each thread has a stream, too: one for both would put the operations of the two in
    an order that is not that of other ranks.
    """
    groups = [distlite.new_group() for _ in range(2)]
    streams = [kit.stream() for _ in groups]
    arrays = [kit.put(np.ones(1000)) for _ in groups]
    rounds = 8

    def work(number: int) -> None:
        array, group, stream = arrays[number], groups[number], streams[number]
        for _ in range(rounds):
            distlite.all_reduce(array, group=group, stream=stream)
        kit.synchronize(stream)

    running = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in running if rank % 2 == 0 else running[::-1]:
        thread.start()
    for thread in running:
        thread.join()
    sums = [float(kit.get(array)[0]) for array in arrays]
    for group in groups:
        distlite.destroy_process_group(group)
    return {"sums": sums == [float(size**rounds)] * 2}


def parting(rank: int, size: int, kit: Any) -> dict[str, Any]:
    """Splits while operations are under way, into groups with NCCL and without, and
    with communicators that do not block."""
    quick = distlite.ProcessGroupNCCL.Options()
    quick.config.blocking = 0
    found = {}
    for name, options in (("blocking", None), ("non-blocking", quick)):
        parent = distlite.new_group(pg_options=options)
        first = kit.put(np.ones(3))
        distlite.all_reduce(first, group=parent)
        large = kit.put(np.ones(300_000))
        pending = [
            distlite.all_reduce(large, group=parent, async_op=True) for _ in range(3)
        ]
        whole = distlite.split_group(parent, [list(range(size))], pg_options=options)
        host = distlite.split_group(parent, [list(range(size))], backend="gloo")
        single = distlite.split_group(parent, [[0]])
        for work in pending:
            work.wait(timedelta(seconds=SECONDS))
        distlite.all_reduce(first, group=whole)
        distlite.barrier(host)
        held = kit.get(large)[-1], kit.get(first)[0], single is not None
        found[name] = held == (size**3, size**2, rank == 0)
        for group in (whole, host, single, parent):
            if group is not None:
                distlite.destroy_process_group(group)
    return found


def shrinking(rank: int, size: int, kit: Any) -> dict[str, Any]:
    """Groups shrink while operations of theirs are under way, which end first; and with
    one that a rank never comes to, which is aborted."""
    found: dict[str, Any] = {}
    store = distlite.group.WORLD.get_group_store()
    survivors = list(range(size - 1))
    for name, flags in (
        ("orderly", SHRINK_DEFAULT),
        ("aborting", SHRINK_ABORT),
    ):
        parent = distlite.new_group()
        tensor, large = kit.put(np.ones(3)), kit.put(np.ones(300_000))
        distlite.all_reduce(tensor, group=parent)
        pending = [
            distlite.all_reduce(large, group=parent, async_op=True) for _ in range(3)
        ]
        if flags == SHRINK_ABORT:
            for work in pending:
                work.wait(timedelta(seconds=SECONDS))
            kit.get(large)
            store.barrier(f"shrinking {name}", size)
            if rank in survivors:
                distlite.all_reduce(large, group=parent, async_op=True)
        if rank not in survivors:
            for work in pending:
                work.wait(timedelta(seconds=SECONDS))
            found[name] = bool(kit.get(large)[-1] == size**3)
            store.barrier(f"shrunk {name}", size)
            distlite.destroy_process_group(parent)
            continue
        rest = distlite.shrink_group([size - 1], group=parent, shrink_flags=flags)
        distlite.all_reduce(tensor, group=rest)
        held = kit.get(tensor)[0] == size * (size - 1)
        whole = flags == SHRINK_ABORT or kit.get(large)[-1] == size**3
        found[name] = bool(held and whole)
        store.barrier(f"shrunk {name}", size)
        distlite.destroy_process_group(rest)
    return found


def living_graph(rank: int, size: int, kit: Any) -> dict[str, Any]:
    """A group is destroyed while a graph holds its operations."""
    group = distlite.new_group()
    stream = kit.stream()
    tensor = kit.put(np.ones(3))
    distlite.all_reduce(tensor, group=group)
    kit.get(tensor)
    kit.begin_capture(stream)
    distlite.all_reduce(tensor, group=group, stream=stream)
    graph = kit.end_capture(stream)
    begun = time.monotonic()
    distlite.destroy_process_group(group)
    took = time.monotonic() - begun
    kit.launch(graph, stream)
    kit.synchronize(stream)
    launched = float(kit.get(tensor)[0])
    kit.forget(graph)
    return {"quick": took < 8, "launched": launched == size**2}


def barriers(rank: int, size: int, kit: Any) -> dict[str, Any]:
    """A barrier waits for the streams of all ranks, as torch's does."""
    stream = kit.stream()
    tensor = kit.put(np.ones(200_000))
    distlite.all_reduce(tensor, stream=stream)
    for _ in range(3):
        distlite.all_reduce(tensor, stream=stream)
    with distlite.cuda_stream(stream):
        distlite.barrier()
        is_idle = kit.is_idle(stream)
        distlite.barrier(async_op=True).wait()
    return {"idle": is_idle, "sum": float(kit.get(tensor)[-1]) == size**4}


HARDENED = (
    apart,
    hanging,
    threads,
    parting,
    shrinking,
    living_graph,
    barriers,
)


def hardened(
    rank: int, world_size: int, init_method: str, names: list[str]
) -> dict[str, Any]:
    """The parts of these names, and what is left over of the doubles."""
    kit = kit_of("cuda", rank)
    init(rank, world_size, init_method)
    found = {
        part.__name__: part(rank, world_size, kit)
        for part in HARDENED
        if part.__name__ in names
    }
    distlite.destroy_process_group()
    if "DISTLITE_NCCL_LIBRARY" in os.environ:
        found["comms"] = communicators_left()
    return found


def communicators_left() -> int:
    """Waits for those of the double that are freed in the background."""
    library = ctypes.CDLL(os.environ["DISTLITE_NCCL_LIBRARY"])
    comms = ctypes.c_int.in_dll(library, "double_comms")
    deadline = time.monotonic() + SECONDS
    while comms.value > 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    return comms.value


def misuse(rank: int, world_size: int, init_method: str, how: str) -> list[int] | None:
    """What growing is used for that it is not for, by the library itself."""
    library = ctypes.CDLL(os.environ["DISTLITE_NCCL_LIBRARY"])
    grow, comm, made = library.ncclCommGrow, ctypes.c_void_p(), ctypes.c_void_p()
    first, own, other = NcclId(), NcclId(), NcclId(b"another")
    library.ncclGetUniqueId(ctypes.byref(first))
    init_rank = library.ncclCommInitRankConfig
    assert init_rank(ctypes.byref(comm), 1, first, 0, None) == 0
    if how == "number":
        assert library.ncclCommGetUniqueId(comm, ctypes.byref(own)) == 0
        grow(None, 2, ctypes.byref(own), 0, ctypes.byref(made), None)
    elif how == "ids":
        for _ in range(2):
            library.ncclCommGetUniqueId(comm, ctypes.byref(own))
    return [
        grow(comm, 1, None, -1, ctypes.byref(made), None),
        grow(comm, 2, None, 0, ctypes.byref(made), None),
        grow(comm, 2, None, -1, ctypes.byref(made), None),
        grow(comm, 2, ctypes.byref(other), -1, ctypes.byref(made), None),
        grow(None, 2, None, 1, ctypes.byref(made), None),
        grow(None, 2, ctypes.byref(other), 2, ctypes.byref(made), None),
        library.ncclCommShrink(comm, None, 0, ctypes.byref(made), None, 0),
        library.ncclCommShrink(
            comm, (ctypes.c_int * 1)(0), 1, ctypes.byref(made), None, 0
        ),
    ]


def differing(rank: int, world_size: int, init_method: str) -> None:
    """Ranks that call different things, where nothing of ours compares them."""
    kit = FakeKit()
    init(rank, world_size, init_method)
    tensor = kit.put(np.ones(3 + rank))
    distlite.all_reduce(tensor)
    kit.get(tensor)


def contexts(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """Arrays on the second device; this thread never makes any device its own."""
    double = ctypes.CDLL(os.environ["DISTLITE_CUDART_LIBRARY"])
    tensor = CudaArray(np.ones(3), stream=None)
    init(rank, world_size, init_method, timeout=timedelta(seconds=SECONDS))
    for _ in range(2):
        work = distlite.all_reduce(tensor, async_op=True)
        work.wait(timedelta(seconds=SECONDS))
    part = distlite.split_group(split_ranks=[list(range(world_size))])
    distlite.all_reduce(tensor, group=part, async_op=True).wait(
        timedelta(seconds=SECONDS)
    )
    held = tensor.array.tolist()
    distlite.destroy_process_group()
    return {
        "held": held,
        "contexts": [double.double_contexts(device) > 0 for device in range(2)],
    }


def _has_context(device: int) -> bool:
    """Whether the process has made one there; asking makes none."""
    double = os.environ.get("DISTLITE_NCCL_LIBRARY")
    if double:
        runtime = ctypes.CDLL(os.environ["DISTLITE_CUDART_LIBRARY"])
        return bool(runtime.double_contexts(device) > 0)
    driver = ctypes.CDLL("libcuda.so.1")
    handle, flags, is_active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    assert driver.cuInit(0) == 0
    assert driver.cuDeviceGet(ctypes.byref(handle), device) == 0
    state = driver.cuDevicePrimaryCtxGetState
    assert state(handle, ctypes.byref(flags), ctypes.byref(is_active)) == 0
    return is_active.value != 0


def unused_device(rank: int, world_size: int, init_method: str) -> list[bool]:
    """Whether there is a context: after a group with NCCL was made and used for arrays
    in the CPU's memory, and after an array of the device."""
    init(rank, world_size, init_method, backend="cpu:gloo,cuda:nccl")
    group = distlite.new_group()
    host = np.ones(3)
    distlite.all_reduce(host, group=group)
    distlite.barrier(group)
    # Longer than the thread that watches operations rests.
    time.sleep(0.1)
    found = [bool(host[0] == world_size), _has_context(0)]
    kit = kit_of("cuda", rank)
    tensor = kit.put(np.ones(3))
    distlite.all_reduce(tensor, group=group)
    found += [bool(kit.get(tensor)[0] == world_size), _has_context(0)]
    distlite.destroy_process_group()
    return found


def graphs(rank: int, world_size: int, init_method: str, launches: int) -> list[float]:
    """A graph of two operations, launched some times; what the array holds then."""
    device = kit_of("cuda", rank)
    init(rank, world_size, init_method, device_id="cuda:0")
    stream = device.stream()
    array = device.put(np.full(1000, rank + 1.0))
    device.begin_capture(stream)
    distlite.all_reduce(array, stream=stream)
    work = distlite.all_reduce(array, async_op=True, stream=stream)
    work.wait()
    graph = device.end_capture(stream)
    held = [float(device.get(array)[0])]
    for _ in range(launches):
        device.launch(graph, stream)
        device.synchronize(stream)
        held.append(float(device.get(array)[-1]))
    distlite.destroy_process_group()
    return held


class _Exported:
    """An array that is to be had by `__dlpack__` only."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> object:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self.array.__dlpack_device__()
        return kind, number


def jax_arrays(
    rank: int, world_size: int, init_method: str, backend: str
) -> list[float]:
    """Gathers what JAX still computes, and what it computes in the same memory next
    must not reach the others.  Returns the first element from each rank, and whether
    all others are equal to it."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    jax = importlib.import_module("jax")
    device = kit_of("cuda", rank)
    init(rank, world_size, init_method, backend)
    count = 4_000_000
    whole = device.put(np.zeros((world_size, count), np.float32))
    begin = jax.jit(lambda: jax.numpy.full(count, rank, "float32"))
    step = jax.jit(lambda x: x + 1, donate_argnums=0)
    found = []
    for first in (1.0, 101.0):
        value = begin()
        for _ in range(int(first)):
            value = step(value)
        distlite.all_gather_single(whole, value)
        for _ in range(3):
            value = step(value)
        got = device.get(whole)
        found.append([float(row[0]) for row in got if (row == row[0]).all()])
    distlite.destroy_process_group()
    return found


def cupy_graphs(rank: int, world_size: int, init_method: str) -> list[float]:
    """CuPy's arrays in a capture of a stream that the legacy default stream waits for:
    where anything goes to that one, `__dlpack__` without a stream included, the capture
    is spoiled.  What the array holds after each launch."""
    cupy = importlib.import_module("cupy")
    kit_of("cuda", rank)
    init(rank, world_size, init_method, device_id="cuda:0")
    array = cupy.full(1000, rank + 1.0)
    with cupy.cuda.Stream(non_blocking=False) as stream:
        distlite.all_reduce(_Exported(array), stream=stream.ptr)
        stream.synchronize()
        stream.begin_capture()
        distlite.all_reduce(array)
        distlite.all_reduce(_Exported(array), stream=stream.ptr)
        graph = stream.end_capture()
        held = [float(array[0])]
        for _ in range(2):
            graph.launch(stream)
            stream.synchronize()
            held.append(float(array[-1]))
    distlite.destroy_process_group()
    return held


def speeds(
    rank: int, world_size: int, init_method: str, counts: list[int], rounds: int
) -> dict[str, list[float]]:
    """Microseconds of an all_reduce of so many float32: by us, and by others here."""
    device = kit_of("cuda", rank)
    init(rank, world_size, init_method, device_id="cuda:0")
    stream = device.stream()
    arrays = [device.put(np.ones(count, np.float32)) for count in counts]
    peers = [_ours(stream), *_others(rank, world_size, stream)]
    found: dict[str, list[float]] = {name: [] for name, _ in peers}
    for array in arrays:
        least = dict.fromkeys(found, float("inf"))
        # In turns, so that what else the machine does is shared by all.
        for _ in range(rounds):
            for name, call in peers:
                distlite.barrier()
                begun = time.perf_counter()
                call(array)
                device.synchronize(stream)
                least[name] = min(least[name], (time.perf_counter() - begun) * 1e6)
        for name, each in least.items():
            found[name].append(round(each, 1))
    distlite.destroy_process_group()
    return found


Peer = tuple[str, Callable[[Any], object]]


def _ours(stream: Any) -> Peer:
    return "distlite", lambda array: distlite.all_reduce(array, stream=stream)


def _others(rank: int, size: int, stream: Any) -> Iterator[Peer]:
    """NCCL's own call, and those by CuPy and torch where these are installed."""
    yield _bare_nccl(rank, size, stream)
    try:
        from cupy.cuda import nccl
    except ImportError:
        pass
    else:
        told: list[Any] = [nccl.get_unique_id() if rank == 0 else None]
        distlite.broadcast_object_list(told, 0)
        comm = nccl.NcclCommunicator(size, told[0], rank)
        yield (
            "CuPy",
            lambda array: comm.allReduce(
                *(array.pointer.value, array.pointer.value, array.bytes // 4),
                *(nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream.value),
            ),
        )
    try:
        import torch
        import torch.distributed as theirs
    except ImportError:
        return
    if not (torch.cuda.is_available() and theirs.is_nccl_available()):
        return
    address: list[Any] = [None]
    if rank == 0:
        store = theirs.TCPStore("127.0.0.1", 0, size, True, wait_for_workers=False)
        address = [store.port]
    distlite.broadcast_object_list(address, 0)
    if rank != 0:
        store = theirs.TCPStore("127.0.0.1", address[0], size, False)
    theirs.init_process_group("nccl", store=store, rank=rank, world_size=size)
    outer = torch.cuda.ExternalStream(stream.value)

    def reduce(array: Any) -> None:
        with torch.cuda.stream(outer):
            theirs.all_reduce(torch.as_tensor(array, device="cuda:0"))

    yield "torch", reduce


def _bare_nccl(rank: int, size: int, stream: Any) -> Peer:
    """The library that we use, by ctypes."""
    distlite.groups.nccl.nccl_version()
    with open("/proc/self/maps") as maps:
        # The path is the sixth column, and may have blanks.
        files = {line.split(maxsplit=5)[-1].strip() for line in maps}
    (path,) = {f for f in files if os.path.basename(f).startswith("libnccl")}
    library = ctypes.CDLL(path)

    made = NcclId()
    if rank == 0:
        assert library.ncclGetUniqueId(ctypes.byref(made)) == 0
    told: list[Any] = [bytes(made)]
    distlite.broadcast_object_list(told, 0)
    comm = ctypes.c_void_p()
    made = NcclId.from_buffer_copy(told[0])
    init_rank = library.ncclCommInitRankConfig
    assert init_rank(ctypes.byref(comm), size, made, rank, None) == 0

    def reduce(array: Any) -> None:
        count = ctypes.c_size_t(array.bytes // 4)
        place = array.pointer
        assert library.ncclAllReduce(place, place, count, 7, 0, comm, stream) == 0

    return "NCCL alone", reduce


def failures(rank: int, world_size: int, init_method: str) -> dict[str, str]:
    """A late rank, an error of the communicator, one of a call, and an abort."""
    kit, found = FakeKit(), {}
    init(rank, world_size, init_method, timeout=timedelta(seconds=SECONDS))
    store = distlite.group.WORLD.get_group_store()
    late = distlite.new_group()
    first = kit.put(np.ones(2))
    distlite.all_reduce(first, group=late)
    kit.get(first)
    late.set_timeout(timedelta(milliseconds=400))
    if rank == 0:
        work = distlite.all_reduce(kit.put(np.ones(2)), group=late, async_op=True)
        found["late"] = error_of(work.wait, timedelta(seconds=SECONDS))
        found["again"] = error_of(distlite.all_reduce, first, group=late)
        found["exception"] = type(work.exception()).__name__
    alone, pair = distlite.new_group(), distlite.new_group()
    for group in (alone, pair):
        group.set_timeout(timedelta(milliseconds=400))
    if rank == 1:
        found["alone"] = error_of(distlite.all_reduce, first, group=alone)
        found["pair"] = error_of(distlite.send, first, 0, group=pair)
    parted = distlite.new_group()
    distlite.all_reduce(first, group=parted)
    parted.set_timeout(timedelta(milliseconds=400))
    if rank == 1:
        found["split"] = error_of(distlite.split_group, parted, [[0, 1]])
    store.barrier("alone", world_size)
    if rank == 0:
        found["alone"] = error_of(distlite.all_reduce, first, group=alone)
        found["pair"] = error_of(distlite.recv, first, 1, group=pair)
        found["split"] = error_of(distlite.split_group, parted, [[0, 1]])
    # A split that failed on both leaves the parent as it was.
    parted.set_timeout(timedelta(seconds=SECONDS))
    part = distlite.split_group(parted, [[0, 1]])
    tensor = kit.put(np.ones(2))
    distlite.all_reduce(tensor, group=part)
    found["sum"] = str(kit.get(tensor).sum())
    meeting = distlite.new_group()
    if rank == 1:
        threading.Timer(0.1, meeting.abort).start()
        found["meeting"] = error_of(distlite.all_reduce, first, group=meeting)
    broken, aborted = distlite.new_group(), distlite.new_group()
    for group in (broken, aborted):
        tensor = kit.put(np.ones(2))
        distlite.all_reduce(tensor, group=group)
        kit.get(tensor)
    if rank == 0:
        work = distlite.all_reduce(kit.put(np.ones(2)), group=aborted, async_op=True)
        aborted.abort()
        found["abort"] = error_of(work.wait, timedelta(seconds=SECONDS))
        change_double("DISTLITE_NCCL_LIBRARY", DOUBLE_NCCL_ASYNC_ERROR=1)
        # The watch may find the error before the call does, or after it.
        found["error"] = error_of(reduce_and_wait, kit.put(np.ones(2)), broken)
        change_double("DISTLITE_NCCL_LIBRARY", DOUBLE_NCCL_ASYNC_ERROR="")
        begun = time.monotonic()
        distlite.destroy_process_group(late)
        distlite.destroy_process_group(broken)
        found["quick"] = "yes" if time.monotonic() - begun < 5 else "no"
    store.barrier("end", world_size)
    found["strided"] = error_of(distlite.all_reduce, CudaArray(np.ones((3, 3))[:, 1]))
    found["mixed"] = error_of(
        distlite.all_gather,
        [np.ones(2) for _ in range(world_size)],
        kit.put(np.ones(2)),
    )
    found["short"] = error_of(distlite.all_reduce, kit.put(np.ones(2, "int16")))
    found["BXOR"] = error_of(
        distlite.all_reduce, kit.put(np.ones(2, "int32")), ReduceOp.BXOR
    )
    found["any"] = error_of(distlite.recv, kit.put(np.ones(2)))
    change_double("DISTLITE_NCCL_LIBRARY", DOUBLE_NCCL_LAUNCH_ERROR=1)
    single = distlite.new_group([rank], use_local_synchronization=True)
    found["launch"] = error_of(distlite.all_reduce, first, group=single)
    distlite.destroy_process_group()
    return found


def killed(rank: int, world_size: int, init_method: str) -> dict[str, str]:
    """Rank 1 is killed, with all connected, or with nobody."""
    kit, found = FakeKit(), {}
    init(rank, world_size, init_method, timeout=timedelta(seconds=60))
    store = distlite.group.WORLD.get_group_store()
    known, new, other = [distlite.new_group() for _ in range(3)]
    tensor = kit.put(np.ones(2))
    distlite.all_reduce(tensor, group=known)
    if rank == 0:
        distlite.send(tensor, 2, group=other)
    elif rank == 2:
        distlite.recv(tensor, 0, group=other)
    kit.get(tensor)
    if rank == 1:
        store.wait(["begun/0", "begun/2"])
        os.kill(os.getpid(), signal.SIGKILL)
    work = distlite.all_reduce(kit.put(np.ones(2)), group=known, async_op=True)
    # Between two that live; the receiver is late.
    if rank == 0:
        message = distlite.isend(tensor, 2, group=other)
    store.set(f"begun/{rank}", "yes")
    begun = time.monotonic()
    found["known"] = error_of(work.wait, timedelta(seconds=SECONDS))
    found["new"] = error_of(distlite.all_reduce, kit.put(np.ones(2)), group=new)
    found["took"] = f"{time.monotonic() - begun:.1f}"
    if rank == 2:
        distlite.recv(tensor, 0, group=other)
    else:
        message.wait()
    kit.get(tensor)
    store.set(f"over/{rank}", "yes")
    store.wait(["over/0", "over/2"])
    return found


class KilledAtMark(Wrapped):
    """Its process is killed when it has marked itself as the last to come to a
    communicator, and has not told the others that all have."""

    def add(self, key: str, amount: int) -> int:
        if "nccl/all/" in key:
            while self.below.add(key, 0) != amount - 1:
                time.sleep(0.01)
            self.below.add(key, amount)
            os.kill(os.getpid(), signal.SIGKILL)
        return self.below.add(key, amount)


def killed_at_mark(rank: int, world_size: int, init_method: str) -> dict[str, str]:
    """The last rank is killed between its mark and the outcome."""
    store: distlite.Store = distlite.FileStore(
        init_method.removeprefix("file://"), world_size
    )
    if rank == world_size - 1:
        store = KilledAtMark(store)
    limit = timedelta(seconds=60)
    distlite.init_process_group(
        "nccl", store=store, timeout=limit, world_size=world_size, rank=rank
    )
    begun = time.monotonic()
    text = error_of(distlite.all_reduce, FakeKit().put(np.ones(2)))
    return {"text": text, "took": f"{time.monotonic() - begun:.1f}"}


def options(rank: int, world_size: int, init_method: str) -> dict[str, Any]:
    """What reaches the library."""
    kit, found = FakeKit(), {}
    wanted = distlite.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    wanted.config.blocking = 0
    wanted.config.min_ctas, wanted.config.max_ctas = 2, 8
    wanted.config.cga_cluster_size, wanted.config.split_share = 4, 0
    wanted.config.net_name = "Socket"
    init(rank, world_size, init_method, pg_options=wanted, device_id="cuda:0")
    library = ctypes.CDLL(os.environ["DISTLITE_NCCL_LIBRARY"])
    head = (ctypes.c_int * 12).in_dll(library, "double_config")
    found["config"] = [head[i] for i in (4, 5, 6, 7, 10)]
    found["net"] = (ctypes.c_char * 64).in_dll(library, "double_net").value.decode()
    tensor = kit.put(np.arange(3.0))
    distlite.all_reduce(tensor)
    sharing = distlite.ProcessGroupNCCL.Options()
    sharing.config.split_share = 1
    shared = distlite.new_group(pg_options=sharing)
    found["shared"] = error_of(distlite.all_reduce, tensor, group=shared)
    found["non-blocking"] = kit.get(tensor).tolist()
    lent = np.arange(3.0)
    distlite.all_reduce(Producer(lent, device=2))
    kit.runtime.synchronize(0)
    older = Producer(np.ones(2), device=13, versioned=False)
    # Nobody knows whether it may be written to.
    found["older DLPack"] = error_of(distlite.all_reduce, older)
    found["DLPack"] = lent.tolist()
    store = distlite.PrefixStore("by hand", distlite.group.WORLD.get_group_store())
    group = distlite.ProcessGroupNCCL(store, rank, world_size, wanted)
    tensor = kit.put(np.ones(1))
    distlite.all_reduce(tensor, group=group)
    found["by hand"] = kit.get(tensor).tolist()
    group.shutdown()
    found["two devices"] = error_of(_on_device_one, kit)
    found["version"] = distlite.groups.nccl.nccl_version()
    distlite.destroy_process_group()
    found["comms"] = ctypes.c_int.in_dll(library, "double_comms").value
    return found


def _on_device_one(kit: Any) -> None:
    change_double("DISTLITE_CUDART_LIBRARY", DOUBLE_CUDA_DEVICE=1)
    try:
        distlite.all_reduce(kit.put(np.ones(2)))
    finally:
        change_double("DISTLITE_CUDART_LIBRARY", DOUBLE_CUDA_DEVICE="")


def availability(rank: int, world_size: int) -> dict[str, Any]:
    store, found = distlite.HashStore(), {}
    found["available"] = distlite.is_nccl_available()
    found["both"] = distlite.is_backend_available("cpu:gloo,cuda:nccl")
    found["init"] = error_of(
        distlite.init_process_group, "nccl", store=store, rank=0, world_size=1
    )
    if distlite.is_initialized():
        found["use"] = error_of(distlite.all_reduce, CudaArray(np.ones(2)))
        distlite.destroy_process_group()
    return found


def lost_host(rank: int, world_size: int, init_method: str) -> tuple[str, float]:
    """The last rank is killed while two others wait for it on their devices; no other
    rank of its host could tell.  They end when both have their errors, rank 0 last,
    which has the store."""
    init(rank, world_size, init_method, timeout=timedelta(seconds=60))
    tensor = CudaArray(np.ones(4))
    reduce_and_wait(tensor, None)
    store = distlite.group.WORLD.get_group_store()
    if rank == world_size - 1:
        # The others have probed this rank by now.
        store.wait([f"waits/{other}" for other in range(rank)])
        os.kill(os.getpid(), signal.SIGKILL)
    work = distlite.all_reduce(tensor, async_op=True)
    time.sleep(1)
    begun = time.monotonic()
    store.set(f"waits/{rank}", "")
    text = error_of(work.wait, timedelta(seconds=SECONDS))
    seconds = time.monotonic() - begun
    store.set(f"told/{rank}", "")
    store.wait(["told/0", "told/1"])
    if rank == 0:
        store.wait(["left"])
    else:
        store.set("left", "")
    return text, seconds


def early_leaver(rank: int, world_size: int, init_method: str) -> list[float]:
    """Rank 2 leaves in order while the device of rank 0 waits for rank 1, in the
    communicator of all."""
    init(rank, world_size, init_method, timeout=timedelta(seconds=60))
    store = distlite.group.WORLD.get_group_store()
    tensor = np.zeros(2)

    def begin_message() -> Any:
        way, array = (
            (distlite.irecv, tensor) if rank == 0 else (distlite.isend, np.ones(2))
        )
        message = distlite.P2POp(way, CudaArray(array), 1 - rank)
        return distlite.batch_isend_irecv([message])[0]

    reduce_and_wait(CudaArray(np.ones(4)), None)
    if rank < 2:
        begin_message().wait(timedelta(seconds=SECONDS))
    if rank == 0:
        tensor[:] = 0
        work = begin_message()
        # By then rank 2 has been probed.
        time.sleep(1)
        store.set("waits", "")
        work.wait(timedelta(seconds=SECONDS))
    else:
        store.wait(["waits"])
    if rank == 1:
        # By then a rank that counts as lost would have ended the wait of rank 0.
        time.sleep(1.5)
        begin_message().wait(timedelta(seconds=SECONDS))
    distlite.destroy_process_group()
    return tensor.tolist()
