# SPDX-License-Identifier: BSD-3-Clause
"""The list of what every store does, over each kind of ours."""

from __future__ import annotations

from store_conformance import *  # noqa: F403
from store_kinds import PATIENCE, Background, join_all

from distlite import HashStore, Store


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
