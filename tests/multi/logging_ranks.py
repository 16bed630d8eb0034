# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that have configured logging."""

from __future__ import annotations

import logging

import deadlock_ranks

import distlite


def wait_for_each_other(rank: int, world_size: int, path: str, folder: str) -> None:
    """Until the timeout; each rank has a file for its records."""
    deadlock_ranks.join(rank, world_size, path, hints="", limit=4.0)
    logging.basicConfig(
        filename=f"{folder}/rank{rank}.log",
        format="%(levelname)s|%(name)s|%(rank)s|%(message)s",
    )
    distlite.capture_log()
    try:
        deadlock_ranks.receive_in_a_collective(rank, world_size)
    except distlite.DistBackendError:
        logging.getLogger("program").error("caught", extra={"rank": rank})
