# SPDX-License-Identifier: BSD-3-Clause
"""torch's option structs: what the methods of a ProcessGroup take beside their arrays.

Each is made without arguments and filled field by field.  Ranks are those of the group.
"""

from __future__ import annotations

from datetime import timedelta

from .reduce_op import ReduceOp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    """What all of them have: a limit of the call (negative: the group's), `asyncOp`.

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
    """Of allreduce(): `reduceOp`."""


class AllreduceCoalescedOptions(AllreduceOptions):
    """Of allreduce_coalesced(): `reduceOp`."""


class ReduceScatterOptions(_WithReduction):
    """Of reduce_scatter() and its kin: `reduceOp`."""


class BroadcastOptions(_WithRoot):
    """Of broadcast(): `rootRank`, and `rootTensor`, the array of the root's list."""

    rootTensor: int

    def __init__(self) -> None:
        super().__init__()
        self.rootTensor = 0


class ReduceOptions(_WithReduction):
    """Of reduce(): `reduceOp`, `rootRank`, and `rootTensor`."""

    rootRank: int
    rootTensor: int

    def __init__(self) -> None:
        super().__init__()
        self.rootRank = self.rootTensor = 0


class GatherOptions(_WithRoot):
    """Of gather(): `rootRank`."""


class ScatterOptions(_WithRoot):
    """Of scatter(): `rootRank`."""


class AllgatherOptions(Options):
    """Of allgather() and its kin."""


class AllToAllOptions(Options):
    """Of alltoall() and its kin."""


class BarrierOptions(Options):
    """Of barrier(): `device_ids` and `device`, which mean nothing to the CPU."""

    device_ids: list[int]
    device: Any

    def __init__(self) -> None:
        super().__init__()
        self.device_ids = []
        self.device = None


for _name in __all__:
    globals()[_name].__module__ = "distlite"
