# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in test_deadlines.py."""

from __future__ import annotations

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
from group_ranks import init
from operations import wait_until_ahead

import distlite as dist

TIMEOUT = 2.0


def _await_file(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} is not there"
        time.sleep(0.01)


def miss(
    rank: int,
    world_size: int,
    init_method: str,
    places: str,
    late: int,
    reader: int | None = None,
    folder: str = "",
) -> str | None:
    """Rank `late` does not come: what the others raise.

    With a `reader` all others are stopped once they are in the operation, the server of
    the store among them, and go on when it has raised: nobody can tell it anything.
    """
    if len(set(places)) > 1:
        os.environ["DISTLITE_HOST_HINT"] = places[rank]
    init(rank, world_size, init_method)
    group = dist.new_group(timeout=timedelta(seconds=TIMEOUT))
    pids = np.zeros(world_size, np.int64)
    dist.all_gather_single(pids, np.array([os.getpid()]), group=group)
    others = [each for each in range(world_size) if each != late]
    raised = Path(folder, "raised")
    text = None
    if rank != late:
        try:
            dist.all_reduce(np.zeros(3), group=group)
        except dist.DistBackendError as error:
            text = str(error)
        if rank == reader:
            raised.touch()
    elif reader is not None:
        wait_until_ahead(others)
        stopped = [int(pids[each]) for each in others if each != reader]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        _await_file(raised)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    dist.barrier()
    return text
