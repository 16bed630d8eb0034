# SPDX-License-Identifier: BSD-3-Clause
"""Stores in Python: what the methods take, refuse, and say about themselves; and stores
that are written in Python, what reaches them, and what they need not write."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import threading
import time
import weakref
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from store_kinds import Background, DictStore

import distlite
from distlite import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    FileStore,
    HashStore,
    PrefixStore,
    ProcessGroup,
    QueueEmptyError,
    Store,
    TCPStore,
    barrier,
)

HOW_TO_ENCODE = r"must be str, bytes, bytearray or memoryview, not {}; encode it first"


@pytest.fixture
def plain() -> HashStore:
    return HashStore()


@pytest.mark.parametrize("value", [1, 1.5, None, ["a"], {"a": 1}, object()])
def test_values_of_other_types_are_refused(plain: HashStore, value):
    text = HOW_TO_ENCODE.format(type(value).__name__)
    with pytest.raises(TypeError, match="value " + text):
        plain.set("key", value)
    with pytest.raises(TypeError, match="value " + text):
        plain["key"] = value
    with pytest.raises(TypeError, match="values " + text):
        plain.multi_set(["key"], [value])
    with pytest.raises(TypeError, match="desired " + text):
        plain.compare_set("key", "", value)
    assert plain.num_keys() == 0


@pytest.mark.parametrize("key", [1, None, ("a",)])
def test_keys_of_other_types_are_refused(plain: HashStore, key):
    for call in (
        lambda: plain.set(key, "value"),
        lambda: plain.get(key),
        lambda: plain.add(key, 1),
        lambda: plain.queue_len(key),
        lambda: plain[key],
        lambda: key in plain,
        lambda: plain.wait([key]),
        lambda: plain.barrier(key, 1),
    ):
        with pytest.raises(TypeError, match="keys? " + HOW_TO_ENCODE[:20]):
            call()


def test_an_array_is_named_as_it_is(plain: HashStore):
    with pytest.raises(TypeError, match=r"not numpy.ndarray; .* x.tobytes\(\)"):
        plain.set("key", np.zeros(2))
    plain.set("key", memoryview(np.arange(2, dtype="<u2")))
    assert plain.get("key") == b"\0\0\1\0"


def test_a_view_with_gaps_is_refused(plain: HashStore):
    with pytest.raises(BufferError):
        plain.set("key", memoryview(b"abcdef")[::2])


def test_one_string_is_no_list_of_keys(plain: HashStore):
    for call in (plain.wait, plain.check, plain.multi_get):
        for text in ("key", b"key", bytearray(b"key")):
            with pytest.raises(TypeError, match="keys must be a list of str or bytes"):
                call(text)
        with pytest.raises(TypeError):
            call(5)


def test_mixed_kinds_of_bytes_in_one_list(plain: HashStore):
    keys = ["a", b"b", bytearray(b"c"), memoryview(b"d"), "caf\udce9"]
    plain.multi_set(iter(keys), (bytearray([number]) for number in range(5)))
    assert plain.multi_get(keys) == [b"\0", b"\1", b"\2", b"\3", b"\4"]
    assert plain[b"caf\xe9"] == b"\4"


def test_lone_surrogates_that_stand_for_no_byte_are_refused(plain: HashStore):
    with pytest.raises(UnicodeEncodeError):
        plain.set("\ud800", "value")


@pytest.mark.parametrize("amount", [1.0, "1", None, 2**63, -(2**63) - 1])
def test_amounts_are_64_bit_integers(plain: HashStore, amount):
    with pytest.raises((TypeError, OverflowError)):
        plain.add("key", amount)
    assert not plain.check(["key"])


def test_what_has_an_index_is_an_amount(plain: HashStore):
    class Seven:
        def __index__(self) -> int:
            return 7

    assert plain.add("key", Seven()) == 7


@pytest.mark.parametrize("timeout", [np.int8(3), np.float32(3), Fraction(3)])
def test_timeouts_are_any_real_numbers(timeout):
    store = HashStore()
    store.set_timeout(timeout)
    assert store.timeout == timedelta(seconds=3)
    with store.lock("name", timeout=timeout):
        distlite.init_process_group(store=store, rank=0, world_size=1, timeout=timeout)
        assert distlite.group.WORLD.timeout == timedelta(seconds=3)
        distlite.destroy_process_group()


@pytest.mark.parametrize("timeout", ["1", True, np.True_, [1], np.ones(1), object()])
def test_timeouts_of_other_types_are_refused(plain: HashStore, timeout):
    with pytest.raises(TypeError, match=r"timeout must be a datetime.timedelta, sec"):
        plain.wait(["key"], timeout)
    with pytest.raises(TypeError, match="timeout must be"):
        plain.set_timeout(timeout)
    with pytest.raises(TypeError, match="timeout must be"):
        TCPStore("localhost", 0, timeout=timeout)


def test_odd_timeouts(plain: HashStore):
    with pytest.raises(ValueError, match="NaN"):
        plain.set_timeout(float("nan"))
    with pytest.raises(TypeError, match="negative"):
        plain.set_timeout(None)
    for forever in (float("-inf"), -1e30, timedelta.min):
        plain.set_timeout(forever)
        assert plain.timeout < timedelta(0)
    for long in (float("inf"), 1e30, timedelta.max):
        plain.set_timeout(long)
        assert plain.timeout > timedelta(days=365 * 200)
    plain.set_timeout(2)
    assert plain.timeout == timedelta(seconds=2)


def test_arguments_by_name(plain: HashStore):
    plain.set(key="key", value="1")
    plain.set("key", value="2")
    assert plain.get(key="key") == b"2"
    assert plain.compare_set(key="key", expected="2", desired="3") == b"3"
    assert plain.add(key="n", amount=1) == 1
    plain.wait(keys=["key"], timeout=None)
    plain.barrier(key="b", world_size=1, timeout=1)
    plain.queue_push(key="q", value="item")
    assert plain.queue_pop(key="q", block=False) == b"item"
    assert PrefixStore(prefix="p", store=plain).check(["key"]) is False


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda s: s.set("key"), "set() is missing argument 'value'"),
        (
            lambda s: s.set("a", "b", "c"),
            "set() takes at most 2 arguments (3 given)",
        ),
        (lambda s: s.get(), "get() is missing argument 'key'"),
        (lambda s: s.get("a", key="a"), "get() got two values for argument 'key'"),
        (lambda s: s.get(name="a"), "get() got an unexpected keyword argument 'name'"),
        (lambda s: s.num_keys(1), "num_keys() takes no arguments (1 given)"),
        (lambda s: s.queue_pop("q", 1), "block must be True or False, not int"),
        (lambda s: HashStore(1), "HashStore() takes no arguments (1 given)"),
        (lambda s: FileStore(), "FileStore() is missing argument 'file_name'"),
        (lambda s: PrefixStore("p"), "PrefixStore() is missing argument 'store'"),
        (lambda s: PrefixStore("p", "q"), "store must be a Store, not str"),
        (lambda s: PrefixStore(1, s), "prefix must be str"),
        (lambda s: TCPStore("h", 0, is_master=1), "is_master must be True or False"),
        (lambda s: TCPStore(b"h", 0), "host_name must be str, not bytes"),
    ],
)
def test_wrong_calls_are_worded(plain: HashStore, call, text: str):
    with pytest.raises(TypeError) as caught:
        call(plain)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"port": 65536}, "port must be in 0..65535, not 65536"),
        ({"port": -1}, "port must be in 0..65535"),
        ({"port": 0, "world_size": 0}, "TCPStore world size cannot be 0"),
        ({"port": 0, "master_listen_fd": -3}, "master_listen_fd must be an open"),
        ({"host_name": "a\0b", "port": 0}, "NUL"),
    ],
)
def test_wrong_values_are_worded(arguments, text: str):
    with pytest.raises(ValueError, match=text):
        TCPStore(**{"host_name": "localhost", **arguments})


def test_none_is_no_store():
    with pytest.raises(ValueError, match="store argument cannot be None"):
        PrefixStore("p", None)


SIGNATURES = {
    Store: "()",
    HashStore: "()",
    FileStore: "(file_name, world_size=-1)",
    PrefixStore: "(prefix, store)",
    TCPStore: "(host_name, port, world_size=None, is_master=False, timeout=None, "
    "wait_for_workers=True, multi_tenant=False, master_listen_fd=None, use_libuv=True, "
    "token=None, journal=None, journal_sync='interval', tls=None)",
    Store.set: "(self, /, key, value)",
    Store.get: "(self, /, key, *, timeout=None)",
    Store.add: "(self, /, key, amount)",
    Store.compare_set: "(self, /, key, expected, desired)",
    Store.wait: "(self, /, keys, timeout=None)",
    Store.multi_get: "(self, /, keys, *, timeout=None)",
    Store.queue_pop: "(self, /, key, block=True, *, timeout=None)",
    Store.barrier: "(self, /, key, world_size, timeout=None)",
    Store.lock: "(self, /, name, timeout=None, *, lease=None)",
}


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__qualname__)
def test_signatures_can_be_inspected(function):
    assert str(inspect.signature(function)) == SIGNATURES[function]


def test_everything_is_documented():
    for cls in (Store, HashStore, FileStore, PrefixStore, TCPStore):
        assert cls.__module__ == "distlite"
        assert inspect.getdoc(cls)
    for name, member in vars(Store).items():
        if not name.startswith("__"):
            assert inspect.getdoc(member), name
            if callable(member):
                inspect.signature(member)


def test_the_errors_are_a_family():
    assert DistError.__mro__[1] is RuntimeError
    for error in (DistBackendError, DistNetworkError, DistStoreError):
        assert error.__bases__ == (DistError,)
    assert QueueEmptyError.__bases__ == (DistStoreError,)
    for error in (DistError, DistNetworkError, QueueEmptyError):
        assert error.__module__ == "distlite"
        assert getattr(distlite, error.__name__) is error
        again = pickle.loads(pickle.dumps(error("text")))
        assert type(again) is error and again.args == ("text",)


class Marked(TCPStore):
    pass


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (HashStore, "HashStore: it is memory of this process; use a TCPStore"),
        (Store, "Store: it is written in Python; define __reduce__"),
        (lambda: PrefixStore("p", HashStore()), "HashStore: it is memory"),
        (
            lambda: Marked("127.0.0.1", 0, is_master=True),
            "Marked: it is a subclass; define __reduce__",
        ),
    ],
)
def test_stores_that_no_other_process_can_open(make, text: str):
    store = make()
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        if attempt is not copy.copy or not isinstance(store, PrefixStore):
            with pytest.raises(TypeError, match=f"cannot pickle or copy a {text}"):
                attempt(store)


def test_stores_take_no_attributes_but_weak_references(plain: HashStore):
    with pytest.raises(AttributeError):
        plain.note = 1
    with pytest.raises(TypeError):
        Store.note = 1
    reference = weakref.ref(plain)
    assert reference() is plain


def test_a_clone_is_a_view_of_a_clone():
    below = HashStore()
    view = PrefixStore("p", below)
    clone = view.clone()
    assert clone is not view
    assert clone.underlying_store is below  # a HashStore's clone is itself
    for name in ("underlying_store", "_underlying_non_prefix_store"):
        with pytest.raises(AttributeError):
            setattr(view, name, below)


def test_a_store_is_true_when_empty():
    assert HashStore()


def test_a_subclass_may_have_its_own_init():
    class Named(HashStore):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    store = Named("n")
    store["key"] = "value"
    assert store.name == "n" and store["key"] == b"value"
    with pytest.raises(RuntimeError, match="has run already"):
        store.__init__("again")


def test_a_subclass_that_forgot_its_base_is_told():
    class Forgetful(HashStore):
        def __init__(self) -> None:
            pass

    store = Forgetful()
    for call in (
        lambda: store.get("key"),
        lambda: store["key"],
        lambda: store.timeout,
        lambda: store.close(),
        lambda: PrefixStore("p", store),
    ):
        with pytest.raises(RuntimeError, match=r"super\(\).__init__\(\)"):
            call()


def test_the_path_is_as_given(tmp_path: Path):
    path = tmp_path / "caf\udce9"
    for form in (path, str(path), os.fsencode(path)):
        with FileStore(form) as store:
            assert store.path == str(path)


def test_representations(tmp_path: Path):
    assert repr(FileStore(tmp_path / "f")) == f"FileStore('{tmp_path}/f')"
    text = repr(PrefixStore("p", FileStore(tmp_path / "f")))
    assert text == f"PrefixStore('p', FileStore('{tmp_path}/f'))"
    assert "HashStore" in repr(HashStore())


# Stores that are written in Python.

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
    """It waits in a store of Python's."""
    inner = DictStore()
    waits: list[None] = []
    wait = inner.wait
    inner.wait = lambda *given: (waits.append(None), wait(*given))[1]
    store = PrefixStore("p", inner)
    timeout = timedelta(seconds=20)
    first = Background(lambda: ProcessGroup(store, 1, 2, timeout=timeout))
    end = time.monotonic() + 20
    while not waits and time.monotonic() < end:
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
