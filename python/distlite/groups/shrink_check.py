# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the survivors of a group leave out the same ranks.

Survivors with different lists make different groups, and would wait for each other
until the timeout. So each writes its list to the old group's store, and a thread
compares it with those of the others while the caller meets them. If the store has ended
with a lost rank, nothing is compared.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import timedelta

from .._C import DistNetworkError, DistStoreError, ProcessGroup, Store

__all__ = ["Comparison"]

# Seconds between two checks, and for a store that does not answer.
_PAUSE = 0.01
_PATIENCE = 1.0


class Comparison:
    """Compares the ranks that each rank excludes, until stop()."""

    def __init__(self, former: ProcessGroup, excluded: list[int], turn: int) -> None:
        self.excluded = excluded
        self._key = f"{former.group_name}:shrink:{turn}"
        self._rank, self._size = former.rank(), former.size()
        self._mine = ",".join(map(str, excluded))
        self._text = ""
        self._is_over = threading.Event()
        self._made: ProcessGroup | None = None
        self._thread = threading.Thread(
            target=self._run, args=(former.get_group_store(),), name="distlite-shrink"
        )

    def start(self, made: ProcessGroup) -> None:
        """Starts to compare; aborts `made` if another rank leaves out other ranks."""
        self._made = made
        self._thread.start()

    def stop(self) -> None:
        """Ends the comparison, because all ranks have met or given up."""
        self._is_over.set()

    def difference(self) -> str:
        """Returns how the lists differ, once the rendezvous has failed; "" if they do
        not."""
        self._thread.join(2 * _PATIENCE)
        self.stop()
        return self._text

    def _run(self, store: Store | None) -> None:
        with suppress(Exception):
            # An error means that the store has ended or cannot be cloned.
            if store is not None and self._answers(store):
                self._compare_all(store.clone())

    def _answers(self, store: Store) -> bool:
        """Returns whether the store answers within the patience; it waits for a key
        that no rank writes, for no time."""
        began = time.monotonic()
        try:
            store.wait([f"{self._key}/nobody"], timedelta(0))
        except DistNetworkError:
            return False
        except DistStoreError:
            return time.monotonic() - began < _PATIENCE
        return True

    def _compare_all(self, store: Store) -> None:
        # The clone has a connection of its own, so that other calls do not wait for it.
        store.set_timeout(timedelta(seconds=_PATIENCE))
        store.set(f"{self._key}/{self._rank}", self._mine)
        others = [rank for rank in range(self._size) if rank != self._rank]
        while others and not self._is_over.wait(_PAUSE):
            come = [rank for rank in others if store.check([f"{self._key}/{rank}"])]
            for rank in come:
                others.remove(rank)
                self._compare(rank, store.get(f"{self._key}/{rank}").decode())
            if self._text:
                return

    def _compare(self, rank: int, theirs: str) -> None:
        if theirs == self._mine or self._text:
            return
        self._text = (
            f"the ranks do not exclude the same ranks: rank {self._rank} excludes "
            f"[{self._mine.replace(',', ', ')}], "
            f"rank {rank} excludes [{theirs.replace(',', ', ')}]. All remaining ranks "
            "must call shrink_group with the same list"
        )
        if self._made is not None:
            self._made.abort()
