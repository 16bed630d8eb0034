# SPDX-License-Identifier: BSD-3-Clause
"""Temporary folders that do not outlive what they are for, even if that is killed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from os import getpid
from pathlib import Path


@contextlib.contextmanager
def own_folder(prefix: str, parent: str | None = None) -> Iterator[str]:
    """A folder of this process, which goes at the end of the block.

    Those of processes that were killed go first: their names have the process id."""
    for left in Path(parent or tempfile.gettempdir()).glob(f"{prefix}[0-9]*-*"):
        owner = left.name.removeprefix(prefix).partition("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=f"{prefix}{getpid()}-", dir=parent, ignore_cleanup_errors=True
    ) as folder:
        yield folder
