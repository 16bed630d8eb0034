# SPDX-License-Identifier: BSD-3-Clause
"""What ranks do in test_deadlines.py."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta

import numpy as np
from group_ranks import init

import distlite as dist

TIMEOUT = 1.0


def miss(
    rank: int,
    world_size: int,
    init_method: str,
    places: str,
    late: int,
    waits: Sequence[float],
) -> tuple[float, str] | None:
    """Rank `late` does not come.  By how many seconds the others pass their deadlines,
    which begin `waits` seconds apart, and what they raise."""
    if len(set(places)) > 1:
        os.environ["DISTLITE_HOST_HINT"] = places[rank]
    init(rank, world_size, init_method)
    group = dist.new_group(timeout=timedelta(seconds=TIMEOUT))
    dist.barrier(group=group)
    missed = None
    if rank != late:
        time.sleep(waits[rank])
        begin = time.monotonic()
        try:
            dist.all_reduce(np.zeros(3), group=group)
        except dist.DistBackendError as error:
            missed = time.monotonic() - begin - TIMEOUT, str(error)
    dist.barrier()
    return missed
