# SPDX-License-Identifier: BSD-3-Clause
"""The changes of the values below a prefix, found by reading them repeatedly."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Literal, NamedTuple

from .. import _C
from .._C import Store
from .reading import read_items
from .timeouts import seconds_of

__all__ = ["Change", "watch"]

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


def watch(
    store: Store,
    prefix: str = "",
    timeout: timedelta | float | None = None,
    initial: bool = False,
    *,
    interval: float = 1.0,
) -> Iterator[Change]:
    """Returns an iterator over the changes from now on; see `Store.watch`."""
    limit = -1.0 if timeout is None else seconds_of(timeout)
    longest = seconds_of(interval, "interval")
    if longest <= 0:
        raise ValueError(f"interval must be positive, not {interval}")
    # Here, and not in the generator, whose code starts to run at its first step.
    now = dict(read_items(store, prefix))
    return _changes(store, prefix, {} if initial else now, now, limit, longest)


def _changes(
    store: Store,
    prefix: str,
    before: dict[str, bytes],
    now: dict[str, bytes],
    limit: float,
    interval: float,
) -> Iterator[Change]:
    while True:
        for name in sorted(before.keys() | now.keys()):
            change = _change(name, before.get(name), now.get(name))
            if change is not None:
                yield change
        before, found = now, _await_change(store, prefix, now, limit, interval)
        if found is None:
            return
        now = found


def _change(name: str, before: bytes | None, now: bytes | None) -> Change | None:
    if before == now:
        return None
    if now is None:
        return Change(name, None, "deleted")
    return Change(name, now, "added" if before is None else "changed")


def _await_change(
    store: Store, prefix: str, known: dict[str, bytes], limit: float, interval: float
) -> dict[str, bytes] | None:
    """Returns the values as soon as they are not the known ones; None if the time is
    over. A negative limit never ends."""
    pause, ends = FIRST_PAUSE, time.monotonic() + limit
    if (found := dict(read_items(store, prefix))) != known:
        return found
    is_shown = _C._show_wait(f"store.watch({prefix!r})")
    try:
        while found == known:
            left = ends - time.monotonic() if limit >= 0 else interval
            if left <= 0:
                return None
            time.sleep(min(pause, interval, left))
            pause *= 2
            found = dict(read_items(store, prefix))
    finally:
        if is_shown:
            _C._show_wait(None)
    return found
