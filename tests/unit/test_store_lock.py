# SPDX-License-Identifier: BSD-3-Clause
"""store.lock(): one holder at a time, whoever comes and goes."""

from __future__ import annotations

import os
import time

import pytest
from store_kinds import Background, join_all

from distlite import DistStoreError, HashStore, Store, store_lock
from distlite.store_lock import StoreLock


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
    monkeypatch.setattr(store_lock, "LOOK_AGAIN_SECONDS", 600.0)
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
