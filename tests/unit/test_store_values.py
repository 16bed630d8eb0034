# SPDX-License-Identifier: BSD-3-Clause
"""Values, counters and names: the same on every kind of store."""

from __future__ import annotations

import pytest
from store_kinds import Background, Kind, join_all

from distlite import DistStoreError, Store

LIMIT = 8 << 20


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ("text", b"text"),
        ("", b""),
        ("snowman \N{SNOWMAN}", "snowman \N{SNOWMAN}".encode()),
        (b"\x00\xff\n\x00", b"\x00\xff\n\x00"),
        (bytearray(b"array"), b"array"),
        (memoryview(b"a view")[2:], b"view"),
    ],
)
def test_what_is_set_is_got(store: Store, peer: Store, given, held):
    store.set("key", given)
    assert store.get("key") == held
    assert peer.get("key") == held
    assert type(peer.get("key")) is bytes


@pytest.mark.parametrize("key", ["", "a/b", "-x", "k" * 8000, "\N{SNOWMAN}", "a\0b"])
def test_any_key_will_do(store: Store, peer: Store, key: str):
    store.set(key, "value")
    assert peer.get(key) == b"value"
    assert peer.get(key.encode()) == b"value"


def test_the_last_value_stays(store: Store, peer: Store):
    for number in range(10):
        (store, peer)[number % 2].set("key", str(number))
    assert store.get("key") == peer.get("key") == b"9"


@pytest.mark.parametrize("size", [1 << 10, 1 << 16, (1 << 20) + 1, LIMIT])
def test_large_values_arrive_whole(store: Store, peer: Store, size: int):
    value = bytes(range(251)) * (size // 251 + 1)
    store.set("key", value[:size])
    assert peer.get("key") == value[:size]


def test_too_much_is_refused_by_the_very_call(store: Store):
    store.set("key", "before")
    with pytest.raises(ValueError, match=r"value of 8388609 bytes .* limit of 8388608"):
        store.set("key", bytes(LIMIT + 1))
    with pytest.raises(ValueError, match=r"key of 9000 bytes .* limit"):
        store.set("k" * 9000, "value")
    with pytest.raises(ValueError, match=r"limit"):
        store.wait(["k"] * 131073, 0)
    assert store.get("key") == b"before"


def test_a_counter_is_decimal_text(store: Store, peer: Store):
    assert store.add("n", 5) == 5
    assert peer.add("n", -12) == -7
    assert store.get("n") == b"-7"
    assert peer.add("n", 0) == -7
    assert store.add("fresh", 0) == 0
    assert store.get("fresh") == b"0"
    store.set("n", "41")
    assert store.add("n", True) == 42


def test_a_counter_wraps(store: Store):
    assert store.add("n", 2**63 - 1) == 2**63 - 1
    assert store.add("n", 1) == -(2**63)


def test_adding_to_text_is_an_error_in_that_call(kind: Kind, store: Store, peer: Store):
    store.set("n", "many")
    with pytest.raises(ValueError):
        store.add("n", 1)
    assert store.get("n") == b"many"
    store.set("n", "1")
    assert store.add("n", 1) == peer.add("n", 0) == 2


def test_counts_of_many_threads_add_up(store: Store, peer: Store):
    def count(view: Store) -> int:
        return max(view.add("n", 1) for _ in range(50))

    counts = [store, peer, store, peer]
    best = join_all([Background(lambda view=view: count(view)) for view in counts])
    assert max(best) == 200
    assert store.get("n") == b"200"


def test_compare_set(store: Store, peer: Store):
    assert store.compare_set("key", "something", "new") == b"something"
    assert not store.check(["key"])
    assert store.compare_set("key", "", "first") == b"first"
    assert peer.compare_set("key", "wrong", "second") == b"first"
    assert peer.compare_set("key", b"first", b"second") == b"second"
    assert store.get("key") == b"second"
    assert store.compare_set("key", "", "third") == b"second"
    store.set("key", "")
    assert peer.compare_set("key", "", "third") == b"third"


def test_delete_key(store: Store, peer: Store):
    assert store.delete_key("key") is False
    store.set("key", "value")
    assert peer.delete_key("key") is True
    assert not store.check(["key"])
    assert peer.delete_key("key") is False
    store.set("key", "again")
    assert peer.get("key") == b"again"


def test_append(store: Store, peer: Store):
    store.append("key", "one")
    peer.append("key", b"")
    peer.append("key", b"\x00two")
    assert store.get("key") == b"one\x00two"


def test_appends_of_many_threads_are_all_there(store: Store, peer: Store):
    def append(view: Store, letter: str) -> None:
        for _ in range(20):
            view.append("key", letter)

    views = [(store, "a"), (peer, "b"), (store, "c")]
    join_all([Background(lambda view=view: append(*view)) for view in views])
    assert sorted(store.get("key").decode()) == sorted("abc" * 20)


def test_multi_set_and_multi_get(store: Store, peer: Store):
    store.multi_set(["a", "b", b"c"], ["1", b"\xff", ""])
    assert peer.multi_get(["c", "a", "b", "a"]) == [b"", b"1", b"\xff", b"1"]
    assert peer.multi_get([]) == []
    store.multi_set([], [])
    keys = [f"k{number}" for number in range(300)]
    peer.multi_set(keys, [key * 30 for key in keys])
    assert store.multi_get(reversed(keys)) == [
        (key * 30).encode() for key in reversed(keys)
    ]


def test_multi_set_of_unequal_lengths_sets_nothing(store: Store):
    text = "multiSet keys and values vectors must be of same size"
    with pytest.raises(DistStoreError, match=text):
        store.multi_set(["a", "b"], ["1"])
    assert not store.check(["a"])


def test_names_are_counted_and_listed(kind: Kind, store: Store, peer: Store):
    assert store.num_keys() == kind.hidden_keys
    assert store.list_keys() == []
    store.set("a", "1")
    peer.add("b/c", 1)
    store.append("d", "x")
    store.compare_set("e", "", "y")
    store.delete_key("a")
    assert sorted(peer.list_keys()) == ["b/c", "d", "e"]
    assert peer.num_keys() == 3 + kind.hidden_keys


def test_names_that_are_no_text_come_back_as_they_went(store: Store, peer: Store):
    store.set(b"caf\xe9\xff", "value")
    (name,) = peer.list_keys()
    assert name == "caf\udce9\udcff"
    assert store.get(name) == b"value"
    assert store.multi_get([name]) == [b"value"]
    assert store.delete_key(name)
    assert peer.list_keys() == []


def test_check(store: Store, peer: Store):
    assert store.check([]) is True
    assert store.check(["a"]) is False
    store.multi_set(["a", "b"], ["", ""])
    assert peer.check(["a"]) is True
    assert peer.check(("a", "b", "a")) is True
    assert peer.check({"a", "c"}) is False
    assert peer.check(key for key in "ab") is True


def test_has_extended_api(kind: Kind, store: Store):
    assert type(store.has_extended_api()) is bool


def test_a_clone_is_a_store_on_the_same_data(store: Store):
    store.set_timeout(7)
    clone = store.clone()
    assert clone.timeout == store.timeout
    clone.set("key", "value")
    assert store.get("key") == b"value"
    assert isinstance(clone, type(store))
