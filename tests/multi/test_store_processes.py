# SPDX-License-Identifier: BSD-3-Clause
"""Stores that are pickled into other processes, and locks whose holders die there."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import store_ranks
from launching import wait_until

from distlite import DistStoreError, FileStore, PrefixStore, Store, TCPStore

SPAWN = multiprocessing.get_context("spawn")
KINDS = ("file", "tcp", "tcp-all-addresses", "prefix")


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "file":
        below: Store = FileStore(tmp_path / "store")
    else:
        host = "" if request.param == "tcp-all-addresses" else "127.0.0.1"
        below = TCPStore(host, 0, 1, is_master=True)
    below.set_timeout(60)
    with below:
        yield PrefixStore("p", below) if request.param == "prefix" else below


def start(function: Any, *arguments: object) -> Any:
    process = SPAWN.Process(target=function, args=arguments, daemon=True)
    process.start()
    return process


def end(process: Any, expected: int = 0) -> None:
    process.join(60)
    assert process.exitcode == expected


def test_a_handle_opens_the_same_data_elsewhere(store: Store):
    processes = [start(store_ranks.count, store) for _ in range(2)]
    for process in processes:
        end(process)
    assert store.get("n") == b"100"
    assert store.items("pid/") == sorted(
        (f"pid/{process.pid}", b"done") for process in processes
    )


def test_a_handle_has_the_timeout_and_serves_nobody(store: Store):
    store.set_timeout(7.5)
    with pickle.loads(pickle.dumps(store)) as handle:
        assert type(handle) is type(store) and handle.timeout == store.timeout
        handle.set("key", "value")
    # Closed: neither a server nor a file has gone with it.
    assert store.get("key") == b"value"
    handle = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(store))))
    assert handle.get("key") == b"value"


def test_a_path_is_that_of_the_first_process(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with FileStore("store") as store:
        store.set("key", "value")
        text = pickle.dumps(store)
        monkeypatch.chdir("/")
        assert pickle.loads(text).get("key") == b"value"


@pytest.mark.parametrize("store", ["file", "tcp"], indirect=True)
def test_a_killed_holder_loses_the_lock(store: Store):
    holder = start(store_ranks.die_holding, store, 2.0)
    store.wait(["held"])
    with pytest.raises(DistStoreError, match=rf"held by: \S+:{holder.pid}:"):
        store.lock("lock", timeout=2.5).acquire()  # it is renewed
    store.set("die", "")
    end(holder, -signal.SIGKILL)
    with store.lock("lock", timeout=30.0) as lock:
        assert lock.is_held


@pytest.mark.parametrize("store", ["file", "tcp"], indirect=True)
def test_a_holder_that_was_stopped_leaves_the_next_alone(store: Store):
    holder = start(store_ranks.hold_and_pause, store, 0.5)
    store.wait(["held"])
    wait_until(lambda: "T" in state_of(holder.pid))
    lock = store.lock("lock", timeout=30.0, lease=60.0)
    lock.acquire()
    os.kill(holder.pid, signal.SIGCONT)
    end(holder)
    told = store.get("told").decode()
    assert told.startswith("False") and "taken away" in told
    assert lock.is_held and lock.locked()
    lock.release()


def state_of(pid: int) -> str:
    time.sleep(0.001)
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
