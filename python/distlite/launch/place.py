# SPDX-License-Identifier: BSD-3-Clause
"""The place of a node in its job."""

from __future__ import annotations

import os


class Place:
    """A node's place in its job; by default that of the only node."""

    def __init__(self, run_id: str, port: int, counts: list[int], node: int = 0):
        # torchrun's default, after which the job's folder is named.
        self.run_id = run_id if run_id != "none" or len(counts) > 1 else _any_name()
        self.port = port
        self.node = node
        self.world_size = sum(counts)
        self.first_rank = sum(counts[:node])


def _any_name() -> str:
    return os.urandom(16).hex()
