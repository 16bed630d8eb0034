# SPDX-License-Identifier: BSD-3-Clause
"""Our stores and torch's in one job: each other's servers, each other's files."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest
from file_store_ranks import share_a_file
from ports import reserve_port
from store_kinds import Background, join_all
from workers import run_ranks

import distlite

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")

PATIENCE = timedelta(seconds=60)
SOON = timedelta(milliseconds=150)

LIBRARIES = {"torch": torch.distributed, "ours": distlite}
# Whose server, whether with libuv, and whose client besides the master's own.
PAIRS = {
    "torch-libuv": ("torch", True, "ours"),
    "torch-legacy": ("torch", False, "ours"),
    "our-libuv": ("ours", True, "torch"),
    "our-poll": ("ours", False, "torch"),
}


class Pair:
    """A master of one library and a client of the other."""

    def __init__(self, name: str) -> None:
        server, self.uses_libuv, client = PAIRS[name]
        self.is_legacy = name == "torch-legacy"
        self.client_library = LIBRARIES[client]
        self.master = LIBRARIES[server].TCPStore(
            "127.0.0.1", 0, None, True, PATIENCE, use_libuv=self.uses_libuv
        )
        self.client = self.open()
        self.both = (self.master, self.client)

    def open(self):
        # torch's client, too, has to know which server it talks to.
        return self.client_library.TCPStore(
            "127.0.0.1",
            self.master.port,
            None,
            False,
            PATIENCE,
            use_libuv=self.uses_libuv,
        )


@pytest.fixture(autouse=True)
def quick_resolver(monkeypatch):
    """torch looks up the name of every peer; where nobody answers that takes long."""
    monkeypatch.setenv("RES_OPTIONS", "timeout:1 attempts:1")


@pytest.fixture(params=PAIRS)
def pair(request) -> Pair:
    return Pair(request.param)


def with_pairs(*names: str):
    return pytest.mark.parametrize("pair", names, indirect=True)


@pytest.fixture
def orders(pair: Pair):
    """Every test works in both directions: (who writes, who reads)."""
    return [(pair.master, pair.client), (pair.client, pair.master)]


@pytest.mark.parametrize("size", [0, 1, 1439, 1440, 1441, 1 << 16, 1 << 20, 8 << 20])
def test_set_and_get(orders, size: int):
    for number, (writer, reader) in enumerate(orders):
        value = (b"%d-\x00\xff" % number * (size // 4 + 1))[:size]
        writer.set("key", value)
        # torch's set is not acknowledged: another request of its own is.
        assert writer.get("key") == value
        assert reader.get("key") == value


@pytest.mark.parametrize("key", ["", "k" * 8000, "a/b", "é", "init/"])
def test_keys(orders, key: str):
    for writer, reader in orders:
        writer.set(key, "value")
        assert reader.get(key) == b"value"
        assert reader.delete_key(key) is True


def test_a_write_is_seen_by_the_next_call_of_the_other(orders):
    for writer, reader in orders:
        for number in range(100):
            writer.set("key", str(number))
            assert writer.get("key") == str(number).encode()
            assert reader.get("key") == str(number).encode()


def test_add(orders):
    for writer, reader in orders:
        writer.set("n", "5")
        # Torch's client does not wait for what it sets; for this it does.
        assert writer.get("n") == b"5"
        assert reader.add("n", 2) == 7
        assert writer.add("n", -(2**62)) == 7 - 2**62
        assert reader.get("n") == str(7 - 2**62).encode()
        assert writer.add("new", 0) == 0
        assert reader.delete_key("new")


def test_adds_of_both_count(pair: Pair):
    def count(store) -> None:
        for _ in range(100):
            store.add("n", 1)

    join_all([Background(lambda store=store: count(store)) for store in pair.both])
    assert pair.client.add("n", 0) == 200


def test_compare_set(orders):
    for writer, reader in orders:
        assert writer.compare_set("key", "something", "new") == b"something"
        assert reader.check(["key"]) is False
        assert reader.compare_set("key", "", "first") == b"first"
        assert writer.compare_set("key", "wrong", "second") == b"first"
        assert writer.compare_set("key", "first", b"\x00second") == b"\x00second"
        assert reader.get("key") == b"\x00second"
        writer.delete_key("key")


def test_delete_key_and_num_keys(orders):
    for writer, reader in orders:
        assert reader.num_keys() == 0
        writer.set("a", "")
        writer.add("b", 1)
        assert writer.num_keys() == reader.num_keys() == 2
        assert reader.delete_key("a") is True
        assert writer.delete_key("a") is False
        assert writer.delete_key("b") is True


def test_list_keys(orders):
    for writer, reader in orders:
        assert reader.list_keys() == []
        writer.set("a", "")
        writer.add("b/c", 1)
        assert sorted(reader.list_keys()) == ["a", "b/c"]
        writer.delete_key("a")
        writer.delete_key("b/c")


def test_check(orders):
    for writer, reader in orders:
        assert reader.check([]) is True
        assert reader.check(["a"]) is False
        writer.set("a", "")
        writer.add("b", 0)
        assert reader.check(["a", "b", "a"]) is True
        assert reader.check(["a", "c"]) is False
        writer.delete_key("a")
        writer.delete_key("b")


def test_append(orders):
    for writer, reader in orders:
        writer.append("key", "one")
        writer.check(["key"])
        reader.append("key", b"\x00two")
        assert reader.get("key") == writer.get("key") == b"one\x00two"
        writer.delete_key("key")


def test_multi(orders):
    keys = [f"key/{number}" for number in range(500)]
    for writer, reader in orders:
        writer.multi_set(keys, [key * 10 for key in keys])
        assert writer.check(keys)
        assert reader.multi_get(keys) == [(key * 10).encode() for key in keys]
        assert reader.multi_get([]) == []


@pytest.mark.parametrize("write", ["set", "add", "append", "multi_set"])
def test_waits_are_ended_by_the_other(orders, write: str):
    for number, (writer, reader) in enumerate(orders):
        key = f"{write}/{number}"
        arguments = {"add": (key, 1), "multi_set": ([key], ["v"])}
        waiters = [
            Background(lambda r=reader, k=key: r.wait([k])),
            Background(lambda r=reader, k=key: r.clone().get(k)),
            Background(lambda r=reader, k=key: r.clone().multi_get([k, k])),
        ]
        threading.Event().wait(0.05)  # as long as it would take to go on wrongly
        assert not any(waiter.is_done() for waiter in waiters)
        getattr(writer, write)(*arguments.get(write, (key, "v")))
        join_all(waiters)


def test_timeouts(pair: Pair):
    for store in pair.both:
        with pytest.raises(RuntimeError, match="^wait timeout after 150ms, keys: /no"):
            store.wait(["nope"], SOON)
        store.set_timeout(SOON)
        with pytest.raises(RuntimeError, match="^wait timeout after 150ms, keys: /no"):
            store.get("nope")
        store.set_timeout(PATIENCE)
        store.set("after", "all")
        assert store.get("after") == b"all"


def test_zero_looks_once_at_any_server(pair: Pair):
    ours = pair.master if pair.client_library is torch.distributed else pair.client
    ours.set("key", "value")
    for _ in range(50):
        ours.wait(["key"], 0)
    with pytest.raises(distlite.DistStoreError, match="wait timeout after 0ms"):
        ours.wait(["nope"], 0)


@with_pairs("torch-libuv", "our-libuv", "our-poll")
def test_queues(pair: Pair, orders):
    if pair.client_library is torch.distributed and not pair.uses_libuv:
        # torch's client refuses by itself where it was told of a legacy server.
        orders = [
            (pair.master, reader)
            for reader in [
                torch.distributed.TCPStore(
                    "127.0.0.1", pair.master.port, None, False, PATIENCE
                )
            ]
        ]
    for writer, reader in orders:
        waiter = Background(lambda r=reader: r.queue_pop("q")).until_asleep()
        writer.queue_push("q", b"\x00first")
        assert waiter.join() == b"\x00first"
        for item in "ab":
            writer.queue_push("q", item)
        assert writer.queue_len("q") == reader.queue_len("q") == 2
        assert reader.check(["q"]) is True
        assert [reader.queue_pop("q"), reader.queue_pop("q", False)] == [b"a", b"b"]
        with pytest.raises(RuntimeError, match="queue is empty"):
            reader.queue_pop("q", False)
        reader.set_timeout(SOON)
        with pytest.raises(RuntimeError, match="wait timeout after 150ms"):
            reader.queue_pop("q")
        reader.set_timeout(PATIENCE)


@with_pairs("torch-legacy")
def test_torch_s_legacy_server_has_no_queues(pair: Pair):
    for call in (
        lambda: pair.client.queue_push("q", "item"),
        lambda: pair.client.queue_len("q"),
        lambda: pair.client.queue_pop("q", False),
    ):
        text = "queues not implemented on legacy TCPStore backend"
        with pytest.raises(NotImplementedError, match=text):
            call()
    pair.client.set("key", "value")
    assert pair.client.get("key") == b"value"


def test_a_barrier_of_both(pair: Pair):
    early = Background(lambda: pair.master.barrier("b", 3, PATIENCE))
    other = pair.open()
    second = Background(lambda: other.barrier("b", 3, PATIENCE))
    threading.Event().wait(0.05)  # as long as it would take to go on wrongly
    assert not early.is_done() and not second.is_done()
    pair.client.barrier("b", 3, PATIENCE)
    join_all([early, second])
    for store in pair.both:
        with pytest.raises(RuntimeError, match="^barrier timeout after 150ms, key: "):
            store.barrier("alone", 3, SOON)


def test_clones(pair: Pair):
    for store in pair.both:
        clone = store.clone()
        clone.set("key", "value")
        assert clone.get("key") == pair.master.get("key") == b"value"


def test_prefixes(pair: Pair):
    views = [
        torch.distributed.PrefixStore("p", store)
        if isinstance(store, torch.distributed.Store)
        else distlite.PrefixStore("p", store)
        for store in pair.both
    ]
    for writer, reader in (views, views[::-1]):
        writer.set("key", "value")
        assert reader.get("key") == b"value"
        assert reader.add("n", 1) in (1, 2)
        assert writer.check(["key", "n"])


def test_adding_to_text(pair: Pair):
    for store in pair.both:
        other = store.clone()
        store.set("n", "text")
        assert store.get("n") == b"text"
        with pytest.raises((ValueError, RuntimeError)):
            other.add("n", 1)
        assert store.get("n") == b"text"
    pair.client.set("n", "1")
    assert pair.client.add("n", 1) == 2


@with_pairs("torch-libuv", "torch-legacy")
def test_what_is_too_long_is_refused_before_it_is_sent(pair: Pair):
    with pytest.raises(ValueError, match="limit"):
        pair.client.set("key", bytes((8 << 20) + 1))
    pair.client.set("key", "value")
    assert pair.master.get("key") == b"value"


@pytest.mark.parametrize("name", PAIRS)
def test_workers_of_both_are_counted(name: str):
    server, uses_libuv, client = PAIRS[name]
    port = reserve_port()

    def join(library: str, is_master: bool):
        return LIBRARIES[library].TCPStore(
            "127.0.0.1", port, 3, is_master, PATIENCE, use_libuv=uses_libuv
        )

    leader = Background(lambda: join(server, True))
    others = [Background(lambda lib=lib: join(lib, False)) for lib in (client, server)]
    stores = join_all([leader, *others])
    assert all(store.num_keys() == 1 for store in stores)
    stores[1].set("key", "value")
    assert stores[2].get("key") == b"value"


def test_one_who_leaves_hurts_nobody(pair: Pair):
    for _ in range(3):
        leaving = pair.open()
        leaving.set("key", "value")
        assert leaving.get("key") == b"value"
        waiter = Background(lambda store=leaving: store.wait(["nope"], SOON))
        with pytest.raises(RuntimeError):
            waiter.join()
        del leaving, waiter
        assert pair.master.get("key") == pair.client.get("key") == b"value"


def test_many_clients_of_both(pair: Pair):
    def work(number: int) -> int:
        store = pair.open() if number % 2 else pair.master.clone()
        for turn in range(20):
            key = f"{number}/{turn}"
            store.set(key, key * 50)
            assert store.get(key) == (key * 50).encode()
        return store.add("done", 1)

    counts = join_all([Background(lambda n=n: work(n)) for n in range(12)])
    assert sorted(counts) == list(range(1, 13))


def test_one_file_in_one_job(tmp_path: Path):
    path = tmp_path / "store"
    results = run_ranks(share_a_file, 4, path=str(path), timeout=100)
    assert results == [
        (100, f"hello from {(rank + 1) % 4}".encode() * 100, True) for rank in range(4)
    ]
    assert not path.exists()  # the last one to leave removed it


@pytest.mark.parametrize("first", ["torch", "ours"])
def test_a_file_outlives_its_writer(tmp_path: Path, first: str):
    path = str(tmp_path / "store")
    second = "ours" if first == "torch" else "torch"
    writer = LIBRARIES[first].FileStore(path, -1)
    reader = LIBRARIES[second].FileStore(path, -1)
    writer.set("key", "value")
    assert reader.get("key") == b"value"
    reader.set("key", "new")
    assert writer.get("key") == b"new"
    writer.delete_key("key")
    assert reader.check(["key"]) is False
    del writer
    later = LIBRARIES[first].FileStore(path, -1)
    reader.set("again", "1")
    assert later.add("again", 1) == 2
    waiter = Background(lambda: later.get("late")).until_asleep()
    reader.set("late", "now")
    assert waiter.join() == b"now"
