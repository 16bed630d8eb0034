# SPDX-License-Identifier: BSD-3-Clause
"""What ranks run whose job has a token: see test_hosts_token.py."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np

import distlite as dist

TOKEN = "a token for tests"
PATIENCE = timedelta(seconds=30)


def _set_out(rank: int, names: str, token: str | None) -> None:
    os.environ["DISTLITE_HOST_HINT"] = names[rank]
    os.environ.pop("DISTLITE_TOKEN", None)
    if token is not None:
        os.environ["DISTLITE_TOKEN"] = token


def _add() -> float:
    values = np.ones(70000)
    dist.all_reduce(values)
    return float(values[-1])


def _leave() -> None:
    dist.barrier()
    dist.destroy_process_group()


def join(
    rank: int,
    world_size: int,
    init_method: str,
    names: str,
    tokens: Sequence[str | None],
    limit: timedelta = PATIENCE,
) -> tuple[float | str, float]:
    """The sum of ones, or what is told instead, and after how long."""
    _set_out(rank, names, tokens[rank])
    begin = time.monotonic()
    try:
        dist.init_process_group(
            "gloo",
            init_method=init_method,
            rank=rank,
            world_size=world_size,
            timeout=limit,
        )
    except dist.DistError as error:
        return str(error), time.monotonic() - begin
    total = _add()
    _leave()
    return total, time.monotonic() - begin


def _listening_ports() -> list[int]:
    """The TCP ports at which this process listens."""
    links = [os.readlink(entry) for entry in _descriptors()]
    inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().split("\n")]
    return [
        int(row[1].rpartition(":")[2], 16)
        for row in rows[1:]
        if len(row) > 9 and row[3] == "0A" and row[9] in inodes
    ]


def _descriptors() -> list[Path]:
    return [entry for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]


def _hear(ports: Iterable[int], words: bytes) -> bytes:
    """All that a stranger is told who says this, by the first port that answers."""
    with contextlib.ExitStack() as stack:
        callers = [socket.create_connection(("127.0.0.1", p), 20) for p in ports]
        for caller in map(stack.enter_context, callers):
            caller.sendall(words)
        (stranger, *others), _, _ = select.select(callers, [], [], 20)
        assert not others
        told = b""
        with contextlib.suppress(ConnectionResetError):
            while more := stranger.recv(4096):
                told += more
    return told


def strangers(
    rank: int, world_size: int, names: str, path: str, is_passed: bool
) -> list[str]:
    """What strangers are told by this rank's listener, while the job goes on.

    `is_passed`: the token is that of a TCPStore below a PrefixStore, and nothing else
    says it.
    """
    _set_out(rank, names, None if is_passed else TOKEN)
    store: dist.Store
    if is_passed:
        master = dist.TCPStore("127.0.0.1", 0, is_master=True, token=TOKEN)
        file = dist.FileStore(path, world_size)
        port = int(file.compare_set("port", "", str(master.port)))
        below = dist.TCPStore("127.0.0.1", port, token=TOKEN)
        store = dist.PrefixStore("job", below)
    else:
        store = dist.FileStore(path, world_size)
    before = set(_listening_ports())
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=world_size, timeout=PATIENCE
    )
    ports = set(_listening_ports()) - before
    assert (
        len(ports) == 2
    )  # one for calls, and one that only shows that this rank lives
    assert _add() == world_size
    silent = [
        socket.create_connection(("127.0.0.1", port), 20)
        for port in ports
        for _ in range(200)
    ]
    told = [
        _hear(ports, words) for words in (b"2FLD" + bytes(100), b"\xc1", b"\0" * 33)
    ]
    assert _add() == world_size
    group = dist.new_group([0, world_size - 1])
    values = np.ones(3)
    if rank in (0, world_size - 1):
        dist.all_reduce(values, group=group)
        assert values[0] == 2
    for connection in silent:
        connection.close()
    _leave()
    return [re.sub(r"[^ -~]", "", text.decode("latin1")) for text in told]


def die(
    rank: int, world_size: int, init_method: str, names: str, victim: int
) -> tuple[str, float]:
    """What the others are told of a killed rank, and how soon."""
    _set_out(rank, names, TOKEN)
    dist.init_process_group(
        "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=PATIENCE,
    )
    assert _add() == world_size
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        if rank == (victim + 1) % world_size:
            dist.recv(np.zeros(1), victim)
        else:
            _add()
    except dist.DistError as error:
        return str(error), time.monotonic() - begin
    raise AssertionError("nothing was raised")


def join_with(
    rank: int,
    world_size: int,
    init_method: str,
    names: str,
    settings: Sequence[dict[str, str]],
) -> tuple[float | str, float]:
    """As join(), where each rank has variables of its own."""
    for name, value in settings[rank].items():
        os.environ[name] = value
    token = os.environ.get("DISTLITE_TOKEN")
    return join(rank, world_size, init_method, names, [token] * world_size)


def encrypted(
    rank: int,
    world_size: int,
    init_method: str,
    names: str,
) -> None:
    """Every kind of traffic over links with TLS: large, small, and both ways."""
    _set_out(rank, names, TOKEN)
    dist.init_process_group(
        "gloo",
        init_method=init_method,
        rank=rank,
        world_size=world_size,
        timeout=PATIENCE,
    )
    for count in (1, 1000, 3_000_000):
        values = np.arange(count, dtype=np.float64) + rank
        dist.all_reduce(values)
        expected = world_size * np.arange(count) + sum(range(world_size))
        assert (values == expected).all()
    peer = world_size - 1 - rank
    if peer != rank:
        works = []
        for count in (1, 10, 2_000_000, 5):
            into = np.zeros(count)
            works.append((dist.irecv(into, peer), into, float(peer)))
            works.append((dist.isend(np.full(count, float(rank)), peer), None, 0.0))
        for work, into, expected in works:
            assert work is not None
            work.wait()
            assert into is None or (into == expected).all()
    objects: list[object] = [None] * world_size
    dist.all_gather_object(objects, {"rank": rank, "more": "x" * 300_000})
    assert [entry["rank"] for entry in objects] == list(range(world_size))
    _leave()
