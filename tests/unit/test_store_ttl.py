# SPDX-License-Identifier: BSD-3-Clause
"""Values with a time to live, over every kind of store."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from store_kinds import KINDS, Background, Kind

from distlite import DistStoreError, FileStore, HashStore, PrefixStore, Store, TCPStore

LONG = 600.0
LASTING = [name for name in KINDS if name != "python"]


@pytest.fixture(params=LASTING)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    kind = KINDS[request.param](tmp_path)
    yield kind
    kind.close()


@pytest.fixture
def store(kind: Kind) -> Store:
    return kind.open()


def await_end(store: Store, key: str) -> None:
    until = time.monotonic() + 60
    while store.check([key]):
        assert time.monotonic() < until
        time.sleep(0.002)


def test_a_value_ends(kind, store):
    before = store.num_keys()
    store.set("short", "x", ttl=0.05)
    store.set("long", "x", ttl=timedelta(seconds=LONG))
    store.set("ever", "x", ttl=None)
    await_end(store, "short")
    assert sorted(store.list_keys()) == ["ever", "long"]
    assert store.num_keys() == before + 2
    assert store.items() == [("ever", b"x"), ("long", b"x")]
    assert "short" not in store
    with pytest.raises(KeyError):
        store["short"]
    with pytest.raises(
        DistStoreError, match=r"wait timeout after \d+ms, keys: .*short"
    ):
        store.get("short", timeout=0.01)
    with pytest.raises(DistStoreError, match="short"):
        store.wait(["long", "short"], 0.01)
    assert kind.open().get("long") == b"x"
    assert store.delete_key("short") is False


def test_another_handle_sees_the_end(kind, store):
    peer = kind.open()
    store.set("key", "x", ttl=0.05)
    await_end(peer, "key")
    waiting = Background(lambda: peer.get("key")).until_asleep()
    store.set("key", "again", ttl=LONG)
    assert waiting.join() == b"again"


def test_a_leader_that_does_not_renew_is_replaced(store):
    assert store.compare_set("leader", "", "one", ttl=0.1) == b"one"
    until = time.monotonic() + 60
    while store.compare_set("leader", "", "two", ttl=LONG) != b"two":
        assert time.monotonic() < until
        time.sleep(0.002)
    # One that does renew.
    for _ in range(5):
        assert store.compare_set("leader", "two", "two", ttl=LONG) == b"two"
    assert store.compare_set("leader", "", "three", ttl=LONG) == b"two"


@pytest.mark.parametrize(
    ("ttl", "error", "text"),
    [
        (0, ValueError, "ttl must be positive, not 0"),
        (-1.5, ValueError, "ttl must be positive, not -1.5"),
        (timedelta(seconds=-1), ValueError, "ttl must be positive"),
        (float("nan"), ValueError, "ttl must not be NaN"),
        ("soon", TypeError, r"ttl must be a datetime\.timedelta, seconds as a number"),
        (True, TypeError, "ttl must be"),
    ],
)
def test_what_is_no_time_to_live(store, ttl, error, text):
    with pytest.raises(error, match=text):
        store.set("key", "x", ttl=ttl)
    with pytest.raises(error, match=text):
        store.compare_set("key", "", "x", ttl=ttl)
    assert not store.check(["key"])


@pytest.mark.parametrize(
    "ttl", [1e-9, float("inf"), 1e30, np.float32(100), timedelta.max]
)
def test_extreme_times(store, ttl):
    store.set("key", "x", ttl=ttl)
    if ttl == 1e-9:
        await_end(store, "key")
    else:
        assert store.get("key") == b"x"


def test_ttl_is_by_name_only(store):
    with pytest.raises(TypeError):
        store.set("key", "x", 5)
    with pytest.raises(TypeError):
        store.compare_set("key", "", "x", 5)


def test_a_dict(store):
    view = store.dict("view/")
    view.set("alive", [1, 2], ttl=0.05)
    view.set("steps", 4, ttl=LONG)
    view.set("name", "x")
    await_end(store, "view/alive")
    view["steps"] += 1
    assert dict(view) == {"steps": 5, "name": "x"}


def test_a_watch_tells_the_end(store):
    changes = store.watch("w/", timeout=60, interval=0.02)
    store.set("w/a", "1", ttl=0.1)
    seen = [next(changes)]
    if seen[0].kind == "added":
        seen.append(next(changes))
    assert seen[-1] == ("w/a", None, "deleted")


def test_large_values(store):
    value = b"0123456789abcdef" * (1 << 16)
    store.set("key", value, ttl=LONG)
    assert store.get("key") == value
    assert store.compare_set("key", value, value[:-1], ttl=LONG) == value[:-1]


@pytest.mark.parametrize(
    "make", [HashStore, lambda: TCPStore("127.0.0.1", 0, is_master=True)]
)
def test_stats(make: Callable[[], Store]):
    with make() as store:
        for i in range(300):
            store.set(f"short/{i}", "x", ttl=0.02)
        store.set("long", "x", ttl=LONG)
        until = time.monotonic() + 60
        while store.stats()["expired"] < 300:
            assert time.monotonic() < until
            time.sleep(0.01)
        told = store.stats()
        assert told["expiring"] == 1 and told["keys"] == 1


def test_the_server_forgets_without_being_asked():
    """A value that nobody asks for uses no memory for long."""
    with TCPStore("127.0.0.1", 0, is_master=True) as store:
        for i in range(20):
            store.set(f"{i}", b"x" * (1 << 20), ttl=0.05)
        time.sleep(0.5)
        # STATS removes some values itself, but not in the moment of its reply's count.
        until = time.monotonic() + 60
        while store.stats()["bytes"] > 1 << 20:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_a_store_in_python_keeps_values_for_ever(tmp_path):
    kind = KINDS["python"](tmp_path)
    view = kind.open()
    for call in (
        lambda: view.set("key", "x", ttl=5),
        lambda: view.compare_set("key", "", "x", ttl=5),
        lambda: view.dict().set("key", 1, ttl=5),
    ):
        with pytest.raises(
            NotImplementedError, match=r"keeps values for ever; call \w+\(\) without"
        ):
            call()
    view.set("key", "x", ttl=None)
    assert view.get("key") == b"x"


class Timed(Store):
    """A store in Python that has a time to live of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[object] = []

    def set(self, key: str, value: object, *, ttl: object = None) -> None:
        self.told.append((key, ttl))


def test_an_override_may_take_one():
    store = Timed()
    store.set("key", "x", ttl=5)
    assert store.told == [("key", 5)]


def test_the_members_of_a_file_agree_across_processes(tmp_path):
    path = str(tmp_path / "file")
    store = FileStore(path)
    store.set("late", "x", ttl=LONG)
    child = os.fork()
    if child == 0:
        try:
            other = FileStore(path)
            other.set("short", "x", ttl=0.05)
            other.add("late", 0) if other.check(["none"]) else None
            other.append("late", "y")
            os.kill(os.getpid(), signal.SIGKILL)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert store.get("late") == b"xy"
    await_end(store, "short")
    store.close()
    again = PrefixStore("", FileStore(path)).underlying_store
    assert again.list_keys() == ["late"]
