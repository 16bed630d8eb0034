# SPDX-License-Identifier: BSD-3-Clause
"""What type checkers are to accept and infer; read by test_types.py, never run."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np

import distlite as dist

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import assert_type


def collectives(array: np.ndarray[Any, np.dtype[np.float32]], flag: bool) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    with dist.process_group("gloo", timeout=30) as default:
        assert_type(default, dist.ProcessGroup)
    assert_type(dist.testing.Outcome(rank=0).is_good, bool)  # with no other import
    arrays = [np.empty_like(array) for _ in range(dist.get_world_size())]
    dist.all_reduce(array)
    dist.all_reduce(array, dist.ReduceOp.MAX)
    dist.all_reduce(array, op=dist.ReduceOp.AVG, group=dist.group.WORLD)
    assert_type(dist.all_reduce(array, async_op=True), "dist.Work | Any")
    assert_type(dist.all_reduce(array, async_op=flag), "dist.Work | Any")
    assert_type(dist.barrier(async_op=True), "dist.Work | Any")
    dist.all_reduce(array, async_op=True).wait(timedelta(seconds=1))
    dist.broadcast(array, src=0, async_op=True).wait()
    dist.all_gather(arrays, array)
    dist.reduce_scatter(array, arrays, async_op=True).wait()
    dist.all_to_all_single(array, array, [1], [1], async_op=True).wait()
    dist.all_reduce(bytearray(4))
    dist.all_reduce(memoryview(bytearray(4)))


def messages(array: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    dist.send(array, dst=1)
    assert_type(dist.recv(array), int)
    dist.isend(array, 1).wait()
    assert_type(dist.irecv(array, 1), dist.Work)
    pairs = [dist.P2POp(dist.isend, array, 1), dist.P2POp(dist.irecv, array, 1)]
    for work in dist.batch_isend_irecv(pairs):
        work.wait()


def groups(array: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    group = dist.new_group([0, 1])
    assert_type(group, dist.ProcessGroup)
    if group != dist.GroupMember.NON_GROUP_MEMBER:
        dist.all_reduce(array, group=group)
    own = dist.new_group([0, 1], use_local_synchronization=True, backend="gloo")
    if own is not None:
        assert_type(own.rank(), int)
        assert_type(own.allreduce(array), dist.Work)
        assert_type(own.broadcast([array], 0), dist.Work)
        own.broadcast(array, 0).wait()
        own.barrier().wait()
    dist.destroy_process_group()


def stores() -> None:
    with dist.TCPStore("localhost", 0, is_master=True) as store:
        store.set("key", "value")
        assert_type(store.get("key"), bytes)
        assert_type(store.add("count", 1), int)
        store["key"] = b"value"
        assert_type(dist.PrefixStore("a", store).list_keys(), "list[str]")
