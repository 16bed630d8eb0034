# SPDX-License-Identifier: BSD-3-Clause
"""A state that newcomers get from three members, over links with a rate.

    python benchmarks/elastic_links.py             1 GiB, 1 Gbit/s, 1 and 3 newcomers
    python benchmarks/elastic_links.py --mib 64    less

Every process has a host of its own (shaped.py), whose link carries that much each way.
So a newcomer cannot have the state sooner than its link carries it, and three newcomers
not sooner than one: each of three sources then sends a third of it to each of them.
Beside it is what one TCP connection carries between two of the hosts, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from elastic_peer import bring_state
from measure import median, table, write_json
from shaped import Host, Shape, ShapedNetwork

SOURCES, NEWCOMERS = 3, (1, 3)
PATIENCE = 120.0
PART = 1 << 18  # bytes of a call of TCP
MBIT = 8e-6 * (1 << 20)  # of a MiB


def serve(address: str) -> None:
    import distlite as dist

    with dist.TCPStore(address, 0, is_master=True, wait_for_workers=False) as store:
        print(store.port, flush=True)
        sys.stdin.read()


def receive(address: str) -> None:
    """Plain TCP: prints the port, and then the seconds and the bytes."""
    with socket.create_server((address, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, buffer, total = listener.accept()[0], bytearray(PART), 0
    began = time.monotonic()
    while got := connection.recv_into(buffer):
        total += got
    print(json.dumps([time.monotonic() - began, total]), flush=True)


def send(address: str, port: str, mib: str) -> None:
    with socket.create_connection((address, int(port))) as connection:
        for _ in range(int(mib) << 20 >> 18):
            connection.sendall(bytes(PART))


def live(address: str, port: str, number: str, newcomers: str, mib: str) -> None:
    import distlite as dist
    from distlite import elastic

    store = dist.TCPStore(address, int(port), timeout=PATIENCE)
    if int(number) >= SOURCES:
        store.get("begun")
    with elastic.join(store, min_size=SOURCES, timeout=PATIENCE) as member:
        if number == "0":
            member.next()
            store.set("begun", "")
        state, _ = bring_state(SOURCES, int(newcomers), int(number), int(mib), member)
        print(json.dumps([state["seconds"], float(state["x"].sum())]), flush=True)


class Run:
    """Processes of this file on the hosts, which end with it."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, host: Host, *words: object) -> subprocess.Popen[str]:
        command = [sys.executable, __file__, "peer", *map(str, words)]
        process = subprocess.Popen(
            host.command(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "DISTLITE_TOKEN": "of this benchmark"},
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def line_of(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def measure_tcp(hosts: list[Host], mib: int) -> float:
    """Megabits per second."""
    with Run() as run:
        receiver = run.start(hosts[-1], "receive", hosts[-1].address)
        port = line_of(receiver)
        run.start(hosts[0], "send", hosts[-1].address, port, mib)
        seconds, size = line_of(receiver)
    return size / seconds * 8e-6


def measure_restore(hosts: list[Host], mib: int) -> float:
    """Seconds until the last newcomer has the state."""
    first, newcomers = hosts[0].address, len(hosts) - SOURCES
    with Run() as run:
        port = line_of(run.start(hosts[0], "serve", first))
        members = [
            run.start(host, "live", first, port, number, newcomers, mib)
            for number, host in enumerate(hosts)
        ]
        told = [line_of(each) for each in members]
    assert {total for _, total in told} == {float(mib << 17)}, told
    return max(seconds for seconds, _ in told[SOURCES:])


def main() -> None:
    parser = argparse.ArgumentParser(description="A state over links with a rate.")
    parser.add_argument("--mbit", type=int, default=1000, help="per second, each way")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found: dict[int, list[list[float]]] = {count: [] for count in NEWCOMERS}
    for number in range(options.rounds):
        print(f"round {number + 1}", file=sys.stderr)
        for newcomers, rows in found.items():
            with ShapedNetwork(SOURCES + newcomers, Shape(options.mbit)) as network:
                tcp = measure_tcp(network.hosts, min(options.mib, 256))
                seconds = measure_restore(network.hosts, options.mib)
            rate = options.mib * MBIT / seconds
            rows.append([seconds, rate, tcp, rate / tcp * 100])
    header = ["newcomers", "MiB", "s", "Mbit/s", "TCP's", "% of TCP's"]
    lines = [
        [count, options.mib, *(median(column) for column in zip(*rows, strict=True))]
        for count, rows in found.items()
    ]
    print(table(header, lines), end="\n\n")
    print(f"results: {write_json('elastic_links', {'rows': lines}, [])}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["peer"]:
        roles = {"serve": serve, "receive": receive, "send": send, "live": live}
        roles[sys.argv[2]](*sys.argv[3:])
    else:
        main()
