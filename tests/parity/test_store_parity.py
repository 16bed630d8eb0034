# SPDX-License-Identifier: BSD-3-Clause
"""One body over torch's stores and ours, wherever torch's do the right thing; what
every store does is listed in tests/store_conformance.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from store_kinds import Background

import distlite

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")

PATIENCE = timedelta(seconds=60)
SOON = timedelta(milliseconds=100)
KINDS = ["hash", "file", "prefix", "tcp-poll", "tcp-libuv"]

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=["torch", "distlite"])
def dist(request):
    return {"torch": torch.distributed, "distlite": distlite}[request.param]


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def open_store(dist, kind: str, folder):
    if kind == "hash":
        store = dist.HashStore()
    elif kind == "file":
        store = dist.FileStore(str(folder / "store"), -1)
    elif kind == "prefix":
        store = dist.PrefixStore("outer", dist.HashStore())
    else:
        store = dist.TCPStore(
            "127.0.0.1", 0, None, True, PATIENCE, use_libuv=kind == "tcp-libuv"
        )
    store.set_timeout(PATIENCE)
    return store


@pytest.fixture
def store(dist, kind, tmp_path):
    return open_store(dist, kind, tmp_path)


def with_kinds(*names: str):
    return pytest.mark.parametrize("kind", names, indirect=True)


def test_num_keys_of_a_file_that_was_closed_once(dist, tmp_path):
    first = open_store(dist, "file", tmp_path)
    del first
    store = open_store(dist, "file", tmp_path)
    assert store.num_keys() == 2  # the counts of members that came and that left
    store.set("a", "")
    assert store.num_keys() == 3


def test_what_a_python_store_lacks(dist):
    class Bare(dist.Store):
        pass

    store = Bare()
    assert store.has_extended_api() is False
    for call in (
        lambda: store.append("key", "value"),
        lambda: store.multi_get(["key"]),
        lambda: store.multi_set(["key"], ["value"]),
        lambda: store.compare_set("key", "", "value"),
    ):
        with pytest.raises(RuntimeError, match="Not implemented."):
            call()
    for call in (
        lambda: store.queue_push("q", "1"),
        lambda: store.queue_pop("q"),
        lambda: store.queue_len("q"),
    ):
        with pytest.raises(NotImplementedError, match="queue support is not implem"):
            call()
    with pytest.raises(NotImplementedError, match="listKeys support is not implem"):
        store.list_keys()


def test_a_python_store_makes_lists_of_single_requests(dist):
    class Plain(dist.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value

        def get(self, key):
            return self.values[key]

    store = Plain()
    for one in (store, dist.PrefixStore("p", store)):
        one.multi_set(["a", "b"], ["1", "2"])
        assert one.multi_get(["b", "a"]) == [b"2", b"1"]


def test_a_name_that_does_not_resolve(dist):
    text = "client socket has timed out after 300ms while trying to connect to"
    with pytest.raises(dist.DistNetworkError, match=text):
        dist.TCPStore(
            "no-such-host.invalid", 1, None, False, timedelta(milliseconds=300)
        )


def test_timeouts_are_runtime_errors(store):
    with pytest.raises(RuntimeError, match=r"(?i)wait timeout|timeout waiting"):
        store.wait(["nope"], SOON)
    store.set_timeout(SOON)
    assert store.timeout == SOON
    with pytest.raises(RuntimeError, match=r"(?i)wait timeout|timeout waiting"):
        store.get("nope")
    with pytest.raises(AttributeError):
        store.timeout = SOON


@with_kinds("tcp-poll", "tcp-libuv")
def test_texts_of_timeouts(dist, store):
    with pytest.raises(dist.DistStoreError, match="^wait timeout after 100ms, keys: /"):
        store.wait(["nope", "none"], SOON)
    with pytest.raises(
        dist.DistStoreError, match="^barrier timeout after 100ms, key: b"
    ):
        store.barrier("b", 2, SOON)


@with_kinds("tcp-libuv")
def test_get_of_a_queue(store):
    store.queue_push("q", "1")
    assert store.get("q") == b""
    store.set("a", "value")
    assert store.multi_get(["q", "a"]) == [b"", b"value"]
    assert store.queue_pop("q") == b"1"


@with_kinds("hash", "prefix")
def test_get_waits_for_a_value_and_no_queue(dist, store):
    store.queue_push("q", "1")
    store.set_timeout(SOON)
    with pytest.raises(dist.DistStoreError, match="(?i)wait timeout"):
        store.get("q")
    assert store.queue_pop("q") == b"1"


@with_kinds("file")
def test_a_file_has_no_queues(store):
    for call in (
        lambda: store.queue_push("q", "1"),
        lambda: store.queue_pop("q"),
        lambda: store.queue_len("q"),
    ):
        with pytest.raises(NotImplementedError):
            call()


def test_barrier(store):
    store.barrier("alone", 1)
    other = Background(lambda: store.clone().barrier("b", 2, PATIENCE))
    store.barrier("b", 2, timeout=PATIENCE)
    other.join()


def test_wrong_types(store):
    for call in (
        lambda: store.set("key", 1),
        lambda: store.set(1, "value"),
        lambda: store.set("key"),
        lambda: store.get(),
        lambda: store.add("key", 1.5),
        lambda: store.wait("key"),
        lambda: store.set_timeout(None),
    ):
        with pytest.raises(TypeError):
            call()


def test_prefixes(dist):
    below = dist.HashStore()
    view = dist.PrefixStore("Q", dist.PrefixStore("P", below))
    view.set("k", "value")
    assert below.get("P/Q/k") == b"value"
    assert view.underlying_store.underlying_store is below
    assert view._underlying_non_prefix_store is below
    view.set_timeout(timedelta(seconds=5))
    assert below.timeout == timedelta(seconds=5)
    assert view.num_keys() == 1
    for prefix, key in (("", "/k"), ("a/", "a//k")):
        dist.PrefixStore(prefix, below).set("k", "")
        assert below.check([key])
    with pytest.raises(ValueError, match="store argument cannot be None"):
        dist.PrefixStore("p", None)


def test_a_hash_store_s_clone_is_itself(dist):
    store = dist.HashStore()
    assert store.clone() is store


@pytest.mark.parametrize(
    ("world_size", "is_left"), [(-1, True), (0, False), (1, False), (2, True)]
)
def test_who_removes_the_file(dist, tmp_path, world_size: int, is_left: bool):
    path = tmp_path / "store"
    store = dist.FileStore(str(path), world_size)
    store.set("key", "value")
    assert store.path == str(path)
    del store
    assert path.exists() is is_left


def test_the_same_bytes_in_the_file(tmp_path):
    contents = []
    for name, dist in (("torch", torch.distributed), ("ours", distlite)):
        path = tmp_path / name
        store = dist.FileStore(str(path), -1)
        store.set("key", b"\x00value")
        store.add("n", 3)
        store.add("n", -5)
        store.compare_set("key", b"\x00value", "new")
        store.delete_key("key")
        store.append("log", "one")
        store.append("log", "two")
        store.barrier("b", 1)
        del store
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


def test_tcp_properties(dist):
    store = dist.TCPStore("localhost", 0, 1, True, use_libuv=False)
    assert store.host == "localhost"
    assert 0 < store.port < 65536
    assert store.libuvBackend is False
    assert store.timeout == timedelta(seconds=300)
    assert store.num_keys() == 1  # the count of workers
    assert repr(store).startswith("TCPStore(client=TCPClient(SocketImpl(fd=")
    assert repr(store).endswith(f", server=TCPServer(port={store.port}))")
    with pytest.raises(ValueError, match="TCPStore world size cannot be 0"):
        dist.TCPStore("localhost", 0, 0, True)


def test_nobody_there(dist):
    with pytest.raises(dist.DistNetworkError):
        dist.TCPStore("127.0.0.1", 1, None, False, timedelta(milliseconds=200))


def test_missing_workers(dist):
    text = r"^Timed out after .* waiting for clients. 1/3 clients joined."
    with pytest.raises(dist.DistStoreError, match=text):
        dist.TCPStore("127.0.0.1", 0, 3, True, timedelta(milliseconds=300))


def test_a_python_store_gets_text_and_bytes(dist):
    seen = []

    class Seen(dist.Store):
        def set(self, key, value):
            seen.append(("set", key, value))

        def get(self, key):
            seen.append(("get", key))
            return b"got"

        def add(self, key, amount):
            seen.append(("add", key, amount))
            return 7

        def compare_set(self, key, expected, desired):
            seen.append(("compare_set", key, expected, desired))
            return b"held"

        def check(self, keys):
            seen.append(("check", keys))
            return True

        def wait(self, keys, timeout=None):
            seen.append(("wait", keys))

    below = Seen()  # torch's PrefixStore does not keep it alive
    view = dist.PrefixStore("p", below)
    view.set("k", "v")
    assert view.get("k") == b"got"
    assert view.add("k", 2) == 7
    assert view.compare_set("k", "a", "b") == b"held"
    assert view.check(["k"]) is True
    view.wait(["k"], PATIENCE)
    assert seen == [
        ("set", "p/k", b"v"),
        ("get", "p/k"),
        ("add", "p/k", 2),
        ("compare_set", "p/k", b"a", b"b"),
        ("check", ["p/k"]),
        ("wait", ["p/k"]),
    ]


def test_public_names_and_arguments_are_there():
    """Everything that torch's have, ours have."""
    for name in ("Store", "HashStore", "FileStore", "PrefixStore", "TCPStore"):
        theirs, ours = getattr(torch.distributed, name), getattr(distlite, name)
        missing = {
            attribute
            for attribute in dir(theirs)
            if not attribute.startswith("_pybind") and not hasattr(ours, attribute)
        }
        assert not missing, name


def test_the_errors_have_the_same_bases():
    for name in (
        "DistError",
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
        "QueueEmptyError",
    ):
        bases = [
            [base.__name__ for base in getattr(dist, name).__mro__]
            for dist in (torch.distributed, distlite)
        ]
        assert bases[0] == bases[1]
