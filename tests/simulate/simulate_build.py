# SPDX-License-Identifier: BSD-3-Clause
"""Builds the simulator: the core, and the files of this folder, to which the linker
sends the core's calls to the system."""

from __future__ import annotations

import re
from pathlib import Path

from c_build import Builder

HERE = Path(__file__).resolve().parent

SOURCES = sorted(HERE.glob("*.c"), key=lambda path: path.name != "main.c")

# The calls to the system that the files of this folder define.
WRAPPED = sorted(
    name
    for path in SOURCES
    for name in re.findall(r"^(?:__wrap_|OUTSIDE\()(\w+)", path.read_text(), re.M)
)


def simulator(builder: Builder, in_front: Path | None = None) -> Path:
    """Returns the program.  `in_front` takes the place of a file of the core."""
    first = [] if in_front is None else [in_front]
    return builder.program(*first, *SOURCES, wraps=WRAPPED)
