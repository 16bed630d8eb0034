# SPDX-License-Identifier: BSD-3-Clause
"""Builds the simulator: the core, and the files of this folder, to which the linker
sends the core's calls to the system."""

from __future__ import annotations

import re
from pathlib import Path

from c_build import Builder

HERE = Path(__file__).resolve().parent

# Behind edge.c come the core's variables, of which each process has its own (image.c).
SOURCES = sorted(HERE.glob("*.c"), key=lambda path: path.name == "edge.c")

# The calls to the system that the files of this folder define.
WRAPPED = sorted(
    name
    for path in SOURCES
    for name in re.findall(r"^(?:__wrap_|OUTSIDE\()(\w+)", path.read_text(), re.M)
)


def simulator(builder: Builder, changed: Path | None = None) -> Path:
    """Returns the program.  `changed` takes the place of a file of the core."""
    own = [] if changed is None else [changed]
    name = "simulate" if changed is None else f"mutants/{changed.stem}"
    return builder.program(*SOURCES, *own, wraps=WRAPPED, named=name)
