# SPDX-License-Identifier: BSD-3-Clause
"""store.lock(): one holder at a time, whoever comes, goes, and is killed."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest
from store_kinds import Background, Kind, die_holding, hold_and_pause, join_all, kind_of

from distlite import DistNetworkError, DistStoreError, HashStore, Store
from distlite.stores import StoreLock, store_lock


# A lock is made of other calls: kinds differ in how these wait.
@pytest.fixture(params=["hash", "file", "tcp-libuv"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    with kind_of(request.param, tmp_path) as kind:
        yield kind


def test_one_at_a_time(store: Store, peer: Store):
    inside = []

    def work(view: Store) -> None:
        for _ in range(10):
            with view.lock("lock"):
                inside.append(1)
                assert len(inside) == 1
                time.sleep(0.0005)  # others get a chance
                inside.pop()

    views = [store, peer, store]
    join_all([Background(lambda view=view: work(view)) for view in views])
    assert not inside


def test_a_release_wakes_the_next(store: Store, peer: Store, monkeypatch):
    monkeypatch.setattr(store_lock, "RETRY_SECONDS", 600.0)
    with store.lock("lock"):
        waiter = Background(peer.lock("lock").acquire)
        time.sleep(0.1)  # as long as it would take to go on wrongly
        assert not waiter.is_done()
    waiter.join()


def test_locks_of_different_names_are_different(store: Store):
    with store.lock("a"), store.lock("b", timeout=0):
        pass


def test_a_timeout_names_the_holder(store: Store, peer: Store):
    with store.lock("lock"):
        began = time.monotonic()
        text = rf"lock timeout after 100ms, key: lock, held by: \S+:{os.getpid()}:"
        with pytest.raises(DistStoreError, match=text):
            peer.lock("lock", timeout=0.1).acquire()
        assert 0.1 <= time.monotonic() - began < 5
        with pytest.raises(DistStoreError, match="after 0ms"), peer.lock("lock", 0):
            pass
    with peer.lock("lock", timeout=0):
        pass


def test_the_store_s_timeout_holds_where_none_is_given(store: Store):
    store.lock("lock").acquire()
    store.set_timeout(0.05)
    with pytest.raises(DistStoreError, match="lock timeout after 50ms"):
        store.lock("lock").acquire()


def test_an_error_inside_releases(store: Store):
    with pytest.raises(ZeroDivisionError), store.lock("lock"):
        raise ZeroDivisionError
    with store.lock("lock", timeout=0):
        pass


def test_the_body_s_exception_comes_before_that_of_a_lost_lock():
    store = HashStore()
    with pytest.raises(ZeroDivisionError), store.lock("lock") as lock:
        store.delete_key("lock")
        raise ZeroDivisionError
    assert not lock.is_held
    with pytest.raises(ZeroDivisionError), store.lock("lock") as lock:
        lock.release()
        raise ZeroDivisionError


def test_an_interrupt_comes_before_the_error_of_giving_back():
    class Lost(HashStore):
        is_lost = False

        def compare_set(self, key, expected, desired):
            if self.is_lost:
                raise DistNetworkError("lost")
            self.is_lost = True
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Lost().lock("lock").acquire()


# Takes the second after which a waiter looks again.
@pytest.mark.parametrize("kind", ["file", "tcp-libuv"], indirect=True)
def test_who_frees_a_dead_holder_s_lock_frees_it_for_all(store: Store, peer: Store):
    taken_away = store.lock("lock")
    taken_away.acquire()
    waiter = Background(peer.lock("lock").acquire).until_asleep()
    assert peer.delete_key("lock")
    waiter.join()
    with pytest.raises(DistStoreError, match="taken away"):
        taken_away.release()
    assert peer["lock"]  # the new holder's


def test_a_release_that_was_interrupted_can_be_made_up_for():
    class Interrupted(HashStore):
        is_first = True

        def compare_set(self, key, expected, desired):
            if expected and self.is_first:
                self.is_first = False
                raise KeyboardInterrupt
            return super().compare_set(key, expected, desired)

    store = Interrupted()
    lock = StoreLock(store, "lock")
    lock.acquire()
    with pytest.raises(KeyboardInterrupt):
        lock.release()
    lock.release()
    with StoreLock(store, "lock", timeout=0.1):
        pass


def test_a_lock_is_not_reentrant_and_not_released_twice(store: Store):
    lock = store.lock("lock")
    assert isinstance(lock, StoreLock)
    with pytest.raises(RuntimeError, match="not held"):
        lock.release()
    with lock:
        assert "held" in repr(lock)
        with pytest.raises(RuntimeError, match="held already"):
            lock.acquire()
    assert "not held" in repr(lock)
    with lock:
        pass


def stopped(lock: StoreLock) -> None:
    """Makes the lock one whose holder has just died: nobody renews it."""
    lock._has_ended.set()


@pytest.mark.parametrize("kind", ["hash"], indirect=True)
def test_a_lease_lasts_while_it_is_renewed(store: Store, peer: Store):
    with store.lock("lock", lease=timedelta(seconds=2)) as lock:
        with pytest.raises(DistStoreError, match="lock timeout"):
            peer.lock("lock", timeout=2.5, lease=0.3).acquire()
        assert lock.is_held and lock.locked() and peer.lock("lock").locked()
    assert not lock.is_held and not lock.locked()
    with peer.lock("lock", timeout=0):
        pass


def test_a_lease_that_has_run_out_goes_to_the_next(store: Store, peer: Store):
    dead = store.lock("lock", lease=0.3)
    dead.acquire()
    stopped(dead)
    began = time.monotonic()
    next_one = peer.lock("lock", lease=60.0)
    next_one.acquire()
    assert time.monotonic() - began >= 0.3
    assert not dead.is_held and next_one.is_held
    # Late, both leave the next holder alone.
    dead._renew()
    with pytest.raises(DistStoreError, match="taken away"):
        dead.release()
    assert next_one.is_held and peer.lock("lock").locked()
    next_one.release()


def test_a_lock_that_cannot_be_renewed_is_not_taken(store: Store, peer: Store):
    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    lock = store.lock("lock", lease=60.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_lock.threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            lock.acquire()
    assert not lock.is_held
    with peer.lock("lock", timeout=0):
        pass
    with lock:
        assert lock.is_held


# Who waits need not have a lease, and a holder without one is never overtaken.
def test_the_lease_is_the_holder_s():
    store = HashStore()
    dead = store.lock("lock", lease=0.1)
    dead.acquire()
    stopped(dead)
    with store.lock("lock"), pytest.raises(DistStoreError, match="lock timeout"):
        store.lock("lock", timeout=0.5, lease=0.1).acquire()


def test_a_renewal_whose_reply_was_lost_is_no_loss():
    class Lossy(HashStore):
        is_lossy = False

        def compare_set(self, key, expected, desired):
            found = super().compare_set(key, expected, desired)
            if self.is_lossy:
                self.is_lossy = False
                raise DistNetworkError("the connection was lost")
            return found

    store = Lossy()
    lock = StoreLock(store, "lock", lease=60.0)
    for step in (lock._renew, lock.release):
        if not lock.is_held:
            lock.acquire()
        store.is_lossy = True
        with pytest.raises(DistNetworkError):
            lock._renew()
        assert lock.is_held
        step()
    assert not lock.locked()


def test_a_lock_that_is_forgotten_is_not_renewed():
    store = HashStore()
    store.lock("lock", lease=0.2).acquire()
    gc.collect()
    with store.lock("lock", timeout=30.0):
        pass


@pytest.mark.parametrize(("lease", "error"), [(0, ValueError), ("1", TypeError)])
def test_wrong_leases_are_refused(lease, error):
    with pytest.raises(error, match="lease must be"):
        HashStore().lock("lock", lease=lease)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((b"name",), "name must be str, not bytes"),
        (("name", "5"), "timeout must be"),
        ((), "missing argument 'name'"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_given(arguments, text: str):
    with pytest.raises(TypeError, match=text):
        HashStore().lock(*arguments)


def start(
    function: Callable[[Store, float], None], store: Store, lease: float
) -> SpawnProcess:
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=function, args=(store, lease), daemon=True)
    process.start()
    return process


def end(process: SpawnProcess, expected: int = 0) -> None:
    process.join(60)
    assert process.exitcode == expected


@pytest.mark.parametrize("kind", ["file", "tcp-libuv"], indirect=True)
def test_a_killed_holder_loses_the_lock(store: Store):
    holder = start(die_holding, store, 1.0)
    store.wait(["held"])
    with pytest.raises(DistStoreError, match=rf"held by: \S+:{holder.pid}:"):
        store.lock("lock", timeout=1.5).acquire()  # it is renewed
    store.set("die", "")
    end(holder, -signal.SIGKILL)
    with store.lock("lock", timeout=30.0) as lock:
        assert lock.is_held


@pytest.mark.parametrize("kind", ["file", "tcp-libuv"], indirect=True)
def test_a_holder_that_was_stopped_leaves_the_next_alone(store: Store):
    holder = start(hold_and_pause, store, 0.5)
    store.wait(["held"])
    while state_of(holder.pid) != "T":
        assert holder.is_alive()
        time.sleep(0.001)
    lock = store.lock("lock", timeout=30.0, lease=60.0)
    lock.acquire()
    os.kill(holder.pid, signal.SIGCONT)
    end(holder)
    told = store.get("told").decode()
    assert told.startswith("False") and "taken away" in told
    assert lock.is_held and lock.locked()
    lock.release()


def state_of(pid: int | None) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
