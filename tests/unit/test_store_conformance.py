# SPDX-License-Identifier: BSD-3-Clause
"""The list of what every store does, over each kind of ours; and that calls keep no
references and no memory, whether they fail or not."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
from store_conformance import *  # noqa: F403
from store_kinds import PATIENCE, Background, Kind, join_all

from distlite import DistError, FileStore, HashStore, Store

MISTAKES = (TypeError, ValueError, NotImplementedError)


def test_a_clone_is_of_the_same_kind(store: Store):
    assert isinstance(store.clone(), type(store))


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


def test_closing_counts_while_others_hold_the_lock(tmp_path: Path):
    """Many close at once; each must be counted, or the file stays for ever."""
    path = tmp_path / "store"
    stores = [FileStore(path, 8) for _ in range(8)]
    busy = FileStore(path, 9)
    is_done = []

    def keep_busy() -> None:
        while not is_done:
            busy.set("key", "v" * 1000)

    writer = Background(keep_busy)
    join_all([Background(store.close) for store in stores])
    is_done.append(True)
    writer.join()
    busy.close()
    assert not path.exists()


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
def test_references_are_given_back(kind: Kind, store: Store, size: int):
    key, value = "key" * 10, b"v" * size
    keys = ["a" * 10, "b\udce9" * 10]

    def counts() -> list[int]:
        gc.collect()
        below = getattr(kind, "below", store)  # not None, which all objects share
        return [sys.getrefcount(x) for x in (store, below, key, value, keys, *keys)]

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
