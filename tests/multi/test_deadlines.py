# SPDX-License-Identifier: BSD-3-Clause
"""Deadlines are kept, and name who is late, whoever knows that."""

from __future__ import annotations

import pytest
from deadline_ranks import miss
from workers import run_ranks

TOGETHER = (0.0, 0.0, 0.0, 0.0)
# A rank that asks others after its deadline passes it by more.  A scheduler can
# make a rank late as well, but not each time.
LIMIT, TRIES = 0.15, 5


@pytest.mark.parametrize(
    ("hosts", "late", "waits"),
    [
        ("AAAA", 1, TOGETHER),
        ("AABB", 0, TOGETHER),
        ("AABB", 1, TOGETHER),
        ("AABB", 3, TOGETHER),
        # The other host's deadline comes before that of the leader who knows.
        ("AABB", 1, (0.2, 0.0, 0.0, 0.0)),
        # A rank's deadline comes before that of its host's leader.
        ("AABB", 1, (0.0, 0.0, 0.2, 0.0)),
        ("ABCD", 2, TOGETHER),
    ],
)
def test_nobody_passes_a_deadline_to_learn_who_is_late(hosts, late, waits):
    for _ in range(TRIES):
        told = run_ranks(miss, 4, places=hosts, late=late, waits=waits)
        missed = [each for rank, each in enumerate(told) if rank != late]
        assert None not in missed and told[late] is None
        named = f"waiting for rank {late} (pid "
        if all(over < LIMIT and named in text for over, text in missed):
            return
    raise AssertionError(missed)
