# SPDX-License-Identifier: BSD-3-Clause
"""How a TCPStore's server stands up to many clients.

The two experiments of PyTorch's tutorial on its libuv backend: how long N clients take
to construct, and how long a store-based barrier over them takes; besides, the
throughput and CPU of ``get`` over 256 connections and the server's memory.  Four
servers: distlite's two and, where torch can be imported, torch's two.  Each runs in a
process of its own and gets the same load from the same C program; servers alternate
within a round, and medians over the rounds are reported.

    python benchmarks/store_init.py                 # 1,000 to 16,000 clients
    python benchmarks/store_init.py --quick         # a minute
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections import defaultdict

from measure import (
    RESULTS,
    Target,
    compile_load,
    enter_quiet_network,
    median,
    table,
    targets_table,
    write_json,
)

SERVERS = {
    "distlite libuv": ("distlite", True),
    "distlite poll": ("distlite", False),
    "torch libuv": ("torch.distributed", True),
    "torch legacy": ("torch.distributed", False),
}
SPARE_FILES = 256  # what a process holds open besides its clients
LOAD_LIMIT = 600  # seconds for one server at one size

# A server process: prints its port, lives until its standard input closes.
SERVER_CODE = """
import importlib, sys
module = importlib.import_module(sys.argv[1])
store = module.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False,
                        use_libuv=sys.argv[2] == "True")
print(store.port, flush=True)
sys.stdin.read()
"""


def run_load(python: str, server: str, clients: int, gets: int) -> dict[str, dict]:
    """One server under the whole load; its phases by name."""
    module, use_libuv = SERVERS[server]
    command = [python, "-c", SERVER_CODE, module, str(use_libuv)]
    load = compile_load("store_load.c")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            port = process.stdout.readline().strip()
            arguments = ["127.0.0.1", port, process.pid, clients, gets, 1]
            done = subprocess.run(
                [str(load), *map(str, arguments)],
                capture_output=True, text=True, timeout=LOAD_LIMIT,
            )  # fmt: skip
        finally:
            process.kill()
    if done.returncode != 0:
        raise SystemExit(f"{server}, {clients} clients: {done.stderr}")
    phases = map(json.loads, done.stdout.splitlines())
    return {phase["phase"]: phase for phase in phases}


def measure(options: argparse.Namespace, servers: list[str]) -> list[dict]:
    """A row of medians for every server and number of clients."""
    rows = []
    for clients in options.clients:
        runs = defaultdict(list)
        for round_number in range(options.rounds):
            for server in servers:
                if server == "torch legacy" and round_number >= options.legacy_rounds:
                    continue
                print(f"  {clients} clients, {server}", file=sys.stderr, flush=True)
                load = run_load(options.python, server, clients, options.gets)
                runs[server].append(load)
        rows += [summary(server, clients, loads) for server, loads in runs.items()]
    return rows


def summary(server: str, clients: int, loads: list[dict]) -> dict:
    """Medians over the runs of one server at one size."""

    def middle(phase: str, field: str) -> float:
        return median(load[phase][field] for load in loads)

    operations = loads[0]["get"]["operations"]
    return {
        "server": server,
        "clients": clients,
        "runs": len(loads),
        "init_s": middle("init", "seconds"),
        "barrier_s": middle("barrier", "seconds"),
        "barrier_opcode_s": middle("barrier opcode", "seconds"),
        "gets_per_s": operations / middle("get", "seconds"),
        "cpu_us_per_get": 1e6 * middle("get", "server_cpu") / operations,
        "rss_mib": max(load["get"]["server_rss_kib"] for load in loads) / 1024,
    }


def targets(rows: list[dict]) -> list[Target]:
    """What distlite promises, as far as this run can tell."""
    by_key = {(row["server"], row["clients"]): row for row in rows}
    sizes = sorted({row["clients"] for row in rows})
    small, large = sizes[0], sizes[-1]
    found = []

    def whole(server: str, clients: int) -> float:
        row = by_key[server, clients]
        return row["init_s"] + row["barrier_s"]

    for name in ("distlite libuv", "distlite poll"):
        rss = by_key[name, large]["rss_mib"]
        found.append(Target(f"{name}: RSS, {large} clients", rss, 40, " MiB"))
        if small < large:
            growth = whole(name, large) / whole(name, small) / (large / small)
            found.append(Target(f"{name}: growth over linear", growth, 1.5))
    if ("torch libuv", large) not in by_key:
        return found
    cpu = [
        by_key[name, large]["cpu_us_per_get"]
        for name in ("distlite libuv", "torch libuv")
    ]
    found.append(Target("CPU per get, libuv / torch libuv", cpu[0] / cpu[1], 0.8))
    for ours, theirs, limit in (
        ("distlite libuv", "torch libuv", 1.0),
        ("distlite poll", "torch legacy", 0.1),
    ):
        ratio = whole(ours, large) / whole(theirs, large)
        what = f"init + barrier, {large} clients, {ours} / {theirs}"
        found.append(Target(what, ratio, limit))
    return found


def draw(rows: list[dict]) -> None:
    """results/store_init.png: init and barrier against the number of clients."""
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.5), sharey=True)
    titles = {"init_s": "construct N clients", "barrier_s": "barrier over N clients"}
    for panel, (field, title) in zip(panels, titles.items(), strict=True):
        for server in SERVERS:
            points = [(r["clients"], r[field]) for r in rows if r["server"] == server]
            if points:
                style = "o-" if server.startswith("distlite") else "s--"
                panel.plot(*zip(*sorted(points), strict=True), style, label=server)
        panel.set(xscale="log", yscale="log", title=title, xlabel="clients")
        panel.grid(True, which="both", alpha=0.3)
    panels[0].set_ylabel("seconds (median)")
    panels[0].legend()
    figure.tight_layout()
    figure.savefig(RESULTS / "store_init.png", dpi=120)
    print(f"plot: {RESULTS / 'store_init.png'}")


def can_import(python: str, module: str) -> bool:
    return (
        subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True
        ).returncode
        == 0
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--clients", type=int, nargs="+", default=[1000, 2000, 4000, 8000, 16000]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--legacy-rounds", type=int, default=1, help="torch legacy is slow"
    )
    parser.add_argument("--gets", type=int, default=200_000)
    parser.add_argument("--python", default=sys.executable, help="runs the servers")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument(
        "--quick", action="store_true", help="1,000 and 4,000, 2 rounds"
    )
    options = parser.parse_args()
    if options.quick:
        options.clients, options.rounds, options.gets = [1000, 4000], 2, 50_000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    fitting = [count for count in options.clients if count <= hard - SPARE_FILES]
    if fitting != options.clients:
        print(f"the open-file limit of {hard} leaves out some sizes")
    options.clients = fitting
    return options


def main() -> None:
    options = parse()
    enter_quiet_network()
    servers = [name for name in SERVERS if name.startswith("distlite")]
    if not options.no_torch and can_import(options.python, "torch.distributed"):
        servers = list(SERVERS)
    else:
        print("torch is not installed: distlite's servers only")
    rows = measure(options, servers)
    print(table(list(rows[0]), [list(row.values()) for row in rows]))
    found = targets(rows)
    print()
    print(targets_table(found))
    content = {"rows": rows, "targets": [vars(t) | {"met": t.is_met} for t in found]}
    print(f"\nnumbers: {write_json('store_init', content)}")
    draw(rows)


if __name__ == "__main__":
    main()
