# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmarks have in common: medians, alternation, targets, tables, files; and
how a call is timed."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
KIB, MIB = 1 << 10, 1 << 20

BATCHES = 5
MAX_CALLS = 5000
# A batch that takes this share of the budget has warmed up, and decides how many calls
# to make.
WARM_SHARE = 0.2
# What a rank computes between two calls: sums over memory that exceeds a core's own
# caches, for this long.  A call begins at a time that the ranks have agreed on, which
# leaves those that share a core the time to compute in turns.
WORK_NANOSECONDS, SLOT_NANOSECONDS = 100_000, 400_000
WORK_BYTES, WORK_PART = 8 * MIB, 64 * KIB
SPREAD = {"50 %": 0.5, "90 %": 0.9, "99 %": 0.99, "largest": 1.0}

# Microseconds of each round, by peer, of each cell, which is a NamedTuple.
Found = Mapping[Any, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class Target:
    """A limit that a measured value must not exceed."""

    what: str
    limit: float
    measured: float | None  # None: it could not be measured
    unit: str = ""

    @property
    def verdict(self) -> str:
        """'pass', 'FAIL' or 'not measured'."""
        if self.measured is None:
            return "not measured"
        return "pass" if self.measured <= self.limit else "FAIL"


def median(values: Iterable[float]) -> float | None:
    """Returns the median; None without values."""
    values = list(values)
    return statistics.median(values) if values else None


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Returns ours over theirs; None if one of them was not measured."""
    return ours / theirs if ours is not None and theirs else None


def alternate(rounds: int, sides: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yields every side once per round, each round beginning with another side, so that
    a slow period of the machine affects all sides alike."""
    for number in range(rounds):
        shift = number % max(1, len(sides))
        for side in [*sides[shift:], *sides[:shift]]:
            yield number, side


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Returns a table whose first column is aligned to the left and the others to the
    right."""
    cells = [list(header), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    return "\n".join([lines[0], "-" * sum(widths, 2 * len(widths) - 2), *lines[1:]])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    # Three significant digits.
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def size_text(size: int) -> str:
    """Returns a size as text, such as 8 B or 64 KiB."""
    for unit, bytes_of in (("MiB", MIB), ("KiB", KIB)):
        if size >= bytes_of and size % bytes_of == 0:
            return f"{size // bytes_of} {unit}"
    return f"{size} B"


def report(targets: Sequence[Target]) -> str:
    """The targets as a table."""
    rows = [(t.what, t.measured, f"<= {t.limit:g}", t.unit, t.verdict) for t in targets]
    return table(["target", "measured", "limit", "", "verdict"], rows)


def write_json(
    name: str, results: Mapping[str, Any], targets: Sequence[Target]
) -> Path:
    """Writes a file in the results folder, with a description of the machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    verdicts = [{**asdict(target), "verdict": target.verdict} for target in targets]
    content = {"machine": machine(), "targets": verdicts, **results}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def medians(found: Found) -> dict[Any, dict[str, float]]:
    """Over the rounds, by cell and peer."""
    return {
        cell: {peer: statistics.median(values) for peer, values in sides.items()}
        for cell, sides in found.items()
    }


def save_cells(name: str, found: Found, targets: Sequence[Target]) -> None:
    """Everything that was measured."""
    cells = [{**cell._asdict(), "microseconds": sides} for cell, sides in found.items()]
    print(f"results: {write_json(name, {'cells': cells}, targets)}")


def machine() -> dict[str, Any]:
    """Returns the properties of the machine on which the numbers depend."""
    names = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def has_module(python: str, name: str) -> bool:
    """Returns whether an interpreter can import a module."""
    code = "import importlib.util as u, sys; sys.exit(not u.find_spec(sys.argv[1]))"
    try:
        return subprocess.run([python, "-c", code, name]).returncode == 0
    except OSError:
        return False


def find_torch_python(named: str | None) -> str | None:
    """Returns an interpreter with torch: the one named, this one, or that of `make
    parity`."""
    parity = REPOSITORY / ".venv-torch" / "bin" / "python"
    candidates = [named] if named else [sys.executable, str(parity)]
    return next((python for python in candidates if has_module(python, "torch")), None)


def add_call_options(parser: argparse.ArgumentParser) -> None:
    """Which calls are timed: those of a warm loop unless one of these is given."""
    parser.add_argument(
        "--first",
        type=int,
        default=0,
        metavar="N",
        help="the first N calls of fresh processes",
    )
    parser.add_argument(
        "--between",
        action="store_true",
        help="calls between which each rank computes, and fills its caches",
    )
    parser.add_argument(
        "--beside",
        type=int,
        default=0,
        metavar="N",
        help="calls beside N other programs that compute all the time",
    )


def is_warm_loop(options: argparse.Namespace) -> bool:
    """Whether calls follow each other in processes that have made many of them, as the
    targets suppose."""
    return not (options.first or options.between or options.beside)


def microseconds_of(
    peer: Any, call: Callable[[], Any], plan: Mapping[str, Any]
) -> dict[str, float]:
    """Returns the time of a call as the plan asks for it, by what to add to the name of
    the operation.  All ranks call it, and only rank 0's result counts."""
    if plan["first"]:
        work = Work() if plan["between"] else None
        return spread_of(time_each(peer, call, plan["first"], work))
    if plan["between"]:
        count = max(20, int(plan["budget"] * 1e9 / SLOT_NANOSECONDS))
        for _ in range(count):
            call()
        return spread_of(time_each(peer, call, count, Work()))
    return {"": time_warm(peer, call, plan["budget"]) * 1e6}


def spread_of(times: Sequence[float]) -> dict[str, float]:
    """The mean and the distribution."""
    ordered = sorted(times)
    last = len(ordered) - 1
    shares = {f" {name}": ordered[round(at * last)] for name, at in SPREAD.items()}
    return {" mean": statistics.fmean(times), **shares}


class Work:
    """What a program does between two calls."""

    def __init__(self) -> None:
        self._memory = np.ones(WORK_BYTES // 8)
        self._at = 0

    def run(self, until: int) -> None:
        """Computes for the time of the work, and lets others run until that of the
        call."""
        end = time.perf_counter_ns() + WORK_NANOSECONDS
        step = WORK_PART // 8
        while time.perf_counter_ns() < end:
            part = self._memory[self._at : self._at + step]
            np.add(part, 1, out=part)
            self._at = (self._at + step) % len(self._memory)
        while time.perf_counter_ns() < until:
            os.sched_yield()


def time_each(
    peer: Any, call: Callable[[], Any], count: int, work: Work | None
) -> list[float]:
    """Microseconds of each of so many calls, on the slowest rank."""
    now = time.perf_counter_ns
    times = []
    start = 0
    if work is not None:
        # The clock is the same in all processes of a host.
        start = int(peer.maximum(float(now())))
    peer.barrier()
    for i in range(count):
        if work is not None:
            work.run(start + (i + 1) * SLOT_NANOSECONDS)
        begun = now()
        call()
        times.append((now() - begun) / 1e3)
    return [peer.maximum(each) for each in times]


def timed(peer: Any, call: Callable[[], Any], count: int) -> float:
    """Returns the seconds of so many calls, on the slowest rank."""
    peer.barrier()
    start = time.perf_counter()
    for _ in range(count):
        call()
    return peer.maximum(time.perf_counter() - start)


def time_warm(peer: Any, call: Callable[[], Any], budget: float) -> float:
    """Median seconds of a call in about `budget` seconds, or in one call if that is
    longer.  All ranks see the same times, so they make the same number of calls."""
    count = 1
    seconds = timed(peer, call, count)
    while seconds < budget * WARM_SHARE and count < MAX_CALLS:
        count = min(4 * count, MAX_CALLS)
        seconds = timed(peer, call, count)
    if seconds > budget:
        return seconds / count
    count = max(1, min(MAX_CALLS, int(count * budget / BATCHES / seconds)))
    return statistics.median(timed(peer, call, count) for _ in range(BATCHES)) / count
