# SPDX-License-Identifier: BSD-3-Clause
"""The type of what `Store.stats` returns.  The keys are the server's: one of another
version may tell more."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["StoreStats"]


class StoreRefusals(TypedDict):
    """How often each limit was exceeded; the settings are in docs/environment.md."""

    validate: int
    stall: int
    descriptors: int
    keys: int
    bytes: int
    pending: int
    replies: int
    listings: int


class StoreReplies(TypedDict):
    """What is remembered of clients, so that repeated changes are done once."""

    slots: int
    bytes: int
    repeated: int
    forgotten: int


class StoreJournal(TypedDict):
    """The file in which the server keeps what it holds."""

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
    expiring: int
    expired: int
    clients: int
    requests: int
    input_bytes: int
    output_bytes: int
    slowest_turn_us: int
    uptime_ms: int
    refusals: StoreRefusals
    closed: dict[str, int]
    replies: StoreReplies
    journal: StoreJournal
