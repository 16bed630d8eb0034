# SPDX-License-Identifier: BSD-3-Clause
"""What torch's test of fault tolerance does, over the backend distlite, and besides
lists that differ, and a process that is killed.

Usage: torch_reconfigure_ranks.py FILE RANK SIZE.  Prints "good" at the end, but for the
last rank, which kills itself.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ErrorType

import distlite.torch
from distlite.distributed_c10d import ReconfigureOptions

LIMIT = timedelta(seconds=30)


class Process:
    def __init__(self, path: str, number: int, count: int) -> None:
        self.number, self.count, self.turn = number, count, 0
        self.store = dist.FileStore(path, count)
        options = distlite.torch.Options(enable_reconfigure=True)
        told: dict[str, Any] = {"pg_options": options}
        if (
            "enable_reconfigure"
            in inspect.signature(dist.init_process_group).parameters
        ):
            told = {"enable_reconfigure": True}
        dist.init_process_group(
            "distlite",
            store=self.store,
            rank=number,
            world_size=count,
            timeout=LIMIT,
            **told,
        )
        self.group = dist.group.WORLD

    def collect(self) -> list[str]:
        self.turn += 1
        mine = self.group.get_reconfigure_handle()
        self.store.set(f"{self.turn}/{self.number}", mine)
        names = [f"{self.turn}/{n}" for n in range(self.count)]
        return [self.store.get(name).decode() for name in names]

    def reconfigure(self, uuid: int, handles: Any) -> None:
        opts = ReconfigureOptions()
        opts.uuid, opts.handles, opts.timeout = uuid, handles, LIMIT
        assert self.group.reconfigure(opts).wait()

    def check(self, rank: int, size: int) -> None:
        assert self.group is dist.group.WORLD
        assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
        assert (dist.get_rank(self.group), self.group.rank()) == (rank, rank)
        assert self.group.get_error() == ErrorType.SUCCESS
        tensor = torch.full((4,), rank + 1.0)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [sum(range(1, size + 1))] * 4
        tensor.fill_(float(rank))
        dist.broadcast(tensor, src=size - 1)
        assert tensor.tolist() == [size - 1.0] * 4
        if size > 1:
            got = torch.zeros(4)
            works = [
                dist.isend(torch.full((4,), rank + 1.0), (rank + 1) % size),
                dist.irecv(got, (rank - 1) % size),
            ]
            for work in works:
                work.wait()
            assert got.tolist() == [(rank - 1) % size + 1.0] * 4


def error_of(function: Any, *args: Any) -> str:
    try:
        function(*args)
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    path, number, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    here = Process(path, number, count)
    assert here.group.supports_reconfigure
    assert "no members before" in error_of(dist.all_reduce, torch.ones(2))
    here.reconfigure(100, here.collect())
    here.check(number, count)
    last, middle = count - 1, count // 2
    for uuid, dropped in ((200, last), (210, middle)):
        handles = here.collect()
        rest = [n for n in range(count) if n != dropped]
        if number != dropped:
            here.reconfigure(uuid, [handles[n] for n in rest])
            here.check(rest.index(number), count - 1)
        here.reconfigure(uuid + 1, here.collect())
        here.check(number, count)
    here.reconfigure(300 + number, [here.group.get_reconfigure_handle()])
    here.check(0, 1)
    again = error_of(
        here.reconfigure, 300 + number, [here.group.get_reconfigure_handle()]
    )
    assert again.startswith("DistBackendError: uuid") and "already used" in again
    here.check(0, 1)
    here.reconfigure(310, here.collect())
    here.check(number, count)
    # Two halves, of which one comes later than the other; then all.
    handles = here.collect()
    if number < middle:
        here.reconfigure(400, handles[:middle])
    else:
        here.reconfigure(401, handles[middle:])
    here.reconfigure(402, here.collect())
    here.check(number, count)
    here.group.abort()
    assert here.group.get_error() == ErrorType.COMM_ERROR
    here.reconfigure(311, here.collect())
    here.check(number, count)
    # Lists that differ are shown on all, and the group is of no use until the next try.
    handles = here.collect()
    began = time.monotonic()
    text = error_of(here.reconfigure, 500, handles[:: -1 if number == last else 1])
    assert "not have the same list for uuid 500: pid " in text and text.count("[") == 2
    assert time.monotonic() - began < LIMIT.total_seconds() / 2
    assert "reconfiguring it failed" in error_of(dist.all_reduce, torch.ones(2))
    here.reconfigure(501, here.collect())
    here.check(number, count)
    # One that ends meanwhile is named, and the others go on.
    handles = here.collect()
    if number == last:
        os.kill(os.getpid(), signal.SIGKILL)
    text = error_of(here.reconfigure, 600, handles)
    assert f"have ended: pid {handles[last].split(':')[1]} on host" in text, text
    here.count = last
    here.reconfigure(601, here.collect())
    here.check(number, last)
    dist.destroy_process_group()
    print("good")


if __name__ == "__main__":
    main()
