# SPDX-License-Identifier: BSD-3-Clause
"""The changes of the values below a prefix, found by reading them repeatedly."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple

from .. import _C
from .reading import check_prefix, read_items
from .timeouts import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from .._C import Store

__all__ = ["Change", "Watcher", "watch"]

FIRST_PAUSE = 0.01


class Change(NamedTuple):
    """A change of a key's value; `store.watch()` iterates over these.

    Args:
        key: The key.
        value: Its value, or None if it is deleted.
        kind: What has happened to it since the last look: "added", "changed" or
            "deleted".

    Example:
        >>> from distlite.stores import Change
        >>> change = Change("host/0", None, "deleted")
        >>> change.kind, change.key
        ('deleted', 'host/0')
    """

    key: str
    value: bytes | None
    kind: Literal["added", "changed", "deleted"]


Change.__module__ = "distlite.stores"


class Watcher:
    """The last values that were read, and when to read them again."""

    def __init__(
        self,
        store: Store,
        prefix: str,
        timeout: timedelta | float | None,
        initial: bool,
        interval: float,
    ) -> None:
        self.store = store
        self.prefix = check_prefix(prefix)
        self._limit = -1.0 if timeout is None else seconds_of(timeout)
        self._interval = seconds_of(interval, "interval")
        if self._interval <= 0:
            raise ValueError(f"interval must be positive, not {interval}")
        self._pause = FIRST_PAUSE
        self._since: float | None = None
        # None before the first reading, which finds values and no changes.
        self._known: dict[str, bytes] | None = {} if initial else None

    def read_changes(self) -> list[Change]:
        """Returns what has changed since the last reading, by key."""
        before, now = self._known, dict(read_items(self.store, self.prefix))
        self._known = now
        if before is None or before == now:
            return []
        names = sorted(before.keys() | now.keys())
        changes = (_change(name, before.get(name), now.get(name)) for name in names)
        return [change for change in changes if change is not None]

    def begin_wait(self) -> None:
        """Starts the time to wait for a change."""
        self._since = time.monotonic()
        self._pause = FIRST_PAUSE

    def next_pause(self) -> float | None:
        """Returns the seconds until the next reading; None if the time is over."""
        pause = min(self._pause, self._interval)
        self._pause *= 2
        if self._limit < 0 or self._since is None:
            return pause
        left = self._since + self._limit - time.monotonic()
        return min(pause, left) if left > 0 else None


def _change(name: str, before: bytes | None, now: bytes | None) -> Change | None:
    if before == now:
        return None
    if now is None:
        return Change(name, None, "deleted")
    return Change(name, now, "added" if before is None else "changed")


def watch(watcher: Watcher) -> Iterator[Change]:
    """Returns an iterator over the changes from now on."""
    # Here, and not in the generator, whose code starts to run at its first step.
    first = watcher.read_changes()
    return _changes(watcher, first)


def _changes(watcher: Watcher, first: list[Change]) -> Iterator[Change]:
    found: list[Change] | None = first
    while found is not None:
        yield from found
        found = _await_changes(watcher)


def _await_changes(watcher: Watcher) -> list[Change] | None:
    """Returns the next changes; None if the time is over."""
    watcher.begin_wait()
    if found := watcher.read_changes():
        return found
    is_shown = _C._show_wait(f"store.watch({watcher.prefix!r})")
    try:
        while not found:
            pause = watcher.next_pause()
            if pause is None:
                return None
            time.sleep(pause)
            found = watcher.read_changes()
    finally:
        if is_shown:
            _C._show_wait(None)
    return found
