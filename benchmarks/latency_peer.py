# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of store_latency.py, in a process of its own per library.

    latency_peer.py LIBRARY call PORT       times calls on a store
    latency_peer.py LIBRARY join RANK SIZE  joins process groups, again and again

It prints a line when it is ready, and answers every line of its input with one.
"""

from __future__ import annotations

import gc
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

MODULES = {"distlite": "distlite", "torch": "torch.distributed"}
MEBIBYTE = 1 << 20
KEY_COUNT = 100


def calls_of(
    store: Any, connect: Callable[[], Any]
) -> dict[str, tuple[int, Callable[[], Any]]]:
    """What is timed, and how often in one round."""
    small, large = "v" * 64, "v" * MEBIBYTE
    keys = [f"key{i}" for i in range(KEY_COUNT)]
    values = [small] * KEY_COUNT
    store.set("small", small)

    def set_and_get() -> None:
        store.set("large", large)
        store.get("large")

    def set_and_get_many() -> None:
        store.multi_set(keys, values)
        store.multi_get(keys)

    def push_and_pop() -> None:
        store.queue_push("queue", small)
        store.queue_pop("queue")

    return {
        "set 64 B": (200, lambda: store.set("small", small)),
        "get 64 B": (200, lambda: store.get("small")),
        "set + get 1 MiB": (20, set_and_get),
        f"multi_set + multi_get {KEY_COUNT} keys": (50, set_and_get_many),
        "add": (200, lambda: store.add("counter", 1)),
        "check": (200, lambda: store.check(["small"])),
        "wait": (200, lambda: store.wait(["small"])),
        "compare_set": (200, lambda: store.compare_set("small", small, small)),
        "queue_push + queue_pop": (200, push_and_pop),
        "TCPStore(), a new client": (40, connect),
    }


def time_calls(module: Any, port: int) -> None:
    """For each name: the median microseconds of a call."""

    def connect() -> Any:
        return module.TCPStore("127.0.0.1", port, wait_for_workers=False)

    calls = calls_of(connect(), connect)
    gc.disable()
    say(json.dumps(list(calls)))
    for line in sys.stdin:
        count, call = calls[line.rstrip("\n")]
        call()
        times = []
        for _ in range(count):
            start = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - start)
        say(str(statistics.median(times) / 1e3))


def join(module: Any, rank: int, world_size: int) -> None:
    """For each way and port, and then a start time: when this rank was in the group.

    The way is `url`, or `store`: all have joined a store before they start.
    """
    say("ready")
    for line in sys.stdin:
        way, port = line.split()
        where = {"init_method": f"tcp://127.0.0.1:{port}"}
        if way == "store":
            arguments = ("127.0.0.1", int(port), world_size, rank == 0)
            where = {"store": module.TCPStore(*arguments)}
        say("set")
        start = int(sys.stdin.readline())
        while (left := start - time.monotonic_ns()) > 0:
            time.sleep(left * 1e-9)
        module.init_process_group("gloo", rank=rank, world_size=world_size, **where)
        say(str(time.monotonic_ns()))
        # Rank 0 takes the store with it when it goes: all leave when all are told.
        sys.stdin.readline()
        module.destroy_process_group()
        where.clear()
        say("left")


def say(line: str) -> None:
    """Answer."""
    print(line, flush=True)


def main(library: str, role: str, *numbers: str) -> None:
    """Play the role."""
    roles = {"call": time_calls, "join": join}
    roles[role](importlib.import_module(MODULES[library]), *map(int, numbers))


if __name__ == "__main__":
    main(*sys.argv[1:])
