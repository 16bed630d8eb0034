# SPDX-License-Identifier: BSD-3-Clause
"""Recordings in files, to be looked at later or elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from distlite import _C
from distlite.tools.job import Job

# torch's names, the newer one first: a prefix that the rank is put after.
PREFIX_VARIABLES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")


def dump_asked(data: bytes, rank: int | None) -> str | None:
    """Writes a snapshot to where the environment asks for it; the path."""
    for name in PREFIX_VARIABLES:
        prefix = os.environ.get(name)
        if prefix:
            path = f"{prefix}{0 if rank is None else rank}"
            _write(path, data)
            return path
    return None


def dump_all(jobs: Iterable[Job], prefix: str) -> list[str]:
    """Writes the recordings of all ranks, also of those that cannot help; the paths."""
    paths = []
    for job in jobs:
        for member in job.members:
            rank = member.recording.pid if member.rank is None else member.rank
            path = f"{prefix}{rank}"
            if path in paths:  # another job's
                path = f"{prefix}{rank}-{member.recording.pid}"
            try:
                data = _C._read_recording(member.recording.path)
            except FileNotFoundError:  # it has ended in good order meanwhile
                continue
            _write(path, data)
            paths.append(path)
    return paths


def _write(path: str, data: bytes) -> None:
    """All of it or nothing: a reader may look at any moment."""
    partial = f"{path}.{os.getpid()}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
