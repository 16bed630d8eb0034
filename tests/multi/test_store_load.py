# SPDX-License-Identifier: BSD-3-Clause
"""The benchmark of stores at scale, with few clients."""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path

import pytest

import distlite

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CLIENTS = 60  # the last relay has four of them


@pytest.fixture
def benchmark(monkeypatch):
    """Its modules, by name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.parametrize(
    "kind", ["distlite libuv", "distlite epoll", "distlite relays"]
)
def test_a_run_with_few_clients(benchmark, kind, capsys):
    store_init = benchmark("store_init")
    run = store_init.run_once(kind, CLIENTS, sys.executable)
    assert min(run.join, run.check_in, run.barrier, run.barrier_op, run.cpu) > 0
    assert (run.relays > 0) == (kind == "distlite relays")
    medians = store_init.Medians([run], [])
    store_init.print_tables(medians, [kind])
    assert f"{kind}  " in capsys.readouterr().out
    assert medians.most(kind) == CLIENTS


@pytest.mark.parametrize("load_clients", [16, 64])
def test_what_the_clients_of_relays_do(benchmark, monkeypatch, load_clients):
    """In one process and in several ones, which are one crowd."""
    processes = benchmark("processes")
    monkeypatch.setattr(processes, "LOAD_CLIENTS", load_clients)
    monkeypatch.setattr(processes, "PROCESS_RELAYS", 5)
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(processes.Server("distlite libuv", sys.executable))
        relays = stack.enter_context(processes.Relays(server.port, CLIENTS))
        relays.connect()
        load = processes.Load(server.port, CLIENTS, ours=True, sockets=relays.sockets)
        stack.enter_context(load)
        load.connect()
        load.do("check_in one")
        load.do("barrier two")
        load.do("barrier_op three")
        store = distlite.TCPStore("127.0.0.1", server.port, wait_for_workers=False)
        facts = store.stats()
        assert (facts["relays"], facts["relayed_clients"]) == (8, CLIENTS)
        counters = ("one/count", "two/count", "three")
        assert [int(store.get(key)) for key in counters] == [CLIENTS] * 3
        keys = set(store.list_keys())
        assert keys == {f"one/{n}" for n in range(CLIENTS)} | {
            *counters,
            "one/last",
            "two/last",
        }


def test_clients_without_their_relays_say_so(benchmark):
    processes = benchmark("processes")
    with (
        processes.Load(1, 8, sockets="distlite-nobody") as load,
        pytest.raises(RuntimeError, match="connecting: Connection refused"),
    ):
        load.connect()
