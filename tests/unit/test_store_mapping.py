# SPDX-License-Identifier: BSD-3-Clause
"""A store as a mapping and as a context manager, and views of one."""

from __future__ import annotations

import time

import pytest
from store_kinds import Background, Kind

from distlite import DistStoreError, HashStore, PrefixStore, Store


def test_subscripts(store: Store, peer: Store):
    store["key"] = "value"
    store[b"raw"] = b"\xff"
    assert peer["key"] == b"value"
    assert peer[b"raw"] == b"\xff"
    del peer["key"]
    assert "key" not in store
    assert b"raw" in store


def test_an_absent_key_is_a_key_error_at_once(store: Store):
    began = time.monotonic()
    with pytest.raises(KeyError, match="nope"):
        store["nope"]
    with pytest.raises(KeyError, match="nope"):
        del store["nope"]
    assert time.monotonic() - began < 5


def test_iteration_is_over_the_names_of_now(store: Store, peer: Store):
    assert list(store) == []
    for name in "abc":
        peer[name] = name
    for name in store:
        del store[name]
    assert list(peer) == []


def test_a_store_is_true_when_empty():
    assert HashStore()


def test_leaving_the_block_closes(kind: Kind):
    with kind.open() as store:
        store["key"] = "value"
    with pytest.raises(DistStoreError, match="closed"):
        store.get("key")


def test_a_closed_store_refuses_every_call(store: Store):
    store.close()
    store.close()
    for call in (
        lambda: store.set("a", "b"),
        lambda: store.get("a"),
        lambda: store["a"],
        lambda: store.add("a", 1),
        lambda: store.wait(["a"]),
        lambda: store.num_keys(),
        lambda: "a" in store,
        lambda: store.clone().num_keys(),
    ):
        with pytest.raises(DistStoreError, match="closed"):
            call()


@pytest.mark.parametrize(
    "kind", ["hash", "file", "tcp-poll", "tcp-libuv"], indirect=True
)
def test_closing_ends_blocked_calls(store: Store):
    waiter = Background(lambda: store.get("nope")).until_asleep()
    store.close()
    with pytest.raises(DistStoreError, match="closed"):
        waiter.join()


def test_a_view_closes_alone():
    below = HashStore()
    with PrefixStore("p", below) as view:
        view["key"] = "value"
    assert below["p/key"] == b"value"


def test_views_nest():
    below = HashStore()
    view = PrefixStore("inner", PrefixStore("outer", below))
    assert view.underlying_store.underlying_store is below
    assert view._underlying_non_prefix_store is below
    for name in ("underlying_store", "_underlying_non_prefix_store"):
        with pytest.raises(AttributeError):
            setattr(view, name, below)


def test_a_clone_is_a_view_of_a_clone():
    below = HashStore()
    view = PrefixStore("p", below)
    clone = view.clone()
    assert clone is not view
    assert clone.underlying_store is below  # a HashStore's clone is itself
    assert below.clone() is below
