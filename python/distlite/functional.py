# SPDX-License-Identifier: BSD-3-Clause
"""Collectives that return their results, in the caller's kind of array, or any object.

NumPy arrays give NumPy arrays, tensors of torch tensors, arrays of JAX and CuPy arrays
of these, and numbers of Python numbers, or NumPy arrays of a number for each rank.  No
argument is written to, so that arrays which cannot be written to, as those of JAX, work
as well.  What a rank receives from one other rank has a shape that it need not know
before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, TypeVar

import numpy as np

from . import _C
from ._C import DistBackendError, ProcessGroup
from .array_kinds import Kind, kind_named, kind_of
from .groups.reduce_op import ReduceOp
from .groups.world import is_outside
from .objects.object_call import SEND, Call, begin_anew, or_first, root_of
from .objects.object_collectives import loaded
from .objects.object_message import pack
from .objects.object_results import (
    all_gather_object,
    broadcast_object,
    gather_object,
    recv_object,
    scatter_object,
    send_object,
)

Array = TypeVar("Array")

__all__ = [
    "all_gather",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "broadcast_object",
    "exscan",
    "gather",
    "gather_object",
    "recv",
    "recv_object",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "scan",
    "scatter",
    "scatter_object",
    "send",
    "send_object",
    "sendrecv",
]

# The first message of a send: the magic number, the size of the head, and the head.
HEAD_SIZE = 512
MAGIC = b"DLA1"
LENGTH = Struct("<Q")
# In place of a kind.
FAILED = ""


def all_reduce(
    x: Array, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Array:
    """Combines the arrays of all ranks.

    Args:
        x: This rank's array, of the same shape and dtype on every rank, or number.
        op: The reduction.
        group: The group; None is the default group.

    Returns:
        A new array of the shape of `x`, or a number, the same on every rank.

    Example:
        >>> dist.functional.all_reduce(np.array([rank + 1.0]))
        array([3.])
        >>> dist.functional.all_reduce(rank + 1)
        3
    """
    kind = _kind(_call("all_reduce", group), x)
    result = kind.copy(x)
    _C.all_reduce(result, op, group)
    return _given(kind, result, x)


def scan(x: Array, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None) -> Array:
    """Combines the array of each rank with those of all ranks before it.

    Args:
        x: This rank's array, of the same shape and dtype on every rank.
        op: The reduction, all but `AVG`.
        group: The group; None is the default group.

    Returns:
        A new array of the shape of `x`.

    Example:
        >>> dist.functional.scan(np.array([rank + 1])).tolist() == [[1], [3]][rank]
        True
    """
    kind = _kind(_call("scan", group), x)
    result = kind.copy(x)
    _C.scan(result, op, group)
    return _given(kind, result, x)


def exscan(
    x: Array, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Array:
    """Combines the arrays of all ranks before each rank; rank 0 gets a copy of its own.

    Args:
        x: This rank's array, of the same shape and dtype on every rank.
        op: The reduction, all but `AVG`.
        group: The group; None is the default group.

    Returns:
        A new array of the shape of `x`.

    Example:
        >>> dist.functional.exscan(np.array([rank + 1])).tolist() == [[1], [1]][rank]
        True
    """
    kind = _kind(_call("exscan", group), x)
    result = kind.copy(x)
    _C.exscan(result, op, group)
    return _given(kind, result, x)


def reduce(
    x: Array,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: ProcessGroup | None = None,
    *,
    group_dst: int | None = None,
) -> Array | None:
    """Combines the arrays of all ranks on one rank.

    Args:
        x: This rank's array, of the same shape and dtype on every rank.
        dst: The global rank of the destination, 0 by default.
        op: The reduction.
        group: The group; None is the default group.
        group_dst: The rank of the destination in `group`, instead of `dst`.

    Returns:
        A new array of the shape of `x` on the destination, None on the other ranks.

    Example:
        >>> total = dist.functional.reduce(np.array([rank + 1.0]), dst=0)
        >>> if rank == 0:
        ...     print(total)
        [3.]
    """
    call = _call("reduce", group, or_first(group, dst, group_dst))
    kind = _kind(call, x)
    result = kind.copy(x)
    _C.reduce(result, op=op, group=group, group_dst=call.root)
    return _given(kind, result, x) if call.rank == call.root else None


def all_gather(x: Array, group: ProcessGroup | None = None) -> Array:
    """Collects the arrays of all ranks, on every rank.

    If shapes differ, use `distlite.all_gather_arrays`.

    Args:
        x: This rank's array, of the same shape and dtype on every rank.
        group: The group; None is the default group.

    Returns:
        A new array with one dimension more: the ranks come first.

    Example:
        >>> dist.functional.all_gather(np.array([rank, 5]))
        array([[0, 5],
               [1, 5]])
    """
    call = _call("all_gather", group)
    kind = _kind(call, x)
    result = kind.empty_like(x, (call.size, *kind.shape(x)))
    _C.all_gather_single(result, kind.show(x), group)
    return _given(kind, result, x)


def all_gather_single(
    x: Array, gather_dim: int = 0, group: ProcessGroup | None = None
) -> Array:
    """Collects the arrays of all ranks, joined along one of their dimensions.

    Args:
        x: This rank's array, of the same shape and dtype on every rank.
        gather_dim: The dimension.
        group: The group; None is the default group.

    Returns:
        A new array with as many dimensions as `x`.

    Example:
        >>> dist.functional.all_gather_single(np.array([[rank, 5]]), 1)
        array([[0, 5, 1, 5]])
    """
    call = _call("all_gather_single", group)
    shape = _kind(call, x).shape(x)
    dim = _dimension(call, shape, gather_dim)
    rows: Any = all_gather(x, group)
    for i in range(dim):
        rows = rows.swapaxes(i, i + 1)
    joined: Array = rows.reshape(
        (*shape[:dim], call.size * shape[dim], *shape[dim + 1 :])
    )
    return joined


def gather(
    x: Array,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    *,
    group_dst: int | None = None,
) -> Array | None:
    """Collects the arrays of all ranks on one rank.

    Args:
        x: This rank's array, of the same shape and dtype on every rank.
        dst: The global rank of the destination, 0 by default.
        group: The group; None is the default group.
        group_dst: The rank of the destination in `group`, instead of `dst`.

    Returns:
        On the destination a new array with one dimension more, the ranks first; None on
        the other ranks.

    Example:
        >>> rows = dist.functional.gather(np.array([rank, 5]), dst=0)
        >>> if rank == 0:
        ...     print(rows.tolist())
        [[0, 5], [1, 5]]
    """
    call = _call("gather", group, or_first(group, dst, group_dst))
    kind = _kind(call, x)
    if call.rank != call.root:
        _C.gather(kind.show(x), None, group=group, group_dst=call.root)
        return None
    result = kind.empty_like(x, (call.size, *kind.shape(x)))
    _C.gather(kind.show(x), _rows(result, call.size), group=group, group_dst=call.root)
    return _given(kind, result, x)


def reduce_scatter(
    x: Array, op: Any = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Array:
    """Combines the arrays of all ranks, and gives each rank its row of the result.

    Args:
        x: An array with a row for each rank: its first dimension is the group's size.
            Of the same shape and dtype on every rank.
        op: The reduction.
        group: The group; None is the default group.

    Returns:
        A new array of the shape of a row.

    Example:
        >>> rows = np.array([[1, 2], [3, 4]])
        >>> dist.functional.reduce_scatter(rows).tolist() == [[2, 4], [6, 8]][rank]
        True
    """
    call = _call("reduce_scatter", group)
    kind = _kind(call, x)
    result = kind.empty_like(x, _row_shape(call, x))
    _C.reduce_scatter_single(result, kind.show(x), op, group)
    return _given(kind, result, x)


def reduce_scatter_single(
    x: Array,
    op: Any = ReduceOp.SUM,
    scatter_dim: int = 0,
    group: ProcessGroup | None = None,
) -> Array:
    """Combines the arrays of all ranks, and gives each rank its part of the result.

    Args:
        x: An array of the same shape and dtype on every rank.
        op: The reduction.
        scatter_dim: The dimension that is divided into equal parts.
        group: The group; None is the default group.

    Returns:
        A new array with as many dimensions as `x`.

    Example:
        >>> row = np.array([[1, 2]])
        >>> part = dist.functional.reduce_scatter_single(row, scatter_dim=1)
        >>> part.tolist() == [[[2]], [[4]]][rank]
        True
    """
    call = _call("reduce_scatter_single", group)
    shape = _kind(call, x).shape(x)
    dim = _dimension(call, shape, scatter_dim)
    if shape[dim] % call.size:
        raise ValueError(
            f"{call.where()}: dimension {dim} of shape {shape} cannot be divided into "
            f"{call.size} equal parts"
        )
    parts = (*shape[:dim], call.size, shape[dim] // call.size, *shape[dim + 1 :])
    rows: Any = x.reshape(parts)  # type: ignore[attr-defined]
    for i in range(dim, 0, -1):
        rows = rows.swapaxes(i, i - 1)
    result: Array = reduce_scatter(rows, op, group)
    return result


def all_to_all_single(
    x: Array,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
) -> Array:
    """Sends a part of the rows of each rank to each other rank.

    Args:
        x: An array whose first dimension is divided.
        output_split_sizes: The rows that come from each rank; None means equal parts.
        input_split_sizes: The rows for each rank; None means equal parts.
        group: The group; None is the default group.

    Returns:
        A new array of the rows received, in the order of the ranks.

    Example:
        >>> dist.functional.all_to_all_single(np.array([rank] * 2), [1, 1], [1, 1])
        array([0, 1])
    """
    call = _call("all_to_all_single", group)
    kind = _kind(call, x)
    shape = kind.shape(x)
    _dimension(call, shape, 0)
    first = shape[0]
    if output_split_sizes is not None:
        first = sum(output_split_sizes)
    result = kind.empty_like(x, (first, *shape[1:]))
    splits = output_split_sizes, input_split_sizes
    _C.all_to_all_single(result, kind.show(x), *splits, group=group)
    return _given(kind, result, x)


def all_to_all(x: Array, group: ProcessGroup | None = None) -> Array:
    """Sends row i of each rank to rank i.

    Args:
        x: An array with a row for each rank: its first dimension is the group's size.
            Of the same shape and dtype on every rank.
        group: The group; None is the default group.

    Returns:
        A new array of the shape of `x`, its rows in the order of the sending ranks.

    Example:
        >>> dist.functional.all_to_all(np.array([10 * rank, 10 * rank + 1])) - rank
        array([ 0, 10])
    """
    call = _call("all_to_all", group)
    kind = _kind(call, x)
    _row_shape(call, x)
    result = kind.empty_like(x, kind.shape(x))
    _C.all_to_all_single(result, kind.show(x), group=group)
    return _given(kind, result, x)


def broadcast(
    x: Array | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    *,
    group_src: int | None = None,
) -> Array:
    """Sends the array of one rank to all ranks, which need not know its shape.

    Args:
        x: The array on the source; it is ignored on the other ranks.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        group_src: The rank of the source in `group`, instead of `src`.

    Returns:
        On the source `x` itself, on the other ranks a new array of the source's kind.

    Example:
        >>> dist.functional.broadcast(np.array([1, 2, 3]) if rank == 0 else None)
        array([1, 2, 3])
    """
    call = _call("broadcast", group, or_first(group, src, group_src))
    is_source = call.rank == call.root
    head, error = _try(_head_of, call, x) if is_source else (None, None)
    told: list[Any] = [head]
    _C.broadcast_object_list(told, group=group, group_src=call.root, safe=True)
    if error is not None:
        raise error
    if is_source:
        _C.broadcast(_kind(call, x).show(x), group=group, group_src=call.root)
        return x  # type: ignore[return-value]
    kind, result = _as_told(call, told[0])
    _C.broadcast(result, group=group, group_src=call.root)
    return kind.give(result, None)  # type: ignore[no-any-return]


def scatter(
    blocks: Sequence[Array] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    *,
    group_src: int | None = None,
) -> Array:
    """Sends each rank one array of one rank, which need not know its shape.

    Args:
        blocks: On the source an array for each rank, or one array with a row for each
            rank; shapes may differ, dtypes may not. Ignored on the other ranks.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        group_src: The rank of the source in `group`, instead of `src`.

    Returns:
        A new array, of the source's kind.

    Example:
        >>> blocks = [np.array([1]), np.array([2, 3])] if rank == 0 else None
        >>> dist.functional.scatter(blocks).tolist() == [[1], [2, 3]][rank]
        True
    """
    call = _call("scatter", group, or_first(group, src, group_src))
    is_source = call.rank == call.root
    heads, error = _try(_heads_of, call, blocks) if is_source else (None, None)
    if error is not None:
        heads = [heads] * call.size
    told: list[Any] = [None]
    _C.scatter_object_list(told, heads, group=group, group_src=call.root, safe=True)
    if error is not None:
        raise error
    kind, result = _as_told(call, told[0])
    shown = None
    if is_source and blocks is not None:
        shown = [_kind(call, block).show(block) for block in blocks]
    _C.scatter_v(result, shown, group=group, group_src=call.root)
    return kind.give(result, None)  # type: ignore[no-any-return]


def send(
    x: Any,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    *,
    group_dst: int | None = None,
) -> None:
    """Sends an array to one rank, which calls `functional.recv`.

    Args:
        x: The array, of any shape and dtype.
        dst: The global rank of the destination.
        group: The group; None is the default group.
        tag: A number that the receiver passes as well; messages with other tags may
            overtake.
        group_dst: The rank of the destination in `group`, instead of `dst`.

    Example:
        >>> if rank == 0:
        ...     dist.functional.send(np.array([1, 2, 3]), dst=1)
        ... else:
        ...     print(dist.functional.recv(src=0))
        [1 2 3]
    """
    call = _call("send", group, (dst, group_dst))
    _finish(_begin_send(call, _messages(call, x), tag))


def recv(
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    *,
    group_src: int | None = None,
) -> Any:
    """Receives an array that one rank sends with `functional.send`.

    Args:
        src: The global rank of the source; without it and `group_src`, any rank.
        group: The group; None is the default group.
        tag: The number that the sender passes.
        group_src: The rank of the source in `group`, instead of `src`.

    Returns:
        A new array, of the shape, dtype and kind of the sender's.

    Example:
        >>> if rank == 0:
        ...     dist.functional.send(np.array([1, 2, 3]), dst=1)
        ... else:
        ...     print(dist.functional.recv(src=0))
        [1 2 3]
    """
    is_any = src is None and group_src is None
    call = _call("recv", group, None if is_any else (src, group_src))
    return _receive(call, tag)


def sendrecv(
    x: Any,
    dst: int,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
) -> Any:
    """Sends an array to one rank and receives one from the same or another, at once.

    A ring of such calls does not deadlock, as a ring of `send` followed by `recv`
    would.

    Args:
        x: The array to send, of any shape and dtype.
        dst: The global rank to send to.
        src: The global rank to receive from; None means any. Both may be this rank.
        group: The group; None is the default group.
        tag: The tag of both messages.

    Returns:
        A new array, of the shape, dtype and kind of the received one.

    Example:
        >>> dist.functional.sendrecv(np.array([rank]), dst=1 - rank) + rank
        array([1])
    """
    call = _call("sendrecv", group, (dst, None))
    source = _call("sendrecv", group, None if src is None else (src, None))
    if call.root == call.rank == source.root:
        kind = _kind(call, x)
        result = kind.empty_like(x, kind.shape(x))
        result[...] = kind.show(x)
        return kind.give(result, x)
    works = _begin_send(call, _messages(call, x), tag)
    result = _receive(source, tag)
    _finish(works)
    return result


def _call(
    name: str,
    group: ProcessGroup | None,
    root: tuple[int | None, int | None] | None = None,
) -> Call:
    """Returns the call's description; its `root` is a rank in the group."""
    if is_outside(group):
        raise ValueError(
            f"functional.{name}: this process is not a member of the group, and would "
            "have no result"
        )
    call = begin_anew(SEND, f"functional.{name}", group, root, True)
    assert call is not None
    return call


