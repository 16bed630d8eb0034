# SPDX-License-Identifier: BSD-3-Clause
"""PrefixStore and HashStore: what is theirs alone."""

from __future__ import annotations

import pytest

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


def test_a_clone_is_a_view_of_a_clone():
    below = HashStore()
    view = PrefixStore("p", below)
    clone = view.clone()
    assert clone is not view
    assert clone.underlying_store is below  # a HashStore's clone is itself
    clone.set("k", "value")
    assert view.get("k") == b"value"
    assert below.clone() is below


def test_has_extended_api():
    assert HashStore().has_extended_api() is True
    assert PrefixStore("p", HashStore()).has_extended_api() is True
