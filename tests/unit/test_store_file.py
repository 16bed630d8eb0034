# SPDX-License-Identifier: BSD-3-Clause
"""FileStore: the file it shares, and what becomes of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from store_kinds import Background, join_all

from distlite import DistStoreError, FileStore


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
