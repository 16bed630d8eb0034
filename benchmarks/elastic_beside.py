# SPDX-License-Identifier: BSD-3-Clause
"""From the SIGKILL of one rank to the first step of the others: distlite.elastic beside
restarts, torchft, ULFM and Ray, in turns.

    python benchmarks/elastic_beside.py --torchft-python A --ray-python B
    python benchmarks/elastic_beside.py --quick --peers distlite ulfm

elastic_torchft.py, elastic_ulfm.py and elastic_ray.py say what to install where; a peer
that is not installed is left out.  A step adds up 256 numbers.  "first" is the time to
the end of the first step of all survivors, "again" that with a lost rank that was
started again, in milliseconds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from elastic import LOSE, PEER, Cell as Member, run_all, run_once
from measure import alternate, find_torch_python, has_module, median, table, write_json
from processes import FOLDER
from ranks import MPI_LAUNCHERS, home_of, mpi_environment

RANKS, ROUNDS = [2, 4, 8], 7
TORCHFT = {f"torchft, {each}": each for each in ("default", "example", "short")}
RAY = {"Ray": "ray", "Ray with distlite": "distlite"}
RESTARTS = {"distlite run": "distlite", "torchrun": "torch.distributed"}
# Longer than the 65 seconds that survivors of torchft take by default, if they get on.
PATIENCE = 75


class Cell(NamedTuple):
    """What is measured."""

    peer: str
    ranks: int


def words_of(cell: Cell, options: argparse.Namespace, file: str) -> list[str]:
    """The command of a peer, whose ranks note the times of events in the file."""
    ranks, torchft, ray = str(cell.ranks), options.torchft_python, options.ray_python
    if cell.peer in TORCHFT:
        program = str(FOLDER / "elastic_torchft.py")
        return [torchft, program, ranks, file, TORCHFT[cell.peer]]
    if cell.peer in RAY:
        return [ray, str(FOLDER / "elastic_ray.py"), ranks, file, RAY[cell.peer]]
    if cell.peer == "ulfm":
        python = str(home_of("openmpi5") / "bin" / "python")
        launcher = [*MPI_LAUNCHERS["openmpi5"], "--with-ft", "ulfm", "-np", ranks]
        return [*launcher, python, str(FOLDER / "elastic_ulfm.py"), file]
    launcher = [sys.executable, "-m", "distlite.run"]
    if cell.peer == "torchrun":
        launcher = [options.torch_python, "-m", "torch.distributed.run"]
    launcher += [f"--nproc-per-node={ranks}", "--max-restarts=1"]
    return [*launcher, PEER, "restart", RESTARTS[cell.peer], file]


def measure_cell(cell: Cell, options: argparse.Namespace) -> dict[str, float]:
    """One round: by event, milliseconds from the kill to the last rank's, and how many
    ranks came to it."""
    if cell.peer == "distlite":
        found = run_once(Member(LOSE, cell.ranks))
        return {"first": found["ms to the first step"]} if found else {}
    settings = {"GLOO_SOCKET_IFNAME": "lo"}
    if cell.peer == "ulfm":
        settings = mpi_environment("openmpi5")
    times = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lines")
        file.touch()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run_all(words_of(cell, options, str(file)), settings, PATIENCE)
        for line in file.read_text().splitlines():
            [(what, when)] = json.loads(line).items()
            times[what].append(when)
    [event] = times.pop("event", None) or [0.0]
    found = {}
    for what, each in times.items():
        found[what], found[f"ranks {what}"] = (max(each) - event) * 1e3, len(each)
    return found if event else {}


def peers_of(options: argparse.Namespace) -> list[str]:
    """Those of the options that are installed; says which are not."""
    has = {
        "torchrun": bool(options.torch_python),
        "ulfm": (home_of("openmpi5") / "bin" / "mpiexec").exists(),
        **dict.fromkeys(TORCHFT, has_module(options.torchft_python, "torchft")),
        **dict.fromkeys(RAY, has_module(options.ray_python, "ray")),
    }
    every = ["distlite", "ulfm", *TORCHFT, *RAY, *RESTARTS]
    wanted = [each for each in every if not options.peers or each in options.peers]
    for peer in wanted:
        if not has.get(peer, True):
            print(f"{peer}: not installed; left out", file=sys.stderr)
    return [peer for peer in wanted if has.get(peer, True)]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A killed rank, beside others.")
    parser.add_argument("--quick", action="store_true", help="see that it works")
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--peers", nargs="+", help="as in the table")
    parser.add_argument("--torch-python", help="an interpreter with torch")
    parser.add_argument("--torchft-python", default=sys.executable)
    parser.add_argument("--ray-python", default=sys.executable)
    options = parser.parse_args()
    options.torch_python = find_torch_python(options.torch_python)
    options.ranks = options.ranks or ([3] if options.quick else RANKS)
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    return options


def main() -> None:
    options = parse()
    found, loads = {}, []
    for number, peer in alternate(options.rounds, peers_of(options)):
        for ranks in options.ranks:
            cell = Cell(peer, ranks)
            loads.append(os.getloadavg()[0])
            for what, value in measure_cell(cell, options).items():
                found.setdefault(cell, defaultdict(list))[what].append(value)
            print(f"round {number + 1}, load {loads[-1]}:", *cell, file=sys.stderr)
    rows = [
        [*cell, what, len(values), median(values), min(values), max(values)]
        for cell, numbers in sorted(found.items())
        for what, values in numbers.items()
    ]
    header = [*Cell._fields, "what", "rounds", "median", "least", "largest"]
    print(table(header, rows), end="\n\n")
    cells = [{**cell._asdict(), **numbers} for cell, numbers in found.items()]
    print(
        f"results: {write_json('elastic_beside', {'cells': cells, 'loads': loads}, [])}"
    )


if __name__ == "__main__":
    main()
