# SPDX-License-Identifier: BSD-3-Clause
"""What the methods take, refuse, and say about themselves."""

from __future__ import annotations

import copy
import inspect
import pickle
import weakref
from datetime import timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import distlite
from distlite import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    FileStore,
    HashStore,
    PrefixStore,
    QueueEmptyError,
    Store,
    TCPStore,
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
    numpy = pytest.importorskip("numpy")
    with pytest.raises(TypeError, match=r"not numpy.ndarray; .* x.tobytes\(\)"):
        plain.set("key", numpy.zeros(2))
    plain.set("key", memoryview(numpy.arange(2, dtype="<u2")))
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


def test_representations(tmp_path: Path):
    assert repr(FileStore(tmp_path / "f")) == f"FileStore('{tmp_path}/f')"
    text = repr(PrefixStore("p", FileStore(tmp_path / "f")))
    assert text == f"PrefixStore('p', FileStore('{tmp_path}/f'))"
    assert "HashStore" in repr(HashStore())
