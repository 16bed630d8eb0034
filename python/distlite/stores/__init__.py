# SPDX-License-Identifier: BSD-3-Clause
"""What `store.dict()`, `store.watch()` and `store.lock()` return.

store_dict  a store as a dict of numbers, arrays and other data
reading     all values below a prefix
watching    their changes
store_lock  locks between all users of a store, with and without a lease
handles     what pickle makes a store of another process from
timeouts    timeouts as seconds

The extension calls them for the methods of Store of these names.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .store_dict import StoreDict as StoreDict
    from .store_lock import StoreLock as StoreLock
    from .watching import Change as Change

__all__ = ["Change", "StoreDict", "StoreLock"]

_HOMES = {"Change": "watching", "StoreDict": "store_dict", "StoreLock": "store_lock"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = f"{__name__}.{_HOMES[name]}"
    __import__(home)
    value: object = getattr(sys.modules[home], name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
