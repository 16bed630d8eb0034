# SPDX-License-Identifier: BSD-3-Clause
"""Many ranks that join without Python: what one of them asks of the store."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

import distlite as dist

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
REQUESTS, BYTES = 12, 4096
slow = pytest.mark.slow


@pytest.fixture
def processes(monkeypatch):
    """The benchmarks' module."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("processes")
    # In several processes, which are one job.
    monkeypatch.setattr(module, "PROCESS_STUBS", 128)
    return module


@pytest.fixture
def job(processes):
    """Makes a job that has not joined, and its server."""
    opened = []

    def make(ranks, per_host=1):
        server = processes.Server("distlite libuv", sys.executable)
        opened.append(server)
        stubs = processes.StubRanks(server.port, ranks, per_host)
        opened.append(stubs)
        stubs.do("connect")
        return stubs

    yield make
    for one in reversed(opened):
        one.__exit__(None, None, None)


@pytest.mark.parametrize(
    "ranks, per_host",
    [
        (16, 1),
        (64, 1),
        (64, 8),
        (256, 8),
        pytest.param(256, 1, marks=slow),
        pytest.param(1024, 1, marks=slow),
    ],
)
def test_joining_costs_a_rank_the_same_however_many_there_are(job, ranks, per_host):
    """Also one that leads others.  Of a few rounds the best counts: a rank that waits
    for long asks again."""
    stubs = job(ranks, per_host)
    rounds = []
    for number in range(3):
        rounds.append(stubs.do(f"join job{number}"))
        stubs.do("barrier")
        stubs.do("leave")
    assert min(step.most_requests for step in rounds) <= REQUESTS
    assert min(step.most_bytes for step in rounds) <= BYTES


@pytest.mark.parametrize("ranks, per_host", [(6, 2), (6, 6), (24, 1), (24, 8)])
def test_joining_leaves_no_record_in_the_store(job, ranks, per_host):
    stubs = job(ranks, per_host)
    stubs.do("join job")
    with dist.TCPStore("127.0.0.1", stubs.port) as store:
        keys = store.list_keys()
    assert sorted(key for key in keys if key.startswith("job/cpu/")) == []
    assert len(keys) > ranks  # those of the check-in
    stubs.do("leave")


@pytest.mark.parametrize("per_host", [1, 8])
def test_groups_of_a_job_cost_the_store_nothing(job, per_host):
    stubs = job(64, per_host)
    stubs.do("join job")
    made = stubs.do("groups 20")
    assert made.requests == 0
    assert stubs.do("barriers 20").requests == 0
    stubs.do("leave")


def test_an_unknown_command_is_an_error(job):
    stubs = job(4)
    stubs.do("join job")
    with pytest.raises(RuntimeError, match="'nothing': no such command"):
        stubs.do("nothing")
