# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in the tests of groups with a store of their own."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

import distlite as dist
from distlite.groups.check_in import CheckIn

LONG = 60.0


def use(group: dist.StatelessGroup) -> None:
    """Something of everything, with results that tell the groups apart."""
    rank, size, name = group.rank(), group.size(), group.group_name
    total = np.array([rank + 1.0])
    dist.all_reduce(total, group=group)
    assert total[0] == size * (size + 1) / 2
    last = size - 1
    told = group.broadcast_obj(name if rank == last else None, src=last)
    gathered = group.gather_obj((name, rank), dst=last)
    if rank != last:
        assert gathered is None
        group.send_obj([name, rank], last)
    else:
        assert gathered == [(name, r) for r in range(size)]
        received = [group.recv_obj(r) for r in range(last)]
        assert received == [[name, r] for r in range(last)]
    assert [told, *group.all_gather_obj(rank)] == [name, *range(size)]
    group.barrier().wait()


def join(address: str, rank: int, size: int, name: str) -> dist.StatelessGroup:
    return dist.stateless_group(address, rank, size, name, timeout=LONG)


def outlive_the_server(rank: int, world_size: int, address: str) -> None:
    """Process 0 serves, and leaves while the others make the next group."""
    variables = dict(os.environ)
    last = world_size - 1
    every = join(address, rank, world_size, "every")
    turned = join(address, last - rank, world_size, "turned")
    use(turned)
    use(every)
    if rank > 0:
        rest = join(address, rank - 1, last, "rest")
    every.barrier().wait()
    turned.shutdown()
    every.shutdown()
    if rank > 0:
        use(rest)
        # Nobody serves, or soon nobody will, but rank 0 of this group.
        with join(address, rank - 1, last, "next") as group:
            use(group)
            use(rest)
            rest.shutdown()
    assert not dist.is_initialized()
    assert dict(os.environ) == variables


def lose_one(rank: int, world_size: int, address: str) -> Any:
    with join(address, rank, world_size, "lost") as group:
        use(group)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        since = time.monotonic()
        try:
            group.all_gather_obj(rank)
        except dist.DistBackendError as error:
            text = str(error)
        else:
            text = ""
    # The process that is left serves; the other one is started anew.
    return text, time.monotonic() - since


def die_waiting(rank: int, world_size: int, address: str) -> None:
    """Before the last rank has come."""
    CheckIn._have_all_come = lambda *_: os.kill(  # type: ignore[assignment]
        os.getpid(), signal.SIGKILL
    )
    join(address, rank, world_size + 1, "killed")


def raise_in_one(rank: int, world_size: int, address: str) -> str:
    try:
        with join(address, rank, world_size, "raised") as group:
            if rank == 1:
                raise KeyError("lost")
            group.all_gather_obj(rank)
    except (KeyError, dist.DistBackendError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
