# SPDX-License-Identifier: BSD-3-Clause
"""Tests of programs over process groups: ranks as threads, and ranks as processes.

    from distlite import testing

    def total(rank):
        x = np.array([float(rank)])
        dist.all_reduce(x)
        return float(x[0])

    with testing.world(4) as ranks:  # threads of this process
        assert ranks.run(total) == [6.0] * 4

    assert testing.run_ranks(total, 4) == [6.0] * 4  # processes of their own

With pytest, `@pytest.mark.ranks(4)` runs a test as four ranks (pytest_distlite.py).
"""

from .faults import Fault, draw_faults
from .processes import (
    Job,
    Outcome,
    RanksFailed,
    mark,
    rank_outcomes,
    run_ranks,
    start_ranks,
)
from .threads import Ranks, world

__all__ = [
    "Fault",
    "Job",
    "Outcome",
    "Ranks",
    "RanksFailed",
    "draw_faults",
    "mark",
    "rank_outcomes",
    "run_ranks",
    "start_ranks",
    "world",
]
