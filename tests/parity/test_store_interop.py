# SPDX-License-Identifier: BSD-3-Clause
"""Our stores and torch's in one job.

First the list of what every store does, as far as torch's do the same: over torch's
kinds, our clients of torch's servers and torch's clients of ours.  Then what else both
do with each other's servers and files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from file_store_ranks import share_a_file
from ports import reserve_port
from store_conformance import (  # noqa: F401
    test_a_barrier_times_out,
    test_a_blocking_pop_times_out,
    test_a_clone_has_the_timeout,
    test_a_clone_is_a_store_on_the_same_data,
    test_a_compare_set_ends_a_wait,
    test_a_counter_is_decimal_text,
    test_a_failed_compare_set_ends_no_wait,
    test_a_wait_is_for_all_keys,
    test_adding_to_text_is_an_error_in_that_call,
    test_an_absent_key_is_not_deleted,
    test_an_append_of_nothing_makes_a_value,
    test_an_empty_queue_is_an_error_where_nobody_waits,
    test_any_key_will_do,
    test_append,
    test_check,
    test_compare_set,
    test_counts_of_many_threads_add_up,
    test_delete_key,
    test_every_write_ends_a_wait,
    test_get_waits,
    test_has_extended_api,
    test_large_values_arrive_whole,
    test_multi_get_waits_for_all,
    test_multi_set_and_multi_get,
    test_multi_set_of_unequal_lengths_sets_nothing,
    test_names_are_counted,
    test_names_are_listed_once,
    test_numbers_are_read_leniently,
    test_queues_are_first_in_first_out,
    test_the_last_value_stays,
    test_what_is_set_is_got,
)
from store_kinds import PATIENCE, Background, Kind, join_all
from workers import run_ranks

import distlite

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")
theirs = torch.distributed
SOON = timedelta(milliseconds=150)


class Acknowledged(theirs.TCPStore):
    """torch's client does not wait until the server has done what has no reply."""

    def set(self, key, value):
        super().set(key, value)
        super().check([key])

    def append(self, key, value):
        super().append(key, value)
        super().check([key])

    def multi_set(self, keys, values):
        super().multi_set(keys, values)
        super().check(keys)


class Torch(Kind):
    """torch's stores have no close()."""

    def close(self) -> None:
        self.opened.clear()


class TorchHash(Torch):
    def _make(self):
        return self.opened[0] if self.opened else theirs.HashStore()


class TorchFile(Torch):
    has_extended_api = False
    hidden_keys = 1  # the count of members

    def _make(self):
        return theirs.FileStore(str(self.folder / "store"), -1)


class TorchPrefix(Torch):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.below = theirs.HashStore()  # torch's PrefixStore does not keep it alive

    def _make(self):
        return theirs.PrefixStore("outer", self.below)


class Pair(Torch):
    """A server of one library, and a client of the other besides the master's own: the
    client is `store` or, in reverse, `peer`."""

    server: type = distlite.TCPStore
    client: type = Acknowledged
    uses_libuv = True
    is_reverse = False

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        shared = (None, True, PATIENCE)
        self.master = self.server("127.0.0.1", 0, *shared, use_libuv=self.uses_libuv)

    def _make(self):
        if bool(self.opened) is self.is_reverse:
            return self.master
        # torch's client, too, has to know which server it talks to: a legacy one, of
        # which it asks less, or another one, as are both of ours.
        is_legacy = self.server is Acknowledged and not self.uses_libuv
        where = ("127.0.0.1", self.master.port, None, False, PATIENCE)
        return self.client(*where, use_libuv=not is_legacy)

    def close(self) -> None:
        super().close()
        del self.master


def pair(server: type, client: type, uses_libuv: bool, is_reverse: bool) -> type[Kind]:
    return type("OnePair", (Pair,), dict(locals()))


SERVERS = {
    "torch-libuv": (Acknowledged, distlite.TCPStore, True),
    "torch-legacy": (Acknowledged, distlite.TCPStore, False),
    "our-libuv": (distlite.TCPStore, Acknowledged, True),
    "our-poll": (distlite.TCPStore, Acknowledged, False),
}
KINDS: dict[str, type[Kind]] = {
    "hash": TorchHash,
    "file": TorchFile,
    "prefix": TorchPrefix,
    **{name: pair(*server, False) for name, server in SERVERS.items()},
    **{f"{name}-reverse": pair(*server, True) for name, server in SERVERS.items()},
}
# Who does not do what the list says, or does not do it at all.
DIFFERENT = {
    "test_a_barrier_times_out": {"hash", "file", "prefix"},
    "test_a_blocking_pop_times_out": {"hash", "prefix"},
    "test_a_clone_has_the_timeout": {"file"},
    "test_a_compare_set_ends_a_wait": {"torch-legacy", "torch-legacy-reverse"},
    "test_a_failed_compare_set_ends_no_wait": {"torch-libuv", "torch-libuv-reverse"},
    # These lose their connection: test_adding_to_text.
    "test_adding_to_text_is_an_error_in_that_call": KINDS.keys()
    - {"hash", "file", "prefix", "our-libuv", "our-poll"},
    "test_an_absent_key_is_not_deleted": {"file"},
    "test_an_append_of_nothing_makes_a_value": {"file"},
    "test_every_write_ends_a_wait": {"hash", "prefix"},  # add() wakes nobody
    "test_multi_set_of_unequal_lengths_sets_nothing": {"hash", "file", "prefix"},
    "test_names_are_listed_once": {"file"},
}


