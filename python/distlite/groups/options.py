# SPDX-License-Identifier: BSD-3-Clause
"""torch's option structs, which the methods of a ProcessGroup take beside their arrays.

Each is made without arguments and filled field by field.  Ranks are those of the group.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from .reduce_op import ReduceOp

__all__ = [
    "AllToAllOptions",
    "AllgatherOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "BarrierOptions",
    "BroadcastOptions",
    "GatherOptions",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
]

# Negative, as in torch: the group's own timeout.
UNSET = timedelta(milliseconds=-1)


class Options:
    """Fields of all options: the timeout (negative: the group's) and `asyncOp`.

    The methods return a Work whatever `asyncOp` says, as torch's do.
    """

    timeout: timedelta
    asyncOp: bool

    def __init__(self) -> None:
        self.timeout = UNSET
        self.asyncOp = True

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class _WithReduction(Options):
    reduceOp: Any

    def __init__(self) -> None:
        super().__init__()
        self.reduceOp = ReduceOp(ReduceOp.SUM)


class _WithRoot(Options):
    rootRank: int

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = 0


class AllreduceOptions(_WithReduction):
    """Options of the method `allreduce` of a group.

    They have `reduceOp`, `timeout` (negative is the group's own) and `asyncOp`. The
    methods of a group return a `Work` whatever `asyncOp` says.

    Example:
        >>> options = dist.AllreduceOptions()
        >>> options.reduceOp = dist.ReduceOp.MAX
        >>> values = np.array([rank])
        >>> dist.group.WORLD.allreduce([values], options).wait()
        True
        >>> int(values[0])
        1
    """


class AllreduceCoalescedOptions(AllreduceOptions):
    """Options of a group's `allreduce_coalesced`: those of `AllreduceOptions`."""


class ReduceScatterOptions(_WithReduction):
    """Options of a group's `reduce_scatter`: `reduceOp`, `timeout`, `asyncOp`."""


class BroadcastOptions(_WithRoot):
    """Options of the method `broadcast` of a group.

    They have `rootRank`, the rank of the source in the group, `rootTensor`, the index
    of its array in the list, `timeout` and `asyncOp`.

    Example:
        >>> options = dist.BroadcastOptions()
        >>> options.rootRank = 1
        >>> values = np.array([rank])
        >>> dist.group.WORLD.broadcast([values], options).wait()
        True
        >>> int(values[0])
        1
    """

    rootTensor: int

    def __init__(self) -> None:
        super().__init__()
        self.rootTensor = 0


class ReduceOptions(_WithReduction):
    """Options of the method `reduce` of a group.

    They have `reduceOp`, `rootRank`, the rank of the destination in the group,
    `rootTensor`, the index of its array in the list, `timeout` and `asyncOp`.
    """

    rootRank: int
    rootTensor: int

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = self.rootTensor = 0


class GatherOptions(_WithRoot):
    """Options of the method `gather` of a group: `rootRank`, `timeout`, `asyncOp`."""


class ScatterOptions(_WithRoot):
    """Options of the method `scatter` of a group: `rootRank`, `timeout`, `asyncOp`."""


class AllgatherOptions(Options):
    """Options of the method `allgather` of a group: `timeout` and `asyncOp`."""


class AllToAllOptions(Options):
    """Options of the method `alltoall` of a group: `timeout` and `asyncOp`."""


class BarrierOptions(Options):
    """Options of the method `barrier` of a group.

    They have `timeout` and `asyncOp`, and `device_ids` and `device`, which are ignored
    for the CPU.

    Example:
        >>> from datetime import timedelta
        >>> options = dist.BarrierOptions()
        >>> options.timeout = timedelta(seconds=10)
        >>> dist.group.WORLD.barrier(options).wait()
        True
    """

    device_ids: list[int]
    device: Any

    def __init__(self) -> None:
        super().__init__()
        self.device_ids = []
        self.device = None


for _name in __all__:
    globals()[_name].__module__ = "distlite"