def _kind(call: Call, x: Any) -> Kind:
    return kind_of(x, call.where())


def _given(kind: Kind, result: Any, x: Array) -> Array:
    given: Array = kind.give(result, x)
    return given


def _row_shape(call: Call, x: Any) -> tuple[int, ...]:
    shape = _kind(call, x).shape(x)
    if not shape or shape[0] != call.size:
        raise ValueError(
            f"{call.where()}: an array with one row for each of {call.size} ranks is "
            f"needed, but the shape is {shape}"
        )
    return shape[1:]


def _dimension(call: Call, shape: tuple[int, ...], dim: int) -> int:
    """Returns the index of a dimension, also of one that is counted from the end."""
    if not -len(shape) <= dim < len(shape):
        raise ValueError(f"{call.where()}: shape {shape} has no dimension {dim}")
    return dim % len(shape)


def _rows(result: Any, count: int) -> list[Any]:
    """Returns the rows as views, also where indexing would make a scalar of a row."""
    if result.ndim == 1:
        return [result[i : i + 1] for i in range(count)]
    return [result[i] for i in range(count)]


def _head_of(call: Call, x: Any) -> tuple[Any, ...]:
    """Returns the description from which other ranks make an array like `x`."""
    kind = _kind(call, x)
    return kind.name, kind.shape(x), *kind.describe(x)


