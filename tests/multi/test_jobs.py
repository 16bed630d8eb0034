# SPDX-License-Identifier: BSD-3-Clause
"""distlite.elastic.JobQueue: workers that are killed, over every way to a store."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import job_ranks
import pytest
from test_store_journal import Servers
from workers import rank_outcomes

import distlite as dist
from distlite.elastic import JobQueue

COUNT, WORKERS = 60, 4


@contextlib.contextmanager
def direct(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        yield store.port, {}


@contextlib.contextmanager
def relayed(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    with (
        dist.TCPStore("127.0.0.1", 0, is_master=True) as store,
        dist.store_relay("127.0.0.1", store.port) as relay,
    ):
        yield store.port, {"DISTLITE_STORE_RELAY": relay.address}
        assert store.stats()["relays"] == 1


@contextlib.contextmanager
def restarted(path: str) -> Iterator[tuple[int, dict[str, str]]]:
    """The server is killed, too, over and over."""
    servers = Servers(path, "epoll", "never")
    servers.restart()
    is_over = threading.Event()

    def restart() -> None:
        while not is_over.wait(0.1):
            servers.restart()

    thread = threading.Thread(target=restart)
    thread.start()
    try:
        yield servers.port, {}
    finally:
        is_over.set()
        thread.join()
        servers.close()


@pytest.mark.parametrize("way", [direct, relayed, restarted])
@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))]
)
def test_no_job_is_lost_with_its_worker(way, seed, tmp_path):
    with way(str(tmp_path / "journal")) as (port, env):
        outcomes = rank_outcomes(
            *(job_ranks.work, WORKERS), env=env, port=port, seed=seed, count=COUNT
        )
        first, *others = outcomes
        assert first.is_good, first.describe()
        for each in others:
            assert each.returncode == -9, each.describe()
        store = dist.TCPStore("127.0.0.1", port)
        assert JobQueue(store).unfinished() == 0
        done = [store.add(f"done/{n}", 0) for n in range(COUNT)]
        acknowledged = [store.add(f"acknowledged/{n}", 0) for n in range(COUNT)]
        # Each that was killed may have been between any two of its requests.
        killed = WORKERS - 1
        assert min(done) >= 1 and sum(done) <= COUNT + killed
        assert max(acknowledged) <= 1 and sum(acknowledged) >= COUNT - killed
        left = [key for key in store.list_keys() if key.startswith("jobs/jobs/job/")]
        assert len(left) <= killed
