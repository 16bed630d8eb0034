# SPDX-License-Identifier: BSD-3-Clause
"""Ranks find each other, once and again, and say so when they do not."""

from datetime import timedelta

import pytest
from init_ranks import (
    init_after_failure,
    init_again,
    init_again_on_one_store,
    init_by,
    init_by_store,
    init_error,
)
from ports import reserve_port
from workers import SOON, run_ranks

import distlite


@pytest.fixture
def server():
    with distlite.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=60)) as store:
        yield store


def expected(world_size):
    total = world_size * (world_size - 1) / 2
    return [(rank, world_size, total) for rank in range(world_size)]


@pytest.mark.parametrize("kind", ["tcp", "tcp name", "file", "env", "default"])
def test_by_url(kind, tmp_path):
    port = reserve_port()
    url = {
        "tcp": f"tcp://127.0.0.1:{port}",
        "tcp name": f"tcp://localhost:{port}?use_libuv=0",
        "file": f"file://{tmp_path}/meeting",
        "env": "env://",
        "default": "",
    }[kind]
    results = run_ranks(
        init_by,
        3,
        url=url,
        has_rank=kind not in ("env", "default"),
        env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
    )
    assert results == expected(3)


def test_the_launcher_s_store(server):
    results = run_ranks(
        init_by,
        3,
        url="env://",
        has_rank=False,
        env={
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(server.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": "2",
        },
    )
    assert results == expected(3)
    assert any("attempt_2" in key for key in server.list_keys())


def test_barrier_at_init(tmp_path):
    results = run_ranks(
        init_by,
        3,
        url=f"file://{tmp_path}/meeting",
        has_rank=True,
        env={"TORCH_DIST_INIT_BARRIER": "1"},
    )
    assert results == expected(3)


def test_by_file_store(tmp_path):
    results = run_ranks(init_by_store, 3, kind="file", place=f"{tmp_path}/store")
    assert results == [3.0] * 3


def test_by_tcp_store(server):
    place = f"127.0.0.1:{server.port}"
    assert run_ranks(init_by_store, 3, kind="tcp", place=place) == [3.0] * 3
    assert server.get("job/alive/2") == b"yes"


@pytest.mark.parametrize("leads", [True, False])
def test_again_by_tcp(leads):
    url = f"tcp://127.0.0.1:{reserve_port()}"
    assert run_ranks(init_again, 3, url=url, times=6, leads=leads) == [[3.0] * 6] * 3


def test_again_by_file(tmp_path):
    url = f"file://{tmp_path}/meeting"
    assert run_ranks(init_again, 2, url=url, times=4, leads=True) == [[1.0] * 4] * 2


def test_again_on_a_store_that_lives_on(server):
    for _ in range(2):  # also in processes that know nothing of the earlier ones
        results = run_ranks(init_again_on_one_store, 3, port=server.port, times=5)
        assert results == [[3.0] * 5] * 3


def test_again_after_attempts_that_others_did_not_make(server):
    assert run_ranks(init_after_failure, 3, port=server.port) == [3.0] * 3


def errors(server, said, seconds):
    return run_ranks(
        init_error, len(said), port=server.port, said=said, seconds=seconds
    )


def test_somebody_missing(server):
    for kind, text, duration in errors(server, [(0, 3), (1, 3)], 0.5):
        assert kind == "DistStoreError"
        assert "2" in text
        assert 0.45 <= duration < SOON


def test_sizes_that_differ(server):
    results = errors(server, [(0, 2), (1, 3)], 0.5)
    assert all(kind for kind, _, _ in results)
    assert all(duration < SOON for _, _, duration in results)


def test_a_rank_taken_twice(server):
    results = errors(server, [(0, 3), (1, 3), (1, 3)], 0.5)
    assert all(kind for kind, _, _ in results)
    assert all(duration < SOON for _, _, duration in results)
