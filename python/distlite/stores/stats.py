# SPDX-License-Identifier: BSD-3-Clause
"""The type of what `Store.stats` returns.

The keys come from the server: one of another version may have more."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["StoreStats"]


class StoreRefusals(TypedDict):
    """How often each limit was exceeded; the settings are in docs/environment.md."""

    validate: int
    stall: int
    connections: int
    keys: int
    bytes: int
    pending: int
    replies: int


class StoreReplies(TypedDict):
    """The replies that the server keeps, so that a repeated change is carried out
    once."""

    slots: int
    bytes: int
    repeated: int
    forgotten: int


class StoreJournal(TypedDict):
    """The file in which the server keeps its values."""

    bytes: int
    writes: int
    failures: int
    replaced: int


class StoreStats(TypedDict, total=False):
    """Counts of a store's server; a `HashStore` has only those of its table."""

    identity: str
    keys: int
    names: int
    bytes: int
    waiters: int
    clients: int
    unix_clients: int
    requests: int
    input_bytes: int
    output_bytes: int
    slowest_turn_us: int
    uptime_ms: int
    refusals: StoreRefusals
    closed: dict[str, int]
    replies: StoreReplies
    journal: StoreJournal
