# SPDX-License-Identifier: BSD-3-Clause
"""Stores as dicts, and reading and watching what is below a prefix, of every kind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from store_kinds import KINDS, Background, DictStore, Kind, join_all

import distlite
from distlite import DistStoreError, HashStore, PrefixStore, Store
from distlite.stores import Change, StoreDict


class Written(Kind):
    """A store in Python without a view around it."""

    def _make(self) -> Store:
        return self.opened[0] if self.opened else DictStore()


@pytest.fixture(params=[*KINDS, "written"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = {**KINDS, "written": Written}[request.param](tmp_path)
    yield made
    made.close()


@distlite.register_safe_type
@dataclass
class Step:
    number: int
    rates: list[float]


VALUES = [
    *(None, True, False, 0, -1, 2**63 - 1, -(2**63), 2**63, 2**200, 1.5, 1j, "", "é\0"),
    *(b"", b"5", b"\x93distlite\x01", [1, [2]], (1,), {"a": {2: None}}, {1, 2}),
    *(timedelta(1), Step(1, [0.5]), np.int64(3)),
]


def test_values_come_back(store: Store, peer: Store):
    view, other = store.dict("d/"), peer.dict("d/")
    for value in VALUES:
        view["key"] = value
        assert other["key"] == value
        assert isinstance(other["key"], type(value))
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    view["key"] = array
    np.testing.assert_array_equal(other["key"], array)
    assert other["key"].dtype == array.dtype
    other["key"][0, 0] = 7  # a copy, which is the reader's own


def test_it_is_a_dict(store: Store, peer: Store):
    view = store.dict("d/")
    peer.set("other", b"not of the view")
    view.update({"a": 1}, c="3")
    before = view
    view |= {"b": [2]}
    assert view is before
    assert dict(view) == dict(peer.dict("d/").items()) == {"a": 1, "b": [2], "c": "3"}
    assert list(view) == sorted(view.keys()) == ["a", "b", "c"] and len(view) == 3
    assert list(view.values()) == [1, [2], "3"]
    assert "a" in view and "x" not in view and 5 not in view
    assert ("b", [2]) in view.items() and [2] in view.values()
    assert view.get("x") is None and view.get("x", 7) == 7
    assert view.pop("a") == 1 and view.pop("a", "gone") == "gone"
    assert view.setdefault("b", 5) == [2] and view.setdefault("e", (5,)) == (5,)
    assert view["e"] == (5,)
    del view["b"]
    for fails in (
        lambda: view["b"],
        lambda: view.pop("b"),
        lambda: view.__delitem__("b"),
    ):
        with pytest.raises(KeyError, match="^'b'$"):
            fails()
    assert dict([view.popitem(), view.popitem()]) == {"c": "3", "e": (5,)}
    with pytest.raises(KeyError, match="empty"):
        view.popitem()
    view.update(a=1, b=2)
    view.clear()
    assert not view and peer.get("other") == b"not of the view"


def test_counts_are_not_lost(store: Store, peer: Store):
    store.dict("d/")["n"] = 0
    views = [each.dict("d/") for each in (store, peer, store, peer)]

    def count(view: StoreDict) -> None:
        for _ in range(20):
            view.increment("n", 2)
            view.increment("n", 3)

    join_all([Background(lambda view=view: count(view)) for view in views])
    assert views[0]["n"] == 4 * 20 * 5
    assert store.get("d/n") == b"400" and store.add("d/n", 1) == 401


def test_counts_of_any_size(store: Store):
    view = store.dict()
    assert view.increment("n", 2**63 - 1) == 2**63 - 1
    assert view.increment("n") == view["n"] == 2**63
    assert view.increment("n", 2**70) == 2**70 + 2**63
    assert view.increment("n", -(2**70)) == 2**63
    view["n"] = -(2**63)
    assert view.increment("n", -1) == -(2**63) - 1
    view["text"] = view["flag"] = True
    view["text"] = "5"
    for key in ("text", "flag"):
        with pytest.raises(TypeError, match=f"key '{key}' is not an int but "):
            view.increment(key)
    assert view["text"] == "5" and view["flag"] is True


def test_one_of_those_who_compare_wins(store: Store, peer: Store):
    views = [store.dict(), peer.dict(), store.dict(), peer.dict()]
    for old, new in ((StoreDict.MISSING, 5), (5, 6), (6, {1, 2}), ({2, 1}, [1.5])):
        wins = join_all(
            Background(
                lambda view=view, old=old, new=new: view.compare_set("k", old, new)
            )
            for view in views
        )
        assert sorted(map(bool, wins)) == [False, False, False, True]
        assert views[1]["k"] == new
    assert not views[0].compare_set("k", [1], 2)
    assert not views[0].compare_set("absent", None, 2) and "absent" not in views[0]
    views[0]["a"] = np.zeros(2)
    assert not views[1].compare_set("a", np.ones(2), 1)
    assert views[1].compare_set("a", np.zeros(2), 1)
    assert views[0].increment("a") == 2


def test_one_of_those_who_set_by_default_wins(store: Store, peer: Store):
    views = [each.dict() for each in (store, peer, store, peer)]
    got = join_all(
        Background(lambda view=view, n=n: view.setdefault("k", [n]))
        for n, view in enumerate(views)
    )
    assert got == [views[0]["k"]] * 4


def test_bytes_of_others_are_named():
    store = HashStore()
    view = store.dict("d/")
    for content in (b"", b"text", b"five", b"\x93distlite\x01", b"\x80\x04K\x05."):
        store.set("d/key", content)
        for read in (
            lambda: view["key"],
            lambda: list(view.items()),
            lambda: view.pop("key"),
            lambda: view.increment("key"),
        ):
            with pytest.raises(ValueError, match="of key 'd/key'"):
                read()
        assert store.get("d/key") == content


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (
            lambda d: d.__setitem__("k", object()),
            "value of key 'k' is of type builtins",
        ),
        (lambda d: d.update(a=1, k=[len]), r"value of key 'k'\[0\] is of type"),
        (lambda d: d.__getitem__(5), "keys must be str, not int"),
        (lambda d: d.store.dict(b"p"), "prefix must be str, not bytes"),
        (lambda d: d.store.items(b"p"), "prefix must be str, not bytes"),
        (lambda d: d.store.watch(5), "prefix must be str, not int"),
        (lambda d: d.store.watch(timeout="1"), "timeout must be"),
        (lambda d: d.increment("k", 1.5), "float"),
    ],
)
def test_what_is_refused(use, text: str):
    view = HashStore().dict()
    with pytest.raises(TypeError, match=text):
        use(view)
    assert not view


def test_items_below_a_prefix(store: Store, peer: Store):
    peer.multi_set(["b/2", "b/1", "c", "b"], ["2", b"\xff", "3", ""])
    assert store.items("b/") == [("b/1", b"\xff"), ("b/2", b"2")]
    assert {("b", b""), ("c", b"3")} <= set(store.items())
    assert store.items("d") == []


def test_keys_that_are_deleted_meanwhile_are_left_out(store: Store, kind: Kind):
    class Late(PrefixStore):
        """Lists keys that are gone when they are read."""

        def list_keys(self) -> list[str]:
            return [*super().list_keys(), "gone/0", "gone/1", "zz"]

    late = Late("late", store)
    late.multi_set([f"k{n}" for n in range(9)], [str(n) for n in range(9)])
    began = time.monotonic()
    assert late.items() == [(f"k{n}", b"%d" % n) for n in range(9)]
    assert time.monotonic() - began < 30  # half of the store's timeout
    late.close()
    with pytest.raises(DistStoreError, match="closed"):
        late.items()


def test_changes_are_told(store: Store, peer: Store):
    peer.multi_set(["w/a", "w/b", "other"], ["1", "2", ""])
    changes = store.watch("w/", timeout=60, interval=0.02)
    peer.multi_set(["w/c", "w/b", "x"], ["3", "4", ""])
    assert next(changes) == Change("w/b", b"4", "changed")
    assert next(changes) == Change("w/c", b"3", "added")
    writer = Background(lambda: peer.delete_key("w/a"))
    assert next(changes) == Change("w/a", None, "deleted")
    writer.join()
    for timeout in (0, 0.1, timedelta(seconds=0.1)):
        now = store.watch("w/", timeout, initial=True)
        assert [each[:2] for each in now] == [("w/b", b"4"), ("w/c", b"3")]
    assert list(store.watch("w/", 0)) == []


def test_a_watch_looks_less_and_less_often():
    class Counted(HashStore):
        looks = 0

        def list_keys(self) -> list[str]:
            self.looks += 1
            return super().list_keys()

    store = Counted()
    assert list(store.watch(timeout=0.5)) == []
    assert 4 <= store.looks <= 9
    with pytest.raises(ValueError, match="interval must be positive"):
        store.watch(interval=0)
