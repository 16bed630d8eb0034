# SPDX-License-Identifier: BSD-3-Clause
"""The harness netns.py: hosts reach each other, and nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import netns
import pytest
from workers import run_ranks


@pytest.fixture(autouse=True)
def _only_where_possible() -> None:
    netns.skip_unless_possible()


def meet(rank: int, world_size: int, address: str) -> tuple[str, str]:
    import socket

    if rank == 0:
        with socket.create_server((address, 29500)) as server:
            server.settimeout(60)
            peer, _ = server.accept()
    else:
        deadline = time.monotonic() + 60
        while True:
            try:
                peer = socket.create_connection((address, 29500), timeout=60)
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    with peer:
        return socket.gethostname(), str(peer.getsockname()[0])


@pytest.mark.parametrize("count", [2, 3])
def test_ranks_on_different_hosts_meet(count):
    with netns.Network(count) as network:
        hosts = [network.hosts[0], network.hosts[count - 1]]
        seen = run_ranks(meet, 2, hosts=hosts, address=hosts[0].address)
        assert seen == [(host.name, host.address) for host in hosts]


def test_nothing_outlives_a_killed_test():
    script = """
        import netns, time
        network = netns.Network(3)
        print(*[host.pid for host in [*network.hosts, network.switch]], flush=True)
        time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=Path(netns.__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process, process.stdout:
        keepers = [int(word) for word in process.stdout.readline().split()]
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    assert len(keepers) == 4
    deadline = time.monotonic() + 60
    while any(_is_running(pid) for pid in keepers):
        assert time.monotonic() < deadline, "a namespace is left"
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except (ProcessLookupError, FileNotFoundError):
        return False
