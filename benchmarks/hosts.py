# SPDX-License-Identifier: BSD-3-Clause
"""all_reduce over two hosts, beside plain sockets, iperf3 and torch gloo.

    python benchmarks/hosts.py [--ranks-per-host N] [--quick]     as root

The hosts are network namespaces of this machine, joined by a cable.  Each side
in turn runs in fresh processes, round after round; what counts is the median of the
rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import plots
from measure import (
    KIB,
    MIB,
    REPOSITORY,
    Target,
    alternate,
    find_torch_python,
    median,
    ratio,
    report,
    table,
    write_json,
)

sys.path.insert(0, str(REPOSITORY / "tests"))
from netns import Host, Network

PEER = str(Path(__file__).with_name("hosts_peer.py"))
SIZES = [8, KIB, 16 * KIB, 128 * KIB, MIB, 16 * MIB, 100 * MIB]
LARGE = 100 * MIB


def run_side(side: str, python: str, hosts: list[Host], seconds: float) -> Any:
    """{bytes: microseconds} of one run."""
    if side == "raw":
        hosts = [hosts[0], hosts[-1]]
    processes = []
    for rank, host in enumerate(hosts):
        words = [python, PEER, side, rank, len(hosts), hosts[0].address, seconds]
        processes.append(
            subprocess.Popen(
                host.command([str(word) for word in [*words, *SIZES]]),
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                text=True,
                env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"},
            )
        )
    try:
        output, _ = processes[0].communicate(timeout=300)
        for process in processes[1:]:
            process.wait(60)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {int(size): time for size, time in json.loads(output).items()}


def iperf(hosts: list[Host], *options: str) -> float | None:
    """Bytes per second, of both directions together with --bidir."""
    try:
        server = subprocess.Popen(
            hosts[0].command(["iperf3", "-s", "-1"]), stdout=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return None
    try:
        command = ["iperf3", "-J", "-t", "2", "-c", hosts[0].address, *options]
        for _ in range(50):
            try:
                end = json.loads(hosts[-1].run(*command, timeout=30))["end"]
                if "sum_received" in end:  # else the server did not listen yet
                    break
            except OSError:
                continue
        else:
            return None
    finally:
        server.kill()
        server.wait()
    sums = [
        end[key] for key in ("sum_received", "sum_received_bidir_reverse") if key in end
    ]
    return sum(part["bits_per_second"] for part in sums) / 8


def targets_of(
    times: dict[str, dict[int, float]], both_ways: float | None
) -> list[Target]:
    """100 MiB: each host sends and receives as much as the array has."""
    ours = times["distlite"]
    link = None if both_ways is None else 2 * LARGE / both_ways * 1e6
    gloo = times.get("torch", {})
    return [
        Target(
            "8 B, round trips of plain sockets", 2.5, ratio(ours[8], times["raw"][8])
        ),
        Target("8 B, torch gloo's time", 0.15, ratio(ours[8], gloo.get(8))),
        Target("100 MiB, iperf3's time both ways", 1.3, ratio(ours[LARGE], link)),
        Target("100 MiB, torch gloo's time", 0.6, ratio(ours[LARGE], gloo.get(LARGE))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks-per-host", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--torch", help="an interpreter with torch")
    plots.add_option(parser, "hosts")
    options = parser.parse_args()
    torch = find_torch_python(options.torch)
    sides = {"distlite": sys.executable, "raw": sys.executable}
    if torch is not None:
        sides["torch"] = torch
    rounds, seconds = (1, 0.1) if options.quick else (5, 0.5)
    runs: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    with Network(2) as network:
        hosts = [host for host in network.hosts for _ in range(options.ranks_per_host)]
        for _, side in alternate(rounds, list(sides)):
            for size, time in run_side(side, sides[side], hosts, seconds).items():
                runs[side][size].append(time)
        one_way, both_ways = iperf(hosts), iperf(hosts, "--bidir")
    times = {
        side: {size: median(values) or 0.0 for size, values in by_size.items()}
        for side, by_size in runs.items()
    }
    rows = [[size, *(times[side][size] for side in sides)] for size in SIZES]
    print(table(["bytes", *(f"{side}, us" for side in sides)], rows))
    print(f"\niperf3, GB/s: one way {one_way and one_way / 1e9}, ", end="")
    print(f"both ways {both_ways and both_ways / 1e9}\n")
    targets = targets_of(times, both_ways) if options.ranks_per_host == 1 else []
    print(report(targets))
    content = {"microseconds": times, "iperf3": {"one way": one_way, "both": both_ways}}
    print(write_json("hosts", content, targets))
    ranks = 2 * options.ranks_per_host
    title = f"all_reduce, {ranks} ranks on two hosts"
    plots.draw_sizes(options.plot, {title: times})


if __name__ == "__main__":
    main()
