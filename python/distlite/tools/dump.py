# SPDX-License-Identifier: BSD-3-Clause
"""Writes recordings to files, which can be read later and on other hosts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from distlite import _C
from distlite.tools.job import Job

# torch's variable: the beginning of the file's name, to which the rank is added.
PREFIX_VARIABLE = "TORCH_FR_DUMP_TEMP_FILE"


def dump_asked(data: bytes | memoryview, rank: int | None) -> str | None:
    """Writes a snapshot to the file that the environment asks for, and returns its
    path."""
    prefix = os.environ.get(PREFIX_VARIABLE)
    if not prefix:
        return None
    path = f"{prefix}{0 if rank is None else rank}"
    write(path, data)
    return path


def dump_all(jobs: Iterable[Job], prefix: str) -> list[str]:
    """Writes the recordings of all ranks, even of stopped ones, and returns the
    paths."""
    paths = []
    for job in jobs:
        for member in job.members:
            rank = member.recording.pid if member.rank is None else member.rank
            path = f"{prefix}{rank}"
            if path in paths:  # a rank of another job
                path = f"{prefix}{rank}-{member.recording.pid}"
            try:
                data = _C._read_recording(member.recording.path)
            except FileNotFoundError:  # it has left its groups meanwhile
                continue
            write(path, data)
            paths.append(path)
    return paths


def write(path: str, data: bytes | memoryview) -> None:
    """Writes a file that appears complete, because it may be read at any moment."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
