# SPDX-License-Identifier: BSD-3-Clause
"""Reading what is below a prefix, of every kind of store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_kinds import KINDS, DictStore, Kind

from distlite import DistStoreError, PrefixStore, Store


class Written(Kind):
    """A store in Python without a view around it."""

    def _make(self) -> Store:
        return self.opened[0] if self.opened else DictStore()


@pytest.fixture(params=[*KINDS, "written"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kind]:
    made = {**KINDS, "written": Written}[request.param](tmp_path)
    yield made
    made.close()


def test_items_below_a_prefix(store: Store, peer: Store):
    peer.multi_set(["b/2", "b/1", "c", "b"], ["2", b"\xff", "3", ""])
    assert store.items("b/") == [("b/1", b"\xff"), ("b/2", b"2")]
    assert {("b", b""), ("c", b"3")} <= set(store.items())
    assert store.items("d") == []


def test_keys_that_are_deleted_meanwhile_are_left_out(store: Store, kind: Kind):
    class Late(PrefixStore):
        """Lists keys that are gone when they are read."""

        def list_keys(self) -> list[str]:
            return [*super().list_keys(), "gone/0", "gone/1", "zz"]

    late = Late("late", store)
    late.multi_set([f"k{n}" for n in range(9)], [str(n) for n in range(9)])
    began = time.monotonic()
    assert late.items() == [(f"k{n}", b"%d" % n) for n in range(9)]
    assert time.monotonic() - began < 30  # half of the store's timeout
    late.close()
    with pytest.raises(DistStoreError, match="closed"):
        late.items()
