# SPDX-License-Identifier: BSD-3-Clause
"""Lines of the log as records of the logger "distlite", where there are handlers.

The extension asks `has_handlers`, and calls `deliver` with each line, on a thread of
its own (csrc/python/module/log_lines.h).  `logging` is not imported here: a program
that has not imported it has no handlers.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .. import _C

if TYPE_CHECKING:
    from logging import Logger


# Python's levels by the extension's; its levels trace and debug depend on the debug
# level.
_LEVELS = ("DEBUG", "DEBUG", "INFO", "WARNING", "ERROR")


def has_handlers() -> bool:
    """Whether a record of the logger would reach a handler.

    The logger is not made for that: what `logging.config` finds, it may disable."""
    import logging

    logger = logging.root.manager.loggerDict.get("distlite", logging.root)
    return isinstance(logger, logging.Logger) and logger.hasHandlers()


def deliver(level: int, rank: int, time: int, head: int, data: bytes) -> None:
    """Passes a line to the handlers, or writes it where there are none any more."""
    text = data[head:-1].decode(errors="backslashreplace")
    if not say(_LEVELS[level], text, rank if rank >= 0 else None, time):
        _write(data)
        _C._look_for_log_handlers()


def say(
    level: str,
    text: str,
    rank: int | None = None,
    time: int | None = None,
    *,
    exc_info: bool = False,
) -> bool:
    """Passes a text to the handlers of logging; returns False if there are none.

    `time` is in nanoseconds since 1970.  The exception of a handler is written to
    standard error, together with the text.
    """
    logger = _logger()
    if logger is None:
        return False
    try:
        _hand_over(logger, level, text, rank, time, exc_info)
    except BaseException:
        import traceback

        error = traceback.format_exc()
        _write(f"distlite: {text}\n{error}".encode(errors="backslashreplace"))
    return True


def _logger() -> Logger | None:
    if "logging" not in sys.modules:
        return None
    import logging

    logger = logging.getLogger("distlite")
    return logger if logger.hasHandlers() else None


def _hand_over(
    logger: Logger,
    level: str,
    text: str,
    rank: int | None,
    time: int | None,
    exc_info: bool,
) -> None:
    import logging

    number: int = getattr(logging, level)
    if not logger.isEnabledFor(number):
        return
    raised = sys.exc_info() if exc_info else None
    record = logger.makeRecord(
        logger.name, number, "distlite", 0, text, (), raised, extra={"rank": rank}
    )
    if time is not None:
        # The record gets the time at which the line was written.
        created = time / 1e9
        record.relativeCreated += (created - record.created) * 1e3
        record.created, record.msecs = created, time // 10**6 % 1000 + 0.0
    logger.handle(record)


def _write(data: bytes) -> None:
    """Writes in one piece, so that the lines of several processes do not mix."""
    import contextlib

    with contextlib.suppress(OSError):
        os.write(2, data)