def _heads_of(call: Call, blocks: Any) -> list[Any]:
    """Checks the blocks at a scatter's source, and returns their heads."""
    if blocks is None:
        raise TypeError(f"{call.where()}: the source rank must pass the blocks")
    if len(blocks) != call.size:
        raise ValueError(
            f"{call.where()}: one block for each of {call.size} ranks is needed, but "
            f"there are {len(blocks)}"
        )
    heads = [_head_of(call, block) for block in blocks]
    dtypes = sorted({str(_kind(call, each).show(each).dtype) for each in blocks})
    if len(dtypes) > 1:
        raise ValueError(f"{call.where()}: blocks of several dtypes: {dtypes}")
    return heads


def _try(
    make: Callable[[Call, Any], Any], call: Call, x: Any
) -> tuple[Any, Exception | None]:
    """Returns what `make` returned; or its error, and what to send to the other
    ranks."""
    try:
        return make(call, x), None
    except Exception as error:
        return (FAILED, str(error)), error


def _as_told(call: Call, head: Any) -> tuple[Kind, Any]:
    name, shape, *description = head
    if name == FAILED:
        raise DistBackendError(f"rank {call.root} gave up: {shape}")
    kind = kind_named(name)
    return kind, kind.empty(shape, *description)


def _messages(call: Call, x: Any) -> list[Any]:
    """Returns the messages of a send: a head of fixed size, what does not fit into it,
    and the contents."""
    message = pack(call, _head_of(call, x))
    if message.error is not None:
        raise message.error
    head = np.zeros(HEAD_SIZE, np.uint8)
    stream = np.frombuffer(
        MAGIC + LENGTH.pack(len(message.stream)) + message.stream, np.uint8
    )
    head[: min(len(stream), HEAD_SIZE)] = stream[:HEAD_SIZE]
    rest = stream[HEAD_SIZE:]
    return [head, *([rest] if len(rest) else []), _kind(call, x).show(x)]


def _begin_send(call: Call, messages: list[Any], tag: int) -> list[Any]:
    return [
        _C.isend(each, group=call.group, tag=tag, group_dst=call.root)
        for each in messages
    ]


def _finish(works: list[Any]) -> None:
    for work in works:
        work.wait()


def _receive(call: Call, tag: int) -> Any:
    def take(memory: Any) -> Any:
        peer = None if call.root < 0 else call.root
        source = _C.recv(memory, group=call.group, tag=tag, group_src=peer)
        if peer is None:
            # What follows comes from the same rank.
            call.root = root_of(call, source, None)
        return memory

    head = take(np.empty(HEAD_SIZE, np.uint8)).tobytes()
    if not head.startswith(MAGIC):
        raise DistBackendError(
            f"{call.where()}: the message from rank {call.root} was not sent by "
            "functional.send"
        )
    at = len(MAGIC) + LENGTH.size
    (size,) = LENGTH.unpack_from(head, len(MAGIC))
    stream = head[at : at + size]
    if len(stream) < size:
        stream += take(np.empty(size - len(stream), np.uint8)).tobytes()
    kind, result = _as_told(call, loaded(call, call.root, stream, []))
    return kind.give(take(result), None)
