# SPDX-License-Identifier: BSD-3-Clause
"""What the benchmarks have in common: medians, alternation, targets, tables, files."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
KIB, MIB = 1 << 10, 1 << 20

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
        shift = number % len(sides)
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
