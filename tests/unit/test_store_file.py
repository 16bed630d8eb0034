# SPDX-License-Identifier: BSD-3-Clause
"""FileStore: the file it shares, and what becomes of it."""

from __future__ import annotations

import os
from pathlib import Path

from store_kinds import Background, join_all

from distlite import FileStore


def test_the_path_is_as_given(tmp_path: Path):
    path = tmp_path / "caf\udce9"
    for form in (path, str(path), os.fsencode(path)):
        with FileStore(form) as store:
            assert store.path == str(path)


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
