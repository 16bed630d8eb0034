# SPDX-License-Identifier: BSD-3-Clause
"""FileStore: the file it shares, and what becomes of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from store_kinds import Background, join_all

from distlite import DistStoreError, FileStore


def record(key: bytes, value: bytes) -> bytes:
    sizes = [len(part).to_bytes(4, "little") for part in (key, value)]
    return sizes[0] + key + sizes[1] + value


def test_the_layout_of_the_file(tmp_path: Path):
    path = tmp_path / "store"
    store = FileStore(path)
    written = record(b"refcount/", b"1")
    assert path.read_bytes() == written
    store.set("key", "value")
    store.add("n", -2)
    store.delete_key("key")
    written += record(b"/key", b"value") + record(b"/n", b"-2") + record(b"-/key", b"")
    assert path.read_bytes() == written
    store.close()
    written += record(b"cleanup/", b"1") + record(b"refcount/", b"0")
    assert path.read_bytes() == written


def test_a_file_is_its_users_own_unless_it_was_there(tmp_path: Path):
    own, shared = tmp_path / "own", tmp_path / "shared"
    shared.touch()
    shared.chmod(0o664)
    for path in (own, shared):
        FileStore(path).set("key", "value")
    assert own.stat().st_mode & 0o777 == 0o600
    assert shared.stat().st_mode & 0o777 == 0o664


def test_the_path_is_as_given(tmp_path: Path):
    path = tmp_path / "caf\udce9"
    for form in (path, str(path), os.fsencode(path)):
        with FileStore(form) as store:
            assert store.path == str(path)


@pytest.mark.parametrize(
    ("world_size", "is_left"), [(-1, True), (0, False), (1, False)]
)
def test_the_last_of_a_small_world_removes_the_file(tmp_path, world_size, is_left):
    path = tmp_path / "store"
    with FileStore(path, world_size) as first:
        with FileStore(path, world_size) as second:
            second.set("key", "value")
        assert path.exists()
        assert first.get("key") == b"value"
    assert path.exists() is is_left


def test_the_file_stays_until_all_have_been_there(tmp_path: Path):
    path = tmp_path / "store"
    for _ in range(2):
        FileStore(path, 3).close()
        assert path.exists()
    FileStore(path, world_size=3).close()
    assert not path.exists()


def test_freeing_a_store_closes_it(tmp_path: Path):
    path = tmp_path / "store"
    store = FileStore(path, 1)
    del store
    assert not path.exists()


def test_closing_counts_while_others_hold_the_lock(tmp_path: Path):
    """Many close at once; each must be counted, or the file stays for ever."""
    path = tmp_path / "store"
    stores = [FileStore(path, 8) for _ in range(8)]
    busy = FileStore(path, 9)
    is_done = []

    def keep_busy() -> None:
        while not is_done:
            busy.set("key", "v" * 1000)

    writer = Background(keep_busy)
    join_all([Background(store.close) for store in stores])
    is_done.append(True)
    writer.join()
    busy.close()
    assert not path.exists()


def test_a_missing_folder_fails_at_once(tmp_path: Path):
    began = time.monotonic()
    with pytest.raises(DistStoreError, match=r"nowhere.*No such file or directory"):
        FileStore(tmp_path / "nowhere" / "store")
    assert time.monotonic() - began < 5


def test_an_old_file_is_continued(tmp_path: Path):
    path = tmp_path / "store"
    with FileStore(path) as store:
        store.set("key", "value")
    with FileStore(path) as store:
        assert store.get("key") == b"value"
        assert store.list_keys() == ["key"]
        assert store.num_keys() == 3  # with the counts of members, as torch's


def test_a_half_written_record_is_written_over(tmp_path: Path):
    path = tmp_path / "store"
    store = FileStore(path)
    store.set("a", "1")
    with path.open("ab") as file:
        file.write(record(b"/b", b"two")[:-2])
    assert store.get("a") == b"1"
    assert not store.check(["b"])
    store.set("a", "2")
    assert FileStore(path).get("a") == b"2"


def test_a_truncated_file_is_read_anew(tmp_path: Path):
    path = tmp_path / "store"
    store = FileStore(path)
    store.set("a", "1")
    store.set("b", "2")
    os.truncate(path, len(record(b"refcount/", b"1") + record(b"/a", b"1")))
    assert store.list_keys() == ["a"]
    store.set("c", "3")
    assert sorted(FileStore(path).list_keys()) == ["a", "c"]


def test_waiting_does_not_spin(tmp_path: Path):
    store = FileStore(tmp_path / "store")
    used = time.process_time()
    with pytest.raises(DistStoreError):
        store.wait(["nope"], 0.5)
    assert time.process_time() - used < 0.1


def test_a_clone_counts_as_a_member(tmp_path: Path):
    path = tmp_path / "store"
    store = FileStore(path, 2)
    clone = store.clone()
    clone.set("key", "value")
    assert clone.path == store.path
    clone.close()
    assert path.exists()
    assert store.get("key") == b"value"
    store.close()
    assert not path.exists()
