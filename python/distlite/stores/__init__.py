# SPDX-License-Identifier: BSD-3-Clause
"""What the extension calls for methods of Store in Python, and the relay of a host.

reading     all values below a prefix
store_lock  locks between all users of a store, with and without a lease
leases      the renewals of those who hold something for a time
handles     what pickle makes a store of another process from
timeouts    timeouts as seconds
relay       the relay of a host, which distlite.store_relay() starts
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .store_lock import StoreLock as StoreLock

__all__ = ["StoreLock"]


def __getattr__(name: str) -> object:
    if name != "StoreLock":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .store_lock import StoreLock

    return StoreLock


def __dir__() -> list[str]:
    return __all__
