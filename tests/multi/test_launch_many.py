# SPDX-License-Identifier: BSD-3-Clause
"""Launchers of many nodes: what one of them asks of the store, and what it learns."""

import contextlib
import importlib
import threading
import time
from pathlib import Path

import pytest
from ports import reserve_port

import distlite as dist
from distlite.launch import nodes as launch_nodes
from distlite.launch.nodes import Nodes, beat_time
from distlite.launch.options import Options

PATIENCE = 60

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
# Threads of nodes that are stopped end by SystemExit.
pytestmark = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


class OneNode(Nodes):
    """It can be stopped, as if its process were."""

    is_stopped = False
    beats = 0

    def _beat(self):
        if self.is_stopped:
            raise SystemExit
        super()._beat()
        self.beats += 1


def options_of(node, count, port, **more):
    options = Options()
    options.address, options.port = "127.0.0.1", port
    options.node_rank, options.nnodes = node, count
    options.max_nodes, options.nproc_per_node = count, 1 + node % 3
    options.join_timeout = PATIENCE
    for name, value in more.items():
        setattr(options, name, value)
    return options


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextlib.contextmanager
def job(count, absent=(), **more):
    """Its nodes, of which the first serves the store, and a client of that."""
    port = reserve_port()
    with contextlib.ExitStack() as stack:
        found = []
        for node in range(count):
            if node in absent:
                continue
            options = options_of(node, count, port, **more)
            found.append(stack.enter_context(OneNode(options)))
            if node == 0:
                store = dist.TCPStore("127.0.0.1", port, timeout=PATIENCE)
                stack.callback(store.close)
        yield found, store
        for node in found:
            node._limit = 0.1  # nobody is to read its last report


def requests_of_joining(count):
    with job(count) as (nodes, store):
        wait_until(lambda: all(node.place for node in nodes))
        places = [node.place for node in nodes]
        ranks = [1 + node % 3 for node in range(count)]
        for node, place in enumerate(places):
            assert (place.node, place.nodes) == (node, count)
            assert place.world_size == sum(ranks)
            assert place.first_rank == sum(ranks[:node])
        return store.stats()["requests"] / count


def test_joining_costs_a_node_the_same_however_many_there_are():
    few, many = requests_of_joining(8), requests_of_joining(64)
    assert many <= few + 1
    assert many < 16


def test_nodes_of_the_benchmark_ask_what_others_ask(monkeypatch):
    """Nodes that have met already may have begun to beat; of a few rounds the best
    counts."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    launchers = importlib.import_module("launchers")
    found = min(launchers.run_once(16, 0.1).meet_requests for _ in range(3))
    assert abs(found - min(requests_of_joining(16) for _ in range(3))) < 1


@pytest.mark.parametrize("count", [8, 64])
def test_a_beat_is_two_requests_of_two_keys(count, monkeypatch):
    monkeypatch.setattr(launch_nodes, "BEATS_PER_SECOND", 10_000)
    with job(count) as (nodes, store):
        for node in nodes:
            node.begin(0)
        wait_until(lambda: all(node.are_ready() for node in nodes))
        before, asked = [node.beats for node in nodes], store.stats()["requests"]
        wait_until(
            lambda: all(n.beats > b + 3 for n, b in zip(nodes, before, strict=True))
        )
        made = sum(n.beats for n in nodes) - sum(before)
        # Beats may be under way at both ends.
        assert store.stats()["requests"] - asked <= 2 * (made + 2 * count) + 2


def test_large_jobs_beat_less_often():
    assert beat_time(2, 5.0) == beat_time(1000, 5.0) == 0.2
    assert beat_time(10_000, 5.0) == 1.0
    assert beat_time(3000, 5.0) == 0.6
    assert beat_time(2, 1.0) == 0.1
    assert beat_time(100_000, 1.0) == 0.2


@pytest.mark.parametrize("lost", [[3], [3, 4, 5], [7]])
def test_a_lost_node_is_named_by_all(lost, monkeypatch):
    """Also if those before it are lost at the same time."""
    monkeypatch.setenv("DISTLITE_HEARTBEAT_TIMEOUT", "2")
    with job(8) as (nodes, _):
        for node in nodes:
            node.begin(0)
        wait_until(lambda: all(node.are_ready() for node in nodes))
        for victim in lost:
            nodes[victim].is_stopped = True
        others = [node for n, node in enumerate(nodes) if n not in lost]
        wait_until(lambda: all(node.take_failure(0) for node in others))
        texts = {node.take_failure(0) for node in others}
        assert len(texts) == 1
        assert texts.pop().startswith(f"node {lost[0]} (")
        assert all(node.is_over for node in others)


def test_the_store_stays_until_all_know_of_a_lost_node(monkeypatch):
    monkeypatch.setenv("DISTLITE_HEARTBEAT_TIMEOUT", "2")
    with job(8) as (nodes, store):
        for node in nodes:
            node.begin(0)
        wait_until(lambda: all(node.are_ready() for node in nodes))
        nodes[1].is_stopped = True  # which only the first node sees
        nodes[0]._thread.join(PATIENCE)
        assert store.add("launch/seen/0", 0) == 7


def test_the_first_failure_is_told_to_all():
    with job(8) as (nodes, _):
        for node in nodes:
            node.begin(0)
        wait_until(lambda: all(node.are_ready() for node in nodes))
        nodes[5].fail(0, "exit code 3")
        others = [node for n, node in enumerate(nodes) if n != 5]
        wait_until(lambda: all(node.take_failure(0) for node in others))
        assert {n.take_failure(0).partition("): ")[2] for n in others} == {
            "exit code 3"
        }
        for node in nodes:
            node.begin(1)
        wait_until(lambda: all(node.are_ready() for node in nodes))
        for node in nodes:
            node.end(1)
        wait_until(lambda: all(node.have_ended(1) for node in nodes))
        assert not any(node.take_failure(1) for node in nodes)


def test_those_that_do_not_come_are_named():
    more = {"join_timeout": 1.0}
    with job(70, absent=[1, 61, 62, 69], **more) as (nodes, _):
        wait_until(lambda: all(node.take_failure(0) for node in nodes[1:]))
        for node in nodes[1:]:
            text = node.take_failure(0)
            assert "node(s) 1, 61, 62, 69 of 70 have not joined" in text


def test_the_last_one_to_come_may_be_gone_before_it_has_told_the_others(monkeypatch):
    """Those that waited in vain tell each other."""
    counted = threading.Event()

    def sum_up(self):
        if self._options.node_rank == 3 and not counted.is_set():
            counted.set()
            raise SystemExit
        return told(self)

    told = Nodes._sum_up
    monkeypatch.setattr(Nodes, "_sum_up", sum_up)
    with job(4, absent=[3], join_timeout=1.5) as (nodes, store):
        launch = dist.PrefixStore("launch", store)
        wait_until(lambda: launch.check(["come/0"]) and launch.add("come/0", 0) == 7)
        with OneNode(options_of(3, 4, store.port)):
            wait_until(lambda: all(node.place for node in nodes))
    assert counted.is_set()
