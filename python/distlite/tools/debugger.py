# SPDX-License-Identifier: BSD-3-Clause
"""The debugger of distlite.breakpoint(), imported when a rank stops there."""

from __future__ import annotations

import os
import pdb
import sys
from typing import IO

from ..groups.world import get_rank, world

# Calls of breakpoint() that asked to be skipped, so far.
_calls = 0

_BANNER = """
!!! ATTENTION !!!

Type 'up' to get to the frame that called distlite.breakpoint(rank={rank})
"""

_NO_INPUT = (
    "[rank{rank}]: distlite.breakpoint(rank={rank}) continues without stopping: the "
    "standard input of this rank is not a terminal and has nothing to read. Start the "
    "job from a terminal (python -m distlite.run lets every rank read it), or stop in "
    "the first rank of a node, which reads what the launcher is given."
)


class RankDebugger(pdb.Pdb):
    """pdb with the rank in its prompt; at the end of its input the program goes on."""

    def __init__(self, rank: int, source: IO[str], sink: IO[str]) -> None:
        super().__init__(stdin=source, stdout=sink, nosigint=True)
        self.prompt = f"[rank{rank}] (Pdb) "
        self._rank = rank

    def do_EOF(self, arg: str) -> bool | None:
        self.message(f"\n[rank{self._rank}]: no more input: going on")
        return self.do_continue(arg)


def is_skipped(skip: int) -> bool:
    """Returns whether this is one of the first `skip` calls, and then prints it."""
    global _calls
    if skip <= 0:
        return False
    _calls += 1
    if _calls > skip:
        return False
    _say(f"[rank{get_rank()}]: Skip the breakpoint, counter={_calls}")
    return True


def raise_timeouts(seconds: float | None) -> None:
    """Raises the timeouts of all groups, so that no rank's wait for this one times
    out."""
    if seconds is None:
        return
    for group in world.groups:
        if 0 <= group.timeout.total_seconds() < seconds:
            group.set_timeout(seconds)


def debugger(rank: int) -> RankDebugger | None:
    """Returns a debugger at this rank's terminal or standard input, if it has one."""
    ends = _open_ends(rank)
    if ends is None:
        _say(_NO_INPUT.format(rank=rank))
        return None
    made = RankDebugger(rank, *ends)
    made.message(_BANNER.format(rank=rank))
    return made


def _open_ends(rank: int) -> tuple[IO[str], IO[str]] | None:
    try:
        status = os.fstat(0)
    except OSError:
        return None
    if os.isatty(0):
        # The terminal is opened directly, because a launcher may hold back output
        # without an end of line.  It is opened by its name, because a launcher's ranks
        # may be in sessions that have no terminal.
        terminal = os.open(os.ttyname(0), os.O_WRONLY | os.O_NOCTTY)
        return open(0, closefd=False), open(terminal, "w")
    if os.path.samestat(status, os.stat(os.devnull)):
        return None
    _say(
        f"[rank{rank}]: standard input is not a terminal: the debugger reads its "
        "commands from it"
    )
    return open(0, closefd=False), sys.stdout


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
