# SPDX-License-Identifier: BSD-3-Clause
"""Groups, asynchronous work and messages that come and go leave nothing behind."""

import leak_ranks
import pytest
from workers import run_ranks

# What later cycles may add: allocators keep memory, and threads end a little later.
SLACK = {
    "descriptors": 0,
    "threads": 2,
    "mappings": 6,
    "private KiB": 4096,
    "shared KiB": 1024,
}


def check(turns):
    for before, after in run_ranks(leak_ranks.cycles, 2, timeout=200, turns=turns):
        grown = {name: after[name] - before[name] for name in before}
        assert all(grown[name] <= SLACK[name] for name in SLACK), grown


def test_some_cycles():
    check(60)


@pytest.mark.slow
def test_many_cycles():
    check(2000)
