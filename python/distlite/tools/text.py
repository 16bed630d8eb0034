# SPDX-License-Identifier: BSD-3-Clause
"""Tables, and times as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO


def plain(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table with columns aligned by spaces, one line per row."""
    table = [list(headers), *(list(row) for row in rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(headers))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)


def show(
    title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], file: TextIO
) -> None:
    """Writes the table with its title; no cell is cut."""
    print(f"{title}\n{plain(headers, rows)}", file=file)


def seconds(nanoseconds: int) -> str:
    """ "350 us", "12 ms", "3.2 s", "5 min": as exact as one wants to read it."""
    value = nanoseconds / 1e9
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.0f} min"
