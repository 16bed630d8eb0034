# SPDX-License-Identifier: BSD-3-Clause
"""One library's ranks, of which one is killed or does not come: when the others raise.

    failures_peer.py PEER RANKS KIND STALE ROUNDS PLACE

Prints a line of JSON per round: milliseconds, by surviving rank, from the SIGKILL or
from the deadline to the exception, and how many of the exceptions name the rank at
fault.  PLACE is "host", or "hosts" for a pretended host for each rank.  The ranks are
forked after the import, which would take most of the time otherwise.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

KILL, DEADLINE = "kill", "deadline"
HOST, HOSTS = "host", "hosts"
VICTIM = 1
DEADLINE_SECONDS = 2.0
PATIENCE = 240.0
RANKS_OF_STALE_JOB = 8
STALE_OPERATIONS = 512


class Board:
    """Shared memory in which each rank notes when it entered the call, when it raised,
    and when that named the rank at fault."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._memory = mmap.mmap(-1, 24 * size)

    def note(self, rank: int, column: int) -> None:
        """Notes that `rank` has reached a step now."""
        struct.pack_into("d", self._memory, 24 * rank + 8 * column, time.monotonic())

    def times(self, column: int) -> dict[int, float]:
        """Returns the times of the ranks that have reached a step."""
        rows = struct.iter_unpack("ddd", self._memory[:])
        return {rank: row[column] for rank, row in enumerate(rows) if row[column]}

    def wait(self, column: int, count: int) -> bool:
        """Waits until so many ranks have reached a step; returns False after too long a
        time."""
        end = time.monotonic() + PATIENCE
        while len(self.times(column)) < count:
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


class Library:
    """distlite or torch."""

    def __init__(self, peer: str) -> None:
        self.is_torch = peer == "torch"
        if self.is_torch:
            self.dist: Any = importlib.import_module("torch.distributed")
            self._arrays: Any = importlib.import_module("torch")
            self._arrays.set_num_threads(1)
        else:
            self.dist = importlib.import_module("distlite")
            self._arrays = importlib.import_module("numpy")

    def zeros(self) -> Any:
        """One element."""
        return self._arrays.zeros(1)

    def be_rank(self, rank: int, kind: str, folder: str, board: Board) -> None:
        """Runs a rank, in a process of its own."""
        self.dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/meeting",
            rank=rank,
            world_size=board.size,
            timeout=timedelta(seconds=PATIENCE),
        )
        group = None
        if kind == DEADLINE:
            group = self.dist.new_group(timeout=timedelta(seconds=DEADLINE_SECONDS))
        array = self.zeros()
        self.dist.all_reduce(array)
        board.note(rank, 0)
        if rank == VICTIM:
            board.wait(1, board.size - 1)
            return
        try:
            self.dist.all_reduce(array, group=group)
        except RuntimeError as error:
            board.note(rank, 1)
            if f"rank {VICTIM} " in str(error):
                board.note(rank, 2)
        # The process ends now: with gloo that is how the failure reaches ranks that are
        # not connected to the first one.


def run_round(library: Library, size: int, kind: str, place: str) -> dict[str, Any]:
    """Runs one job, and returns the times of its ranks."""
    board = Board(size)
    pids = []
    with tempfile.TemporaryDirectory(prefix="distlite-benchmark-") as folder:
        for rank in range(size):
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                if place == HOSTS:
                    os.environ["DISTLITE_HOST_HINT"] = f"host {rank}"
                _be_child(library, rank, kind, folder, board)
            pids.append(pid)
        try:
            return _watch(board, pids, kind)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            for pid in pids:
                os.waitpid(pid, 0)


def _be_child(
    library: Library, rank: int, kind: str, folder: str, board: Board
) -> None:
    try:
        library.be_rank(rank, kind, folder, board)
        if not library.is_torch:
            library.dist._C._finish_report()
    finally:
        os._exit(0)


def _watch(board: Board, pids: list[int], kind: str) -> dict[str, Any]:
    if not board.wait(0, board.size):
        raise SystemExit("not all ranks came")
    begun = 0.0
    if kind == KILL:
        # All of them are in the call, and asleep there.
        time.sleep(0.5 + 0.02 * board.size)
        begun = time.monotonic()
        os.kill(pids[VICTIM], signal.SIGKILL)
    if not board.wait(1, board.size - 1):
        raise SystemExit("not all ranks raised")
    entered, raised = board.times(0), board.times(1)
    if kind == KILL:
        since = dict.fromkeys(raised, begun)
    else:
        since = {rank: entered[rank] + DEADLINE_SECONDS for rank in raised}
    times = [(raised[rank] - since[rank]) * 1e3 for rank in raised]
    return {"ms": times, "named": len(board.times(2))}


def make_stale(library: Library, wanted: int) -> None:
    """Makes recordings of killed ranks until there are `wanted`."""
    folder = Path(os.environ["DISTLITE_RUNTIME_DIR"])
    found = sum(path.stat().st_size > 100_000 for path in folder.rglob("*-*-*"))
    for number in range(found, wanted):
        pid = os.fork()
        if pid == 0:
            _leave_recording(library, number)
        os.waitpid(pid, 0)


def _leave_recording(library: Library, number: int) -> None:
    dist = library.dist
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        array = library.zeros()
        for _ in range(STALE_OPERATIONS):
            dist.all_reduce(array)
        job, rank = divmod(number, RANKS_OF_STALE_JOB)
        dist._C._recording_identify(f"stale{job}", rank, RANKS_OF_STALE_JOB)
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """A line per round."""
    peer, size, kind, stale, rounds, place = sys.argv[1:]
    library = Library(peer)
    for _ in range(int(rounds)):
        if not library.is_torch:
            make_stale(library, int(stale))
        print(json.dumps(run_round(library, int(size), kind, place)), flush=True)


if __name__ == "__main__":
    main()
