# SPDX-License-Identifier: BSD-3-Clause
"""Timeouts at both ends of their range, wherever something waits in Python."""

from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest
from store_kinds import Background

import distlite
from distlite import HashStore, spawn, testing

LONG = [timedelta(days=30), timedelta.max, float("inf"), 1e300, 10**30]


def own_rank() -> int:
    distlite.barrier()
    return distlite.get_rank()


@pytest.mark.parametrize("timeout", [-1e-10, -1, timedelta.min, float("-inf")])
def test_each_negative_timeout_is_for_ever(timeout):
    store = HashStore()
    waiter = Background(lambda: store.wait(["key"], timeout)).until_asleep()
    store.set("key", "")
    waiter.join()


@pytest.mark.parametrize("timeout", [30 * 86400.0, *LONG])
def test_processes_are_waited_for_that_long(timeout):
    assert spawn.start_processes(abs, nprocs=2, join=False).join(timeout)


@pytest.mark.parametrize("grace", [30 * 86400.0, float("inf"), 1e300])
def test_processes_get_that_long_to_end(grace):
    context = spawn.start_processes(time.sleep, (60,), join=False, start_method="fork")
    context.end(grace)
    assert not context.processes[0].is_alive()


@pytest.mark.parametrize("timeout", [*LONG, -1])
def test_ranks_may_take_that_long(timeout):
    with testing.world(2, timeout=timeout) as ranks:
        assert ranks.run(own_rank) == [0, 1]


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, timedelta.max, -1])
def test_processes_may_take_that_long(timeout):
    assert testing.run_ranks(own_rank, 2, timeout=timeout) == [0, 1]


@pytest.mark.parametrize("lease", [timedelta(days=30), timedelta.max, 1e300])
def test_a_lease_may_be_that_long(lease, monkeypatch):
    failures = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    with HashStore().lock("lock", lease=lease) as lock:
        threads = [t for t in threading.enumerate() if t.name.endswith("lease of lock")]
        assert lock.is_held and len(threads) == 1
    threads[0].join(30)
    assert not failures
