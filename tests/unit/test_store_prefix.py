# SPDX-License-Identifier: BSD-3-Clause
"""PrefixStore and HashStore: what is theirs alone."""

from __future__ import annotations

import gc
import weakref
from datetime import timedelta

import pytest
from store_kinds import Background

from distlite import HashStore, PrefixStore


@pytest.mark.parametrize(
    ("prefix", "key"), [("p", "p/k"), ("", "/k"), ("a/", "a//k"), (b"\xff", "\udcff/k")]
)
def test_keys_are_joined_by_a_slash(prefix, key: str):
    below = HashStore()
    PrefixStore(prefix, below).set("k", "value")
    assert below.list_keys() == [key]


def test_views_nest():
    below = HashStore()
    view = PrefixStore("inner", PrefixStore("outer", below))
    view.set("k", "value")
    assert below.get("outer/inner/k") == b"value"
    assert view.underlying_store.underlying_store is below
    assert view._underlying_non_prefix_store is below
    for name in ("underlying_store", "_underlying_non_prefix_store"):
        with pytest.raises(AttributeError):
            setattr(view, name, below)


def test_only_its_own_names_are_listed():
    below = HashStore()
    view = PrefixStore("P", below)
    below.multi_set(["P", "PX", "Po/x", "P/a", "P/b/c", "Q/a"], [""] * 6)
    assert sorted(view.list_keys()) == ["a", "b/c"]
    assert sorted(view) == ["a", "b/c"]
    assert view.num_keys() == 6  # the store below knows no better


def test_the_timeout_is_that_of_the_store_below():
    below = HashStore()
    view = PrefixStore("a", PrefixStore("b", below))
    view.set_timeout(5)
    assert below.timeout == timedelta(seconds=5)
    below.set_timeout(6)
    assert view.timeout == timedelta(seconds=6)


def test_barriers_of_view_and_store_meet():
    below = HashStore()
    waiter = Background(lambda: PrefixStore("p", below).barrier("b", 2, 10))
    below.barrier("p/b", 2, 10)
    waiter.join()


def test_a_clone_is_a_view_of_a_clone():
    below = HashStore()
    view = PrefixStore("p", below)
    clone = view.clone()
    assert clone is not view
    assert clone.underlying_store is below  # a HashStore's clone is itself
    clone.set("k", "value")
    assert view.get("k") == b"value"
    assert below.clone() is below


def test_a_view_keeps_the_store_below():
    below = HashStore()
    reference = weakref.ref(below)
    view = PrefixStore("p", below)
    del below
    gc.collect()
    assert reference() is view.underlying_store
    del view
    gc.collect()
    assert reference() is None


def test_has_extended_api():
    assert HashStore().has_extended_api() is True
    assert PrefixStore("p", HashStore()).has_extended_api() is True
