# SPDX-License-Identifier: BSD-3-Clause
"""Several sends and receives at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from .._C import ProcessGroup, Work, _batch, irecv, isend
from .backends import dlpack_device_of
from .world import get_global_rank, get_group_rank, info_of, world

__all__ = ["Message", "P2POp", "batch_isend_irecv", "iprobe", "probe", "sendrecv"]


class Message:
    """A message that has not been received, as `probe` and `iprobe` describe it.

    Args:
        source: The global rank of the sender.
        tag: The number that the receive needs.
        dtype: The name of the dtype, such as "float64".
        nbytes: The size in bytes.

    Example:
        >>> if rank == 0:
        ...     dist.send(np.arange(3), dst=1, tag=5)
        ... else:
        ...     message = dist.probe()
        ...     print(message.source, message.tag, message.count)
        ...     values = message.empty()
        ...     source = dist.recv(values, message.source, tag=message.tag)
        ...     print(values)
        0 5 3
        [0 1 2]
    """

    __slots__ = ("dtype", "nbytes", "source", "tag")

    def __init__(self, source: int, tag: int, dtype: str, nbytes: int) -> None:
        self.source = source
        self.tag = tag
        self.dtype = dtype
        self.nbytes = nbytes

    @property
    def count(self) -> int:
        """The number of elements; ValueError if NumPy does not know the dtype."""
        return self.nbytes // int(self._numpy_dtype().itemsize)

    def empty(self) -> Any:
        """A new one-dimensional NumPy array to receive the message into.

        Raises:
            ValueError: NumPy does not know the dtype by its name, because it has fields
                or belongs to a package that is not imported. Make the array from
                `nbytes`.
        """
        import numpy as np

        return np.empty(self.count, self._numpy_dtype())

    def _numpy_dtype(self) -> Any:
        import numpy as np

        try:
            return np.dtype(self.dtype)
        except (TypeError, SyntaxError, ValueError):
            raise ValueError(
                f"NumPy has no dtype {self.dtype!r}; the message has {self.nbytes} "
                "bytes"
            ) from None

    def __repr__(self) -> str:
        return (
            f"Message(source={self.source}, tag={self.tag}, dtype={self.dtype!r}, "
            f"nbytes={self.nbytes})"
        )


def probe(
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int | None = None,
    group_src: int | None = None,
) -> Message | None:
    """Waits for a message, and describes it without receiving it.

    A `recv` with the message's source and tag gets this message, unless another thread
    receives it first.

    Args:
        src: The global rank of the sender; without it and `group_src`, any rank.
        group: The group; None is the default group.
        tag: The tag of the message; None stands for any. Objects are not found, because
            they have tags of their own.
        group_src: The rank of the sender in `group`, instead of `src`.

    Returns:
        A `Message`; None on a process that is not a member of the group.

    Raises:
        ValueError: The sender is this rank itself or is not a member of the group, or
            the tag is negative.
        DistBackendError: The sender failed or left the group, or no message came within
            the group's timeout.
        NotImplementedError: The backend has no messages.

    Example:
        >>> if rank == 0:
        ...     dist.send(np.zeros(2, "float32"), dst=1)
        ... else:
        ...     print(dist.probe(src=0))
        ...     source = dist.recv(np.empty(2, "float32"), src=0)
        Message(source=0, tag=0, dtype='float32', nbytes=8)
    """
    found = _C._probe(True, src, group, tag, group_src)
    return None if found is None else Message(*found)


def iprobe(
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int | None = None,
    group_src: int | None = None,
) -> Message | None:
    """Checks whether a message has arrived, without waiting and without receiving it.

    Args:
        src: The global rank of the sender; without it and `group_src`, any rank.
        group: The group; None is the default group.
        tag: The tag of the message; None stands for any, as in `probe`.
        group_src: The rank of the sender in `group`, instead of `src`.

    Returns:
        A `Message`, or None if no message has arrived.

    Raises:
        ValueError: The sender is this rank itself or is not a member of the group, or
            the tag is negative.
        DistBackendError: No message has arrived, and the sender failed or left the
            group.
        NotImplementedError: The backend has no messages.

    Example:
        >>> dist.iprobe(tag=9) is None
        True
    """
    found = _C._probe(False, src, group, tag, group_src)
    return None if found is None else Message(*found)


def sendrecv(
    output: Any,
    input: Any,
    dst: int | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    *,
    group_dst: int | None = None,
    group_src: int | None = None,
) -> int:
    """Sends one array and receives another at once.

    A ring of such calls does not deadlock, as a ring of `send` followed by `recv` may.
    Each half matches a `send`, a `recv` or another `sendrecv`.

    Args:
        output: The array to fill. A shorter message fills its beginning.
        input: The array to send. It shares no memory with `output`.
        dst: The global rank that `input` goes to.
        src: The global rank to receive from; if neither this nor `group_src` is given,
            the message may come from any rank.
        group: The group; None is the default group.
        tag: The tag of both messages.
        group_dst: The rank in `group` that `input` goes to, instead of `dst`.
        group_src: The rank in `group` to receive from, instead of `src`.

    Returns:
        The global rank that `output` came from; -1 on a process that is not a member of
        the group.

    Raises:
        TypeError: `output` or `input` is not an array.
        ValueError: A peer is this rank itself or is not a member of the group, `output`
            cannot be written to, or the arrays share memory.
        DistBackendError: A peer failed, did not call it within the group's timeout, or
            sent an array of another dtype or one that is too large.

    Example:
        >>> values = np.zeros(1, int)
        >>> dist.sendrecv(values, np.array([rank * 10]), dst=1 - rank) == 1 - rank
        True
        >>> int(values[0]) == 10 - rank * 10
        True
    """
    source = _C._sendrecv(output, input, dst, src, group, tag, group_dst, group_src)
    if source is not None:
        return source
    # Arrays on devices, groups of other classes, batches, and torch's profiler.
    send = P2POp(isend, input, dst, group, tag, group_dst)
    if src is not None or group_src is not None:
        receive = P2POp(irecv, output, src, group, tag, group_src)
        for work in batch_isend_irecv([receive, send]):
            work.wait()
        return receive.peer
    # A wrong send is refused before the receive begins, which nothing would wait for.
    _C._check_message(input, True, send.group, tag, send.group_peer)
    works = [irecv(output, None, group, tag), isend(input, dst, group, tag, group_dst)]
    for each in works:
        assert each is not None
        each.wait()
    assert works[0] is not None
    return get_global_rank(send.group, works[0].source_rank())


class P2POp(_C._P2POp):
    """An `isend` or an `irecv` for `batch_isend_irecv`.

    Args:
        op: The function `distlite.isend` or `distlite.irecv`.
        tensor: The array to send or to fill.
        peer: The global rank of the other side.
        group: The group; None is the default group.
        tag: A number that the matching operation has too.
        group_peer: The rank of the other side in `group`, instead of `peer`.

    Raises:
        TypeError: `tensor` is not an array.
        ValueError: `op` is another function, neither or both of `peer` and `group_peer`
            are given, or the peer is not a member of the group.

    Example:
        >>> dist.P2POp(dist.isend, np.zeros(2), peer=1 - rank).op is dist.isend
        True
    """

    __slots__ = ()

    def _resolve(
        self,
        op: Callable[..., Any],
        tensor: Any,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ) -> None:
        # Serves the arguments that the base class leaves to it, and refuses wrong ones.
        if op is not isend and op is not irecv:
            raise ValueError(
                "Invalid ``op``. Expected ``op`` to be of type "
                "``distlite.isend`` or ``distlite.irecv``."
            )
        _check_array(tensor)
        self.op = op
        self.tensor = tensor
        self.group = world.require_default() if group is None else group
        self.tag = tag
        self.peer, self.group_peer = _both_ranks(self.group, peer, group_peer)

    def __repr__(self) -> str:
        own = self.group.rank()
        ends = (own, self.group_peer) if self.op is isend else (self.group_peer, own)
        name = self.group.group_name
        return (
            f"P2POp({self.op.__name__} pg={name}, group_src={ends[0]}, "
            f"group_dst={ends[1]},  {getattr(self.tensor, 'shape', None)}, "
            f"{getattr(self.tensor, 'dtype', None)})"
        )


def batch_isend_irecv(p2p_op_list: list[P2POp]) -> list[Work]:
    """Begins several sends and receives together.

    Args:
        p2p_op_list: The operations, all in one group.

    Returns:
        A list of `Work`, one for each operation, or a single one for arrays on CUDA
        devices.

    Raises:
        TypeError: The array of an operation is not one.
        ValueError: An element is not a `P2POp`, the groups differ, or `isend` or
            `irecv` would refuse an operation. Then none has begun.
        IndexError: The list is empty.

    Example:
        >>> values, other = np.zeros(1), 1 - rank
        >>> operations = [
        ...     dist.P2POp(dist.isend, np.array([rank + 1.0]), other),
        ...     dist.P2POp(dist.irecv, values, other),
        ... ]
        >>> for work in dist.batch_isend_irecv(operations):
        ...     done = work.wait()
        >>> float(values[0]) == other + 1.0
        True
    """
    begun = _batch(p2p_op_list)
    if begun is not None:
        return begun
    if not isinstance(p2p_op_list, list) or not all(
        isinstance(each, P2POp) for each in p2p_op_list
    ):
        raise ValueError(
            "Invalid ``p2p_op_list``. Each op is expected to "
            "to be of type ``distlite.P2POp``."
        )
    if not p2p_op_list:
        raise IndexError("p2p_op_list is empty: there is no operation to begin")
    group = p2p_op_list[0].group
    if any(each.group is not group for each in p2p_op_list):
        raise ValueError("All ops need to use the same group.")
    if _C._device_name(group) is not None and is_on_device(p2p_op_list[0].tensor):
        return _batch_on_device(group, p2p_op_list)
    # None begins if one of them is refused: nothing would wait for the others.
    for each in p2p_op_list:
        _C._check_message(
            each.tensor, each.op is isend, group, each.tag, each.group_peer
        )
    # Receives begin first, so that arriving contents need not be kept until then.
    works: list[Work | None] = [None] * len(p2p_op_list)
    try:
        for sends in (False, True):
            for i, each in enumerate(p2p_op_list):
                if (each.op is isend) == sends:
                    works[i] = each.op(
                        each.tensor, None, group, each.tag, each.group_peer
                    )
    except BaseException:
        for work in works:
            if isinstance(work, _C.Work):
                work._withdraw()
        raise
    return [work for work in works if work is not None]


def _batch_on_device(group: ProcessGroup, ops: list[P2POp]) -> list[Work]:
    """Begins all of them together, in one call, with one Work."""
    from .nccl import batch

    with batch(group, is_async=True) as manager:
        for each in ops:
            peer = "group_dst" if each.op is isend else "group_src"
            each.op(each.tensor, group=group, tag=each.tag, **{peer: each.group_peer})
    return manager.works


def is_on_device(tensor: Any) -> bool:
    """Returns whether an array says that it lies in CUDA memory."""
    if hasattr(tensor, "__cuda_array_interface__"):
        return True
    return dlpack_device_of(tensor) == "cuda"


def _check_array(tensor: Any) -> None:
    kinds = ("__array_interface__", "__dlpack__", "__cuda_array_interface__")
    if not isinstance(tensor, (bytearray, memoryview)) and not any(
        hasattr(tensor, kind) for kind in kinds
    ):
        raise TypeError(
            f"Invalid function argument. Expected parameter `tensor` of type array, "
            f"but got {type(tensor)} instead."
        )


def _both_ranks(
    group: ProcessGroup, peer: int | None, group_peer: int | None
) -> tuple[int, int]:
    """Returns the peer's global rank and its rank in the group."""
    if peer is not None and group_peer is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    if group_peer is not None:
        info_of(group)
        return get_global_rank(group, group_peer), group_peer
    if peer is None:
        raise ValueError("Must specify global_rank or group_rank")
    return peer, get_group_rank(group, peer)