WITHOUT_QUEUES = {"file", "torch-legacy", "torch-legacy-reverse"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" not in metafunc.fixturenames:
        return
    different = DIFFERENT.get(metafunc.function.__name__, set())
    if "queue_store" in metafunc.fixturenames:
        different = different | WITHOUT_QUEUES
    names = [name for name in KINDS if name not in different]
    metafunc.parametrize("kind", names, indirect=True)


@pytest.fixture(autouse=True)
def quick_resolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch looks up the name of every peer; where nobody answers that takes long."""
    monkeypatch.setenv("RES_OPTIONS", "timeout:1 attempts:1")


@pytest.fixture
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = KINDS[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(kind: Kind):
    return kind.open()


@pytest.fixture
def peer(kind: Kind, store):
    return kind.open()


@pytest.fixture
def queue_store(store):
    return store


@pytest.fixture
def queue_peer(peer):
    return peer


# What the list does not have.

LIBRARIES = {"torch": theirs, "ours": distlite}
# Whose server, whether with libuv, and whose client besides the master's own.
PAIRS = {
    "torch-libuv": ("torch", True, "ours"),
    "torch-legacy": ("torch", False, "ours"),
    "our-libuv": ("ours", True, "torch"),
    "our-poll": ("ours", False, "torch"),
}


class Both:
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


@pytest.fixture(params=PAIRS)
def pair(request) -> Both:
    return Both(request.param)


def with_pairs(*names: str):
    return pytest.mark.parametrize("pair", names, indirect=True)


def test_timeouts(pair: Both):
    for store in pair.both:
        with pytest.raises(RuntimeError, match="^wait timeout after 150ms, keys: /no"):
            store.wait(["nope"], SOON)
        store.set_timeout(SOON)
        with pytest.raises(RuntimeError, match="^wait timeout after 150ms, keys: /no"):
            store.get("nope")
        store.set_timeout(PATIENCE)
        store.set("after", "all")
        assert store.get("after") == b"all"


def test_zero_looks_once_at_any_server(pair: Both):
    ours = pair.master if pair.client_library is theirs else pair.client
    ours.set("key", "value")
    for _ in range(50):
        ours.wait(["key"], 0)
    with pytest.raises(distlite.DistStoreError, match="wait timeout after 0ms"):
        ours.wait(["nope"], 0)


@with_pairs("torch-libuv", "our-libuv", "our-poll")
def test_queues(pair: Both):
    orders = [(pair.master, pair.client), (pair.client, pair.master)]
    if pair.client_library is theirs and not pair.uses_libuv:
        # torch's client refuses by itself where it was told of a legacy server.
        where = ("127.0.0.1", pair.master.port, None, False, PATIENCE)
        orders = [(pair.master, theirs.TCPStore(*where))]
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
def test_torch_s_legacy_server_has_no_queues(pair: Both):
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


def test_a_barrier_of_both(pair: Both):
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


def test_prefixes(pair: Both):
    views = [
        theirs.PrefixStore("p", store)
        if isinstance(store, theirs.Store)
        else distlite.PrefixStore("p", store)
        for store in pair.both
    ]
    for writer, reader in (views, views[::-1]):
        writer.set("key", "value")
        assert reader.get("key") == b"value"
        assert reader.add("n", 1) in (1, 2)
        assert writer.check(["key", "n"])


def test_adding_to_text(pair: Both):
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
def test_what_is_too_long_is_refused_before_it_is_sent(pair: Both):
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


def test_one_who_leaves_hurts_nobody(pair: Both):
    for _ in range(3):
        leaving = pair.open()
        leaving.set("key", "value")
        assert leaving.get("key") == b"value"
        waiter = Background(lambda store=leaving: store.wait(["nope"], SOON))
        with pytest.raises(RuntimeError):
            waiter.join()
        del leaving, waiter
        assert pair.master.get("key") == pair.client.get("key") == b"value"


def test_many_clients_of_both(pair: Both):
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
