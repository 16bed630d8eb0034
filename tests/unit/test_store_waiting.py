# SPDX-License-Identifier: BSD-3-Clause
"""Waiting: who is woken, when it ends, and what it says then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from fractions import Fraction

import pytest
from store_kinds import KINDS, PATIENCE, Background, Kind, join_all

from distlite import DistStoreError, HashStore, QueueEmptyError, Store

# How late a timeout may be on a machine that does many other things as well.
LATE = 5.0


@contextmanager
def lasting(seconds: float) -> Iterator[None]:
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert seconds - 0.002 <= took <= seconds + LATE


def starts_waiting(function: Callable[[], object]) -> Background:
    """Another thread that is asleep in `function`."""
    return Background(function).until_asleep()


with_queues = pytest.mark.parametrize(
    "kind", [name for name, kind in KINDS.items() if kind.has_queues], indirect=True
)
without_queues = pytest.mark.parametrize(
    "kind", [name for name, kind in KINDS.items() if not kind.has_queues], indirect=True
)

WRITES: dict[str, Callable[[Store], object]] = {
    "set": lambda store: store.set("key", "value"),
    "add": lambda store: store.add("key", 1),
    "append": lambda store: store.append("key", "value"),
    "compare_set": lambda store: store.compare_set("key", "", "value"),
    "multi_set": lambda store: store.multi_set(["other", "key"], ["1", "2"]),
}


@pytest.mark.parametrize("write", WRITES)
def test_every_write_ends_a_wait(store: Store, peer: Store, write: str):
    waiter = starts_waiting(lambda: store.wait(["key"]))
    assert not waiter.is_done()
    WRITES[write](peer)
    waiter.join()


def test_get_waits(store: Store, peer: Store):
    waiter = starts_waiting(lambda: store.get("key"))
    assert not waiter.is_done()
    peer.set("key", "value")
    assert waiter.join() == b"value"


def test_multi_get_waits_for_all(store: Store, peer: Store):
    waiter = starts_waiting(lambda: store.multi_get(["a", "b"]))
    peer.set("b", "2")
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    peer.set("a", "1")
    assert waiter.join() == [b"1", b"2"]


def test_a_wait_is_for_all_keys(store: Store, peer: Store):
    peer.set("a", "")
    waiter = starts_waiting(lambda: store.wait(["a", "b", "c", "b"]))
    peer.set("c", "")
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    peer.set("b", "")
    waiter.join()


def test_a_failed_compare_set_ends_no_wait(store: Store, peer: Store):
    waiter = starts_waiting(lambda: store.wait(["key"]))
    peer.compare_set("key", "not there", "value")
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    peer.set("key", "")
    waiter.join()


def test_a_deleted_key_is_waited_for_again(store: Store, peer: Store):
    waiter = starts_waiting(lambda: store.wait(["a", "b"]))
    peer.set("a", "")
    peer.delete_key("a")
    peer.set("b", "")
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    peer.set("a", "")
    waiter.join()


def test_many_wait_for_one_key(store: Store, peer: Store):
    views = [store, peer] * 4
    waiters = [starts_waiting(lambda view=view: view.get("key")) for view in views]
    store.set("key", "value")
    assert join_all(waiters) == [b"value"] * 8


def test_timeouts_are_kept_to_the_millisecond(store: Store):
    for timeout in (0.1, timedelta(milliseconds=100)):
        with lasting(0.1), pytest.raises(DistStoreError, match="timeout after 100ms"):
            store.wait(["nope"], timeout)
    store.set_timeout(0.1)
    assert store.timeout == timedelta(milliseconds=100)
    for call in (
        lambda: store.get("nope"),
        lambda: store.wait(["nope"], None),
        lambda: store.multi_get(["nope"]),
    ):
        with lasting(0.1), pytest.raises(DistStoreError, match="wait timeout"):
            call()


CALLS_WITH_TIMEOUT: dict[str, Callable[[Store, object], object]] = {
    "get": lambda store, timeout: store.get("key", timeout=timeout),
    "multi_get": lambda store, timeout: store.multi_get(["key"], timeout=timeout)[0],
    "queue_pop": lambda store, timeout: store.queue_pop("key", timeout=timeout),
}


@pytest.mark.parametrize("name", CALLS_WITH_TIMEOUT)
def test_a_call_may_have_a_timeout_of_its_own(
    kind: Kind, store: Store, peer: Store, name: str
):
    if name == "queue_pop" and not kind.has_queues:
        pytest.skip("it has no queues")
    call = CALLS_WITH_TIMEOUT[name]
    for timeout in (0.1, timedelta(milliseconds=100), Fraction(1, 10)):
        with lasting(0.1), pytest.raises(DistStoreError, match="wait timeout"):
            call(store, timeout)
    with lasting(0), pytest.raises(DistStoreError, match="timeout after 0ms"):
        call(store, 0)
    store.set_timeout(0.1)
    waiter = Background(lambda: call(store, -1))
    time.sleep(0.2)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    write = peer.queue_push if name == "queue_pop" else peer.set
    write("key", "value")
    assert waiter.join() == b"value"
    with pytest.raises(TypeError, match="timeout must be"):
        call(store, "1")


def test_a_timeout_names_the_keys_that_are_missing(store: Store):
    store.set("there", "")
    keys = ["nope", "there", "none"]
    for call in (
        lambda: store.wait(keys, 0.1),
        lambda: store.multi_get(keys, timeout=0.1),
    ):
        with pytest.raises(
            DistStoreError, match=r"after 100ms, keys: \S*nope.*"
        ) as why:
            call()
        assert "there" not in str(why.value)
    with pytest.raises(DistStoreError, match=r"after 100ms, keys: \S*nope, \S*none$"):
        store.wait(keys, 0.1)
    with pytest.raises(DistStoreError, match=r"after 0ms, keys: \S*nope, \S*none$"):
        store.wait(keys, 0)


def test_zero_looks_once(store: Store, peer: Store):
    with lasting(0), pytest.raises(DistStoreError, match="wait timeout after 0"):
        store.wait(["key"], 0)
    peer.set("key", "value")
    for _ in range(50):
        store.wait(["key"], timedelta(0))
    store.set_timeout(0)
    for _ in range(50):
        assert store.get("key") == b"value"
        assert store.multi_get(["key"]) == [b"value"]
    with lasting(0), pytest.raises(DistStoreError, match="wait timeout"):
        store.get("nope")


@pytest.mark.parametrize("timeout", [-1, -0.5, timedelta(microseconds=-1)])
def test_negative_waits_for_ever(store: Store, peer: Store, timeout):
    waiter = starts_waiting(lambda: store.wait(["key"], timeout))
    time.sleep(0.1)  # as long as it would take to go on wrongly
    assert not waiter.is_done()
    peer.set("key", "")
    waiter.join()


def test_the_timeout_belongs_to_the_store(store: Store):
    assert store.timeout == PATIENCE
    store.set_timeout(timedelta(days=2, microseconds=3))
    assert store.timeout == timedelta(days=2, microseconds=3)
    with pytest.raises(AttributeError):
        store.timeout = timedelta(1)


def test_a_blocked_call_does_not_delay_another(store: Store):
    waiter = starts_waiting(lambda: store.get("late"))
    for number in range(20):
        began = time.monotonic()
        store.set("key", str(number))
        assert store.get("key") == str(number).encode()
        assert time.monotonic() - began < LATE
    assert not waiter.is_done()
    store.set("late", "now")
    assert waiter.join() == b"now"


@with_queues
def test_queues_are_first_in_first_out(store: Store, peer: Store):
    for item in ["1", b"\x00", ""]:
        store.queue_push("q", item)
    assert peer.queue_len("q") == 3
    assert [peer.queue_pop("q") for _ in range(3)] == [b"1", b"\x00", b""]
    assert peer.queue_len("q") == 0
    assert peer.queue_len("never") == 0


@with_queues
def test_an_empty_queue_is_an_error_where_nobody_waits(store: Store):
    with pytest.raises(QueueEmptyError, match="queue is empty"):
        store.queue_pop("q", block=False)
    with pytest.raises(DistStoreError):
        store.queue_pop("q", False)
    store.queue_push("q", "item")
    assert store.queue_pop("q", block=False) == b"item"


@with_queues
def test_a_pop_waits_for_its_own_queue(store: Store, peer: Store):
    other = starts_waiting(lambda: store.queue_pop("other"))
    waiter = starts_waiting(lambda: store.queue_pop("q"))
    peer.queue_push("q", "item")
    assert waiter.join() == b"item"
    assert not other.is_done()
    peer.queue_push("other", "2")
    assert other.join() == b"2"


@with_queues
def test_every_item_goes_to_one_who_waits(store: Store, peer: Store):
    waiters = [starts_waiting(lambda: store.queue_pop("q")) for _ in range(6)]
    for number in range(6):
        peer.queue_push("q", str(number))
    assert sorted(join_all(waiters)) == [str(number).encode() for number in range(6)]


@with_queues
def test_a_blocking_pop_times_out(store: Store):
    store.set_timeout(0.2)
    with lasting(0.2), pytest.raises(DistStoreError, match="wait timeout after 200ms"):
        store.queue_pop("q")


@with_queues
def test_a_queue_is_no_value(store: Store):
    store.queue_push("name", "item")
    assert store.check(["name"])
    store.wait(["name"], 0)
    assert store.list_keys() == []
    assert not store.delete_key("name")
    store.set("name", "value")
    assert store.get("name") == b"value"
    assert store.queue_pop("name") == b"item"


@without_queues
def test_a_store_without_queues_says_so(store: Store):
    for call in (
        lambda: store.queue_push("q", "item"),
        lambda: store.queue_pop("q"),
        lambda: store.queue_len("q"),
    ):
        with pytest.raises(NotImplementedError, match="queue_"):
            call()


def test_a_barrier_is_passed_together(store: Store, peer: Store):
    views = [store, peer, store]
    early = [Background(lambda view=view: view.barrier("b", 4)) for view in views]
    time.sleep(0.05)  # as long as it would take to go on wrongly
    assert not any(waiter.is_done() for waiter in early)
    peer.barrier("b", 4, PATIENCE)
    join_all(early)
    store.barrier("b", 4, timeout=0)  # over, so latecomers pass


def test_a_barrier_times_out(store: Store):
    with (
        lasting(0.2),
        pytest.raises(
            # A Python store's wait() raises in its own words.
            DistStoreError,
            match=r"(barrier|wait) timeout after 200ms, keys?: \S*b\b",
        ),
    ):
        store.barrier("b", 2, timedelta(milliseconds=200))
    store.set_timeout(0.1)
    with lasting(0.1), pytest.raises(DistStoreError, match="timeout"):
        store.barrier("c", 2)


def test_a_barrier_of_nobody_is_open(store: Store):
    store.barrier("b", 0, 0)
    store.barrier("c", -1, 0)
    store.barrier("d", 1, 0)


def test_threads_of_a_hash_store_do_not_hold_up_each_other():
    """Small calls keep the GIL; large ones and those that wait do not."""
    store = HashStore()
    large = bytes(300_000)
    rounds = 200

    def work(name: int) -> None:
        for i in range(rounds):
            value = str(i).encode() if i % 7 else large
            store.set(f"{name}/{i}", value)
            store.add("count", 1)
            assert store.get(f"{name}/{i}") == value
            store.wait([f"{(name + 1) % 4}/{i}"], PATIENCE)
            assert store.check([f"{name}/{i}"] * (1 if i % 5 else 40))
            store.append(f"{name}/log", "x")

    join_all([Background(lambda name=name: work(name)) for name in range(4)])
    assert store.add("count", 0) == 4 * rounds
    assert [len(store.get(f"{name}/log")) for name in range(4)] == [rounds] * 4
