#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Divides the tests into runs of pytest that last about equally long.

    parts.py N       prints N lines, the files of one run each
    parts.py --record FOLDER
                     takes over what a run with DISTLITE_TESTS_DURATIONS=FOLDER measured

How long each file took is kept in durations.json, in seconds beside the other runs; a
new file counts as long as the one in the middle.  Files are dealt out from the longest
to the shortest, each to the run that has least to do (Graham, Bounds on Multiprocessing
Timing Anomalies, 1969).
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DURATIONS = ROOT / "tests" / "durations.json"
# These share what is built for them: one run for the whole folder.
FOLDERS = ("tests/c", "tests/fuzz", "tests/simulate")
FILES = ("tests/unit", "tests/multi", "tests/parity")
# What a fresh clone spends, beside the other runs, on building the core and the
# programs of tests/c; those of tests/fuzz wait for the same core.
BUILDING = {"tests/c": 50.0, "tests/fuzz": 45.0}


def units() -> list[str]:
    """Returns the folders and files that are divided, relative to the root."""
    files = [file for folder in FILES for file in (ROOT / folder).glob("test_*.py")]
    return [*FOLDERS, *sorted(str(file.relative_to(ROOT)) for file in files)]


def unit_of(path: str) -> str:
    """The folder or file that a test's file counts for."""
    return next((f for f in FOLDERS if path.startswith(f + "/")), path)


def known() -> dict[str, float]:
    durations: dict[str, float] = json.loads(DURATIONS.read_text())
    return durations


def divide(
    names: Iterable[str], durations: dict[str, float], count: int
) -> list[list[str]]:
    """`count` lists with all names, of about equal durations; some may be empty."""
    middle = statistics.median(durations.values()) if durations else 1.0
    seconds = {n: durations.get(n, middle) + BUILDING.get(n, 0.0) for n in names}
    parts: list[list[str]] = [[] for _ in range(count)]
    sums = [0.0] * count
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        least = sums.index(min(sums))
        parts[least].append(name)
        sums[least] += seconds[name]
    return [sorted(part) for part in parts]


def record(folder: Path) -> None:
    """Adds up what each run of pytest wrote into the folder (tests/conftest.py)."""
    measured: dict[str, float] = {}
    for file in sorted(folder.glob("*.json")):
        for path, seconds in json.loads(file.read_text()).items():
            unit = unit_of(path)
            measured[unit] = measured.get(unit, 0.0) + seconds
    rounded = {name: round(measured.get(name, 0.0), 1) for name in units()}
    DURATIONS.write_text(json.dumps(rounded, indent=0) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--record", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.record:
        record(arguments.record)
        return
    for part in divide(units(), known(), arguments.count):
        print(*part)


if __name__ == "__main__":
    main()
