# SPDX-License-Identifier: BSD-3-Clause
"""Leases, which a holder loses that does not renew them in time."""

from __future__ import annotations

import threading
import time
import weakref
from contextlib import suppress
from typing import Any

from .._C import DistError
from .timeouts import LONGEST_WAIT

# Renewals in each lease: two may fail before the lease has run out.
RENEWALS = 3


def now() -> float:
    """Returns the time of a clock that also runs while the host is suspended.

    Only differences within one process are used: clocks of two hosts are never
    compared.
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def start_renewing(
    holder: Any, lease: float, name: str, has_ended: threading.Event
) -> None:
    """Calls `holder._renew_once()` on a thread until `has_ended` is set, or nobody
    refers to the holder any more."""
    found, pause = weakref.ref(holder), min(lease / RENEWALS, LONGEST_WAIT)

    def renew() -> None:
        while not has_ended.wait(pause):
            holder = found()
            if holder is None:
                return
            # The store may be back for the next renewal.
            with suppress(DistError):
                holder._renew_once()
            del holder

    name = f"distlite lease of {name}"
    threading.Thread(target=renew, name=name, daemon=True).start()
