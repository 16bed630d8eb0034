# SPDX-License-Identifier: BSD-3-Clause
"""``distlite doctor``, ``ps`` and ``trace`` of a job on two hosts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import netns
import pytest
import recorder_ranks
from workers import run_ranks

from distlite.tools import trace

pytestmark = pytest.mark.slow


@pytest.fixture
def hosts() -> Iterator[list[netns.Host]]:
    netns.skip_unless_possible()
    with netns.Network(2) as network:
        yield network.hosts


def test_the_doctor_examines_two_hosts(hosts, tmp_path):
    path = tmp_path / "found.json"
    command = [sys.executable, "-m", "distlite.tools.doctor", "--json", "-o", str(path)]
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": hosts[0].address,
        "MASTER_PORT": "29500",
    }
    doctors = [
        subprocess.Popen(
            host.command([*command, "--timeout", "60"]),
            env={**shared, "RANK": str(rank)},
        )
        for rank, host in enumerate(hosts)
    ]
    try:
        assert [doctor.wait(90) for doctor in doctors] == [0, 0]
    finally:
        for doctor in doctors:
            doctor.kill()
            doctor.wait()
    found = json.loads(path.read_text())
    assert found["errors"] == []
    assert [facts["host"] for facts in found["ranks"]] == ["host1", "host2"]
    chosen = [facts["addresses"]["chosen"] for facts in found["ranks"]]
    assert chosen == [host.address for host in hosts]
    assert {(link["from"], link["to"]) for link in found["links"]} == {(0, 1), (1, 0)}
    for link in found["links"]:
        assert not link["same_host"] and link["error"] is None
        assert link["connect_ms"] > 0 and link["mb_per_s"] > 0


@pytest.fixture
def seen(hosts, tmp_path):
    """What `ps` shows on the second host while rank 3 is late, and where it dumped."""
    first, second = hosts
    results = run_ranks(
        recorder_ranks.look_from_another_host,
        4,
        hosts=[first, first, second, second],
        init_method=f"tcp://{first.address}:29500",
        folder=str(tmp_path),
    )
    return results[3], tmp_path


def test_ranks_of_two_hosts_are_listed_and_traced(seen, capsys):
    (facts, table), folder = seen
    where = [rank["host"] for rank in facts["ranks"]]
    assert where == ["host1", "host1", "host2", "host2"]
    (waiting,) = facts["ranks"][2]["current"]
    assert waiting["text"] == "all_reduce(10 x float32, SUM) #2"
    assert 3 in [rank["rank"] for rank in waiting["waits_for"]]
    assert facts["ranks"][3]["last"]["text"].startswith(
        "all_reduce(10 x float32, SUM) #1"
    )
    assert "in look_from_another_host" in table
    path = folder / "trace.json"
    dumps = [str(folder / f"dump-{rank}") for rank in range(4)]
    assert trace.main([*dumps, "-o", str(path)]) == 0
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1, 2, 3}
    names = {
        event["args"]["name"] for event in events if event["name"] == "process_name"
    }
    for rank, host in enumerate(where):
        assert any(f"rank {rank} (pid " in n and f", {host})" in n for n in names)
