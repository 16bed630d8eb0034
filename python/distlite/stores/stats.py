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
    listings: int


class StoreReplies(TypedDict):
    """What a server remembers of its clients' changes, to execute each once."""

    slots: int
    bytes: int
    repeated: int
    forgotten: int


class StoreStats(TypedDict, total=False):
    """Counts of a store's server; a `HashStore` has only the first four."""

    keys: int
    names: int
    bytes: int
    waiters: int
    clients: int
    requests: int
    input_bytes: int
    output_bytes: int
    slowest_turn_us: int
    uptime_ms: int
    replies: StoreReplies
    refusals: StoreRefusals
    closed: dict[str, int]
