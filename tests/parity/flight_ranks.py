# SPDX-License-Identifier: BSD-3-Clause
"""A job whose ranks get out of step, for test_flight_recorder.py."""

from __future__ import annotations

import numpy as np

import distlite as dist
from distlite import _C


def get_out_of_step(rank: int, world_size: int, init_method: str) -> bytes:
    """Returns the recording of a rank; rank 2 leaves out a broadcast."""
    dist.init_process_group(
        init_method=init_method, rank=rank, world_size=world_size, timeout=30
    )
    pair = dist.new_group([0, 1])
    x = np.ones(4, np.float32)
    for _ in range(2):
        dist.all_reduce(x)
        if rank < 2:
            dist.all_gather([np.empty_like(x) for _ in range(2)], x, group=pair)
    dist.all_gather_object([None] * world_size, rank)
    dist.exscan(x)
    dist.barrier()
    try:
        if rank != 2:
            dist.broadcast(x, src=0)
        dist.all_to_all_single(np.empty(3), np.ones(3))
    except dist.DistBackendError:
        pass
    else:
        raise AssertionError("nobody was told")
    recording = _C._recording()
    assert recording is not None
    return recording
