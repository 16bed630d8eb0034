# SPDX-License-Identifier: BSD-3-Clause
"""How much is checked and told, and stopping one rank in the debugger.

    TORCH_DISTRIBUTED_DEBUG=DETAIL python -m distlite.run train.py

At DETAIL, groups that are made from then on compare what all ranks are about to do.
"""

from __future__ import annotations

import os
from enum import Enum

from . import _C
from ._C import barrier
from .world import get_rank

__all__ = [
    "DebugLevel",
    "breakpoint",
    "get_debug_level",
    "set_debug_level",
    "set_debug_level_from_env",
]


class DebugLevel(Enum):
    """OFF; INFO: the log tells more; DETAIL: ranks compare what they call."""

    OFF = 0
    INFO = 1
    DETAIL = 2

    def __int__(self) -> int:
        return self.value


def get_debug_level() -> DebugLevel:
    """The level now; at first that of TORCH_DISTRIBUTED_DEBUG."""
    return DebugLevel(_C._get_debug_level())


def set_debug_level(level: DebugLevel) -> None:
    """Sets the level for groups that are made from now on, the same on all ranks."""
    if not isinstance(level, DebugLevel):
        raise TypeError(f"level must be a DebugLevel, not {type(level).__name__}")
    _C._set_debug_level(level.value)


def set_debug_level_from_env() -> None:
    """Reads TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL, in any case; unset is OFF."""
    _C._set_debug_level_from(os.environ.get("TORCH_DISTRIBUTED_DEBUG"))


def breakpoint(
    rank: int = 0, skip: int = 0, timeout_s: int | float | None = 3600
) -> None:
    """Stops global rank `rank` in the debugger, while the others wait in a barrier.

    All ranks call it; the first `skip` calls do nothing.  Every group's timeout is
    raised to `timeout_s` seconds (None: left as it is), so that nobody gives up while
    somebody thinks.
    """
    from . import debugger

    here = get_rank()
    if debugger.is_skipped(skip):
        return
    debugger.raise_timeouts(timeout_s)
    stopped = debugger.debugger(rank) if rank == here else None
    if stopped is not None:
        stopped.set_trace()
    barrier()
