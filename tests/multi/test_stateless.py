# SPDX-License-Identifier: BSD-3-Clause
"""Groups with a store of their own, several in a process and at one port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import gt

import pytest
import stateless_ranks
from ports import reserve_port
from workers import SOON, rank_outcomes, run_ranks

import distlite as dist

LONG = stateless_ranks.LONG


@pytest.fixture
def address() -> str:
    """Of a server that does not run yet."""
    return f"127.0.0.1:{reserve_port()}"


@pytest.fixture
def served() -> Iterator[dist.TCPStore]:
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        yield store


def run_in_threads(address: str, names: list[str], size: int = 2) -> None:
    """Each group and rank is a thread."""

    def run(name: str, rank: int) -> None:
        with stateless_ranks.join(address, rank, size, name) as group:
            stateless_ranks.use(group)

    with ThreadPoolExecutor(len(names) * size) as threads:
        running = [
            threads.submit(run, name, rank) for rank in range(size) for name in names
        ]
        for each in running:
            each.result(LONG)


def place_of(store: dist.TCPStore) -> str:
    return f"127.0.0.1:{store.port}"


def test_groups_of_one_port_at_once(address, served):
    for each in (address, place_of(served)):
        run_in_threads(each, ["one", "two"], 3)
    assert not served.list_keys()
    assert not dist.is_initialized()


def test_groups_outlive_the_process_that_served(address):
    run_ranks(stateless_ranks.outlive_the_server, 3, address=address)


def counted() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def test_fifty_groups_leave_nothing(address, served):
    for _ in range(2):
        run_in_threads(address, ["0"])
        run_in_threads(place_of(served), ["0"])
    before = counted()
    for _ in range(25):
        run_in_threads(address, ["0"])
        run_in_threads(place_of(served), ["0"])
    deadline = time.monotonic() + SOON
    while any(map(gt, counted(), before)) and time.monotonic() < deadline:
        time.sleep(0.01)  # threads and descriptors end after the last message
    assert not any(map(gt, counted(), before))
    assert not served.list_keys()
    assert served.stats()["waiters"] == 0


def test_a_rank_that_dies_is_named(address):
    survivor, killed = rank_outcomes(stateless_ranks.lose_one, 2, address=address)
    assert killed.returncode == -9
    text, seconds = survivor.value
    assert "rank 1 (pid " in text
    assert "in group lost" in text
    assert seconds < SOON


def test_an_exception_is_told_to_the_others(address):
    other, own = run_ranks(stateless_ranks.raise_in_one, 2, address=address)
    assert own == "KeyError: 'lost'"
    assert "its with statement ended with KeyError: 'lost'" in other


def test_what_a_failed_group_leaves_goes(served):
    """At the next group of its name, and at any other once its time is over."""
    for name in ("again", "never"):
        with pytest.raises(dist.DistStoreError, match="waiting for rank 1, which has"):
            dist.stateless_group(place_of(served), 0, 2, name, timeout=0.2)
    found = [key for key in served.list_keys() if key.startswith("group/")]
    left = {key.split("/")[1] for key in found}
    assert left == {"again", "never"}
    run_in_threads(place_of(served), ["again"])
    deadline = time.monotonic() + LONG
    while served.list_keys():
        assert time.monotonic() < deadline
        run_in_threads(place_of(served), ["other"])


def test_a_group_waits_while_what_is_left_of_another_is_deleted(served):
    served.set("group_ends/group/again/", f"{-(1 << 50)} another process")
    with pytest.raises(dist.DistStoreError, match="group 'again' is being deleted"):
        dist.stateless_group(place_of(served), 0, 1, "again", timeout=0.2)
    served.set("group_ends/group/again/", "-1 a process that has ended")
    run_in_threads(place_of(served), ["again"])
    assert not served.list_keys()


def test_the_first_group_loads_no_large_module(served):
    """Their imports take longer than all else."""
    program = f"""
import distlite, sys
distlite.stateless_group("127.0.0.1:{served.port}", 0, 1).shutdown()
print(*{{"socket", "urllib.parse", "uuid"}} & set(sys.modules))
"""
    words = [sys.executable, "-c", program]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert shown == "\n"


def test_ranks_that_were_killed_while_they_waited_come_again(served):
    """Also where the one that they waited for comes first, and meets the dead."""
    address, name = place_of(served), "killed"
    outcomes = rank_outcomes(stateless_ranks.die_waiting, 2, address=address)
    assert [each.returncode for each in outcomes] == [-9, -9]

    def run(rank: int) -> None:
        with stateless_ranks.join(address, rank, 3, name) as group:
            stateless_ranks.use(group)

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(run, 2)]
        served.wait([f"group/{name}/ranks/{name}/default_pg/1/all_are_here"], LONG)
        running += [threads.submit(run, rank) for rank in range(2)]
        for each in running:
            each.result(SOON)
    assert not served.list_keys()


REFUSED = [
    (("127.0.0.1", 0, 1), ValueError, "port number missing, as in tcp://host:29500"),
    (("127.0.0.1:x", 0, 1), ValueError, "Port could not be cast to integer"),
    ((("127.0.0.1", 5), 0, 1), TypeError, "address must be a text such as 'host:2950"),
    (("127.0.0.1:5?rank=0", 0, 1), ValueError, "'rank=0' in the address leads nowhere"),
    (("127.0.0.1:5", 2, 2), ValueError, r"rank must be from 0 to 1 \(size=2\), not 2"),
    (("127.0.0.1:5", "0", 2), TypeError, "rank must be an integer, not '0'"),
    (("127.0.0.1:5", 0, 0), ValueError, "size must be positive, not 0"),
    (("127.0.0.1:0", 0, 1), ValueError, "a port that all ranks know is needed, not 0"),
    (("127.0.0.1:5", 0, 1, "a/b"), ValueError, "name must be a text without '/'"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), REFUSED)
def test_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        dist.stateless_group(*arguments, timeout=SOON)


def test_a_port_of_another_program_is_told():
    """Rank 0 can neither serve there nor reach a store."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(dist.DistNetworkError, match=f"127.0.0.1:{port}|timed out"):
            dist.stateless_group(f"127.0.0.1:{port}", 0, 2, timeout=0.5)
