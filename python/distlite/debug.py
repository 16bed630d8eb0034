# SPDX-License-Identifier: BSD-3-Clause
"""The debug level of groups, and a breakpoint on one rank.

    TORCH_DISTRIBUTED_DEBUG=DETAIL python -m distlite.run train.py

At DETAIL, groups that are made from then on compare what all ranks are about to do.
"""

from __future__ import annotations

import os
from enum import Enum

from . import _C
from ._C import barrier
from .groups.world import get_rank

__all__ = [
    "DebugLevel",
    "breakpoint",
    "get_debug_level",
    "set_debug_level",
    "set_debug_level_from_env",
]


class DebugLevel(Enum):
    """How much groups check and log.

    OFF is the default. INFO logs more. With DETAIL the ranks compare their calls before
    each collective.

    Example:
        >>> dist.DebugLevel.DETAIL
        <DebugLevel.DETAIL: 2>
    """

    OFF = 0
    INFO = 1
    DETAIL = 2

    def __int__(self) -> int:
        return self.value


def get_debug_level() -> DebugLevel:
    """Returns the debug level of groups that are made from now on.

    Returns:
        A `DebugLevel`, at first that of TORCH_DISTRIBUTED_DEBUG.

    Example:
        >>> dist.get_debug_level()
        <DebugLevel.OFF: 0>
    """
    return DebugLevel(_C._get_debug_level())


def set_debug_level(level: DebugLevel) -> None:
    """Sets the debug level of groups that are made from now on.

    All ranks set the same level.

    Args:
        level: A `DebugLevel`.

    Raises:
        TypeError: `level` is not a `DebugLevel`.

    Example:
        >>> dist.set_debug_level(dist.DebugLevel.OFF)
    """
    if not isinstance(level, DebugLevel):
        raise TypeError(f"level must be a DebugLevel, not {type(level).__name__}")
    _C._set_debug_level(level.value)


def set_debug_level_from_env() -> None:
    """Sets the debug level from the environment.

    TORCH_DISTRIBUTED_DEBUG is OFF, INFO or DETAIL, in upper or lower case; unset means
    OFF.

    Raises:
        ValueError: The variable has another value.

    Example:
        >>> dist.set_debug_level_from_env()
    """
    _C._set_debug_level_from(os.environ.get("TORCH_DISTRIBUTED_DEBUG"))


def breakpoint(
    rank: int = 0, skip: int = 0, timeout_s: int | float | None = 3600
) -> None:
    """Stops one rank in the debugger, while the others wait for it.

    All ranks call it.

    Args:
        rank: The global rank that stops.
        skip: The number of calls that do nothing, before the first one that stops.
        timeout_s: The new timeout of all groups in seconds, so that the other ranks do
            not give up meanwhile; None does not change the timeouts.

    In a program::

        for step in range(100):
            dist.breakpoint(rank=2, skip=10)  # rank 2 stops from the 11th step on
    """
    from .tools import debugger

    here = get_rank()
    if debugger.is_skipped(skip):
        return
    debugger.raise_timeouts(timeout_s)
    stopped = debugger.debugger(rank) if rank == here else None
    if stopped is not None:
        stopped.set_trace()
    barrier()
