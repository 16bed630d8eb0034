# SPDX-License-Identifier: BSD-3-Clause
"""Joining at scale: how long ranks take to find each other, and what they ask of the
store.

The ranks are threads of a few processes (stub_ranks.c), which join by the library's own
code, each with sockets of its own, on pretended hosts.  With `--groups` they then make
as many groups of all of them.

    python benchmarks/join.py                      64 to 1,024 ranks
    python benchmarks/join.py --ranks 1024 --groups 1000 --makers 8
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import asdict, dataclass

from measure import Target, median, report, table, write_json
from processes import Server, StubRanks, enter_own_network

RANKS = [64, 256, 1024]
PER_HOST = [1, 8]
REQUESTS, BYTES = 12, 4096


@dataclass(frozen=True)
class Run:
    """One job; requests and bytes are at the store, and a rank's."""

    ranks: int
    per_host: int
    seconds: float
    requests: float
    most_requests: int
    bytes: float
    most_bytes: int
    barrier: float  # the first one, seconds
    kib: float  # of memory
    groups: float  # seconds
    group_requests: float
    group_kib: float  # of a group on a rank


def run_once(ranks: int, per_host: int, groups: int = 0, makers: int = 0) -> Run:
    """Everything, with a fresh server; the first `makers` ranks make the groups."""
    makers = makers or ranks
    with (
        Server("distlite libuv", sys.executable) as server,
        StubRanks(server.port, ranks, per_host) as stubs,
    ):
        stubs.do("connect")
        idle = stubs.resident_mib()
        joined = stubs.do("join job")
        barrier = stubs.do("barrier")
        mib = stubs.resident_mib()
        made = stubs.do(f"groups {groups} {makers}")
        grown = stubs.resident_mib()
        if makers == ranks:
            stubs.do(f"barriers {min(groups, 10)}")
        stubs.do("leave")
    return Run(
        ranks,
        per_host,
        joined.seconds,
        joined.requests / ranks,
        joined.most_requests,
        joined.bytes / ranks,
        joined.most_bytes,
        barrier.seconds,
        (mib - idle) * 1024 / ranks,
        made.seconds,
        made.requests / makers,
        (grown - mib) * 1024 / makers / max(groups, 1),
    )


def main() -> int:
    """Exit code 1 if a target was missed."""
    parser = argparse.ArgumentParser(description="Joining at scale.")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--per-host", type=int, nargs="+", default=PER_HOST)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--groups", type=int, default=0)
    parser.add_argument("--makers", type=int, default=0, help="of groups; 0: all")
    options = parser.parse_args()
    enter_own_network()
    runs = defaultdict(list)
    for _ in range(options.rounds):
        for ranks in options.ranks:
            for per_host in options.per_host:
                run = run_once(ranks, per_host, options.groups, options.makers)
                runs[ranks, per_host].append(run)
    columns = [*Run.__dataclass_fields__]
    rows = [
        [median(getattr(run, column) for run in found) for column in columns]
        for found in runs.values()
    ]
    print(table(columns, rows), end="\n\n")
    everything = [run for found in runs.values() for run in found]
    targets = [
        Target("requests of a rank", REQUESTS, max(r.requests for r in everything)),
        Target("bytes of a rank", BYTES, max(r.bytes for r in everything)),
    ]
    print(report(targets), end="\n\n")
    results = {"runs": [asdict(run) for run in everything]}
    print(f"results: {write_json('join', results, targets)}")
    return int(any(target.verdict == "FAIL" for target in targets))


if __name__ == "__main__":
    sys.exit(main())
