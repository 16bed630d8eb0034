# SPDX-License-Identifier: BSD-3-Clause
"""Calls keep nothing, whether they fail or not: no references, no memory."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from store_kinds import Background, Kind, join_all

from distlite import DistError, FileStore, Store

MISTAKES = (TypeError, ValueError, NotImplementedError)


def attempt(call: Callable[[], object]) -> None:
    with contextlib.suppress(DistError, ArithmeticError, LookupError, *MISTAKES):
        call()


def use(store: Store, key: str, value: bytes, keys: list[str]) -> None:
    """Every method, in the ways that succeed and the ways that fail."""
    view = memoryview(value)
    for call in (
        lambda: store.set(key, value),
        lambda: store.set(key, view),
        lambda: store.set(key, keys),
        lambda: store.set(b"k" * 9000, value),
        lambda: store.get(key),
        lambda: store.get(key=key),
        lambda: store.get(key, key),
        lambda: store.add(key, 1),
        lambda: store.add("n", 2**70),
        lambda: store.compare_set(key, value, view),
        lambda: store.compare_set(key, view, keys),
        lambda: store.append(key, value),
        lambda: store.check(keys),
        lambda: store.check(iter(keys)),
        lambda: store.check([*keys, 5]),
        lambda: store.wait(keys, 0),
        lambda: store.wait(["nope", *keys], 0),
        lambda: store.multi_set(keys, [value] * len(keys)),
        lambda: store.multi_set(keys, [view, bytearray(value)]),
        lambda: store.multi_set(keys, [view, 5]),
        lambda: store.multi_get(keys),
        lambda: store.list_keys(),
        lambda: store.num_keys(),
        lambda: store.queue_push(key, value),
        lambda: store.queue_pop(key, False),
        lambda: store.queue_pop(key, False),
        lambda: store.queue_len(key),
        lambda: store.barrier(key + "/barrier", 1, 0),
        lambda: store[key],
        lambda: store["nope"],
        lambda: key in store,
        lambda: store.__setitem__(key, value),
        lambda: store.__delitem__(key),
        lambda: store.__delitem__(key),
        lambda: list(store),
        lambda: store.timeout,
        lambda: repr(store),
        lambda: store.clone().close() if store.clone() is not store else None,
    ):
        attempt(call)


@pytest.mark.parametrize("size", [10, 200_000])
def test_references_are_given_back(store: Store, size: int):
    key, value = "key" * 10, b"v" * size
    keys = ["a" * 10, "b\udce9" * 10]

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(x) for x in (store, key, value, keys, *keys)]

    use(store, key, value, keys)
    before = counts()
    for _ in range(3):
        use(store, key, value, keys)
    assert counts() == before


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(
    "DISTLITE_SANITIZE" in os.environ,
    reason="sanitizers keep freed memory for a while, and find leaks themselves",
)
def test_memory_is_given_back(store: Store):
    size = 200_000
    key, value = "key", b"v" * size
    if isinstance(store, FileStore):
        # The file keeps all that was ever written: written once, then only read.
        store.set(key, value)
        rounds, work = 3000, lambda: (store.get(key), store.check([key]))
    else:
        rounds, work = 120, lambda: use(store, key, value, ["a", "b"])
    for _ in range(rounds // 10):
        work()
    gc.collect()
    before = resident_bytes()
    for _ in range(rounds):
        work()
    gc.collect()
    # A leak of one value per round would be many times this.
    assert resident_bytes() - before < max(2 << 20, rounds * size // 10)


def test_stores_are_freed(kind: Kind):
    store = kind.open()
    store.set("key", "value")
    reference = weakref.ref(store)
    kind.opened.remove(store)
    del store
    gc.collect()
    assert reference() is None


def test_a_store_freed_by_its_last_user_in_another_thread(kind: Kind):
    store, other = kind.open(), kind.open()
    kind.opened.clear()
    waiter = Background(lambda view=store: view.get("key"))
    other.set("key", "value")
    del store, other
    assert waiter.join() == b"value"


def test_threads_use_and_close_one_store(store: Store):
    """Nothing crashes; calls either work or say that it is closed."""

    def work(number: int) -> None:
        for turn in range(200):
            value = b"v" * (turn * 500)
            attempt(lambda value=value: store.set(f"{number}", value))
            attempt(lambda: store.get(f"{number}"))
            attempt(lambda: store.multi_get(["0", "1"]))
            attempt(lambda: store.list_keys())
            attempt(lambda: store.wait(["nope"], 0))

    store.multi_set(["0", "1"], ["", ""])
    threads = [Background(lambda n=number: work(n)) for number in range(4)]
    store.close()
    join_all(threads)
