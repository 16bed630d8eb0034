# SPDX-License-Identifier: BSD-3-Clause
"""The names of torch.multiprocessing: those that start ranks, from distlite.spawn, and
those of Python's multiprocessing."""

from __future__ import annotations

import multiprocessing as _python
from typing import Any

from .spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


def __getattr__(name: str) -> Any:
    return getattr(_python, name)
