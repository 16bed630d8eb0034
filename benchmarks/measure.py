# SPDX-License-Identifier: BSD-3-Clause
"""What every benchmark needs: medians, tables, files, plots, and a quiet network.

Numbers of one program mean little on a shared machine, so a benchmark alternates the
sides that it compares within one run and reports medians and their ratios.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

RESULTS = Path(__file__).parent / "results"
IN_NAMESPACE = "DISTLITE_BENCHMARK_NAMESPACE"


@dataclass(frozen=True)
class Target:
    """A bound that a measured value shall keep."""

    what: str
    value: float
    limit: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit


def enter_quiet_network() -> None:
    """Run this program again in a network of its own, without a resolver.

    torch's store servers look every peer up in reverse DNS, on the thread that serves
    everybody: with a resolver that answers late they would be measured waiting for it.
    Needs root; says so and goes on without.
    """
    if os.environ.get(IN_NAMESPACE) or os.geteuid() != 0:
        if not os.environ.get(IN_NAMESPACE):
            print("not root: look-ups by torch's servers are part of its times")
        return
    script = 'ip link set lo up && exec "$@"'
    command = ["unshare", "-n", "sh", "-c", script, "sh", sys.executable, *sys.argv]
    environment = {**os.environ, IN_NAMESPACE: "1"}
    probe = subprocess.run(["unshare", "-n", "ip", "link"], capture_output=True)
    if probe.returncode == 0:
        os.execvpe(command[0], command, environment)
    print(
        "no network namespaces here: look-ups by torch's servers are part of its times"
    )


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows as aligned text; numbers with three significant digits."""
    cells = [list(header)] + [[_cell(value) for value in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)


def targets_table(targets: Iterable[Target]) -> str:
    """Each bound beside what was measured."""
    rows = []
    for target in targets:
        unit = target.unit
        verdict = "met" if target.is_met else "MISSED"
        bounds = (f"{target.value:.3g}{unit}", f"{target.limit:g}{unit}")
        rows.append((target.what, *bounds, verdict))
    return table(("target", "measured", "at most", ""), rows)


def write_json(name: str, content: Any) -> Path:
    """``results/<name>.json``, with a note of the machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine(), **content}, indent=1) + "\n")
    return path


def compile_load(source: str) -> Path:
    """Build one of the C load generators beside the results."""
    RESULTS.mkdir(exist_ok=True)
    program = RESULTS / Path(source).stem
    origin = Path(__file__).parent / source
    if not program.exists() or program.stat().st_mtime < origin.stat().st_mtime:
        flags = ["-O2", "-std=c11", "-D_GNU_SOURCE"]
        subprocess.run(["cc", *flags, str(origin), "-o", str(program)], check=True)
    return program


__all__ = [
    "RESULTS",
    "Target",
    "compile_load",
    "enter_quiet_network",
    "machine",
    "median",
    "table",
    "targets_table",
    "write_json",
]
