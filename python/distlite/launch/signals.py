# SPDX-License-Identifier: BSD-3-Clause
"""A pipe by which a loop polls for signals."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from types import FrameType

from distlite.launch.rank_process import ENDING


class SignalPipe:
    """Catches signals from `__enter__` to `__exit__`; `fd` is readable when one has
    come."""

    def __init__(self, ending: Iterable[int] = ENDING) -> None:
        self._told = (*ending, signal.SIGCHLD, signal.SIGWINCH)

    def __enter__(self) -> SignalPipe:
        self.fd, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup_before = signal.set_wakeup_fd(
            self._write_end, warn_on_full_buffer=False
        )
        self._before = {}
        for number in self._told:
            # These are ignored if the launcher was started by nohup, or in the
            # background of a script: the job is then not to end by them.
            is_ignored = signal.getsignal(number) == signal.SIG_IGN
            if number not in (signal.SIGHUP, signal.SIGINT) or not is_ignored:
                self._before[number] = signal.signal(number, _wake_up)
        # A supervisor may have started this process with signals blocked.  The ranks
        # inherit the mask: they need these too, and get the rest as it was.
        self._mask_before = signal.pthread_sigmask(signal.SIG_UNBLOCK, self._told)
        return self

    def take(self) -> list[int]:
        """Returns the signals since the last call, in their order."""
        with contextlib.suppress(BlockingIOError):
            return list(os.read(self.fd, 1024))
        return []

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)
        for number, handler in self._before.items():
            # None is a handler that is not Python's, which cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self.fd)
        os.close(self._write_end)


def named_signals(names: Iterable[str]) -> frozenset[int]:
    """Returns signals by names such as SIGTERM; raises ValueError for one that cannot
    be caught."""
    numbers = set()
    for name in names:
        number = getattr(signal, name, None)
        if not isinstance(number, signal.Signals):
            raise ValueError(f"unknown signal {name!r}")
        if number in (signal.SIGKILL, signal.SIGSTOP):
            raise ValueError(f"{name} cannot be caught")
        numbers.add(int(number))
    return frozenset(numbers)


def _wake_up(_number: int, _frame: FrameType | None) -> None:
    # Python writes a byte to the pipe, which is all that is needed.
    pass
