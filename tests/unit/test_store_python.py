# SPDX-License-Identifier: BSD-3-Clause
"""Stores written in Python: what reaches them, and what they need not write."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from datetime import timedelta

import pytest
from store_kinds import Background, DictStore

from distlite import (
    DistStoreError,
    HashStore,
    PrefixStore,
    ProcessGroup,
    Store,
    barrier,
)

ANSWERS = {
    "get": b"got",
    "add": 7,
    "compare_set": b"held",
    "delete_key": True,
    "check": True,
    "num_keys": 3,
    "list_keys": ["p/a", b"p/b", "q/c"],
    "multi_get": [b"1", "2"],
    "queue_pop": b"popped",
    "queue_len": 4,
    "has_extended_api": True,
}


class Recorder(Store):
    """Answers everything and remembers how it was asked."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []


def _recording(name: str):
    def method(self, *arguments):
        self.calls.append((name, *arguments))
        return ANSWERS.get(name)

    return method


for _name in (*ANSWERS, "set", "wait", "append", "multi_set", "queue_push"):
    setattr(Recorder, _name, _recording(_name))
Recorder.barrier = _recording("barrier")


CALLS = {
    "set": (("k", "v"), None, ("p/k", b"v")),
    "get": (("k",), b"got", ("p/k",)),
    "add": (("k", -2), 7, ("p/k", -2)),
    "compare_set": (("k", "a", b"b"), b"held", ("p/k", b"a", b"b")),
    "delete_key": (("k",), True, ("p/k",)),
    "check": ((["a", "b"],), True, (["p/a", "p/b"],)),
    "wait": ((["a"],), None, (["p/a"],)),
    "num_keys": ((), 3, ()),
    "list_keys": ((), ["a", "b"], ()),
    "append": (("k", "v"), None, ("p/k", b"v")),
    "multi_get": ((["a", "b"],), [b"1", b"2"], (["p/a", "p/b"],)),
    "multi_set": ((["a"], ["v"]), None, (["p/a"], [b"v"])),
    "queue_push": (("k", "v"), None, ("p/k", b"v")),
    "queue_pop": (("k", False), b"popped", ("p/k", False)),
    "queue_len": (("k",), 4, ("p/k",)),
    "has_extended_api": ((), True, ()),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_override_is_called(name: str):
    arguments, answer, received = CALLS[name]
    store = Recorder()
    assert getattr(PrefixStore("p", store), name)(*arguments) == answer
    assert store.calls == [(name, *received)]


def test_a_timeout_is_passed_where_it_says_something():
    store = Recorder()
    view = PrefixStore("p", store)
    view.wait(["k"], None)
    view.wait(["k"], store.timeout)
    view.wait(["k"], timedelta(seconds=99))
    view.wait(["k"], -1)
    view.barrier("k", 2, 99)
    assert store.calls[:2] == [("wait", ["p/k"])] * 2
    assert timedelta(seconds=50) < store.calls[2][2] <= timedelta(seconds=99)
    assert store.calls[3][2] < timedelta(0)
    name, key, world_size, timeout = store.calls[4]
    assert (name, key, world_size) == ("barrier", "p/k", 2)
    assert timedelta(seconds=50) < timeout <= timedelta(seconds=99)


def test_names_that_are_no_text_are_escaped():
    store = Recorder()
    PrefixStore(b"\xff", store).set(b"caf\xe9", "v")
    assert store.calls == [("set", "\udcff/caf\udce9", b"v")]


def test_no_key_is_looked_up_where_it_would_be_waited_for():
    store = Recorder()
    view = PrefixStore("p", store)
    assert view["k"] == b"got"
    assert store.calls == [("check", ["p/k"]), ("get", "p/k")]


def test_the_timeout_is_shared_with_its_views():
    store = DictStore()
    view = PrefixStore("a", PrefixStore("b", store))
    view.set_timeout(3)
    assert store.timeout == view.timeout == timedelta(seconds=3)


class Small(Store):
    """The least from which the rest can be made."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.lock = threading.Lock()

    def set(self, key, value):
        self.values[key] = value

    def get(self, key):
        return self.values[key]

    def check(self, keys):
        return all(key in self.values for key in keys)

    def add(self, key, amount):
        with self.lock:
            self.values[key] = b"%d" % (int(self.values.get(key, 0)) + amount)
            return int(self.values[key])

    def compare_set(self, key, expected, desired):
        held = self.values.get(key, b"")
        if held == expected:
            self.values[key] = held = desired
        return held


@pytest.mark.parametrize("is_viewed", [False, True])
def test_what_can_be_made_from_the_rest_is(is_viewed: bool):
    store = Small()
    view = PrefixStore("p", store) if is_viewed else store
    # The store itself has its own set and get, which take bytes.
    view.append("key", "one")
    view.append("key", "two")
    assert view.get("key") == b"onetwo"
    view.multi_set(["a", "b"], ["1", "2"])
    assert view.multi_get(["a", "b"]) == [b"1", b"2"]
    view.wait(["a", "b"])
    with pytest.raises(DistStoreError, match="wait timeout after 50ms"):
        view.wait(["nope"], 0.05)
    waiter = Background(lambda: view.barrier("bar", 2))
    view.barrier("bar", 2)
    waiter.join()
    assert "a" in view and view["a"] == b"1"
    with pytest.raises(KeyError):
        view["nope"]


@pytest.mark.parametrize("is_viewed", [False, True])
def test_what_is_missing_is_named(is_viewed: bool):
    store = Small()
    view = PrefixStore("p", store) if is_viewed else store
    for name, arguments in {
        "num_keys": (),
        "list_keys": (),
        "delete_key": ("key",),
        "queue_push": ("q", "v"),
        "queue_pop": ("q",),
        "queue_len": ("q",),
        "clone": (),
    }.items():
        with pytest.raises(NotImplementedError, match=rf"Small has no {name}\(\)"):
            getattr(view, name)(*arguments)
    for call in (lambda: list(view), lambda: view.__delitem__("key")):
        with pytest.raises(NotImplementedError):
            call()


def test_a_bare_store_has_nothing():
    for name, arguments in {
        "set": ("k", "v"),
        "get": ("k",),
        "add": ("k", 1),
        "check": (["k"],),
        "wait": (["k"],),
        "append": ("k", "v"),
        "barrier": ("k", 2),
    }.items():
        with pytest.raises(NotImplementedError, match="distlite.Store has no"):
            getattr(Store(), name)(*arguments)
    assert Store().has_extended_api() is False
    assert Store().timeout == timedelta(seconds=300)


def test_super_is_the_method_made_from_the_rest():
    class Logging(Small):
        def __init__(self) -> None:
            super().__init__()
            self.log: list[str] = []

        def append(self, key, value):
            self.log.append("append")
            return super().append(key, value)

        def wait(self, keys, timeout=None):
            self.log.append("wait")
            return super().wait(keys, timeout)

        def num_keys(self):
            return super().num_keys()

    store = Logging()
    view = PrefixStore("p", store)
    for one in (store, view):
        one.append("key", "value")
        one.wait(["key"], 1)
    assert store.log == ["append", "wait"] * 2
    with pytest.raises(NotImplementedError, match=r"Logging has no num_keys\(\)"):
        view.num_keys()


class Odd(Exception):
    pass


def test_an_exception_arrives_as_it_was_raised():
    class Failing(Small):
        def get(self, key):
            raise Odd(key)

        def check(self, keys):
            raise KeyboardInterrupt

    store = Failing()
    view = PrefixStore("a", PrefixStore("b", store))
    with pytest.raises(Odd, match="b/a/key") as caught:
        view.get("key")
    assert caught.traceback[-1].name == "get"
    for call in (
        lambda: view.check(["key"]),
        lambda: view.append("key", "v"),
        lambda: view.wait(["key"], 1),
    ):
        with pytest.raises(KeyboardInterrupt):
            call()
    view.set("key", "value")  # nothing is left over


@pytest.mark.parametrize(
    ("method", "answer", "error"),
    [
        ("get", 5, TypeError),
        ("get", None, TypeError),
        ("add", "five", TypeError),
        ("add", 2**64, OverflowError),
        ("multi_get", [b"1"], ValueError),
        ("multi_get", 5, TypeError),
        ("list_keys", [5], TypeError),
        ("list_keys", None, TypeError),
        ("clone", 5, TypeError),
        ("num_keys", None, TypeError),
    ],
)
def test_wrong_answers_are_errors(method: str, answer, error):
    store_class = type("Wrong", (Small,), {method: lambda self, *arguments: answer})
    view = PrefixStore("p", store_class())
    arguments = {
        "get": ("k",),
        "add": ("k", 1),
        "multi_get": (["a", "b"],),
    }.get(method, ())
    with pytest.raises(error):
        getattr(view, method)(*arguments)


def test_a_view_keeps_its_store():
    store = DictStore()
    view = PrefixStore("a", PrefixStore("b", store))
    reference = weakref.ref(store)
    assert view._underlying_non_prefix_store is store
    assert view.underlying_store.underlying_store is store
    del store
    gc.collect()
    view.set("key", "value")
    assert view.get("key") == b"value"
    del view
    gc.collect()
    assert reference() is None


def test_a_store_that_holds_its_own_view_is_collected():
    for depth in (1, 2, 3):
        store = DictStore()
        view: Store = store
        for _ in range(depth):
            view = PrefixStore("p", view)
        store.view = view
        references = [weakref.ref(store), weakref.ref(view)]
        view.set("key", "value")
        del store, view
        gc.collect()
        assert [reference() for reference in references] == [None, None]


def test_calls_leave_no_references_behind():
    store = DictStore()
    view = PrefixStore("p", store)

    def use() -> None:
        view.set("key", "value")
        view.get("key")
        view.check(["key", "other"])
        view.multi_set(["a", "b"], ["1", "2"])
        view.list_keys()
        view.append("key", "more")
        view.queue_push("q", "v")
        view.queue_pop("q")
        for _ in range(2):
            with pytest.raises(DistStoreError):
                view.wait(["nope"], 0)

    use()
    before = sys.getrefcount(store), sys.getrefcount(view)
    for _ in range(5):
        use()
    gc.collect()
    assert (sys.getrefcount(store), sys.getrefcount(view)) == before


def test_a_subclass_of_a_kind_is_seen_as_that_kind():
    class Loud(HashStore):
        def get(self, key):
            raise Odd

    store = Loud()
    store.set("p/key", "value")
    assert PrefixStore("p", store).get("key") == b"value"
    assert isinstance(store.clone(), Loud)


def test_a_group_keeps_its_store():
    store = DictStore()
    reference = weakref.ref(store)
    group = ProcessGroup(PrefixStore("p", store), 0, 1)
    del store
    gc.collect()
    assert reference() is not None
    barrier(group)
    del group
    gc.collect()
    assert reference() is None


class Distant(DictStore):
    """Its server's replies take longer than short waits, which drop them."""

    def wait(self, keys, timeout=None):
        begin = time.monotonic()
        super().wait(keys, timeout)
        if timeout is not None and timeout < timedelta(seconds=1):
            time.sleep(max(0.0, begin + timeout.total_seconds() - time.monotonic()))
            raise DistStoreError("no reply in time")


def test_a_wait_that_drops_replies_finds_what_is_there():
    store = PrefixStore("p", Distant())
    with pytest.raises(DistStoreError, match="no reply in time|wait timeout"):
        store.wait(["key"], timedelta(milliseconds=10))
    store.set("key", "value")
    store.wait(["key"], timedelta(milliseconds=10))


def test_a_distant_store_does_not_keep_ranks_from_joining():
    store = PrefixStore("p", Distant())
    timeout = timedelta(seconds=10)
    other = Background(lambda: ProcessGroup(store, 1, 2, timeout=timeout))
    group = ProcessGroup(store, 0, 2, timeout=timeout)
    assert (group.rank(), other.join().rank()) == (0, 1)


def test_a_rank_waits_for_one_that_comes_late():
    """Longer than for a slice, of which the store says that it has timed out."""
    inner = DictStore()
    waits: list[None] = []
    wait = inner.wait
    inner.wait = lambda *given: (waits.append(None), wait(*given))[1]
    store = PrefixStore("p", inner)
    timeout = timedelta(seconds=20)
    first = Background(lambda: ProcessGroup(store, 1, 2, timeout=timeout))
    end = time.monotonic() + 20
    while len(waits) < 3 and time.monotonic() < end:
        time.sleep(0.01)
    group = ProcessGroup(store, 0, 2, timeout=timeout)
    assert (group.rank(), first.join().rank()) == (0, 1)


def test_a_store_s_exception_ends_the_making_of_a_group():
    class Failing(DictStore):
        def set(self, key, value):
            raise Odd(key)

        def multi_set(self, keys, values):
            raise Odd(keys)

    with pytest.raises(Odd):
        ProcessGroup(PrefixStore("p", Failing()), 0, 2, timeout=timedelta(seconds=5))


def test_the_body_s_exception_comes_before_that_of_close():
    class Failing(HashStore):
        def close(self):
            raise OSError("the disk is full")

    with pytest.raises(ZeroDivisionError), Failing():
        raise ZeroDivisionError
    with pytest.raises(OSError, match="the disk is full"), Failing():
        pass
