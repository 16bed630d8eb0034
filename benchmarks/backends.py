# SPDX-License-Identifier: BSD-3-Clause
"""all_reduce of float32 by every available backend: up to 100 million elements.

    python benchmarks/backends.py [--ranks 2] [--rounds 5] [--largest 100000000]
    BACKEND=ucc python benchmarks/backends.py          only that one
    BACKEND=gloo python -m distlite.run --nproc-per-node 2 benchmarks/backends.py

Started by a launcher it is one rank, which prints its line; otherwise it starts ranks
for each backend, alternately, and shows one table, a plot and JSON in results/.  A time
is that of the slowest rank, from the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import plots
from measure import alternate, table, write_json
from ranks import MPI_LAUNCHERS

BACKENDS = ("gloo", "ucc", "mpi", "nccl")
LARGEST = 100_000_000
SMALLEST = 100
# A size is repeated for about so long, but at least once.
SECONDS = 0.3
MARK = "backends.py: "


def sizes(largest: int) -> list[int]:
    """Returns the powers of ten up to the largest size, and that size."""
    found = [SMALLEST]
    while found[-1] * 10 < largest:
        found.append(found[-1] * 10)
    return [*found, largest]


def make_array(backend: str, count: int) -> tuple[Any, Callable[[], object]]:
    """Returns an array of ones in the backend's memory, and a function that waits for
    the operations on it."""
    if backend != "nccl":
        import numpy

        return numpy.ones(count, "float32"), lambda: None
    device = int(os.environ.get("LOCAL_RANK", 0))
    try:
        import torch
    except ImportError:
        import cupy

        cupy.cuda.Device(device % cupy.cuda.runtime.getDeviceCount()).use()
        return cupy.ones(count, "float32"), cupy.cuda.get_current_stream().synchronize
    torch.cuda.set_device(device % torch.cuda.device_count())
    return torch.ones(count, device="cuda"), torch.cuda.synchronize


def measure(backend: str, count: int, rounds: int) -> float:
    """Returns the seconds of one all_reduce, the same on all ranks."""
    import numpy

    import distlite

    array, finish = make_array(backend, count)
    # The mean of equal numbers leaves them as they are.
    op = distlite.ReduceOp.AVG

    def run(times: int) -> float:
        distlite.barrier()
        began = time.perf_counter()
        for _ in range(times):
            distlite.all_reduce(array, op)
        finish()
        spent = numpy.array([(time.perf_counter() - began) / times])
        distlite.all_reduce(spent, distlite.ReduceOp.MAX)
        return float(spent[0])

    times = max(1, min(1000, int(SECONDS / rounds / run(1))))
    taken = [run(times) for _ in range(rounds)]
    assert float(array[0]) == float(array[-1]) == 1.0
    return statistics.median(taken)


def be_rank(backend: str, rounds: int, largest: int) -> None:
    """Measures all sizes as one rank; rank 0 prints the result."""
    import distlite

    name = "cpu:gloo,cuda:nccl" if backend == "nccl" else backend
    distlite.init_process_group(name)
    taken = {count: measure(backend, count, rounds) for count in sizes(largest)}
    if distlite.get_rank() == 0:
        print(MARK + json.dumps(taken), flush=True)
    distlite.destroy_process_group()


def command_of(backend: str, options: argparse.Namespace) -> list[str]:
    """Returns the command that starts the ranks of a backend."""
    program = [str(Path(__file__).resolve()), "--rounds", "1"]
    program += ["--largest", str(options.largest)]
    if backend == "mpi":
        launcher = MPI_LAUNCHERS["openmpi"]
        return [*launcher, "-np", str(options.ranks), sys.executable, *program]
    launcher = [sys.executable, "-m", "distlite.run", "--nproc-per-node"]
    return [*launcher, str(options.ranks), *program]


def sweep(backend: str, options: argparse.Namespace) -> dict[int, float] | str:
    """Returns the seconds by the number of elements, or the error."""
    try:
        done = subprocess.run(
            command_of(backend, options),
            env={**os.environ, "BACKEND": backend, "UCC_LOG_LEVEL": "fatal"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=options.seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    for line in done.stdout.splitlines():
        if MARK in line:
            said = json.loads(line.split(MARK, 1)[1])
            return {int(count): float(taken) for count, taken in said.items()}
    return done.stdout[-2000:]


def present(name: str | None) -> list[str]:
    """Returns the available backends; prints why another one is not measured."""
    import distlite

    found = []
    for backend in [name] if name else BACKENDS:
        if distlite.is_backend_available(backend):
            found.append(backend)
        else:
            print(f"{backend}: its library is not here")
    return found


def measure_all(
    backends: list[str], options: argparse.Namespace
) -> dict[str, dict[int, float]]:
    """Returns the medians of several sweeps, without backends that fail."""
    taken: dict[str, list[dict[int, float]]] = {name: [] for name in backends}
    for _, backend in alternate(options.rounds, backends):
        if backend not in taken:
            continue
        found = sweep(backend, options)
        if isinstance(found, str):
            print(f"{backend} failed:\n{found}")
            del taken[backend]
        else:
            taken[backend].append(found)
    return {
        name: {
            count: statistics.median(s[count] for s in all_of) for count in all_of[0]
        }
        for name, all_of in taken.items()
    }


def show(results: dict[str, dict[int, float]], options: argparse.Namespace) -> None:
    """Writes the table, the plot and the JSON file."""
    names = list(results)
    counts = sizes(options.largest)
    rows = [
        (f"{count:,}", *(results[name][count] * 1e6 for name in names))
        for count in counts
    ]
    print(f"all_reduce of float32, {options.ranks} ranks, microseconds")
    print(table(["elements", *names], rows))
    lines = {
        name: {count: taken * 1e6 for count, taken in points.items()}
        for name, points in results.items()
    }
    title = f"all_reduce, float32, {options.ranks} ranks"
    labels = {"x_label": "elements", "y_label": "microseconds"}
    plots.draw(options.plot, {title: lines}, **labels, x_text="{:,}".format)
    content = {"ranks": options.ranks, "seconds": results}
    print(f"numbers: {write_json('backends', content, [])}")


def main() -> None:
    """Runs as one rank, or starts all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=LARGEST)
    parser.add_argument("--seconds", type=float, default=300, help="for one sweep")
    plots.add_option(parser, "backends")
    options = parser.parse_args()
    backend = os.environ.get("BACKEND")
    if backend and any(name in os.environ for name in ("RANK", "OMPI_COMM_WORLD_RANK")):
        be_rank(backend, options.rounds, options.largest)
        return
    backends = present(backend)
    results = measure_all(backends, options)
    if not results:
        sys.exit("no backend could be measured")
    show(results, options)


if __name__ == "__main__":
    main()
