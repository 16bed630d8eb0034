# SPDX-License-Identifier: BSD-3-Clause
"""Timeouts as seconds, by the rules of the extension (csrc/python/module/convert.c)."""

from __future__ import annotations

import time
from datetime import timedelta
from numbers import Real

__all__ = ["end_after", "seconds_of", "time_left"]

# What waits in Python has to wait in steps of at most a day: poll(2) takes 24 days, and
# a lock 292 years.
LONGEST_WAIT = 86400.0


def seconds_of(value: object, name: str = "timeout") -> float:
    """Returns the seconds of a `timedelta` or a real number; a negative number is
    forever.

    Raises:
        TypeError: It is something else.
        ValueError: It is NaN.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(
            f"{name} must be a datetime.timedelta or seconds as a number, not "
            f"{type(value).__name__}"
        )
    seconds = float(value)
    if seconds != seconds:
        raise ValueError(f"{name} must not be NaN")
    return seconds


def end_after(timeout: object) -> float:
    """Returns the `time.monotonic()` at which a timeout ends; infinity if it is
    negative."""
    seconds = seconds_of(timeout)
    return time.monotonic() + seconds if seconds >= 0 else float("inf")


def time_left(until: float) -> timedelta:
    """Returns what is left until then, at least a millisecond and at most a day."""
    return timedelta(seconds=max(0.001, min(until - time.monotonic(), LONGEST_WAIT)))
