# SPDX-License-Identifier: BSD-3-Clause
"""What ranks run that do not belong to one job: see test_check_in.py."""

from __future__ import annotations

import time
from datetime import timedelta

import distlite as dist


def start(
    rank: int,
    world_size: int,
    init_method: str,
    roles: list[tuple[int, int]],
    delay: tuple[float, ...] = (),
    wait: float = 60.0,
    stays: bool = False,
) -> tuple[str, float]:
    """Each is started with a rank and a world size of its own: what it is told, and how
    long that took.  `stays`: those that have joined leave after another gave up."""
    own, size = roles[rank]
    if stays:
        over = dist.FileStore(init_method.removeprefix("file://") + ".over", -1)
    time.sleep(delay[rank] if delay else 0)
    begin = time.monotonic()
    timeout = timedelta(seconds=wait)
    try:
        dist.init_process_group(
            "gloo", init_method, rank=own, world_size=size, timeout=timeout
        )
    except RuntimeError as error:
        took = time.monotonic() - begin
        if stays:
            over.set("over", "yes")
        return f"{type(error).__name__}: {error}", took
    dist.barrier()
    if stays:
        over.wait(["over"], timedelta(seconds=30))
    dist.destroy_process_group()
    return "joined", time.monotonic() - begin
