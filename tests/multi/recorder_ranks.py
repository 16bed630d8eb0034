# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in test_ps.py."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import time
from datetime import timedelta
from typing import Any

import numpy as np
from group_ranks import init

import distlite as dist


def _ps(*arguments: str) -> str:
    from distlite.tools import ps

    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert ps.main(arguments) == 0
    return output.getvalue()


def _facts() -> dict[str, Any]:
    """Of this process's job; tests may run beside each other."""
    from distlite.tools.recording import own

    mine = own()
    assert mine is not None and mine.job
    jobs = json.loads(_ps("--json", "--job", mine.job))["jobs"]
    assert len(jobs) == 1
    return jobs[0]


def _wait_until(ready: Any) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not ready(facts := _facts()):
        assert time.monotonic() < deadline, facts
        time.sleep(0.01)
    return facts


def look_at_a_stopped_rank(
    rank: int, world_size: int, init_method: str, folder: str
) -> Any:
    """Rank 2 is stopped; rank 1 looks, and lets it go on."""
    init(rank, world_size, init_method)
    array = np.full(10, rank, np.float32)
    dist.all_reduce(array)
    pids: list[Any] = [np.empty(1, np.int64) for _ in range(world_size)]
    dist.all_gather(pids, np.array([os.getpid()]))
    looked = None
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 1:
        facts = _wait_until(
            lambda facts: (
                facts["ranks"][0]["current"] and facts["ranks"][2]["state"] == "stopped"
            )
        )
        looked = (
            facts,
            _ps("--job", facts["job"]),
            _ps("--job", facts["job"], "--dump", f"{folder}/dump-"),
        )
        os.kill(int(pids[2][0]), signal.SIGCONT)
    dist.all_reduce(array)
    answer = dist.irecv(array, src=(rank + 1) % world_size, tag=5)
    dist.send(array, dst=(rank - 1) % world_size, tag=5)
    answer.wait()
    dist.barrier()
    dist.destroy_process_group()
    return looked


def look_from_another_host(
    rank: int, world_size: int, init_method: str, folder: str
) -> Any:
    """The last rank looks at the others, who wait for it in their second call."""
    init(rank, world_size, init_method)
    array = np.full(10, rank, np.float32)
    dist.all_reduce(array)
    looked = None
    if rank == world_size - 1:
        facts = _wait_until(
            lambda facts: all(rank["current"] for rank in facts["ranks"][:-1])
        )
        looked = facts, _ps("--job", facts["job"])
        _ps("--job", facts["job"], "--dump", f"{folder}/dump-")
    dist.all_reduce(array)
    dist.barrier()
    dist.destroy_process_group()
    return looked


def lose_a_rank(rank: int, world_size: int, init_method: str) -> str:
    """Rank 2 dies; what the others raise."""
    init(rank, world_size, init_method)
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):
        try:
            dist.all_reduce(np.zeros(3))
        except dist.DistBackendError as error:
            text = str(error)
    return text


def miss_a_message(rank: int, world_size: int, init_method: str) -> None:
    """Rank 0 waits in vain, twice."""
    init(rank, world_size, init_method)
    group = dist.new_group([0, 1])
    group.set_timeout(timedelta(milliseconds=200))
    if rank == 0:
        for _ in range(2):
            with contextlib.suppress(dist.DistBackendError):
                dist.recv(np.zeros(3), src=1, group=group)
    dist.barrier()
