# SPDX-License-Identifier: BSD-3-Clause
"""The time to start ranks that import their library and end, beside other launchers.

    python benchmarks/launch.py            4 ranks, some minutes
    python benchmarks/launch.py --quick    one round

Ranks that do nothing at all are measured as well, under each Python launcher: this is
the launcher's own time.  All launchers run in turn, and the median counts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from measure import (
    Target,
    alternate,
    find_torch_python,
    median,
    ratio,
    report,
    table,
    write_json,
)
from ranks import MPI_LAUNCHERS, has_mpi, mpi_environment

RANKS = 4
ROUNDS = 7
PATIENCE = 120
PROGRAMS = {
    "distlite": "import distlite",
    "torchrun": "import torch.distributed",
    "mpi": "from mpi4py import MPI",
}
TORCHRUN_LIMIT, MPIRUN_LIMIT = 0.2, 1.0


def commands(folder: Path, torch_python: str | None) -> dict[str, list[str]]:
    """Returns the commands by name, without launchers that are not installed."""
    for name, source in PROGRAMS.items():
        (folder / f"{name}.py").write_text(source + "\n")
    count = ["--nproc-per-node", str(RANKS)]
    nothing = ["--no-python", "true"]
    run = [sys.executable, "-m", "distlite.run", *count]
    found = {
        "distlite": [*run, str(folder / "distlite.py")],
        "distlite, nothing": [*run, *nothing],
    }
    if torch_python is not None:
        run = [torch_python, "-m", "torch.distributed.run", *count]
        found["torchrun"] = [*run, str(folder / "torchrun.py")]
        found["torchrun, nothing"] = [*run, *nothing]
    for kind, launcher in MPI_LAUNCHERS.items():
        if has_mpi(sys.executable, kind):
            program = [sys.executable, str(folder / "mpi.py")]
            found[kind] = [*launcher, "-np", str(RANKS), *program]
    # The lower bound: as many interpreters without a launcher.
    bare = f"{sys.executable} -c pass & " * RANKS + "wait"
    found["bare interpreters"] = ["sh", "-c", bare]
    return found


def seconds_of(name: str, command: list[str]) -> float | None:
    """None if it failed."""
    environment = {**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"}
    # Compiled once, as installed packages are.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if name in MPI_LAUNCHERS:
        environment.update(mpi_environment(name))
    start = time.perf_counter()
    done = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=PATIENCE,
    )
    if done.returncode != 0:
        print(f"{name}: exit code {done.returncode}\n{done.stderr[-500:].decode()}")
        return None
    return time.perf_counter() - start


def main() -> int:
    """Exit code 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--torch-python", help="an interpreter with torch")
    options = parser.parse_args()
    rounds = 1 if options.quick else ROUNDS
    times = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="distlite-benchmark-") as folder:
        found = commands(Path(folder), find_torch_python(options.torch_python))
        for name, command in found.items():  # into the caches, once
            seconds_of(name, command)
        for number, name in alternate(rounds, list(found)):
            print(f"round {number + 1}: {name}", file=sys.stderr)
            seconds = seconds_of(name, found[name])
            if seconds is not None:
                times[name].append(seconds)
    medians = {name: median(times[name]) for name in found}
    ours = medians["distlite"]
    rows = [(name, s, ratio(ours, s)) for name, s in medians.items()]
    print(table([f"{RANKS} ranks", "seconds", "distlite is"], rows), end="\n\n")
    limits = [("torchrun", TORCHRUN_LIMIT)]
    limits += [(kind, MPIRUN_LIMIT) for kind in MPI_LAUNCHERS]
    targets = [
        Target(f"import and end, to {name}", limit, ratio(ours, medians.get(name)))
        for name, limit in limits
    ]
    print(report(targets))
    path = write_json("launch", {"seconds": medians, "rounds": rounds}, targets)
    print(f"\nwritten: {path}")
    return 1 if any(target.verdict == "FAIL" for target in targets) else 0


if __name__ == "__main__":
    sys.exit(main())
