# SPDX-License-Identifier: BSD-3-Clause
"""What processes do with a store that came to them as a pickle."""

from __future__ import annotations

import os
import signal

from distlite import Store


def count(store: Store) -> None:
    """Beside other processes that do the same."""
    for _ in range(50):
        store.add("n", 1)
    store.set(f"pid/{os.getpid()}", "done")


def die_holding(store: Store, lease: float) -> None:
    """Without a word, while the lease is being renewed."""
    with store.lock("lock", lease=lease):
        store.set("held", "")
        store.wait(["die"])
        os.kill(os.getpid(), signal.SIGKILL)


def hold_and_pause(store: Store, lease: float) -> None:
    """Held up until others have the lock; says what it is told then."""
    lock = store.lock("lock", lease=lease)
    lock.acquire()
    store.set("held", "")
    os.kill(os.getpid(), signal.SIGSTOP)
    was_held = lock.is_held
    try:
        lock.release()
    except RuntimeError as error:
        store.set("told", f"{was_held} {error}")
