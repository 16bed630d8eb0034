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
def test_queues(pair: Pair):
    orders = [(pair.master, pair.client), (pair.client, pair.master)]
    if pair.client_library is torch.distributed and not pair.uses_libuv:
        # torch's client refuses by itself where it was told of a legacy server.
        where = ("127.0.0.1", pair.master.port, None, False, PATIENCE)
        orders = [(pair.master, torch.distributed.TCPStore(*where))]
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
