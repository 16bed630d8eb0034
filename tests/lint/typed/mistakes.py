# SPDX-License-Identifier: BSD-3-Clause
"""What type checkers are to reject: each line that is marked; never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import distlite as dist
from distlite import nonsense  # error

if TYPE_CHECKING:
    from typing import Any

    import numpy as np


def collectives(array: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    dist.all_reduce(array, op="sum")  # error: it is ReduceOp.SUM
    dist.all_reduce(array, asynch=True)  # error: it is async_op
    dist.all_reduce([1.0, 2.0])  # error: a list is no array
    dist.all_reduce(3.0)  # error: nor is a number
    dist.all_reduce(array, group=[0, 1])  # error: ranks are no group
    dist.broadcast(array, src="0")  # error: a rank is a number
    dist.all_gather(array, array)  # error: the output is a list
    dist.barrier(timeout="30s")  # error: seconds or a timedelta
    dist.send(array, 1).wait()  # error: it is isend that returns a Work
    dist.isend(array, dest=1)  # error: it is dst
    dist.all_reduse(array)  # error: no such name
    dist.testing.wrold(2)  # error: here as well


def groups(array: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    dist.init_process_group("gloo", rank="0")  # error: a rank is a number
    dist.process_group(rank="0")  # error: here as well
    dist.new_group(2)  # error: ranks are a list
    dist.new_group([0], use_local_synchronization=True).rank()  # error: may be None


def stores() -> None:
    store = dist.TCPStore("localhost", "29500")  # error: a port is a number
    store.add("count", "1")  # error: so is an amount
    store.set("key", 1)  # error: a value is text or bytes
    store.get("key").split(" ")  # error: a value is bytes
    store.wait("key")  # both accept this: a str is a sequence of str
