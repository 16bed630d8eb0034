# SPDX-License-Identifier: BSD-3-Clause
"""The list of what every store does, as far as torch's stores do the same: over torch's
kinds, our clients of torch's servers, and torch's clients of ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from store_conformance import (  # noqa: F401
    test_a_clone_has_the_timeout,
    test_a_clone_is_a_store_on_the_same_data,
    test_a_compare_set_ends_a_wait,
    test_a_counter_is_decimal_text,
    test_a_failed_compare_set_ends_no_wait,
    test_a_wait_is_for_all_keys,
    test_adding_to_text_is_an_error_in_that_call,
    test_an_absent_key_is_not_deleted,
    test_an_append_of_nothing_makes_a_value,
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
    test_names_are_counted,
    test_names_are_listed_once,
    test_numbers_are_read_leniently,
    test_queues_are_first_in_first_out,
    test_the_last_value_stays,
    test_what_is_set_is_got,
)
from store_kinds import PATIENCE, Kind

import distlite

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")
theirs = torch.distributed


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
    "test_a_clone_has_the_timeout": {"file"},
    "test_a_compare_set_ends_a_wait": {"torch-legacy", "torch-legacy-reverse"},
    "test_a_failed_compare_set_ends_no_wait": {"torch-libuv", "torch-libuv-reverse"},
    # These lose their connection: test_store_interop.py.
    "test_adding_to_text_is_an_error_in_that_call": KINDS.keys()
    - {"hash", "file", "prefix", "our-libuv", "our-poll"},
    "test_an_absent_key_is_not_deleted": {"file"},
    "test_an_append_of_nothing_makes_a_value": {"file"},
    "test_every_write_ends_a_wait": {"hash", "prefix"},  # add() wakes nobody
    "test_names_are_listed_once": {"file"},
}


WITHOUT_QUEUES = {"file", "torch-legacy", "torch-legacy-reverse"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
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
